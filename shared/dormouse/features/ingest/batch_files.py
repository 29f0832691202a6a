"""batch_files: turn objects dropped into the ingest bucket into ingest jobs, table by table.

A notification is deleted from its queue only after the job that covers it was sent. A crash
therefore repeats jobs and never loses one, and a job whose sources are ingested already does
nothing. Files that wait for more files are listed in a delayed message, which is sent again until
they are enough for a job, or old.

A notification may arrive late, or twice. A file that was dropped before its table was reset, or
before the table got its name, was not meant for the table as it is now. It is refused, and stays in
the bucket. To ingest it all the same, a user drops it again or requests it by its key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from msgspec import UNSET

from dormouse.errors import RefusedSourceError
from dormouse.features.ingest.batching import batches, due_batches, seconds_to_wait
from dormouse.jobs.tracking import record
from dormouse.messages.stages import FilesWaiting, IngestJob, OutboundMessage
from dormouse.model.jobs.job_events import Refused, TrackedJob
from dormouse.model.jobs.spark_threshold import ingest_queue
from dormouse.model.sources import (
    Source,
    is_file,
    is_from_before,
    job_id_of,
    table_name_of,
)
from dormouse.ports.services import NO_TABLE, Services
from dormouse.tables.spark_options import SparkOptions
from dormouse.tables.table import Table

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

    def jobs(self, jobs: Sequence[tuple[Source, ...]]) -> Iterator[OutboundMessage]:
        for job in jobs:
            yield ingest_message(self.table, self.generation, job)


def ingest_message(
    table: Table, generation: int, sources: tuple[Source, ...], asked: SparkOptions | None = None
) -> OutboundMessage:
    """Return the job that ingests these sources together.

    Its queue is that of Spark if the job is heavy or the request `asked` for Spark, else that of
    the function.
    """
    size_bytes = sum(source.size_bytes for source in sources)
    queue = ingest_queue(size_bytes, table.properties, asked)
    job_id = job_id_of(sources, generation)
    job = IngestJob(table.id, generation, job_id, sources, asked or UNSET)
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
    found: dict[tuple[str, int], _PendingFiles] = {}
    files = [source for source in sources if is_file(source.key)]
    for table, source in _with_tables(services, files):
        key = table.id, table.generation
        found.setdefault(key, _PendingFiles(table, table.generation, now_ms)).add([source], now_ms)
    for message in waiting:
        known = services.table(message.table_id)
        if known is not None:  # else the files belong to no table any more
            key = known.id, message.generation
            pending = found.setdefault(key, _PendingFiles(known, message.generation, now_ms))
            pending.add(message.sources, message.since_ms)
    return [message for each in found.values() for message in _messages(each, now_ms, at_once)]


def batch_waiting_files(services: Services, waiting: FilesWaiting) -> list[OutboundMessage]:
    """Return the ingest jobs of files that waited for more, or the message that waits on."""
    return batch_files(services, [], [waiting])


def _messages(pending: _PendingFiles, now_ms: int, at_once: bool) -> Iterator[OutboundMessage]:
    table, sources = pending.table, tuple(pending.sources.values())
    max_age_seconds = table.properties.ingest_batch_max_age_seconds
    seconds = seconds_to_wait(pending.since_ms, now_ms, max_age_seconds)
    if at_once or not seconds:
        yield from pending.jobs(batches(sources, table.properties))
        return
    jobs, left = due_batches(sources, table.properties)
    yield from pending.jobs(jobs)
    if left:
        since_ms = pending.since_ms
        message = FilesWaiting(table.id, pending.generation, since_ms, left)
        yield OutboundMessage("files", message, seconds)


def _with_tables(services: Services, sources: Sequence[Source]) -> Iterator[tuple[Table, Source]]:
    tables: dict[str, Table | None] = {}
    for source in sources:
        table = None
        try:
            table = _table_of(services, source, tables)
            _check_time(table, source)
        except RefusedSourceError as error:
            record(
                services,
                TrackedJob(NO_TABLE if table is None else table.id, source.id, "ingest"),
                Refused(error.explanation, subject=source.key),
            )
        else:
            yield table, source


def _table_of(services: Services, source: Source, seen: dict[str, Table | None]) -> Table:
    name = table_name_of(source.key)
    if name not in seen:
        seen[name] = services.tables.named(name)
    table = seen[name]
    if table is None or table.deleting:
        raise RefusedSourceError(
            f"there is no table {name!r}", hint="create the table, then drop the file again"
        )
    return table


def _check_time(table: Table, source: Source) -> None:
    """Check that a file was dropped after its table was reset, renamed or created.

    Its time says so but for clock skew; the name of one with an idempotency key says it exactly.

    Raises:
        RefusedSourceError: it was dropped before.
    """
    if is_from_before(source, table):
        raise RefusedSourceError(
            f"it was dropped before table {table.name!r} was reset, renamed or created",
            hint="send the rows again, with the same idempotency key",
        )
    if not 0 < source.dropped_ms < table.files_since_ms - CLOCK_SKEW_MS:
        return
    dropped, since = map(_iso_time, (source.dropped_ms, table.files_since_ms))
    raise RefusedSourceError(
        f"it was dropped at {dropped}, before table {table.name!r} was reset, renamed or created "
        f"at {since}",
        hint="if it is meant for the table as it is now, drop it again, or ask to ingest its key",
    )


def _iso_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
