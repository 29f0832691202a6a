"""ingest_files: ingest objects that are already anywhere in the ingest bucket into a table.

A sweep searches only the folders of tables for missed files. A repeated request therefore sends its
jobs again: the state knows which files are ingested.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.features.ingest.batch_files import ingest_message
from dormouse.features.ingest.batching import batches, largest_batches
from dormouse.features.ingest.known_sources import look_up_sources
from dormouse.features.requests.outcomes import TABLE_RESET, JobCheck, JobOutcome
from dormouse.features.requests.resolve_table import resolve_live_table
from dormouse.features.requests.work import RequestResult, StoredWork
from dormouse.jobs.tracking import ALREADY_INGESTED, is_isolated
from dormouse.messages.replies import Counts
from dormouse.messages.requests import IngestFiles
from dormouse.messages.stages import IngestJob, OutboundMessage
from dormouse.model.sources import NO_FILES, Source, job_id_of
from dormouse.ports.services import JobRecord, Services
from dormouse.tables.table import Table

MAX_FILES = 100_000
"""The most files of a request, which holds them all in memory: so many take some 60 MB."""
_REFUSED = Counts(refused=1)
MAX_NAMED_KEYS = 10
"""How many missing keys an error names; one mistake often causes many."""


class IngestWork(StoredWork, frozen=True, tag="ingest"):
    """The ingest jobs of a request as first sent; each may be split into jobs of single files."""

    jobs_sent: tuple[IngestJob, ...]

    @property
    def job_ids(self) -> list[str]:
        """Return the ids of the jobs as first sent."""
        return [job.job_id for job in self.jobs_sent]

    def unfinished_messages(self, services: Services, table: Table) -> list[OutboundMessage]:
        """Return all jobs again; those that are done find their files ingested."""
        return [
            ingest_message(table, job.generation, job.sources, job.spark or None)
            for job in self.jobs_sent
        ]

    def outcomes(self, check: JobCheck) -> Iterator[JobOutcome]:
        """Yield the progress of each job, and of each of its files that is not ingested."""
        sources = [source for job in self.jobs_sent for source in job.sources]
        known = look_up_sources(check.services, check.table, sources)
        left = {job.job_id: known.fresh(job.sources) for job in self.jobs_sent}
        for job in sorted(self.jobs_sent, key=lambda job: not left[job.job_id]):
            yield from _outcomes(check, job, left[job.job_id], known.state.generation)


def _outcomes(
    check: JobCheck, job: IngestJob, left: list[Source], generation: int
) -> Iterator[JobOutcome]:
    """Yield the progress of a job, and of each of its files that is not ingested."""
    known = check.record_since_request(job.job_id)
    if left and job.generation < generation:
        yield from (
            JobOutcome("file", s.key, "refused", TABLE_RESET, counts=_REFUSED) for s in left
        )
    elif left and (known is None or known.state != "finished"):
        yield check.unfinished("ingest", job.job_id, known)
        return
    else:
        found = [_file(check, job, source) for source in left]
        yield from found
        if any(end.state == "unfinished" for end in found):
            return
    if not left and check.may_record(known):
        yield check.unrecorded("ingest", job.job_id, known)
        return
    yield JobOutcome("ingest", job.job_id, counts=Counts(finished=1, rows=_rows(check, job, known)))


def _file(check: JobCheck, job: IngestJob, source: Source) -> JobOutcome:
    """Return the outcome or progress of a file that its job did not ingest."""
    known = check.record_since_request(source.id)
    if known is not None and known.state == "refused":
        return JobOutcome("file", source.key, "refused", known.reason, counts=_REFUSED)
    alone = job_id_of((source,), job.generation)
    return check.unfinished("ingest", alone, check.record_since_request(alone))


def _rows(check: JobCheck, job: IngestJob, known: JobRecord | None) -> int:
    """Return how many rows a job wrote; if it was split, how many the jobs of its files wrote."""
    if known is None or known.state != "finished" or known.reason == ALREADY_INGESTED:
        return 0
    if not is_isolated(known):
        return known.rows
    alone = (check.record_since_request(job_id_of((s,), job.generation)) for s in job.sources)
    return sum(each.rows for each in alone if each is not None and each.state == "finished")


def ingest_files(services: Services, request: IngestFiles) -> RequestResult:
    """Begin to ingest the files under all keys, except those that are ingested already.

    Raises:
        NotFoundError: nothing lies under one of the keys, or the table does not exist or is being
            deleted. Then nothing is ingested.
        InvalidRequestError: no key is given, or there are too many files.
    """
    table = resolve_live_table(services, request)
    found = _found(services, request.keys)
    repeat_request = request.request_id if request.again else ""
    sources = [replace(source, repeat_request=repeat_request) for source in found.values()]
    fresh = look_up_sources(services, table, sources).fresh(sources)
    asked = request.spark or None
    jobs = largest_batches(fresh) if asked else batches(fresh, table.properties)
    messages = [ingest_message(table, table.generation, sources, asked) for sources in jobs]
    counts = Counts(files=len(sources), known=len(sources) - len(fresh))
    if not messages:
        return RequestResult(counts=counts)
    sent = (message.message for message in messages)
    work = IngestWork(tuple(job for job in sent if isinstance(job, IngestJob)))
    return RequestResult(messages, work, counts)


def _found(services: Services, keys: tuple[str, ...]) -> dict[str, Source]:
    """Return the objects under keys, by source id."""
    if not keys or not all(key.strip("/") for key in keys):
        raise InvalidRequestError(
            "the request names no files", hint="name objects or folders of the ingest bucket"
        )
    found: dict[str, Source] = {}
    missing = []
    for key in dict.fromkeys(keys):
        before = len(found)
        anything = False
        for source in _under(services, key):
            anything = True
            found[source.id] = source
            if len(found) > MAX_FILES:
                raise InvalidRequestError(
                    f"there are more than {MAX_FILES:,} files under the keys, {before:,} of them "
                    f"before {key!r}",
                    hint="ask for smaller folders, each in a request of its own",
                )
        if not anything:
            missing.append(key)
    if missing:
        more = f" and {len(missing) - MAX_NAMED_KEYS} more" if len(missing) > MAX_NAMED_KEYS else ""
        raise NotFoundError(
            f"the ingest bucket has no {', '.join(map(repr, missing[:MAX_NAMED_KEYS]))}{more}",
            hint=f"give keys of objects, or of folders, from the top of the bucket; {NO_FILES}",
        )
    return found


def _under(services: Services, key: str) -> Iterator[Source]:
    """Yield the object of a key, if it exists, and those in the folder of that name."""
    first = next(services.sources.list(key, since_ms=0), None)
    if first is not None and first.key == key:
        yield first
    yield from services.sources.list(key.rstrip("/") + "/", since_ms=0)
