"""batch_files: objects dropped into the ingest bucket → ingest jobs, table by table.

A notification is deleted from its queue only when the job that covers it was sent, so a crash
repeats jobs and never loses one; a job whose sources are ingested already does nothing. Files that
wait for more do so in a message, which goes round until they are enough, or old.

A notification may come late, or twice. A file dropped before its table was emptied, or got its
name, is not for what the table is now: it is refused, and stays in the bucket. Who means to have it
drops it again, or asks for it by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from msgspec import UNSET

from dormouse.errors import RefusedSourceError
from dormouse.features.ingest.batching import batches, gathered, seconds_to_wait
from dormouse.jobs.tracking import record
from dormouse.messages import FilesWaiting, IngestJob, OutboundMessage
from dormouse.model.sources import Source, job_id_of, table_name_of
from dormouse.model.spark_threshold import ingest_queue
from dormouse.ports import NO_TABLE, Services
from dormouse.tables.spark_options import SparkOptions
from dormouse.tables.table import Table

CLOCKS_APART_MS = 500
"""How far the clocks of S3 and of whoever empties a table may be apart in everyday use. What was
dropped so shortly before is ingested: a script that empties a table and drops its files anew at
once must not have them refused."""


@dataclass(slots=True)
class _Gathering:
    """Files of one generation of a table, by source id, and when the first of them was seen."""

    table: Table
    generation: int
    since_ms: int
    sources: dict[str, Source] = field(default_factory=dict)

    def add(self, sources: Sequence[Source], since_ms: int) -> None:
        self.since_ms = min(self.since_ms, since_ms)
        self.sources.update((source.id, source) for source in sources)

    def jobs(self, jobs: Sequence[tuple[Source, ...]]) -> Iterator[OutboundMessage]:
        for job in jobs:
            yield ingest_message(self.table, self.generation, job)


def ingest_message(
    table: Table, generation: int, sources: tuple[Source, ...], asked: SparkOptions | None = None
) -> OutboundMessage:
    """Return the job to ingest these sources together, for a function or, if it is heavy or that is
    `asked`, for Spark.
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
    """Return the ingest jobs of `sources` and of those `waiting`; what is too few waits on.

    What belongs to no table is recorded as refused. With `at_once`, nothing waits.
    """
    now_ms = services.clock.now_ms()
    found: dict[tuple[str, int], _Gathering] = {}
    for table, source in _with_tables(services, sources):
        key = table.id, table.generation
        found.setdefault(key, _Gathering(table, table.generation, now_ms)).add([source], now_ms)
    for message in waiting:
        known = services.table(message.table_id)
        if known is not None:  # else the files belong to no table any more
            key = known.id, message.generation
            gathering = found.setdefault(key, _Gathering(known, message.generation, now_ms))
            gathering.add(message.sources, message.since_ms)
    return [message for each in found.values() for message in _messages(each, now_ms, at_once)]


def _messages(gathering: _Gathering, now_ms: int, at_once: bool) -> Iterator[OutboundMessage]:
    table, sources = gathering.table, tuple(gathering.sources.values())
    max_age_seconds = table.properties.ingest_batch_max_age_seconds
    seconds = seconds_to_wait(gathering.since_ms, now_ms, max_age_seconds)
    if at_once or not seconds:
        yield from gathering.jobs(batches(sources, table.properties))
        return
    jobs, left = gathered(sources, table.properties)
    yield from gathering.jobs(jobs)
    if left:
        since_ms = gathering.since_ms
        message = FilesWaiting(table.id, gathering.generation, since_ms, left)
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
                NO_TABLE if table is None else table.id,
                source.id,
                "ingest",
                "refused",
                subject=source.key,
                reason=error.explanation,
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
    """Refuse a file that was dropped for what its table, or the table of its name, was before."""
    if not 0 < source.dropped_ms < table.files_since_ms - CLOCKS_APART_MS:
        return
    dropped, since = map(_iso_time, (source.dropped_ms, table.files_since_ms))
    raise RefusedSourceError(
        f"it was dropped at {dropped}, before table {table.name!r} was emptied, renamed or created "
        f"at {since}",
        hint="if it is meant for the table as it is now, drop it again, or ask to ingest its key",
    )


def _iso_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
