"""The stored form of the key index: blocks of rows, and the index that says where each lies.

It lies within a snapshot or an increment, before the footer of that Parquet file, where readers of
Parquet do not look. So there is one object, one request to write it, and one to delete it. A reader
of a few keys fetches the end of the object, which has the index, and then the blocks it needs. Its
parts, one after the other:

    blocks      each is a small Parquet file (`rows`), compressed once more, which saves a tenth:
                its footer and the heads of its columns are not compressed in it
    index       JSON, compressed: facts of the state; of each block the key where it begins, its
                size, and its checksum; of a shared block also where its keys end; the same of the
                increments before this one, so that one request tells where all their blocks lie
    sizes       8 bytes: how many all of this has; 4 bytes: how many the index has
    checksum    16 bytes of BLAKE2b over the index, the sizes and the id of the table
    format      1 byte: 1
    "DMbykey"   7 bytes
    footer      of the Parquet file, and the 8 bytes that say how long it is

The checksum of the Parquet file is that of the file without its key index, so who reads all of the
state need not fetch it.
"""

from __future__ import annotations

import io
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dormouse.errors import CorruptDataError
from dormouse.keys import KeyRange
from dormouse.log.pages import IndexPlace
from dormouse.schema.schema import KeyTypes
from dormouse.state import state as changes
from dormouse.state.partitions import (
    TOMBSTONE,
    NewShard,
    Partition,
    PartitionReferences,
    Reference,
    Shard,
    partition_id_of,
)
from dormouse.stored.decoding import decode_json, raise_corrupt

# What a reader of a few keys needs of a state, as rows in key order.
#
# There is a row for each partition, and one for each reference, with what is known of its shard.
# Each has the range of its partition, of which its id is a digest; so rows are chosen by keys
# alone, without the tree. A snapshot has all of them, an increment those that changed; those that
# are no more are marked as `gone`. What only jobs and rules need is not here.
#
# Rows are handed on in blocks, each of which has all rows whose partitions overlap its range of
# keys: a partition that reaches into several blocks has its rows in each. A reader of one key needs
# one block. But if jobs hold many references of such partitions, their rows are in *shared* blocks,
# once, each with the range of keys that it may concern; a reader of a key there needs these, too.

COLUMNS: dict[str, pa.DataType] = {
    "low": pa.binary(),
    "high": pa.binary(),  # null: the end is open
    "is_leaf": pa.bool_(),  # null: a reference
    "shard": pa.string(),  # null: a partition
    "gone": pa.bool_(),
    "rows": pa.int64(),
    "shard_rows": pa.int64(),
    "size_bytes": pa.int64(),
    "sequence": pa.int64(),
    "tags": pa.string(),
    "version": pa.int64(),
    "min_key": pa.binary(),
    "max_key": pa.binary(),
}
SCHEMA = pa.schema(list(COLUMNS.items()))
_FACTS = ("size_bytes", "sequence", "tags", "version", "min_key", "max_key")
_OF_A_REFERENCE = ("rows", "shard_rows", *_FACTS)
BLOCK_ROWS = 1024
"""About how many rows a block of a snapshot has: some 18 KB. Of a million references the index of
all blocks takes 21 KB: with fewer rows a reader would fetch more of it than it saves."""
BLOCK_ROWS_OF_CHANGES = 256
"""The same of an increment: some 10 KB. There may be five, and of each a reader fetches a block."""

MOST_REACHING = 128
"""More rows that reach on are in no second block but in shared ones. So a key index has at most an
eighth more rows than there are, whatever is held where."""


@dataclass(frozen=True, slots=True)
class IndexBlock:
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
) -> Iterator[IndexBlock | SharedBlock]:
    """Yield the blocks of a state whose items a snapshot holds as these rows."""
    places = pc.sort_indices(partitions, sort_keys=[("min_key", "ascending"), ("id", "ascending")])
    tree = partitions.take(places)
    numbers = pa.array(range(len(partitions)), pa.int32())
    ranks = pc.index_in(numbers, places.cast(pa.int32())).take(references["partition_row"])
    links = pa.table({"rank": ranks, "shard": references["shard_row"], "rows": references["rows"]})
    links = links.sort_by([("rank", "ascending"), ("shard", "ascending")]).combine_chunks()
    ends = _ends(links["rank"], len(tree))
    sizes = [1 + end - start for start, end in zip([0, *ends], ends, strict=False)]

    def rows_between(first: int, end: int) -> pa.Table:
        start = ends[first - 1] if first else 0
        own = links.slice(start, ends[end - 1] - start)
        of = tree.take(own["rank"])
        at = shards.take(own["shard"])
        there = {"low": of["min_key"], "high": of["max_key"], **{n: at[n] for n in _FACTS}}
        rows = {"shard": at["id"], "rows": own["rows"], "shard_rows": at["rows"]}
        return pa.concat_tables([_partitions(tree.slice(first, end - first)), _table(there | rows)])

    return _blocks(tree["min_key"].to_pylist(), sizes, rows_between, BLOCK_ROWS)


def blocks_of_changes(rows: pa.Table) -> Iterator[IndexBlock | SharedBlock]:
    """Yield the blocks of changed rows."""
    rows = rows.sort_by([("low", "ascending")]).combine_chunks()
    lows, sizes = rows["low"].to_pylist(), [1] * len(rows)

    def rows_between(first: int, end: int) -> pa.Table:
        return rows.slice(first, end - first)

    return _blocks(lows, sizes, rows_between, BLOCK_ROWS_OF_CHANGES)


def changed_rows(earlier: changes.TableState, later: changes.TableState) -> pa.Table:
    """Return what changed from a state to one that is laid over it (`log.increments.rebased`).

    A reference which only another job holds since is no change.
    """
    rows = [*_changed_partitions(earlier, later), *_changed_references(earlier, later)]
    cells = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
    columns = [pa.array(cell, field.type) for cell, field in zip(cells, SCHEMA, strict=True)]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def joined_rows(lower: pa.Table, upper: pa.Table) -> pa.Table:
    """Return the changes of an increment and of the one that follows it as one."""
    rest = lower.filter(pc.invert(pc.is_in(_names(lower), _names(upper))))
    return pa.concat_tables([rest, upper]).combine_chunks()


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
    names = pc.call_function("binary_join_element_wise", parts)
    return names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names


_Row = tuple[object, ...]


def _changed_partitions(earlier: changes.TableState, later: changes.TableState) -> Iterator[_Row]:
    for name, now in later.partitions.by_id.changes.items():
        before = earlier.partitions.by_id.get(name)
        if now is not TOMBSTONE:
            if before is None or before.is_leaf != now.is_leaf:
                yield _partition_row(now, now.is_leaf)
        elif before is not None:
            yield _partition_row(before, False)


def _partition_row(partition: Partition, is_leaf: bool) -> _Row:
    span = partition.range
    return (span.low, span.high, is_leaf, None, False, *[None] * len(_OF_A_REFERENCE))


def _changed_references(earlier: changes.TableState, later: changes.TableState) -> Iterator[_Row]:
    for name, change in later.references.changes.items():
        references = PartitionReferences() if change is TOMBSTONE else change
        before = {r.shard: r for r in earlier.references.get(name, PartitionReferences())}
        place = later.partitions if name in later.partitions else earlier.partitions
        span = place.get(name).range
        for reference in references:
            was = before.pop(reference.shard, None)
            is_kept = was is not None and was.rows == reference.rows
            if not is_kept or earlier.shards[reference.shard] != later.shards[reference.shard]:
                yield (span.low, span.high, None, reference.shard, False, *_facts(later, reference))
        for shard in before:
            yield (span.low, span.high, None, shard, True, *[None] * len(_OF_A_REFERENCE))


def _facts(state: changes.TableState, reference: Reference) -> _Row:
    shard = state.shards[reference.shard]
    facts = shard.size_bytes, shard.sequence, shard.tags, shard.version
    return reference.rows, shard.rows, *facts, shard.low, shard.high


def _partitions(tree: pa.Table) -> pa.Table:
    ends = {"low": tree["min_key"], "high": tree["max_key"]}
    is_leaf = pc.is_null(tree["children"])
    return _table({**ends, "is_leaf": is_leaf})


def _table(columns: dict[str, Any]) -> pa.Table:
    """Return rows with these columns, of which none is gone; what they lack is null."""
    size = len(columns["low"])
    cells_by_name = {"gone": pa.repeat(pa.scalar(False), size), **columns}
    cells = [cells_by_name.get(f.name, pa.nulls(size, f.type)) for f in SCHEMA]
    return pa.table(dict(zip(SCHEMA.names, cells, strict=True)), schema=SCHEMA)


def _ends(ranks: pa.ChunkedArray[Any], size: int) -> list[int]:
    """Return where the rows of each rank end; the ranks ascend, and some have no rows."""
    lengths = pc.value_counts(ranks)
    counts = dict(zip(*(lengths.field(n).to_pylist() for n in ("values", "counts")), strict=True))
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
) -> Iterator[IndexBlock | SharedBlock]:
    """Cut things, in the order of their `lows`, into blocks of about `most` rows; each has so many.

    A cut lies where the low key changes. For example, with two rows a block and the ranges [a, c),
    [a, z), [c, e), [e, z), the fences are "", c and e; the second block also has [a, z), and so has
    the third. With more such rows than `MOST_REACHING`, the first block lacks [a, z), and a shared
    block has it.
    """
    fence, first, rows = b"", 0, 0
    reaching, shared = SCHEMA.empty_table(), [SCHEMA.empty_table()]
    for place, low in enumerate(lows):
        if rows >= most and low != lows[place - 1]:
            block = pa.concat_tables([rows_between(first, place), reaching]).combine_chunks()
            # what ends above the cut is needed by readers of the next block, too
            goes_on: Any = pc.fill_null(pc.greater(block["high"], pa.scalar(low)), True)  # type: ignore[type-var]  # the stubs lose the type
            reaching = block.filter(goes_on)
            if len(reaching) > MOST_REACHING:
                shared.append(reaching)
                block, reaching = block.filter(pc.invert(goes_on)), SCHEMA.empty_table()
            yield IndexBlock(fence, block)
            fence, first, rows = low, place, 0
        rows += sizes[place]
    if lows:
        block = pa.concat_tables([rows_between(first, len(lows)), reaching])
        yield IndexBlock(fence, block.combine_chunks())
    yield from _shared_blocks(pa.concat_tables(shared))


def _shared_blocks(rows: pa.Table) -> Iterator[SharedBlock]:
    # By their ends: so a block has rows of partitions that lie near one another.
    rows = rows.sort_by([("high", "ascending"), ("low", "ascending")])
    for start in range(0, len(rows), BLOCK_ROWS):
        some = rows.slice(start, BLOCK_ROWS).combine_chunks()
        high = None if some["high"].null_count else pc.max(some["high"]).as_py()
        yield SharedBlock(pc.min(some["low"]).as_py(), high, some)


FORMAT = 1
_TAIL_BYTES, _TAIL_SHARE = 20 * 1024, 2048
_MAGIC = b"DMbykey"
_INDEX_SUM, _BLOCK_SUM = 16, 8
_SIZES = struct.Struct(">QI")
_MARK = bytes([FORMAT]) + _MAGIC
_TRAILER = _SIZES.size + _INDEX_SUM + len(_MARK)


class IndexFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an index says of the state; `after` is the version that an increment follows."""

    after: int
    version: int
    time_ms: int
    generation: int
    key_types: KeyTypes
    deletions: tuple[changes.Deletion, ...] = ()


class _Place(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    fence: bytes
    size_bytes: int
    checksum: bytes


class _SharedPlace(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    low: bytes
    high: bytes | None
    size_bytes: int
    checksum: bytes


class _Earlier(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The index of an increment before this one, whose last block ends at `end`."""

    id: str
    after: int
    version: int
    end: int
    places: tuple[_Place, ...]
    shared: tuple[_SharedPlace, ...]


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Blocks and then shared blocks, in the order in which they lie."""

    facts: IndexFacts
    places: tuple[_Place, ...]
    shared: tuple[_SharedPlace, ...] = ()
    before: tuple[_Earlier, ...] = ()


class KeyIndex:
    """The index of one object: where the blocks of some keys lie."""

    def __init__(self, stored: _Stored, end: int) -> None:
        """Hold an index which begins at `end` of its object, where the last block ends."""
        self._stored, self._end = stored, end
        self.facts, self._shared = stored.facts, stored.shared
        self._places: tuple[_Place | _SharedPlace, ...] = (*stored.places, *stored.shared)
        self._fences = [place.fence for place in stored.places]
        sizes = [place.size_bytes for place in self._places]
        at = end - sum(sizes)
        self._starts = []
        for size_bytes in sizes:
            self._starts.append(at)
            at += size_bytes

    def __len__(self) -> int:
        """Count the blocks, without shared ones."""
        return len(self._fences)

    @property
    def earlier(self) -> dict[str, KeyIndex]:
        """The indexes of the increments before this one, by their ids."""
        indexes = {}
        for each in self._stored.before:
            facts = msgspec.structs.replace(self.facts, after=each.after, version=each.version)
            indexes[each.id] = KeyIndex(_Stored(facts, each.places, each.shared), each.end)
        return indexes

    def as_earlier(self, increment_id: str) -> _Earlier:
        """Return this index as that of a later increment has it."""
        facts = self.facts.after, self.facts.version
        places = self._stored.places, self._stored.shared
        return _Earlier(increment_id, *facts, self._end, *places)

    @property
    def numbers(self) -> range:
        """The numbers of all blocks; those of shared ones are the last."""
        return range(len(self._places))

    def blocks(self, ranges: Iterable[KeyRange]) -> list[int]:
        """Return the numbers of the blocks that have all rows of the keys in some ranges."""
        numbers: set[int] = set()
        for span in ranges:
            low, high = span.low, span.high
            # A block begins at its fence: the last one at or below `low` is the first that counts.
            first = max(bisect_right(self._fences, low) - 1, 0)
            last = len(self) if high is None else bisect_left(self._fences, high)
            numbers.update(range(first, min(max(last, first + 1), len(self))))
            # Rows of wide partitions may lie in shared blocks, which overlap others.
            for number, place in enumerate(self._shared, len(self)):
                if (high is None or place.low <= high) and (
                    place.high is None or low <= place.high
                ):
                    numbers.add(number)
        return sorted(numbers)

    def place(self, number: int) -> tuple[int, int]:
        """Return where a block begins and ends in its object."""
        start = self._starts[number]
        return start, start + self._places[number].size_bytes

    def rows(self, number: int, body: bytes, where: str) -> pa.Table:
        """Return the rows of a block; `where` names its object. Raises CorruptDataError."""
        place = self._places[number]
        if _digest(body, _BLOCK_SUM) != place.checksum:
            raise CorruptDataError(f"block {number} of the key index of {where} is damaged")
        try:
            file = pa.BufferReader(zlib.decompress(body))
            # A thread of Arrow that still holds the body when Python ends would abort the process.
            return pq.ParquetFile(file).read(use_threads=False).cast(SCHEMA)
        except (pa.ArrowException, OSError, ValueError, zlib.error) as error:
            problem = f"block {number} of the key index of {where} cannot be read: {error}"
            raise CorruptDataError(problem) from error


def encode_key_index(
    table_id: str,
    facts: IndexFacts,
    blocks: Iterable[IndexBlock | SharedBlock],
    before: Mapping[str, KeyIndex] | None = None,
) -> bytes:
    """Return blocks and their index, as they lie in the object of a snapshot or increment.

    `before` are the indexes of the increments before this one, by their ids.
    """
    bodies, places = [], []
    shared_bodies, shared = [], []
    for block in blocks:
        body = _encode_rows(block.rows)
        of_body = len(body), _digest(body, _BLOCK_SUM)
        if isinstance(block, SharedBlock):
            shared_bodies.append(body)
            shared.append(_SharedPlace(block.low, block.high, *of_body))
        else:
            bodies.append(body)
            places.append(_Place(block.fence, *of_body))
    bodies += shared_bodies
    earlier = tuple(index.as_earlier(name) for name, index in (before or {}).items())
    form = _Stored(facts, tuple(places), tuple(shared), earlier)
    index = zlib.compress(msgspec.json.encode(form))
    sizes = _SIZES.pack(sum(map(len, bodies)) + len(index) + _TRAILER, len(index))
    return b"".join([*bodies, index, sizes, _index_sum(index, sizes, table_id), _MARK])


def with_key_index(body: bytes, section: bytes) -> bytes:
    """Return a Parquet file with a key index before its footer."""
    at = len(body) - _footer_bytes(body)
    return b"".join([body[:at], section, body[at:]])


def without_key_index(body: bytes) -> bytes:
    """Return the Parquet file alone. Its key index may be of any format, for all end alike."""
    start, end = place_of_key_index(body, len(body))
    return body if start == end else body[:start] + body[end:]


def place_of_key_index(tail: bytes, size_bytes: int) -> tuple[int, int]:
    """Return where the key index begins and ends in an object of so many bytes, by the end of it;
    it ends where it begins if there is none.
    """
    footer = _footer_bytes(tail)
    end, trailer_at = size_bytes - footer, len(tail) - footer - _TRAILER
    if trailer_at < 0 or tail[len(tail) - footer - len(_MAGIC) : len(tail) - footer] != _MAGIC:
        return end, end
    size, _ = _SIZES.unpack_from(tail, trailer_at)
    return max(end - int(size), 0), end


def _encode_rows(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(
        rows,
        sink,
        compression="zstd",
        use_dictionary=["low", "high"],  # type: ignore[arg-type]  # the stubs know no names; those of a partition are the same in all its rows
        write_statistics=False,
        store_schema=False,
    )
    return zlib.compress(sink.getvalue())


def all_rows(table_id: str, body: bytes, where: str) -> pa.Table | None:
    """Return all rows of an object's key index, once; None without it. Raises CorruptDataError."""
    alone = without_footer(body)
    index = decode_key_index(table_id, alone, len(alone), where)
    if index is None:
        return None
    tables = [SCHEMA.empty_table()]
    for number in index.numbers:
        start, end = index.place(number)
        tables.append(index.rows(number, body[start:end], where))
    return distinct_rows(pa.concat_tables(tables).combine_chunks())


def tail_bytes(size_bytes: int, before_bytes: int = 0) -> int:
    """Return how much of the end of an object of so many bytes has most likely all of its index.

    The footer of a Parquet file has 14 KB, a place in the index some 35 bytes for 20 KB of blocks,
    which are a third of a snapshot and half of an increment. It also has those of increments before
    it, of `before_bytes` together.
    """
    places = size_bytes // _TAIL_SHARE + 2 * before_bytes // _TAIL_SHARE
    return min(_TAIL_BYTES + places, size_bytes)


def index_place(body: bytes) -> IndexPlace | None:
    """Return where the index of an object lies, by the end of it; None if it has no index of a form
    that is known here.

    `body` may be so short that it has only a part of the index, or (`bytes_needed`) not even that.
    """
    footer = _footer_bytes(body)
    end = len(body) - footer
    if end < _TRAILER or body[end - len(_MARK) : end] != _MARK:
        return None
    _, size = _SIZES.unpack_from(body, end - _TRAILER)
    return IndexPlace(_TRAILER + int(size), footer)


def bytes_needed(tail: bytes) -> int | None:
    """Return how many bytes of the end of an object hold its index and all that follows; None if it
    has no index of a form that is known here.

    If `tail` is so short that this does not show in it, return how long it must be for that.
    """
    footer = _footer_bytes(tail)
    if len(tail) - footer < _TRAILER:
        return footer + _TRAILER
    place = index_place(tail)
    return place.size_bytes + place.bytes_after if place else None


def without_footer(tail: bytes) -> bytes:
    """Return the end of an object without its footer: it ends where the index does."""
    return tail[: len(tail) - _footer_bytes(tail)]


def decode_key_index(table_id: str, tail: bytes, end: int, where: str) -> KeyIndex | None:
    """Return the index which `tail` ends with, as its object does at `end`; None if it is of no
    form that is known here. `where` names the object in errors.
    Raises CorruptDataError: it is damaged, or another table's.
    """
    if not tail.endswith(_MARK):
        return None
    trailer = tail[len(tail) - _TRAILER :]
    sizes, checksum = trailer[: _SIZES.size], trailer[_SIZES.size :][:_INDEX_SUM]
    _, size = _SIZES.unpack(sizes)
    index = tail[max(len(tail) - _TRAILER - size, 0) : len(tail) - _TRAILER]
    if checksum != _index_sum(index, sizes, table_id):
        raise CorruptDataError(f"the key index of {where} is damaged, or of another table")
    with raise_corrupt(f"the key index of {where} cannot be read"):
        form = decode_json(zlib.decompress(index), _Stored)
    return KeyIndex(form, end - _TRAILER - size)


def _footer_bytes(body: bytes) -> int:
    """Return how many bytes the footer of a Parquet file has, by its end: with its length, in four
    of them, and the four that mark it.
    """
    return int.from_bytes(body[-8:-4], "little") + 8


def _index_sum(index: bytes, sizes: bytes, table_id: str) -> bytes:
    return _digest(index + sizes + table_id.encode(), _INDEX_SUM)


def _digest(body: bytes, size: int) -> bytes:
    return blake2b(body, digest_size=size).digest()


# Rows of a snapshot, and of the increments after it, as the part of a state that they are.

_OF_A_SHARD = ("shard", "shard_rows", "size_bytes", "min_key", "max_key", *_FACTS[1:4])


@dataclass(frozen=True, slots=True)
class _Held:
    """A reference: its partition, and the shard of which `rows` rows are there."""

    partition: str
    span: KeyRange
    shard: Shard
    rows: int


@dataclass(frozen=True, slots=True)
class KnownPart:
    """What is known of some ranges of keys: all leaves there, and all references.

    `partitions` are the ids of all partitions that overlap them, and of some that did before.
    """

    ranges: tuple[KeyRange, ...]
    partitions: frozenset[str]
    leaves: tuple[tuple[str, KeyRange], ...]
    held: tuple[_Held, ...]

    def pieces(self) -> tuple[changes.Piece, ...]:
        """Return the leaves in key order, with their shards as `partitions_to_read` has them."""
        return tuple(self._piece(*leaf) for leaf in self.leaves)

    def _piece(self, leaf: str, span: KeyRange) -> changes.Piece:
        by_shard = sorted(self.held, key=lambda h: h.shard.id)
        own = [h for h in by_shard if h.partition == leaf]
        above = [h for h in by_shard if h.partition != leaf and h.span.covers(span)]
        # Those above a leaf lie within one another: the nearest begins last and ends first.
        above.sort(key=lambda h: (h.span.high is None, h.span.high or b""))
        above.sort(key=lambda h: h.span.low, reverse=True)
        holdings = (*own, *above)
        return changes.Piece(
            span, tuple(h.shard for h in holdings), tuple(h.rows for h in holdings)
        )


def known_part(runs: Iterable[Sequence[pa.Table]], ranges: Sequence[KeyRange]) -> KnownPart:
    """Return what rows say of some ranges: those of a snapshot, then of each increment after it.

    Each run has all rows of the partitions that overlap `ranges`. What a later one says of a
    partition or reference counts.
    Raises ValueError, TypeError: the rows are not what this release writes.
    """
    is_leaf: dict[str, tuple[bool, KeyRange]] = {}
    holdings: dict[tuple[str, str], _Held | None] = {}
    partitions: set[str] = set()
    for run in runs:
        for rows in run:
            for row in rows.filter(_overlapping(rows, ranges)).to_pylist():
                span = KeyRange.between(row["low"], row["high"])
                if not any(span.overlaps(each) for each in ranges):
                    continue
                name = partition_id_of(span)
                partitions.add(name)
                if row["shard"] is None:
                    is_leaf[name] = row["is_leaf"], span
                elif row["gone"]:
                    holdings[name, row["shard"]] = None
                else:
                    holdings[name, row["shard"]] = _Held(name, span, _shard(row), row["rows"])
    leaves = [(name, span) for name, (leaf, span) in is_leaf.items() if leaf]
    leaves.sort(key=lambda leaf: leaf[1].low)
    there = tuple(each for each in holdings.values() if each is not None)
    return KnownPart(tuple(ranges), frozenset(partitions), tuple(leaves), there)


def _shard(row: dict[str, object]) -> Shard:
    return Shard(*(row[name] for name in _OF_A_SHARD))  # type: ignore[arg-type]  # as the schema says


def _overlapping(rows: pa.Table, ranges: Sequence[KeyRange]) -> pa.Array[Any]:
    """Return which rows may overlap ranges, by the bytes of keys, which are in their order."""
    low, high = rows["low"].combine_chunks(), rows["high"].combine_chunks()
    is_in: pa.Array[Any] = pa.repeat(pa.scalar(False), len(rows))
    for span in ranges:
        ends: Any = pc.greater_equal(high, pa.scalar(span.low))
        overlaps = pc.fill_null(ends, pa.scalar(True))
        if span.high is not None:
            begins = pc.less_equal(low, pa.scalar(span.high))
            overlaps = pc.and_(overlaps, begins)
        is_in = pc.or_(is_in, overlaps)
    return is_in


class Concern:
    """Whether a commit after a known part of a state may change what a reader of that part sees:
    what is looked for in the entries after it, in their order.

    No rule is known here, and no verdict: an entry that breaks a rule changes nothing, so whatever
    it is, to take it for one that changes something is safe. The other direction is what the
    property test is about (``tests/unit/statestore/test_partial_reads.py``): what does not concern
    a part by this code changes nothing there by the fold.

    A reader sees leaves, and the shards with references to a leaf or to a partition above it whose
    keys overlap the wanted ones. So an entry concerns the part only if

    - it adds references to such a shard, in a partition that overlaps the wanted keys;
    - it drops one of the known references: the end of a job, or its release after a split;
    - it moves one to a partition above, where a later entry drops it: a job that begins there;
    - it splits a known leaf; or begins all over.
    """

    def __init__(self, part: KnownPart) -> None:
        self._part = part
        self._leaves = {name for name, _ in part.leaves}
        self._held = {(held.partition, held.shard.id) for held in part.held}
        self._shards = {held.shard.id for held in part.held}
        self._is_held_above = any(held.partition not in self._leaves for held in part.held)
        self._is_tree_changed = False

    def is_raised_by(self, entries: Iterable[changes.Entry]) -> bool:
        """Return whether one of the entries that come next may concern the part."""
        return any(self._concerns(entry.transaction) for entry in entries)

    def _concerns(self, transaction: changes.Transaction) -> bool:
        match transaction:
            case changes.AddShards(shards=shards, deletion=deletion):
                return bool(deletion) or any(self._is_seen(new) for new in shards)
            case changes.ReplaceShards(partition=partition, inputs=inputs, outputs=outputs):
                drops = any((partition, shard) in self._held for shard in inputs)
                return drops or any(self._overlaps(new) for new in outputs)
            case changes.SplitPartition(partition=partition):
                return self._splits(partition)
            case changes.ExtendTree(splits=splits):
                return any(self._splits(partition) for partition, _ in splits)
            case changes.ReleaseJob():
                return self._is_held_above
            case changes.AssignJob(partition=partition, inputs=inputs):
                return self._joins(partition, inputs)
            case changes.DeleteShards() | changes.DisputeShards() | changes.ResolveDisputes():
                return False
            case changes.HideRows(deletion=deletion):
                ranges = self._part.ranges
                return any(span.overlaps(each) for span in deletion.spans for each in ranges)
            case changes.ForgetDeletions():
                return False  # what is forgotten hides no row
            case changes.SealSources() | changes.AdoptSegments():
                return False
        return True

    def _joins(self, partition: str, inputs: Iterable[str]) -> bool:
        """Return whether a job may take known references to a partition above them."""
        if partition in self._leaves:
            return False
        may_be_above = self._is_tree_changed or partition in self._part.partitions
        return may_be_above and not self._shards.isdisjoint(inputs)

    def _splits(self, partition: str) -> bool:
        # To split a leaf elsewhere may make partitions over the wanted keys, of unknown ids.
        self._is_tree_changed = True
        return partition in self._leaves

    def _is_seen(self, new: NewShard) -> bool:
        if not self._overlaps(new):
            return False
        places = (partition for partition, _ in new.rows_by_partition)
        return self._is_tree_changed or not self._part.partitions.isdisjoint(places)

    def _overlaps(self, new: NewShard) -> bool:
        span = new.shard.low, new.shard.high
        return any(each.overlaps_span(*span) for each in self._part.ranges)
