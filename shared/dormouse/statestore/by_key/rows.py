"""What a reader of a few keys needs of a state, as rows in key order.

There is a row for each partition, and one for each reference, with what is known of its shard. Each
has the range of its partition, of which its id is a digest; so rows are chosen by keys alone,
without the tree. A snapshot has all of them, an increment those that changed; those that are no
more are marked as `gone`. What only jobs and rules need is not here.

Rows are handed on in blocks, each of which has all rows whose partitions overlap its range of keys:
a partition that reaches into several blocks has its rows in each. A reader of one key needs one
block. But if jobs hold many references of such partitions, their rows are in *shared* blocks, once,
each with the range of keys that it may concern; a reader of a key there needs these, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.keys.ranges import KeyRange
from dormouse.model.overlay_map import TOMBSTONE
from dormouse.model.partitions import Partition
from dormouse.model.shards import PartitionReferences, Reference
from dormouse.model.state import TableState

COLUMNS: dict[str, pa.DataType] = {
    "low": pa.binary(),
    "high": pa.binary(),  # null: the end is open
    "is_leaf": pa.bool_(),  # null: a reference
    "shard": pa.string(),  # null: a partition
    "gone": pa.bool_(),
    "rows": pa.int64(),
    "shard_rows": pa.int64(),
    "size_bytes": pa.int64(),
    "min_key": pa.binary(),
    "max_key": pa.binary(),
}
SCHEMA = pa.schema(list(COLUMNS.items()))
BLOCK_ROWS = 1024
"""About how many rows a block of a snapshot has: some 18 KB. Of a million references the index of
all blocks takes 21 KB: with fewer rows a reader would fetch more of it than it saves."""
BLOCK_ROWS_OF_CHANGES = 256
"""The same of an increment: some 10 KB. There may be five, and of each a reader fetches a block."""

MOST_REACHING = 128
"""More rows that reach on are in no second block but in shared ones. So a key index has at most an
eighth more rows than there are, whatever is held where."""


@dataclass(frozen=True, slots=True)
class Block:
    """The rows of the partitions that overlap the keys from `fence` to the next block's fence."""

    fence: bytes
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class SharedBlock:
    """Rows of partitions none of which begins before `low` or ends after `high`, the end of all
    keys if that is None.
    """

    low: bytes
    high: bytes | None
    rows: pa.Table


def blocks_of_snapshot(
    partitions: pa.Table, shards: pa.Table, references: pa.Table
) -> Iterator[Block | SharedBlock]:
    """Yield the blocks of a state whose items a snapshot holds as these rows."""
    places = pc.sort_indices(partitions, sort_keys=[("min_key", "ascending"), ("id", "ascending")])
    tree = partitions.take(places)
    numbers = pa.array(range(len(partitions)), pa.int32())
    ranks = pc.index_in(numbers, places.cast(pa.int32())).take(references["partition_row"])
    held = pa.table({"rank": ranks, "shard": references["shard_row"], "rows": references["rows"]})
    held = held.sort_by([("rank", "ascending"), ("shard", "ascending")]).combine_chunks()
    ends = _ends(held["rank"], len(tree))
    sizes = [1 + end - start for start, end in zip([0, *ends], ends, strict=False)]

    def rows_between(first: int, end: int) -> pa.Table:
        start = ends[first - 1] if first else 0
        own = held.slice(start, ends[end - 1] - start)
        of = tree.take(own["rank"])
        at = shards.take(own["shard"])
        facts = {name: at[name] for name in ("size_bytes", "min_key", "max_key")}
        there = {"low": of["min_key"], "high": of["max_key"], **facts}
        rows = {"shard": at["id"], "rows": own["rows"], "shard_rows": at["rows"]}
        return pa.concat_tables([_partitions(tree.slice(first, end - first)), _table(there | rows)])

    return _blocks(tree["min_key"].to_pylist(), sizes, rows_between, BLOCK_ROWS)


def blocks_of_changes(rows: pa.Table) -> Iterator[Block | SharedBlock]:
    """Yield the blocks of changed rows."""
    rows = rows.sort_by([("low", "ascending")]).combine_chunks()
    lows, sizes = rows["low"].to_pylist(), [1] * len(rows)

    def rows_between(first: int, end: int) -> pa.Table:
        return rows.slice(first, end - first)

    return _blocks(lows, sizes, rows_between, BLOCK_ROWS_OF_CHANGES)


def changed_rows(earlier: TableState, later: TableState) -> pa.Table:
    """Return what changed from a state to one that is laid over it (`snapshot.changes.rebased`).

    A reference which only another job holds since is no change.
    """
    rows = [*_changed_partitions(earlier, later), *_changed_references(earlier, later)]
    cells = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
    columns = [pa.array(cell, field.type) for cell, field in zip(cells, SCHEMA, strict=True)]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def joined_rows(lower: pa.Table, upper: pa.Table) -> pa.Table:
    """Return the changes of an increment and of the one that follows it as one."""
    kept = lower.filter(pc.invert(pc.is_in(_names(lower), _names(upper))))
    return pa.concat_tables([kept, upper]).combine_chunks()


def distinct_rows(rows: pa.Table) -> pa.Table:
    """Return each row once: those of a partition over several blocks are in each of them."""
    places = pa.table({"name": _names(rows), "place": pa.array(range(len(rows)), pa.int64())})
    first = places.group_by("name", use_threads=False).aggregate([("place", "min")])
    return rows.take(first["place_min"].sort())


def _names(rows: pa.Table) -> pa.Array[Any]:
    """Return what names each row: the range of its partition and, of a reference, its shard.

    As the first end comes with its length, and no id of a shard has a slash, no two have one name.
    """
    low, high = rows["low"], pc.coalesce(rows["high"], pa.scalar(b""))
    shards = pc.coalesce(rows["shard"], pa.scalar("")).cast(pa.binary())
    lengths = pc.binary_length(low).cast(pa.string()).cast(pa.binary())
    parts = [lengths, low, high, shards, pa.scalar(b"/")]
    joined = pc.call_function("binary_join_element_wise", parts)
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


_Row = tuple[object, ...]


def _changed_partitions(earlier: TableState, later: TableState) -> Iterator[_Row]:
    for name, now in later.partitions.by_id.changes.items():
        before = earlier.partitions.by_id.get(name)
        if now is not TOMBSTONE:
            if before is None or before.is_leaf != now.is_leaf:
                yield _partition_row(now, now.is_leaf)
        elif before is not None:
            yield _partition_row(before, False)


def _partition_row(partition: Partition, is_leaf: bool) -> _Row:
    return (*_ends_of(partition.range), is_leaf, None, False, *[None] * 5)


def _changed_references(earlier: TableState, later: TableState) -> Iterator[_Row]:
    for name, change in later.references.changes.items():
        held = PartitionReferences() if change is TOMBSTONE else change
        before = {r.shard: r for r in earlier.references.get(name, PartitionReferences())}
        place = later.partitions if name in later.partitions else earlier.partitions
        ends = _ends_of(place.get(name).range)
        for reference in held:
            was = before.pop(reference.shard, None)
            is_kept = was is not None and was.rows == reference.rows
            if not is_kept or earlier.shards[reference.shard] != later.shards[reference.shard]:
                yield (*ends, None, reference.shard, False, *_facts(later, reference))
        for shard in before:
            yield (*ends, None, shard, True, *[None] * 5)


def _facts(state: TableState, reference: Reference) -> _Row:
    shard = state.shards[reference.shard]
    return reference.rows, shard.rows, shard.size_bytes, shard.low, shard.high


def _ends_of(span: KeyRange) -> tuple[bytes, bytes | None]:
    return span.low, span.high


def _partitions(tree: pa.Table) -> pa.Table:
    ends = {"low": tree["min_key"], "high": tree["max_key"]}
    is_leaf = pc.is_null(tree["children"])
    return _table({**ends, "is_leaf": is_leaf})


def _table(columns: dict[str, Any]) -> pa.Table:
    """Return rows with these columns, of which none is gone; what they lack is null."""
    size = len(columns["low"])
    given = {"gone": pa.repeat(pa.scalar(False), size), **columns}
    cells = [given.get(f.name, pa.nulls(size, f.type)) for f in SCHEMA]
    return pa.table(dict(zip(SCHEMA.names, cells, strict=True)), schema=SCHEMA)


def _ends(ranks: pa.ChunkedArray[Any], size: int) -> list[int]:
    """Return where the rows of each rank end; the ranks ascend, and some have no rows."""
    counted = pc.value_counts(ranks)
    counts = dict(zip(*(counted.field(n).to_pylist() for n in ("values", "counts")), strict=True))
    ends, end = [], 0
    for rank in range(size):
        end += counts.get(rank, 0)
        ends.append(end)
    return ends


def _blocks(
    lows: Sequence[Any],
    sizes: Sequence[int],
    rows_between: Callable[[int, int], pa.Table],
    most: int,
) -> Iterator[Block | SharedBlock]:
    """Cut things, in the order of their `lows`, into blocks of about `most` rows; each has so many.

    A cut lies where the low key changes. For example, with two rows a block and the ranges [a, c),
    [a, z), [c, e), [e, z), the fences are "", c and e; the second block also has [a, z), and so has
    the third. With more such rows than `MOST_REACHING`, the first block lacks [a, z), and a shared
    block has it.
    """
    fence, first, held = b"", 0, 0
    reaching, shared = SCHEMA.empty_table(), [SCHEMA.empty_table()]
    for place, low in enumerate(lows):
        if held >= most and low != lows[place - 1]:
            block = pa.concat_tables([rows_between(first, place), reaching]).combine_chunks()
            goes_on: Any = pc.fill_null(pc.greater(block["high"], pa.scalar(low)), True)  # type: ignore[type-var]  # the stubs lose the type
            reaching = block.filter(goes_on)
            if len(reaching) > MOST_REACHING:
                shared.append(reaching)
                block, reaching = block.filter(pc.invert(goes_on)), SCHEMA.empty_table()
            yield Block(fence, block)
            fence, first, held = low, place, 0
        held += sizes[place]
    if lows:
        block = pa.concat_tables([rows_between(first, len(lows)), reaching])
        yield Block(fence, block.combine_chunks())
    yield from _shared_blocks(pa.concat_tables(shared))


def _shared_blocks(rows: pa.Table) -> Iterator[SharedBlock]:
    # By their ends: so a block has rows of partitions that lie near one another.
    rows = rows.sort_by([("high", "ascending"), ("low", "ascending")])
    for start in range(0, len(rows), BLOCK_ROWS):
        some = rows.slice(start, BLOCK_ROWS).combine_chunks()
        high = None if some["high"].null_count else pc.max(some["high"]).as_py()
        yield SharedBlock(pc.min(some["low"]).as_py(), high, some)
