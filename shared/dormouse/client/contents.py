"""What a version of a table consists of: its partitions, shards and files.

Each list is made from the table's state alone; no shard is read.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dormouse.client.table import TableHandle, listed_jobs
from dormouse.errors import HiddenRowsError
from dormouse.features.batch_files import SourceLookup, look_up_source_ids
from dormouse.jobs import FILE_REFUSED
from dormouse.key_codec import KeyCodec, KeyValue
from dormouse.ports import NO_TABLE, Services, Storage
from dormouse.schema.schema import Schema
from dormouse.showing import Listing
from dormouse.state.jobs import JobRecord
from dormouse.state.partitions import ROOT, Partition, Reference
from dormouse.state.sources import Source
from dormouse.state.state import TableState
from dormouse.stored.paths import data_prefix, shard_path
from dormouse.tables.table import Table

KeyTuple = tuple[KeyValue, ...]
"""A key as `TableHandle.query` takes it."""


@dataclass(frozen=True, slots=True)
class TablePartition:
    """A partition: the keys from `min`, inclusive, to `max`, exclusive; None is an open end.

    `range` is the same as text, as the command line takes it. `depth` is the number of partitions
    above it. `rows` and `shards` are those that it holds itself, `rows` an estimate where a
    partition was split not long ago.
    """

    id: str
    range: str
    min: KeyTuple
    max: KeyTuple | None
    is_leaf: bool
    depth: int
    rows: int
    shards: int


@dataclass(frozen=True, slots=True)
class TableShard:
    """A shard with rows that count.

    It has `rows`, of which `live_rows` count; the others were compacted into other shards already.
    The keys are those of its first and last row, `first` and `last` as the command line takes
    them. `partitions` are those that it has rows in, `jobs` the compactions that will replace it.
    """

    id: str
    rows: int
    live_rows: int
    size_bytes: int
    min_key: KeyTuple
    max_key: KeyTuple
    first: str
    last: str
    partitions: tuple[str, ...]
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowTags:
    """Some row tags, and how many rows of a table have just these."""

    tags: Mapping[str, str]
    rows: int


@dataclass(frozen=True, slots=True)
class TableFile:
    """A Parquet file of the table, which holds one shard.

    A reader of the files alone sees all `rows`, `live_rows` of which are rows of the table; rules
    for rows, such as an expiry, are not applied to them either.
    """

    uri: str
    shard: str
    size_bytes: int
    rows: int
    live_rows: int


def partitions_of(
    schema: Schema, state: TableState, *, everything: bool
) -> Listing[TablePartition]:
    """Return the leaf partitions in key order, and others that still hold rows.

    A split partition comes before those that it was split into. With `everything`, all are listed.
    """
    codec = KeyCodec(schema)
    rows = [
        TablePartition(
            partition.id,
            codec.range_to_assignments(partition.range),
            codec.to_python(partition.range.min),
            None if partition.range.max is None else codec.to_python(partition.range.max),
            partition.is_leaf,
            depth,
            state.rows_in(partition.id),
            len(state.references_in(partition.id)),
        )
        for partition, depth in _in_key_order(state)
        if everything or partition.is_leaf or partition.id in state.references
    ]
    return Listing(rows, "partitions", ("id", "range", "is_leaf", "rows", "shards"))


def shards_of(schema: Schema, state: TableState) -> Listing[TableShard]:
    """Return the shards with rows that count, by their first key and their id."""
    codec = KeyCodec(schema)
    references: defaultdict[str, list[Reference]] = defaultdict(list)
    for reference in state.all_references():
        references[reference.shard].append(reference)
    shards = sorted((state.shards[each] for each in references), key=lambda s: (s.low, s.id))
    rows = [
        TableShard(
            shard.id,
            shard.rows,
            sum(reference.rows for reference in references[shard.id]),
            shard.size_bytes,
            codec.to_python(shard.min_key),
            codec.to_python(shard.max_key),
            codec.to_assignments(shard.min_key),
            codec.to_assignments(shard.max_key),
            tuple(sorted(reference.partition for reference in references[shard.id])),
            tuple(sorted({r.job for r in references[shard.id] if r.job is not None})),
        )
        for shard in shards
    ]
    return Listing(rows, "shards", ("id", "rows", "live_rows", "size_bytes", "first", "last"))


def files_of(
    storage: Storage, table_id: str, schema: Schema, state: TableState
) -> Listing[TableFile]:
    """Return the files of the shards with rows that count, in the order of `shards_of`."""
    storage.expose(data_prefix(table_id))
    root = storage.uri if "://" in storage.uri else Path(storage.uri).absolute().as_uri()
    rows = [
        TableFile(
            f"{root}/{shard_path(table_id, shard.id)}",
            shard.id,
            shard.size_bytes,
            shard.rows,
            shard.live_rows,
        )
        for shard in shards_of(schema, state)
    ]
    return Listing(rows, "files", ("uri", "size_bytes", "rows", "live_rows"))


def _in_key_order(state: TableState) -> Iterator[tuple[Partition, int]]:
    """Yield all partitions with their depth, each before those below it, in key order."""
    pending = [(ROOT, 0)] if ROOT in state.partitions else []
    while pending:
        partition_id, depth = pending.pop()
        partition = state.partitions.get(partition_id)
        yield partition, depth
        pending += [(child, depth + 1) for child in reversed(partition.children or ())]


PENDING_FILES_MS = 7 * 24 * 60 * 60 * 1000
"""How long a dropped file counts as pending: as long as the tracker keeps a refusal."""


def files_that_wait(services: Services, table: Table) -> "tuple[SourceLookup, list[Source]]":
    """Return the files that wait, and the look-up that says so."""
    from dormouse.features.batch_files import look_up_sources, refusal_of

    # As in an audit: files dropped before may belong to an earlier table of this name.
    since_ms = max(services.clock.now_ms() - PENDING_FILES_MS, table.files_since_ms)
    sources = list(services.sources.list(f"{table.name}/", since_ms=since_ms))
    # Looked up after the listing: a file ingested in between counts as ingested.
    lookup = look_up_sources(services, table, sources)
    # A file dropped before the table was created is recorded under no table.
    fresh = lookup.fresh(sources)
    return lookup, [s for s in fresh if not refusal_of(services, s, table.id, NO_TABLE)]


def check_hidden(handle: "TableHandle", settings: Mapping[str, object]) -> None:
    """Check that the filters and aggregations among some properties would hide no rows that a table
    shows now, and take neither row tags nor origins from them.

    Raises:
        HiddenRowsError: they would; the message says how many.
        InvalidRequestError: they are no rules for rows of this schema.
    """
    properties = handle.table.properties
    rules = {r: str(settings[r]) for r in ("filters", "aggregations") if settings.get(r)}
    rules = {r: text for r, text in rules.items() if text != getattr(properties, r)}
    rows = handle.count() if rules else 0
    hidden = rows - handle.count_under(**rules) if rows else 0
    loss = (
        f"would hide {hidden:,} of the {rows:,} rows of table {handle.name}" if hidden > 0 else ""
    )
    if rows and not loss and rules.get("aggregations"):
        state = handle.state()
        tagged = [s for s in state.shards.values() if s.tags and s.id not in state.unreferenced]
        if not properties.aggregations and (tagged or properties.row_origin != "off"):
            loss = f"would take row tags and origins from rows of table {handle.name}"
    if loss:
        raise HiddenRowsError(
            f"{' and '.join(rules)} {loss}, and compactions would delete them for good",
            hint="if that is wanted, say so: hide_rows=True, or --force",
        )


SINCE_INGESTED = "it was refused at first; dropped again, it was ingested"


def jobs_of(services: Services, table: Table, *, reads_requests: bool = True) -> Listing[JobRecord]:
    """Return a table's jobs, also those not yet run, files that wait to be taken up by one, and
    files dropped before the table existed. Requests are shown as they are now, or unless this
    process may read them, as they were when they were last looked at.
    """
    tracker = services.tracker
    records = {record.job_id: record for record in tracker.records(table.id)}
    if reads_requests:
        from dormouse.features.administration import request_by_now  # loads Arrow

        records = {job: request_by_now(services, table, records[job]) for job in records}
    refusals = [
        job
        for job, record in records.items()
        if (record.kind, record.state) == ("ingest", "refused")
    ]
    lookup = look_up_source_ids(services, table, refusals)
    for job in lookup.ids:
        records[job] = replace(records[job], state="finished", reason=SINCE_INGESTED)
    for source in files_that_wait(services, table)[1]:
        # A file that was refused and dropped again waits.
        if source.id not in records or records[source.id].state == "refused":
            records[source.id] = _waiting(table, source)
    own = _without_jobs_of_refused(records)
    assigned = (r for r in _assigned(table, lookup.state) if r.job_id not in records)
    folder = f"{table.name}/"
    before = (
        record
        for record in tracker.records(NO_TABLE)
        if record.kind == "ingest"
        and record.subject.startswith(folder)
        and record.job_id not in records
    )
    return listed_jobs([*own, *assigned, *before])


def _without_jobs_of_refused(records: Mapping[str, JobRecord]) -> list[JobRecord]:
    """Return the records without those of jobs that only refused their file: it has its own."""
    refusals = {(r.subject, r.reason) for r in records.values() if r.state == "refused"}
    files = {subject for subject, _ in refusals}
    return [
        record
        for record in records.values()
        if (record.kind, record.files) != ("ingest", 1)
        or not (record.state == "failed" and (record.subject, record.reason) in refusals)
        and not (record.reason == FILE_REFUSED and record.subject in files)
    ]


def _waiting(table: Table, source: Source) -> JobRecord:
    return JobRecord(
        table.id,
        source.id,
        "ingest",
        "waiting",
        subject=source.key,
        updated_ms=source.dropped_ms,
        files=1,
        size_bytes=source.size_bytes,
    )


def _assigned(table: Table, state: TableState) -> Iterator[JobRecord]:
    for job in state.jobs.values():
        references = (state.reference(job.partition, shard) for shard in job.inputs)
        yield JobRecord(
            table.id,
            job.id,
            "compaction",
            "assigned",
            subject=job.partition,
            updated_ms=job.assigned_ms,
            files=len(job.inputs),
            size_bytes=sum(state.shards[shard].size_bytes for shard in job.inputs),
            rows_read=sum(reference.rows for reference in references if reference is not None),
            purge_id=job.purge_id or "",
        )
