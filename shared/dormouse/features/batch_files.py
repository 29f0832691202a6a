"""batch_files: turn objects dropped into the ingest bucket into ingest jobs, table by table.

A notification is deleted from its queue only after the job that covers it was sent. A crash
therefore repeats jobs and never loses one, and a job whose sources are ingested already does
nothing. Files that wait for more files are listed in a delayed message, which is sent again until
they are enough for a job, or old.

A notification may arrive late, or twice. A file that was dropped before its table was reset, or
before the table got its name, was not meant for the table as it is now. It is refused, and stays in
the bucket. To ingest it all the same, a user drops it again or requests it by its key.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import islice
from math import inf
from operator import attrgetter

from msgspec import UNSET

from dormouse.errors import CorruptDataError, InvalidRequestError, NotFoundError, RefusedSourceError
from dormouse.features import requests
from dormouse.jobs import ALREADY_INGESTED, grouped, is_isolated, record
from dormouse.messages.requests import Counts, IngestFiles
from dormouse.messages.stages import FilesWaiting, IngestJob, OutboundMessage
from dormouse.ports import NO_TABLE, Services
from dormouse.schema.row_tags import row_tags
from dormouse.state.jobs import JobRecord, Refused, TrackedJob, ingest_queue
from dormouse.state.sources import (
    NO_FILES,
    Source,
    ids_at_origins,
    is_file,
    is_from_before,
    job_id_of,
    table_name_of,
)
from dormouse.state.state import DAY_MS, TableState
from dormouse.state.versions import iso_time
from dormouse.tables.properties import Properties, SparkOptions
from dormouse.tables.table import Table

# Batch dropped files into ingest jobs, and the files of a Spark job into tasks.

MAX_MESSAGE_BYTES = 900_000
"""A job names its files in one message, and SQS accepts messages of up to a mebibyte."""
BATCH_TICK_SECONDS = 60
"""The messages of waiting files are all delayed until the next whole minute, so that those of a
table arrive together and can join."""


def batches(sources: Sequence[Source], properties: Properties) -> list[tuple[Source, ...]]:
    """Return sources cut, in order, into jobs as large as the properties allow.

    A file that is larger is a job of its own. A job's files are unpacked to a function's scratch
    folder of 10 GiB before they are sorted.
    """
    of_files = attrgetter("size_bytes"), properties.ingest_job_max_bytes
    of_message = _message_bytes, MAX_MESSAGE_BYTES
    return [*grouped(sources, properties.ingest_job_max_files, of_files, of_message)]


def due_batches(
    sources: Sequence[Source], properties: Properties
) -> tuple[list[tuple[Source, ...]], tuple[Source, ...]]:
    """Return the jobs to send now, and the sources that wait because they are too few or too small.

    With at least 3 files and 100 bytes a job, and at most 5 files: of 7 files of 1 byte, the first
    5 are a full job and go at once, whatever their size; the last 2 wait. 3 files of 50 bytes go;
    so do not 2 of 50 bytes, which are too few, or 3 of 1 byte, which are too small.
    """
    jobs = batches(sources, properties)
    if not jobs:
        return [], ()
    *before, last = jobs
    is_full = len(last) >= properties.ingest_job_max_files
    # an empty file counts as a byte: it is refused at once, not when it has waited for others
    size_bytes = sum(max(1, source.size_bytes) for source in last)
    is_large = size_bytes >= min(properties.ingest_batch_min_bytes, properties.ingest_job_max_bytes)
    if is_full or (is_large and len(last) >= properties.ingest_batch_min_files):
        return jobs, ()
    return before, last


def seconds_to_wait(since_ms: int, now_ms: int, max_age_seconds: int) -> int:
    """Return how long files first seen at `since_ms` wait from now on; 0 if they are due.

    They wait until the next tick, or until they reach the maximal age if that is earlier.
    """
    wait_seconds = max_age_seconds - (now_ms - since_ms) // 1000
    return max(0, min(wait_seconds, BATCH_TICK_SECONDS - now_ms // 1000 % BATCH_TICK_SECONDS))


def _message_bytes(source: Source) -> int:
    return 300 + 2 * len(source.key.encode()) + 2 * len(source.tags.encode())


def balanced_batches(
    sources: Sequence[Source], min_batches: int, max_bytes: int
) -> list[tuple[Source, ...]]:
    """Return sources in batches of about equal size: at least `min_batches`, if there are so many
    sources, and of about `max_bytes` at most, unless a single file is larger.

    Greedy: the largest file first, each into the batch that is smallest so far. Files of 7, 5, 4,
    3 and 1 bytes in two batches: 7 | 5, then 4 joins the 5, 3 the 7, and 1 the 9 → 10 | 10.
    """
    size_bytes = sum(source.size_bytes for source in sources)
    count = max(1, min_batches, -(-size_bytes // max_bytes))
    batches: list[list[Source]] = [[] for _ in range(min(count, len(sources)))]
    smallest = [(0, number) for number in range(len(batches))]
    for source in sorted(sources, key=lambda s: (-s.size_bytes, s.id)):
        filled_bytes, number = heappop(smallest)
        batches[number].append(source)
        heappush(smallest, (filled_bytes + source.size_bytes, number))
    return [tuple(batch) for batch in batches]


CLOCK_SKEW_MS = 500
"""The clock skew to expect between S3 and the process that empties a table. A file dropped so
shortly before that is still ingested: a script that empties a table and at once drops its files
again must not have them refused."""


@dataclass(slots=True)
class _PendingFiles:
    """Files that wait for a job of one generation of a table, by source id.

    `since_ms` is when the first of them was seen.
    """

    table: Table
    generation: int
    since_ms: int
    sources: dict[str, Source] = field(default_factory=dict)

    def add(self, sources: Sequence[Source], since_ms: int) -> None:
        self.since_ms = min(self.since_ms, since_ms)
        self.sources.update((source.id, source) for source in sources if is_file(source.key))


def ingest_message(
    table: Table, generation: int, sources: tuple[Source, ...], spark: SparkOptions | None = None
) -> OutboundMessage:
    """Return the job that ingests these sources together.

    Its queue is that of Spark if the job is heavy or the request `spark` for Spark, else that of
    the function.
    """
    size_bytes = sum(source.size_bytes for source in sources)
    queue = ingest_queue(size_bytes, table.properties, spark)
    job_id = job_id_of(sources, generation)
    job = IngestJob(table.id, generation, job_id, sources, spark or UNSET)
    return OutboundMessage(queue, job)


def batch_files(
    services: Services,
    sources: Sequence[Source],
    waiting: Sequence[FilesWaiting] = (),
    *,
    at_once: bool = False,
) -> list[OutboundMessage]:
    """Return the ingest jobs of `sources` and of files that were `waiting`.

    Files that are too few for a job are returned as a message that waits on; with `at_once`, no
    file waits. A file that belongs to no table is recorded as refused. Objects that are no files
    are ignored.
    """
    now_ms = services.clock.now_ms()
    by_key: dict[tuple[str, int], _PendingFiles] = {}
    files = [source for source in sources if is_file(source.key)]
    for table, source in _with_tables(services, files):
        key = table.id, table.generation
        by_key.setdefault(key, _PendingFiles(table, table.generation, now_ms)).add([source], now_ms)
    for message in waiting:
        newest = services.table(message.table_id)
        if newest is not None:  # else the files belong to no table any more
            key = newest.id, message.generation
            pending = by_key.setdefault(key, _PendingFiles(newest, message.generation, now_ms))
            pending.add(message.sources, message.since_ms)
    return [message for each in by_key.values() for message in _messages(each, now_ms, at_once)]


def batch_waiting_files(services: Services, waiting: FilesWaiting) -> list[OutboundMessage]:
    """Return the ingest jobs of files that waited for more, or the message that waits on."""
    return batch_files(services, [], [waiting])


def _messages(pending: _PendingFiles, now_ms: int, at_once: bool) -> Iterator[OutboundMessage]:
    table, sources = pending.table, tuple(pending.sources.values())
    max_age_seconds = table.properties.ingest_batch_max_age_seconds
    seconds = seconds_to_wait(pending.since_ms, now_ms, max_age_seconds)
    if seconds and not at_once:
        jobs, rest = due_batches(sources, table.properties)
    else:
        jobs, rest = batches(sources, table.properties), ()
    for job in jobs:
        yield ingest_message(table, pending.generation, job)
    if rest:
        message = FilesWaiting(table.id, pending.generation, pending.since_ms, rest)
        yield OutboundMessage("files", message, seconds)


def _with_tables(services: Services, sources: Sequence[Source]) -> Iterator[tuple[Table, Source]]:
    tables: dict[str, Table | None] = {}
    for source in sources:
        table = None
        try:
            table = _table_of(services, source, tables)
            _check_time(table, source)
        except RefusedSourceError as error:
            refuse(services, NO_TABLE if table is None else table.id, source, error)
        else:
            yield table, source


def refuse(services: Services, table_id: str, source: Source, error: RefusedSourceError) -> None:
    """Record a file as refused by a table, or by none, with the reason and what to do."""
    refusal = Refused(error.explanation, subject=source.key)
    record(services, TrackedJob(table_id, source.id, "ingest"), refusal)


def _table_of(services: Services, source: Source, tables: dict[str, Table | None]) -> Table:
    name = table_name_of(source.key)
    if name not in tables:
        tables[name] = services.tables.named(name)
    table = tables[name]
    if table is None or table.deleting:
        raise RefusedSourceError(
            f"there is no table {name!r}", hint="create the table, then drop the file again"
        )
    return table


def _check_time(table: Table, source: Source) -> None:
    """Check that a file was dropped after its table was reset, renamed or created.

    Its time says so but for clock skew; the name of one with an idempotency key says it exactly.
    Raises RefusedSourceError: it was dropped before.
    """
    if is_from_before(source, table):
        raise RefusedSourceError(
            f"it was dropped before table {table.name!r} was reset, renamed or created",
            hint="send the rows again, with the same idempotency key",
        )
    if not 0 < source.dropped_ms < table.files_since_ms - CLOCK_SKEW_MS:
        return
    dropped, since = map(iso_time, (source.dropped_ms, table.files_since_ms))
    raise RefusedSourceError(
        f"it was dropped at {dropped}, before table {table.name!r} was reset, renamed or created "
        f"at {since}",
        hint="if it is meant for the table as it is now, drop it again, or ask to ingest its key",
    )


# Look up which sources were ingested, however long ago, and which were refused.

LOOKUP_ATTEMPTS = 5
"""How often a look-up is tried because segments are merged and deleted at the same time."""


@dataclass(frozen=True, slots=True)
class SourceLookup:
    """The sources that were ingested by `state`, of those that were looked up."""

    state: TableState
    ids: frozenset[str]

    def fresh(self, sources: Sequence[Source]) -> list[Source]:
        """Return those of `sources` that were not ingested; of several with one idempotency key,
        the first.
        """
        by_id: dict[str, Source] = {}
        for source in sources:
            if source.id not in self.ids:
                by_id.setdefault(source.remembered_id, source)
        return list(by_id.values())


def look_up_sources(services: Services, table: Table, sources: Iterable[Source]) -> SourceLookup:
    """Return which sources are ingested by now, however long ago, here or where the table was
    copied from.

    All code that asks this question goes through here.
    Raises CorruptDataError: the segments of sealed sources are damaged or lost.
    """
    owners = remembered_ids(table, sources)
    lookup = look_up_source_ids(services, table, list(owners))
    return SourceLookup(lookup.state, ids_of(owners, lookup.ids))


def remembered_ids(table: Table, sources: Iterable[Source]) -> dict[str, set[str]]:
    """Return every id under which the table may remember sources, with the ids of these.

    Sources with one idempotency key are remembered under one id.
    """
    owners: dict[str, set[str]] = {}
    for source in sources:
        for each in (source.remembered_id, *ids_at_origins(source, table)):
            owners.setdefault(each, set()).add(source.id)
    return owners


def ids_of(ids: dict[str, set[str]], files: Iterable[str]) -> frozenset[str]:
    """Return the ids of the sources that were found under ids from `remembered_ids`."""
    return frozenset(source for each in files for source in ids[each])


def look_up_source_ids(services: Services, table: Table, ids: Sequence[str]) -> SourceLookup:
    """Return which of the sources with these ids are ingested by now.
    Raises CorruptDataError: as `look_up_sources`.
    """
    store = services.store(table)
    for _ in range(LOOKUP_ATTEMPTS):
        state = store.current()
        try:
            return SourceLookup(state, _ingested(services, table, state, ids))
        except NotFoundError as error:
            reason = error
            if store.current().all_source_segments == state.all_source_segments:
                break
    from dormouse.log.sources import HINT

    raise CorruptDataError(
        f"sources that table {table.name!r} has ingested are lost: {reason}", hint=HINT
    ) from reason


def _ingested(
    services: Services, table: Table, state: TableState, ids: Sequence[str]
) -> frozenset[str]:
    """Return which sources were ingested; segments are read only if there are any."""
    if not state.all_source_segments:
        return frozenset(source for source in ids if source in state.sources)
    from dormouse.log.sources import ingested_of  # loads Arrow; few tables need it

    return ingested_of(services.storage, table.id, state, ids)


def refusal_of(
    services: Services, source: Source, *table_ids: str, in_doubt: bool = False
) -> JobRecord | None:
    """Return the record that a source was refused by one of these tables, if it is still valid.

    It is not valid if the object was put in a later second than the record: then it was dropped
    again, and the schema or the table's properties may have changed in between. S3 dates objects by
    the second, so an object put in the second of its refusal may have been dropped before or after
    it. By default such a file is refused. With `in_doubt` it is treated as dropped again, so that
    the audit tries it once more.
    """
    for table_id in table_ids:
        record = services.tracker.get(table_id, source.id)
        if record is not None and record.kind == "ingest" and record.state == "refused":
            since_ms = record.updated_ms
            if not in_doubt:  # from the next second on
                since_ms += 1000 - since_ms % 1000
            later = services.sources.list(source.key, since_ms=since_ms)
            if all((each.key, each.etag) != (source.key, source.etag) for each in later):
                return record
    return None


MISSED_FILES_MS = 30 * DAY_MS
"""Audits consider only files dropped so recently. An audit costs a look-up for every such file, and
the first one after a lost message finds the file."""
LOOKUP_BATCH = 1000
"""An audit looks up the files of a table in batches of so many."""


def missed_files(services: Services, table: Table, jobs: Iterable[object]) -> list[OutboundMessage]:
    """Return ingest jobs for dropped files that were neither ingested nor refused.

    Files of `jobs`, which Spark is doing, are left out.
    """
    with_spark = {s.id for job in jobs if isinstance(job, IngestJob) for s in job.sources}
    since_ms = max(services.clock.now_ms() - MISSED_FILES_MS, table.files_since_ms)
    sources = services.sources.list(f"{table.name}/", since_ms=since_ms)
    others = (source for source in sources if source.id not in with_spark)
    misses: list[Source] = []
    while some := list(islice(others, LOOKUP_BATCH)):
        fresh = look_up_sources(services, table, some).fresh(some)
        misses += [s for s in fresh if refusal_of(services, s, table.id, in_doubt=True) is None]
    return batch_files(services, misses, at_once=True)


# ingest_files: ingest objects that are already anywhere in the ingest bucket into a table.
#
# A sweep searches only the folders of tables for missed files. A repeated request therefore sends
# its jobs again: the state knows which files are ingested.

MAX_FILES = 100_000
"""The most files of a request, which holds them all in memory: so many take some 60 MB."""
_REFUSED = Counts(refused=1)
MAX_NAMED_KEYS = 10
"""How many missing keys an error names; one mistake often causes many."""


class IngestWork(requests.StoredWork, frozen=True, tag="ingest"):
    """The ingest jobs of a request as first sent; each may be split into jobs of single files."""

    jobs_sent: tuple[IngestJob, ...]

    def unfinished_messages(self, services: Services, table: Table) -> list[OutboundMessage]:
        """Return all jobs again; those that are done find their files ingested."""
        return [
            ingest_message(table, job.generation, job.sources, job.spark or None)
            for job in self.jobs_sent
        ]

    def outcomes(self, check: requests.JobCheck) -> Iterator[requests.JobOutcome]:
        """Yield the progress of each job, and of each of its files that is not ingested."""
        sources = [source for job in self.jobs_sent for source in job.sources]
        lookup = look_up_sources(check.services, check.table, sources)
        fresh = {job.job_id: lookup.fresh(job.sources) for job in self.jobs_sent}
        for job in sorted(self.jobs_sent, key=lambda job: not fresh[job.job_id]):
            yield from _outcomes(check, job, fresh[job.job_id], lookup.state.generation)


def _outcomes(
    check: requests.JobCheck, job: IngestJob, fresh: list[Source], generation: int
) -> Iterator[requests.JobOutcome]:
    """Yield the progress of a job, and of each of its files that is not ingested."""
    record = check.record_since_request(job.job_id)
    if fresh and job.generation < generation:
        yield from (
            requests.JobOutcome("file", s.key, "refused", requests.TABLE_RESET, counts=_REFUSED)
            for s in fresh
        )
    elif fresh and (record is None or record.state != "finished"):
        yield check.unfinished("ingest", job.job_id, record)
        return
    else:
        ends = [_file(check, job, source) for source in fresh]
        yield from ends
        if any(end.state == "unfinished" for end in ends):
            return
    if not fresh and check.may_record(record):
        yield check.unrecorded("ingest", job.job_id, record)
        return
    yield requests.JobOutcome(
        "ingest", job.job_id, counts=Counts(finished=1, rows=_rows(check, job, record))
    )


def _file(check: requests.JobCheck, job: IngestJob, source: Source) -> requests.JobOutcome:
    """Return the outcome or progress of a file that its job did not ingest."""
    record = check.record_since_request(source.id)
    if record is not None and record.state == "refused":
        return requests.JobOutcome("file", source.key, "refused", record.reason, counts=_REFUSED)
    alone = job_id_of((source,), job.generation)
    return check.unfinished("ingest", alone, check.record_since_request(alone))


def _rows(check: requests.JobCheck, job: IngestJob, record: JobRecord | None) -> int:
    """Return how many rows a job wrote; if it was split, how many the jobs of its files wrote."""
    if record is None or record.state != "finished" or record.reason == ALREADY_INGESTED:
        return 0
    if not is_isolated(record):
        return record.rows
    alone = (check.record_since_request(job_id_of((s,), job.generation)) for s in job.sources)
    return sum(each.rows for each in alone if each is not None and each.state == "finished")


def ingest_files(services: Services, table: Table, request: IngestFiles) -> requests.RequestResult:
    """Begin to ingest the files under all keys, except those that are ingested already.

    Raises:
        NotFoundError: nothing lies under one of the keys, or the table does not exist or is being
            deleted. Then nothing is ingested.
        InvalidRequestError: no key is given, or there are too many files.
    """
    files = _found(services, request.keys)
    repeat_request = request.request_id if request.again else ""
    tags = row_tags(request.tags)
    sources = [replace(s, repeat_request=repeat_request, tags=tags) for s in files.values()]
    fresh = look_up_sources(services, table, sources).fresh(sources)
    spark = request.spark or None
    if spark:  # only the size of a message limits a job
        jobs = [*grouped(fresh, inf, (_message_bytes, MAX_MESSAGE_BYTES))]
    else:
        jobs = batches(fresh, table.properties)
    messages = [ingest_message(table, table.generation, sources, spark) for sources in jobs]
    counts = Counts(files=len(sources), known=len(sources) - len(fresh))
    if not messages:
        return requests.RequestResult(counts=counts)
    sent = tuple(m.message for m in messages if isinstance(m.message, IngestJob))
    work = IngestWork(tuple(job.job_id for job in sent), sent)
    return requests.RequestResult(messages, work, counts)


def _found(services: Services, keys: tuple[str, ...]) -> dict[str, Source]:
    """Return the objects under keys, by source id."""
    if not keys or not all(key.strip("/") for key in keys):
        raise InvalidRequestError(
            "the request names no files", hint="name objects or folders of the ingest bucket"
        )
    sources: dict[str, Source] = {}
    misses = []
    for key in dict.fromkeys(keys):
        before = len(sources)
        anything = False
        for source in _under(services, key):
            anything = True
            sources[source.id] = source
            if len(sources) > MAX_FILES:
                raise InvalidRequestError(
                    f"there are more than {MAX_FILES:,} files under the keys, {before:,} of them "
                    f"before {key!r}",
                    hint="ask for smaller folders, each in a request of its own",
                )
        if not anything:
            misses.append(key)
    if misses:
        more = f" and {len(misses) - MAX_NAMED_KEYS} more" if len(misses) > MAX_NAMED_KEYS else ""
        raise NotFoundError(
            f"the ingest bucket has no {', '.join(map(repr, misses[:MAX_NAMED_KEYS]))}{more}",
            hint=f"give keys of objects, or of folders, from the top of the bucket; {NO_FILES}",
        )
    return sources


def _under(services: Services, key: str) -> Iterator[Source]:
    """Yield the object of a key, if it exists, and those in the folder of that name."""
    first = next(services.sources.list(key, since_ms=0), None)
    if first is not None and first.key == key:
        yield first
    yield from services.sources.list(key.rstrip("/") + "/", since_ms=0)
