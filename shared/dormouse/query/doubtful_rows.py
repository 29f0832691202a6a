"""Which blocks of the shards of a table that keeps the latest rows may have dead rows.

A shard has one row of each row key. So a row can only be dead if another shard has its key, or it
is a tombstone; or if a deletion or the end of a partition hides it, which callers look at.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from typing import Any

from dormouse.arrow.order import fit_range, taken_keys
from dormouse.keys import KeyRange, decode_key, encode_key
from dormouse.query.rows import ROW, QueryResources, numbered_rows
from dormouse.query.selection import slices_to_read
from dormouse.schema.schema import TOMBSTONE, Schema
from dormouse.shards.reading import Blocks, CountedObjects, ReadCounters, Slice, find_blocks
from dormouse.state.state import TableState
from dormouse.tables.table import Table

FEW_ROWS = 200
"""The keys of a shard with so few rows are read: they may be far apart, and a block spans all. A
hundred such shards have 20,000 keys to compare."""
_Span = tuple[bytes, bytes, int]
"""A stored key from which on, and one below which, a block has rows, and its number."""


def contested_blocks(shards: Sequence[Iterable[_Span]]) -> list[set[int]]:
    """Return which blocks of each shard have a span that overlaps one of another shard."""
    contested: list[set[int]] = [set() for _ in shards]
    spans = sorted(
        (low, end, shard, number)
        for shard, of_shard in enumerate(shards)
        for low, end, number in of_shard
    )
    before: list[tuple[bytes, int, int]] = []
    for low, end, shard, number in spans:
        before = [each for each in before if each[0] > low]
        for _, rival, of_rival in before:
            if rival != shard:
                contested[rival].add(of_rival)
                contested[shard].add(number)
        before.append((end, shard, number))
    return contested


def doubtful_blocks(
    objects: CountedObjects, table_id: str, shards: Sequence[Blocks], schema: Schema
) -> list[set[int]]:
    """Return which blocks of shards, found with their footers, may have rows that are tombstones,
    or of a row key that another of these shards has. Raises as `find_blocks`.
    """
    doubtful = contested_blocks([_spans(objects, table_id, each, schema) for each in shards])
    for blocks, numbers in zip(shards, doubtful, strict=True):
        groups = _with_tombstones(blocks)
        numbers.update(chain.from_iterable(map(blocks.index.stored.layout.blocks_of, groups)))
    return doubtful


def _spans(
    objects: CountedObjects, table_id: str, blocks: Blocks, schema: Schema
) -> Iterator[_Span]:
    if blocks.slice.shard.rows > FEW_ROWS:
        yield from blocks.index.stored.keys.spans(len(schema.row_keys))
        return
    names = [field.name for field in schema.row_keys]
    whole = replace(
        blocks, slice=Slice(blocks.slice.shard, KeyRange()), numbers=blocks.index.blocks
    )
    ends = [*accumulate(map(blocks.index.rows, blocks.index.blocks))]
    for batch in numbered_rows(objects, table_id, whole, schema, names):
        keys = taken_keys(batch, range(batch.num_rows), schema.row_keys)
        rows: list[Any] = batch.column(ROW.name).to_pylist()
        for low, row in zip(map(encode_key, keys), rows, strict=True):
            yield low, low + b"\0", bisect_right(ends, row)


def _with_tombstones(blocks: Blocks) -> Iterator[int]:
    """Yield the row groups that may have tombstones."""
    if TOMBSTONE.id not in blocks.index.stored.columns:
        return
    _, column = blocks.index.stored.columns[TOMBSTONE.id]
    for number in blocks.row_groups:
        group = blocks.index.metadata.row_group(number)
        statistics = group.column(column).statistics
        if statistics is None or statistics.null_count != group.num_rows:
            yield number


def count_certain_rows(
    resources: QueryResources, table: Table, state: TableState, ranges: Sequence[KeyRange]
) -> tuple[int, list[KeyRange]]:
    """Return how many rows are in blocks that have no dead ones, wholly within some of the ranges,
    and the keys of these blocks, between which no other shard has any; `state` has no deletions. No
    row of them is read.

    Raises:
        NotFoundError: a shard is gone.
        CorruptDataError: one is damaged.
    """
    count, certain = 0, list[KeyRange]()
    objects = CountedObjects(resources.storage, ReadCounters())
    for part in slices_to_read(state, ranges):
        cache = resources.cache
        shards = find_blocks(objects, table.id, part, table.schema, cache, footers=True)
        doubtful = doubtful_blocks(objects, table.id, shards, table.schema)
        for blocks, numbers in zip(shards, doubtful, strict=True):
            if blocks.slice.shard.rows <= FEW_ROWS:
                continue  # others may have keys between its own
            keys = blocks.index.stored.keys
            last = decode_key(keys.bounds[-1][:-1])
            ends = [*keys.bounds[1:-1], KeyRange.exactly(last).high]
            within = keys.within(fit_range(blocks.slice.range, table.schema))
            for number in set(within) - numbers:
                count += blocks.index.rows(number)
                certain.append(KeyRange.between(keys.bounds[number], ends[number]))
    return count, certain
