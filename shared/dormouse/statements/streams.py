"""The rows of a scan in no order, while they are read: a statement needs no merged rows.

What is read at once is bounded, so a table of any size streams. Tables with rules are read as every
query reads them, merged, since rules may make one row of several.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from dormouse.arrow.types import arrow_schema, conform, frame_schema
from dormouse.cache import Cache
from dormouse.engine.predicates import Predicate
from dormouse.engine.pruning import ValueBounds
from dormouse.query.rows import LOOK_UP_BYTES, QueryResources, reading_version, windows
from dormouse.query.selection import Selection
from dormouse.readers.filter_reads import without_excluded
from dormouse.readers.read_counters import CountedObjects
from dormouse.readers.read_plan import LeafRowGroups, LookUp, plan_reads
from dormouse.readers.reading import RowGroups, Slice, find_row_groups, with_footers
from dormouse.readers.row_reads import read_row_groups
from dormouse.readers.threads import READ_THREADS
from dormouse.schema.schema import Schema
from dormouse.schema.types import FILTERED
from dormouse.sql.conditions import Condition
from dormouse.sql.key_bounds import column_values
from dormouse.tables.table import Table

CHUNK_BYTES = 4 * 1024 * 1024
"""How much of a range that is too large to be read at once is read at a time, in memory."""


def read_rows(
    resources: QueryResources,
    objects: CountedObjects,
    table: Table,
    parts: Iterable[list[Slice]],
    selection: Selection,
    columns: Sequence[str],
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the `columns` of at least the rows that a selection has, in the types of programs: its
    condition only leaves out row groups.

    Raises:
        VersionGoneError: a shard is gone.
        DamagedShardError: one is damaged.
    """
    schema = arrow_schema(table.schema)
    wanted = frame_schema(pa.schema([schema.field(name) for name in columns]))
    with reading_version(resources, table, selection.version):
        for found in _steps(objects, resources.cache, table, parts, selection, columns):
            places = {(g.slice.shard.id, number) for g in found for number in g.numbers}
            objects.reads.row_groups += len(places)
            for of_shard in read_row_groups(objects, table.id, found, table.schema, columns):
                yield from (conform(batch, wanted) for batch in of_shard)


def _steps(
    objects: CountedObjects,
    cache: Cache,
    table: Table,
    parts: Iterable[list[Slice]],
    selection: Selection,
    columns: Sequence[str],
) -> Iterator[list[RowGroups]]:
    """Yield the row groups that are read at once, in the order of keys."""
    is_limited = selection.limit is not None
    steps = plan_reads(
        _found(objects, cache, table, parts, selection),
        table.schema,
        columns,
        look_up_bytes=LOOK_UP_BYTES,
        is_limited=is_limited,
    )
    for step in steps:
        if isinstance(step, LookUp):
            yield step.found
        else:
            objects.reads.scans += 1
            for groups in step.found:
                yield from _chunks(groups, table.schema, columns)


def _found(
    objects: CountedObjects,
    cache: Cache,
    table: Table,
    parts: Iterable[list[Slice]],
    selection: Selection,
) -> Iterator[list[LeafRowGroups]]:
    """Find the needed row groups of parts: of many parts at once, unless a limit may need only a
    few.
    """
    is_limited = selection.limit is not None
    for window in windows(parts, 1 if is_limited else 2 * READ_THREADS):
        slices = [slice for part in window for slice in part]
        objects.reads.shards.update(slice.shard.id for slice in slices)
        left = iter(needed_row_groups(objects, cache, table, slices, selection.condition))
        yield [[next(left) for _ in part] for part in window]


def needed_row_groups(
    objects: CountedObjects,
    cache: Cache,
    table: Table,
    slices: Sequence[Slice],
    condition: Condition | None,
) -> list[RowGroups]:
    """Return the row groups of each slice that neither statistics nor Bloom filters exclude."""
    schema = table.schema
    where = None if condition is None else Predicate(condition, schema)
    bounds = ValueBounds.of(where, schema)
    values = {
        field: each
        for field in schema.fields
        if condition is not None and field.name in condition.columns and field.type in FILTERED
        if (each := column_values(condition, field))
    }
    # statistics are in the footer, which is longer than what a look-up reads
    footers = bool(bounds.ranges) and any(slice.is_whole for slice in slices)
    found = find_row_groups(objects, table.id, slices, schema, cache, footers=footers)
    if values and any(groups.index.stored.has_filters for groups in found):
        found = with_footers(objects, table.id, found, schema, cache)
        found = without_excluded(objects, table.id, found, values)
    return list(bounds.pruned(found)) if footers else list(found)


def _chunks(groups: RowGroups, schema: Schema, columns: Sequence[str]) -> Iterator[list[RowGroups]]:
    """Yield the row groups of a slice in runs of about `CHUNK_BYTES`."""
    fields = [schema.field_named(name) for name in columns]
    chunk: list[int] = []
    chunk_bytes = 0
    for number in groups.numbers:
        chunk.append(number)
        chunk_bytes += groups.index.column_bytes(number, fields)
        if chunk_bytes >= CHUNK_BYTES:
            yield [replace(groups, numbers=tuple(chunk))]
            chunk, chunk_bytes = [], 0
    if chunk:
        yield [replace(groups, numbers=tuple(chunk))]
