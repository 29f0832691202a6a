"""Columns of a snapshot, and the ids in them, which are found where they are.

`maps` has the maps of a state that lie over them.
"""

from __future__ import annotations

import io
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dormouse.errors import CorruptDataError
from dormouse.keys import KeyRange
from dormouse.state.partitions import (
    MOST_IN_A_DICT,
    OverlayMap,
    Partition,
    PartitionReferences,
    Reference,
    Shard,
)
from dormouse.state.state import Dispute, DisputeReason, RowsTaken
from dormouse.stored import checksums

V = TypeVar("V")
Column: TypeAlias = "pa.Array[Any]"
"""An Arrow array of a type that is known where it is used."""
Values: TypeAlias = "pa.ChunkedArray[Any]"
"""The same in pieces."""

_FENCE = 64
_FENCE_OF_DIGESTS = 256
"""A search begins at the nearest of the ids kept as objects, one of so many: it then takes as many
steps in a large table as in a small one. There may be many millions of digests, in which a search
takes little longer for four times as many."""

_MANY_ROWS = 50_000
"""Below this, the memory is not worth the time."""


class StoredIds:
    """Ids in order, each at its place: as text or, if they are 32 hex digits, as the 16 bytes they
    show.
    """

    __slots__ = ("_block", "_data", "_fence", "_offsets", "_size", "column")

    def __init__(self, column: Column) -> None:
        """Hold a column of strings or of 16 bytes each.
        Raises ValueError: the ids are not in order, so that some would not be found.
        """
        check_order(column)
        self.column, self._size = column, len(column)
        self._offsets: memoryview | None = None
        self._block = _FENCE
        if pa.types.is_string(column.type):
            offsets = _view(column.buffers()[1], 4)
            self._offsets = offsets[column.offset : column.offset + self._size + 1]
            self._data = memoryview(column.buffers()[2] or b"")
        else:
            self._block = _FENCE_OF_DIGESTS
            start = column.offset * column.type.byte_width
            self._data = memoryview(column.buffers()[1] or b"")[start:]
        self._fence = [self[place] for place in range(0, self._size, self._block)]

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: int) -> str:
        if self._offsets is None:
            return self._data[16 * place : 16 * place + 16].hex()
        return str(self._data[self._offsets[place] : self._offsets[place + 1]], "utf-8")

    def find(self, name: str) -> int | None:
        """Return the place of an id; None if it is not there."""
        block = bisect_right(self._fence, name) - 1
        if block < 0:
            return None
        start = block * self._block
        if self._fence[block] == name:
            return start
        end = min(self._size, start + self._block)
        # One search of the bytes of these ids takes half the time of comparing six of them.
        if self._offsets is None:
            return self._find_digest(name, start, end)
        return self._find_text(self._offsets, name.encode(), start, end)

    def _find_digest(self, text: str, start: int, end: int) -> int | None:
        """Return the place of 32 hex digits among the ids from `start` to `end`.

        What is found may also lie across two ids.
        """
        try:
            digest = bytes.fromhex(text)
        except ValueError:
            return None
        block = bytes(self._data[16 * start : 16 * end])
        at = block.find(digest)
        while at % 16 and at > 0:
            at = block.find(digest, at + 1)
        place = start + at // 16
        return place if at >= 0 and self[place] == text else None

    def _find_text(self, offsets: memoryview, text: bytes, start: int, end: int) -> int | None:
        """Return the place of an id among those from `start` to `end`.

        What is found may also be a part of a longer id, or lie across two.
        """
        first = offsets[start]
        block = bytes(self._data[first : offsets[end]])
        at = block.find(text)
        while at >= 0:
            place = bisect_right(offsets, first + at, start, end) - 1
            if offsets[place] == first + at and offsets[place + 1] == first + at + len(text):
                return place
            at = block.find(text, at + 1)
        return None


class ChosenIds:
    """Some of other ids, in their order: those at the places from `start` to `stop` of `places`."""

    __slots__ = ("_ids", "_places", "_start", "_stop")

    def __init__(self, ids: StoredIds, places: memoryview, start: int, stop: int) -> None:
        """Choose from `ids`; the places ascend."""
        self._ids, self._places, self._start, self._stop = ids, places, start, stop

    def __len__(self) -> int:
        return self._stop - self._start

    def __getitem__(self, place: int) -> str:
        return self._ids[self._places[self._start + place]]

    def find(self, name: str) -> int | None:
        """Return the place of an id; None if it is not there."""
        inner = self._ids.find(name)
        if inner is None:
            return None
        at = bisect_left(self._places, inner, self._start, self._stop)
        is_there = at < self._stop and self._places[at] == inner
        return at - self._start if is_there else None


SortedIds: TypeAlias = StoredIds | ChosenIds
"""Ids that ascend, each found at its place."""


def column(rows: pa.Table, name: str) -> Column:
    """Return a column that lacks no value. Raises ValueError: it lacks some."""
    values = piece(rows, name)
    if values.null_count:
        raise ValueError(f"{values.null_count} rows have no {name}")
    return values


def piece(rows: pa.Table, name: str) -> Column:
    """Return a column in one piece, as it is if it is one already."""
    return in_one(rows[name])


def in_one(values: Values) -> Column:
    """Return values in one piece, as they are if they are one already."""
    pieces = values.chunks
    return pieces[0] if len(pieces) == 1 else values.combine_chunks()


def places_among(names: Column, ids: Column) -> Column:
    """Return the place of each of the `names` among `ids`; null for one that is not there.

    The ids ascend, so no table of hashes is made of them, which would take more than they do.
    """
    if not len(ids):
        return pa.nulls(len(names), pa.int32())
    last = pa.scalar(len(ids) - 1, pa.int32())
    at = pc.call_function("search_sorted", [ids, names]).cast(pa.int32())
    at = pc.if_else(pc.greater(at, last), last, at)
    is_there = pc.equal(ids.take(at), names)
    places: Column = pc.if_else(is_there, at, pa.scalar(None, pa.int32()))
    return places


def hand_back(rows: int) -> None:
    """Let Arrow's pool hand back to the system what was needed beside so many rows, if many."""
    if rows >= _MANY_ROWS:
        pa.default_memory_pool().release_unused()


def check_order(ids: Column) -> None:
    """Check that ids ascend. Raises ValueError: they do not, so that some would not be found."""
    if not pc.all(pc.less(ids[:-1], ids[1:]), min_count=0).as_py():
        raise ValueError("rows are not in order")


def integers(numbers: Column) -> memoryview:
    """Return a column of signed integers without nulls as a sequence of ints."""
    width = numbers.type.byte_width
    return _view(numbers.buffers()[1], width)[numbers.offset : numbers.offset + len(numbers)]


def narrowed(numbers: Column) -> Column:
    """Return whole numbers in 32 bits each if all of them fit, as versions do unless a table was
    rebuilt or copied: it remembers a great many sources.
    """
    largest = pc.max(pc.abs(numbers)).as_py() or 0
    return numbers.cast(pa.int32()) if largest < 2**31 else numbers


def _view(buffer: pa.Buffer | None, width: int) -> memoryview:
    """Return a buffer, which may be absent or end in padding, as integers of 4 or 8 bytes."""
    octets = memoryview(buffer or b"").cast("B")
    return octets[: len(octets) // width * width].cast("q" if width == 8 else "i")


_DIGITS, _BYTES = 32, 16
_ALL_HEX = re.compile(rb"[0-9a-f]*")


def packed(ids: Column) -> Column | None:
    """Return a column of ids as 16 bytes each; None unless each is 32 lower-case hex digits."""
    lengths = pc.unique(pc.call_function("binary_length", [ids])).to_pylist()
    data = ids.buffers()[2]
    if lengths != [_DIGITS] or data is None:
        return None
    start = _DIGITS * ids.offset
    text = data.to_pybytes()[start : start + _DIGITS * len(ids)]
    if not _ALL_HEX.fullmatch(text):
        return None
    return pa.Array.from_buffers(
        pa.binary(_BYTES), len(ids), [None, pa.py_buffer(bytes.fromhex(text.decode()))]
    )


def unpacked(digests: Column) -> Column:
    """Return the ids which `packed` made 16 bytes each."""
    start = _BYTES * digests.offset
    buffer = digests.buffers()[1] if len(digests) else None
    data = buffer.to_pybytes()[start : start + _BYTES * len(digests)] if buffer else b""
    offsets = pa.array(range(0, _DIGITS * len(digests) + 1, _DIGITS), pa.int32())
    buffers = [None, offsets.buffers()[1], pa.py_buffer(data.hex().encode())]
    return pa.Array.from_buffers(pa.string(), len(digests), buffers)


# Columns as the base of a state's maps: only entries that are looked up become objects.
#
# A million references are a few Arrow buffers instead of some ten million objects. Rows are sorted
# by id and found there (`columns`); those found last are remembered, since the rules and the fold
# ask for the same ones several times. `codec` makes the maps of what it reads, and takes the
# columns as they are when the state is written again.


_REMEMBERED = 1024
"""How many values of a map stay objects once they were asked for: those of a few hundred commits,
in a megabyte or less."""


class ColumnMap(Generic[V]):
    """A base (`state.partitions.Base`) of rows by id, each made into a value when asked for."""

    __slots__ = ("_found", "_ids", "_value")

    def __init__(self, ids: SortedIds, value: Callable[[int], V]) -> None:
        """Hold rows whose ids are `ids`, and of which `value` makes the value of the n-th."""
        self._ids, self._value = ids, value

        # It knows nothing of this object: a circle would keep its columns until the next run of
        # Python's cyclic collector.
        @lru_cache(_REMEMBERED)
        def found(key: str) -> V | None:
            place = ids.find(key)
            return None if place is None else value(place)

        self._found = found

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, key: object) -> bool:
        # Most are asked for to learn that they are new. To remember those would forget others.
        return isinstance(key, str) and self._ids.find(key) is not None

    def __iter__(self) -> Iterator[str]:
        return (self._ids[place] for place in range(len(self._ids)))

    def get(self, key: str, /) -> V | None:
        """Return the value of the row of an id; None if there is none."""
        return self._found(key)

    def items(self) -> Iterator[tuple[str, V]]:
        """Return ids and values in order."""
        return ((self._ids[place], self._value(place)) for place in range(len(self._ids)))


class HeldMap(Generic[V]):
    """A base (`partitions.Base`) of a few rows, which become objects together once one is read."""

    __slots__ = ("_entries", "_read", "_size")

    def __init__(self, size: int, read: Callable[[], dict[str, V]]) -> None:
        """Hold `size` rows, which `read` returns."""
        self._size, self._read = size, read
        self._entries: dict[str, V] | None = None

    def _all(self) -> dict[str, V]:
        if self._entries is None:
            self._entries = self._read()
        return self._entries

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: object) -> bool:
        return key in self._all()

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def get(self, key: str, /) -> V | None:
        """Return the value of the row of an id; None if there is none."""
        return self._all().get(key)

    def items(self) -> Iterable[tuple[str, V]]:
        """Return ids and values in order."""
        return self._all().items()


class StoredMap(ColumnMap[V]):
    """Rows found by id, all of whose columns are here as a snapshot holds them."""

    __slots__ = ("rows",)

    def __init__(self, ids: SortedIds, value: Callable[[int], V], rows: pa.Table) -> None:
        """Hold `rows`, sorted by `ids`."""
        super().__init__(ids, value)
        self.rows = rows


class ReferenceMap(StoredMap[PartitionReferences]):
    """The references of each partition that has some, lying one after the other in `rows`.

    They name partition and shard by their rows among `partitions` and `shards`.
    """

    __slots__ = ("partitions", "shards")

    def __init__(self, rows: pa.Table, partitions: StoredIds, shards: StoredIds) -> None:
        """Hold references sorted by partition and shard.
        Raises ValueError: they are not, or name a partition which is not there.
        """
        self.partitions, self.shards = partitions, shards
        high = pc.shift_left(column(rows, "partition_row").cast(pa.int64()), 32)
        check_order(pc.add(high, column(rows, "shard_row").cast(pa.int64())))
        runs = pc.call_function("run_end_encode", [column(rows, "partition_row")])
        holders, ends = integers(runs.values), integers(runs.run_ends)
        if len(holders) and not 0 <= holders[0] <= holders[-1] < len(partitions):
            raise ValueError("there are references to partitions which are not there")
        held_shards, counts = integers(column(rows, "shard_row")), integers(column(rows, "rows"))
        exact, job = column(rows, "exact"), piece(rows, "job")
        rows_to = _sums_to(column(rows, "rows"), runs.run_ends)
        free_to = _sums_to(pc.is_null(job), runs.run_ends)
        names = ChosenIds(partitions, holders, 0, len(holders))

        def held(run: int) -> PartitionReferences:
            start, stop = ends[run - 1] if run else 0, ends[run]
            partition, ids = names[run], ChosenIds(shards, held_shards, start, stop)

            def reference(place: int) -> Reference:
                at = start + place
                free_or_job = job[at].as_py()
                return Reference(partition, ids[place], counts[at], exact[at].as_py(), free_or_job)

            def all_of_them() -> dict[str, Reference]:
                names = [ids[place] for place in range(stop - start)]
                marks = (each[start:stop].to_pylist() for each in (exact, job))
                rows = zip(names, counts[start:stop], *marks, strict=True)
                return {row[0]: Reference(partition, *row) for row in rows}

            few = stop - start <= MOST_IN_A_DICT
            return PartitionReferences(
                HeldMap(stop - start, all_of_them)
                if few
                else OverlayMap(ColumnMap(ids, reference)),
                rows_to[run + 1] - rows_to[run],
                free_to[run + 1] - free_to[run],
            )

        super().__init__(names, held, rows)


def shard_columns(rows: pa.Table, ids: StoredIds) -> StoredMap[Shard]:
    """Return the shards whose columns are `rows`."""
    counts, sizes = integers(column(rows, "rows")), integers(column(rows, "size_bytes"))
    low, high = column(rows, "min_key"), column(rows, "max_key")
    sequence, tags = integers(column(rows, "sequence")), column(rows, "tags")
    versions = integers(column(rows, "version"))

    def shard(place: int) -> Shard:
        span, own = (low[place].as_py(), high[place].as_py()), tags[place].as_py()
        facts = counts[place], sizes[place], *span, sequence[place]
        return Shard(ids[place], *facts, tags=own, version=versions[place])

    return StoredMap(ids, shard, rows)


def partition_columns(rows: pa.Table, ids: StoredIds) -> StoredMap[Partition]:
    """Return the partitions whose columns are `rows`."""
    low, heights = column(rows, "min_key"), integers(column(rows, "height"))
    high, parent, children = (piece(rows, name) for name in ("max_key", "parent", "children"))

    def partition(place: int) -> Partition:
        halves = children[place].as_py()
        return Partition(
            ids[place],
            KeyRange.between(low[place].as_py(), high[place].as_py()),
            parent[place].as_py(),
            None if halves is None else (halves[0], halves[1]),
            heights[place],
        )

    return StoredMap(ids, partition, rows)


def taken_columns(rows: pa.Table) -> StoredMap[tuple[RowsTaken, ...]]:
    """Return what was taken of shards, whose columns are `rows`."""
    takings = column(rows, "takings")

    def value(place: int) -> tuple[RowsTaken, ...]:
        return tuple(
            RowsTaken(
                each["job"],
                each["partition"],
                each["rows"],
                KeyRange.between(each["low"], each["high"]),
            )
            for each in takings[place].as_py()
        )

    return StoredMap(StoredIds(column(rows, "id")), value, rows)


def dispute_columns(rows: pa.Table) -> StoredMap[Dispute]:
    """Return the disputes whose columns are `rows`. Raises ValueError: a reason is not known."""
    times, jobs = integers(column(rows, "time_ms")), column(rows, "inputs")
    reasons = [DisputeReason(text) for text in piece(rows, "reason").to_pylist()]

    def value(place: int) -> Dispute:
        return Dispute(reasons[place], times[place], tuple(jobs[place].as_py()))

    return StoredMap(StoredIds(column(rows, "id")), value, rows)


def _sums_to(numbers: Column, ends: Column) -> memoryview:
    """Return the sums of the numbers before each end, after a 0."""
    sums = pc.cumulative_sum(numbers.cast(pa.int64())).take(pc.subtract(ends, 1))
    return integers(pa.concat_arrays([pa.array([0], pa.int64()), sums]))


# The Parquet files state is kept in: what is common to deltas and snapshots; used by the codecs.
#
# The footer says of each file what it is and in which format, and has a checksum of all of it, so
# that a foreign file, one that is not as it was written, or one from a later version of Dormouse is
# refused before any of it is believed.

_KIND, _FORMAT, _CHECKSUM = "dormouse.kind", "dormouse.format", "dormouse.checksum"


def write_file(
    tables: Iterable[pa.Table],
    schema: pa.Schema,
    kind: str,
    version: int,
    facts: Mapping[str, str],
    *,
    repeating: Sequence[str] = (),
    ascending: Sequence[str] = (),
) -> bytes:
    """Return a file with a row group for each of `tables`, and `facts` in its footer.

    The `repeating` columns have few values, each kept once. Each value of the `ascending` ones is
    kept without what it has in common with the beginning of the one before it.
    """
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        # Ids hardly repeat: dictionaries make the files larger.
        use_dictionary=list(repeating),  # type: ignore[arg-type]  # the stubs know no names
        column_encoding=dict.fromkeys(ascending, "DELTA_BYTE_ARRAY"),
        write_statistics=False,
        store_schema=False,
    ) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=max(1, table.num_rows))
        of_file = {_KIND: kind, _FORMAT: str(version), _CHECKSUM: checksums.BLANK}
        writer.add_key_value_metadata({**facts, **of_file})
    return checksums.with_checksum(sink.getvalue())


def open_file(
    body: bytes, kind: str, version: int, where: str
) -> tuple[pq.ParquetFile, dict[str, str]]:
    """Return a file, of which no row is read yet, and the facts in its footer.
    Raises CorruptDataError: it is damaged, not of this kind, or of another format than `version`.
    """
    try:
        checksums.verify(body)
        file = pq.ParquetFile(pa.BufferReader(body))
        metadata = file.metadata.metadata or {}
        facts = {key.decode(): value.decode() for key, value in metadata.items()}
        facts.pop(_CHECKSUM, None)
        if facts.get(_KIND) != kind:
            raise CorruptDataError(f"{where} is not a Dormouse {kind}")
        format_number = int(facts.get(_FORMAT, ""))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptDataError(f"{where} is not a Dormouse {kind}: {error}") from error
    if format_number != version:
        raise CorruptDataError(
            f"{where} is a {kind} of format {format_number}; the one known here is {version}",
            hint="it was written by a later version: upgrade this one"
            if format_number > version
            else "it was written by an earlier version: read it with that one",
        )
    return file, facts
