"""Find the dead rows of shards: those in dead key ranges, from footers and the keys at their ends,
and those that deletions hide, by reading the columns that these name.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.order import rows_in_ranges
from dormouse.arrow.types import arrow_schema, conform
from dormouse.iceberg.avro import RowRange
from dormouse.iceberg.liveness import LiveShard
from dormouse.keys import Key, KeyRange, complement
from dormouse.ports import Cache, Storage
from dormouse.query.doubtful_rows import doubtful_blocks
from dormouse.query.rows import ROW, QueryResources, count_slices, hidden_rows, numbered_rows
from dormouse.rows.aggregation import entombed, latest_rows
from dormouse.rows.deletions import deletions_for
from dormouse.rows.predicates import Predicate
from dormouse.rows.sorting import Sorter
from dormouse.schema.schema import RESERVED, SEQUENCE, TOMBSTONE, Field, Schema
from dormouse.schema.types import Primitive
from dormouse.shards.reading import Blocks, CountedObjects, ReadCounters, Slice, find_blocks, narrow
from dormouse.system import OwnFolder
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table


def find_hidden_rows(
    resources: QueryResources,
    table: Table,
    shards: Mapping[str, LiveShard],
    live: Mapping[str, LiveShard],
) -> dict[str, tuple[RowRange, ...]]:
    """Return the row numbers of the dead rows of some of the `live` shards of a table that keeps
    the latest rows, by shard id: those in dead key ranges, tombstones, and all but the latest row
    of each key.

    The keys of all rivals are sorted together, in scratch space if there are many.
    Raises: as `find_dead_rows`.
    """
    ranges: dict[str, tuple[RowRange, ...]] = {}
    for rivals in sorted({each.rivals for each in shards.values()}):
        together = [live[shard] for shard in rivals]
        rows = _hidden_together(resources, table, together)
        ranges |= {each.shard.id: dead for each, dead in zip(together, rows, strict=True)}
    return {shard: ranges[shard] for shard in shards}


_SHARD = Field(f"{RESERVED}shard", Primitive.LONG)


def _hidden_together(
    resources: QueryResources, table: Table, shards: Sequence[LiveShard]
) -> list[tuple[RowRange, ...]]:
    rules = row_rules(table.schema, table.properties)
    stored_schema, aggregation = rules.stored_schema(table.schema), rules.aggregation
    assert aggregation is not None  # the table keeps the latest rows
    by = [table.schema.field_named(aggregation.by)] if aggregation.by else []
    order = Schema(table.schema.row_keys, (), (*by, SEQUENCE, TOMBSTONE, ROW, _SHARD), is_part=True)
    read = _needed_blocks(resources, table, stored_schema, shards)
    dead = [_DeadRows(blocks) for blocks in read]
    with OwnFolder(dir=resources.scratch) as folder:
        sorter = Sorter(order, Path(folder), memory_bytes=resources.memory_bytes)
        for number, (live, blocks) in enumerate(zip(shards, read, strict=True)):
            rows = _live_rows(resources, table, stored_schema, aggregation.by, live, blocks)
            for batch in rows:
                of_shard = pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows)
                sorter.add(conform(batch.append_column(_SHARD.name, of_shard), arrow_schema(order)))
        for batch in latest_rows(sorter.sorted_rows(), order, aggregation):
            alive = batch.filter(pc.is_null(batch.column(TOMBSTONE.name)))
            of_shards: Any = alive.column(_SHARD.name)
            for number in of_shards.unique().to_pylist():
                dead[number].skip(alive.filter(pc.equal(of_shards, number)).column(ROW.name))
    return [each.ranges() for each in dead]


def _needed_blocks(
    resources: QueryResources, table: Table, schema: Schema, shards: Sequence[LiveShard]
) -> list[Blocks]:
    """Return the blocks of rivals that may have dead rows: what is read follows what changed."""
    slices = [Slice(live.shard, KeyRange()) for live in shards]
    objects = CountedObjects(resources.storage, ReadCounters())
    found = find_blocks(objects, table.id, slices, schema, resources.cache, footers=True)
    doubtful = doubtful_blocks(objects, table.id, found, schema)
    needed = []
    for live, blocks, numbers in zip(shards, found, doubtful, strict=True):
        ranges = chain(live.dead, *(each.spans for each in live.deletions))
        numbers.update(*(narrow(blocks, span, schema).numbers for span in ranges))
        needed.append(replace(blocks, numbers=sorted(numbers)))
    return needed


def _live_rows(
    resources: QueryResources,
    table: Table,
    stored_schema: Schema,
    by: str,
    live: LiveShard,
    blocks: Blocks,
) -> Iterator[pa.RecordBatch]:
    """Yield what decides about the rows of blocks that are in no dead key range."""
    deletions = deletions_for(stored_schema, live.deletions) if live.deletions else None
    schema = deletions.schema if deletions else stored_schema
    names = {*(field.name for field in schema.row_keys), by, SEQUENCE.name, TOMBSTONE.name}
    names |= deletions.hidden.columns if deletions else set()
    columns = [field.name for field in schema.fields if field.name in names]
    objects = CountedObjects(resources.storage, ReadCounters())
    rows = numbered_rows(objects, table.id, blocks, schema, columns)
    ranges = complement(list(live.dead)) if live.dead else [KeyRange()]
    parts = (part for batch in rows for part in rows_in_ranges(batch, ranges, table.schema))
    if deletions is None:
        yield from parts
        return
    for part, hidden in Predicate(deletions.hidden, schema).tested(parts):
        yield entombed(part, hidden, Schema(schema.row_keys, (), (TOMBSTONE,)), by, 0)


class _DeadRows:
    """The rows of blocks that are not skipped; those to skip come in ascending order."""

    def __init__(self, blocks: Blocks) -> None:
        firsts = [0, *accumulate(blocks.index.rows(number) for number in blocks.index.blocks)]
        self._read = [*_joined((firsts[n], firsts[n + 1]) for n in blocks.numbers)]
        self._gaps: list[RowRange] = []
        self._next = 0

    def skip(self, rows: Any) -> None:
        before = pa.concat_arrays([pa.array([self._next - 1], pa.int64()), rows[:-1]])
        gaps = pc.greater(rows, pc.add(before, 1))
        starts, ends = (each.filter(gaps).to_pylist() for each in (pc.add(before, 1), rows))
        self._gaps += zip(starts, ends, strict=True)
        self._next = rows[-1].as_py() + 1

    def ranges(self) -> tuple[RowRange, ...]:
        """Return the ranges of the other rows."""
        rest = self._read[-1][1] if self._read else 0
        return tuple(_intersection([*self._gaps, (self._next, rest)], self._read))


def _intersection(ranges: Iterable[RowRange], others: Iterable[RowRange]) -> Iterator[RowRange]:
    """Yield what is in both of two lists of ranges in order."""
    rest = deque(others)
    for start, end in ranges:
        while rest and rest[0][0] < end:
            low, high = max(start, rest[0][0]), min(end, rest[0][1])
            if low < high:
                yield low, high
            if rest[0][1] > end:
                break
            rest.popleft()


def find_dead_rows(
    storage: Storage, table: Table, shards: Mapping[str, LiveShard], cache: Cache | None = None
) -> dict[str, tuple[RowRange, ...]]:
    """Return the row numbers of the dead rows of shards, by shard id.

    Raises:
        NotFoundError: a shard is gone.
        CorruptDataError: one is damaged.
    """
    parts = {key: _parts(live.dead) for key, live in shards.items()}
    slices = [Slice(shards[key].shard, part) for key, cut in parts.items() for part in cut]
    counted = iter(count_slices(storage, table, slices, cache))
    ranges = {}
    for key, cut in parts.items():
        rows, at = [], 0
        for part in cut:
            end = at + next(counted)
            if part in shards[key].dead and at < end:
                rows.append((at, end))
            at = end
        if shards[key].deletions:
            live = shards[key]
            hidden = hidden_rows(storage, table, live.shard, live.deletions, cache or Cache(0))
            rows += ((row, row + 1) for row in hidden)
        ranges[key] = tuple(_joined(rows))
    return ranges


def _joined(rows: Iterable[RowRange]) -> Iterator[RowRange]:
    """Yield ranges in order, those that touch or overlap as one."""
    last: RowRange | None = None
    for start, end in sorted(rows):
        if last is not None and start <= last[1]:
            last = last[0], max(last[1], end)
            continue
        if last is not None:
            yield last
        last = start, end
    if last is not None:
        yield last


def _parts(dead: Sequence[KeyRange]) -> list[KeyRange]:
    """Return the dead ranges and those before and between them, in order."""
    parts: list[KeyRange] = []
    end: Key = ()
    for gap in dead:
        if end < gap.min:
            parts.append(KeyRange(end, gap.min))
        parts.append(gap)
        end = gap.max or ()
    return parts
