"""Columns as the base of a state's maps: only entries that are looked up become objects.

A million references are a few Arrow buffers instead of some ten million objects. Rows are sorted by
id and found by binary search. `codec` makes them of what it reads, and takes them as they
are when the state is written again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.key_forms.stored import decode_key
from dormouse.keys.ranges import KeyRange
from dormouse.model.overlay_map import OverlayMap
from dormouse.model.partitions import Partition
from dormouse.model.shards import PartitionReferences, Reference, Shard

V = TypeVar("V")
Column: TypeAlias = "pa.Array[Any]"
"""An Arrow array of a type that is known where it is used."""

_FENCE = 256
"""A search begins at the nearest of the ids kept as objects, one of so many: it then takes as many
steps in a large table as in a small one."""


class SortedIds(ABC):
    """Ids in order, each at its place."""

    @abstractmethod
    def __len__(self) -> int:
        """Count the ids."""

    @abstractmethod
    def __getitem__(self, place: int) -> str:
        """Return the id at a place from 0 to the count."""

    @abstractmethod
    def find(self, wanted: str) -> int | None:
        """Return the place of an id; None if it is not there."""


class StoredIds(SortedIds):
    """Ids that are kept here: as text or, if they are 32 hex digits, as the 16 bytes they show."""

    __slots__ = ("_data", "_fence", "_offsets", "_size", "column")

    def __init__(self, column: Column) -> None:
        """Hold a column of strings or of 16 bytes each.

        Raises:
            ValueError: the ids are not in order, so that some would not be found.
        """
        _check_order(column)
        self.column, self._size = column, len(column)
        self._offsets: memoryview | None = None
        if pa.types.is_string(column.type):
            offsets = _view(column.buffers()[1], 4)
            self._offsets = offsets[column.offset : column.offset + self._size + 1]
            self._data = memoryview(column.buffers()[2] or b"")
        else:
            start = column.offset * column.type.byte_width
            self._data = memoryview(column.buffers()[1] or b"")[start:]
        self._fence = [self[place] for place in range(0, self._size, _FENCE)]

    def __len__(self) -> int:
        """Count the ids."""
        return self._size

    def __getitem__(self, place: int) -> str:
        """Return the id at a place."""
        if self._offsets is None:
            return self._data[16 * place : 16 * place + 16].hex()
        return str(self._data[self._offsets[place] : self._offsets[place + 1]], "utf-8")

    def find(self, wanted: str) -> int | None:
        """Return the place of an id; None if it is not there."""
        block = bisect_right(self._fence, wanted) - 1
        if block < 0:
            return None
        end = min(self._size, (block + 1) * _FENCE)
        place = bisect_left(self, wanted, block * _FENCE, end)
        return place if place < end and self[place] == wanted else None


class ChosenIds(SortedIds):
    """Some of other ids, in their order: those at the places from `start` to `stop` of `places`."""

    __slots__ = ("_ids", "_places", "_start", "_stop")

    def __init__(self, ids: SortedIds, places: memoryview, start: int, stop: int) -> None:
        """Choose from `ids`; the places ascend."""
        self._ids, self._places, self._start, self._stop = ids, places, start, stop

    def __len__(self) -> int:
        """Count the ids."""
        return self._stop - self._start

    def __getitem__(self, place: int) -> str:
        """Return the id at a place."""
        return self._ids[self._places[self._start + place]]

    def find(self, wanted: str) -> int | None:
        """Return the place of an id; None if it is not there."""
        chosen = self._ids.find(wanted)
        if chosen is None:
            return None
        at = bisect_left(self._places, chosen, self._start, self._stop)
        found = at < self._stop and self._places[at] == chosen
        return at - self._start if found else None


class ColumnMap(Generic[V]):
    """A base (`overlay_map.Base`) of rows found by id, each made into a value when asked for."""

    __slots__ = ("_ids", "_value")

    def __init__(self, ids: SortedIds, value: Callable[[int], V]) -> None:
        """Hold rows whose ids are `ids`, and of which `value` makes the value of the n-th."""
        self._ids, self._value = ids, value

    def __len__(self) -> int:
        """Count the rows."""
        return len(self._ids)

    def __contains__(self, key: object) -> bool:
        """Return whether there is a row of that id."""
        return isinstance(key, str) and self._ids.find(key) is not None

    def __iter__(self) -> Iterator[str]:
        """Return the ids in order."""
        return (self._ids[place] for place in range(len(self._ids)))

    def get(self, key: str, /) -> V | None:
        """Return the value of the row of an id; None if there is none."""
        place = self._ids.find(key)
        return None if place is None else self._value(place)

    def items(self) -> Iterator[tuple[str, V]]:
        """Return ids and values in order."""
        return ((self._ids[place], self._value(place)) for place in range(len(self._ids)))


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

        Raises:
            ValueError: they are not, or name a partition which is not there.
        """
        self.partitions, self.shards = partitions, shards
        high = pc.shift_left(column(rows, "partition_row").cast(pa.int64()), 32)
        _check_order(pc.add(high, column(rows, "shard_row").cast(pa.int64())))
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

            return PartitionReferences(
                OverlayMap(ColumnMap(ids, reference)),
                rows_to[run + 1] - rows_to[run],
                free_to[run + 1] - free_to[run],
            )

        super().__init__(names, held, rows)


def shard_columns(rows: pa.Table, ids: StoredIds) -> StoredMap[Shard]:
    """Return the shards whose columns are `rows`."""
    counts, sizes = integers(column(rows, "rows")), integers(column(rows, "size_bytes"))
    low, high = column(rows, "min_key"), column(rows, "max_key")

    def shard(place: int) -> Shard:
        span = decode_key(low[place].as_py()), decode_key(high[place].as_py())
        return Shard(ids[place], counts[place], sizes[place], *span)

    return StoredMap(ids, shard, rows)


def partition_columns(rows: pa.Table, ids: StoredIds) -> StoredMap[Partition]:
    """Return the partitions whose columns are `rows`."""
    low, heights = column(rows, "min_key"), integers(column(rows, "height"))
    high, parent, children = (piece(rows, name) for name in ("max_key", "parent", "children"))

    def partition(place: int) -> Partition:
        end, halves = high[place].as_py(), children[place].as_py()
        return Partition(
            ids[place],
            KeyRange(decode_key(low[place].as_py()), None if end is None else decode_key(end)),
            parent[place].as_py(),
            None if halves is None else (halves[0], halves[1]),
            heights[place],
        )

    return StoredMap(ids, partition, rows)


def remembered_columns(rows: pa.Table, ids: StoredIds, number: str) -> StoredMap[int]:
    """Return the numbers of ids, times or versions, which the column of that name has."""
    return StoredMap(ids, integers(column(rows, number)).__getitem__, rows)


def number_columns(numbers: Column, ids: StoredIds) -> ColumnMap[int]:
    """Return a number for each id."""
    return ColumnMap(ids, integers(numbers).__getitem__)


def column(rows: pa.Table, name: str) -> Column:
    """Return a column that lacks no value.

    Raises:
        ValueError: it lacks some.
    """
    values = piece(rows, name)
    if values.null_count:
        raise ValueError(f"{values.null_count} rows have no {name}")
    return values


def piece(rows: pa.Table, name: str) -> Column:
    """Return a column in one piece, as it is if it is one already."""
    pieces = rows[name].chunks
    return pieces[0] if len(pieces) == 1 else rows[name].combine_chunks()


def _check_order(ids: Column) -> None:
    if not pc.all(pc.less(ids[:-1], ids[1:]), min_count=0).as_py():
        raise ValueError("rows are not in order")


def _sums_to(numbers: Column, ends: Column) -> memoryview:
    """Return the sums of the numbers before each end, after a 0."""
    sums = integers(pc.cumulative_sum(numbers.cast(pa.int64())))
    return memoryview(array("q", [0, *(sums[end - 1] for end in integers(ends))]))


def integers(numbers: Column) -> memoryview:
    """Return a column of signed integers without nulls as a sequence of ints."""
    width = numbers.type.byte_width
    return _view(numbers.buffers()[1], width)[numbers.offset : numbers.offset + len(numbers)]


def _view(buffer: pa.Buffer | None, width: int) -> memoryview:
    """Return a buffer, which may be absent or end in padding, as integers of 4 or 8 bytes."""
    stored = memoryview(buffer or b"").cast("B")
    return stored[: len(stored) // width * width].cast("q" if width == 8 else "i")
