"""Columns as the base of a state's maps: only entries that are looked up become objects.

A million references are a few Arrow buffers instead of some ten million objects. Rows are sorted by
id and found there (`columns`); those found last are remembered, since the rules and the fold ask
for the same ones several times. `codec` makes the maps of what it reads, and takes the columns as
they are when the state is written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.keys.ranges import KeyRange
from dormouse.model.disputes import Dispute, DisputeReason, RowsTaken
from dormouse.model.overlay_map import OverlayMap
from dormouse.model.partitions import Partition
from dormouse.model.shards import MOST_IN_A_DICT, PartitionReferences, Reference, Shard
from dormouse.statestore.snapshot.columns import (
    ChosenIds,
    Column,
    SortedIds,
    StoredIds,
    check_order,
    column,
    integers,
    piece,
)

V = TypeVar("V")

_REMEMBERED = 1024
"""How many values of a map stay objects once they were asked for: those of a few hundred commits,
in a megabyte or less."""


class ColumnMap(Generic[V]):
    """A base (`overlay_map.Base`) of rows found by id, each made into a value when asked for."""

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
        """Count the rows."""
        return len(self._ids)

    def __contains__(self, key: object) -> bool:
        """Return whether there is a row of that id."""
        # Most are asked for to learn that they are new. To remember those would forget others.
        return isinstance(key, str) and self._ids.find(key) is not None

    def __iter__(self) -> Iterator[str]:
        """Return the ids in order."""
        return (self._ids[place] for place in range(len(self._ids)))

    def get(self, key: str, /) -> V | None:
        """Return the value of the row of an id; None if there is none."""
        return self._found(key)

    def items(self) -> Iterator[tuple[str, V]]:
        """Return ids and values in order."""
        return ((self._ids[place], self._value(place)) for place in range(len(self._ids)))


class HeldMap(Generic[V]):
    """A base (`overlay_map.Base`) of a few rows, which become objects together once one is asked
    for.
    """

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
        """Count the rows."""
        return self._size

    def __contains__(self, key: object) -> bool:
        """Return whether there is a row of that id."""
        return key in self._all()

    def __iter__(self) -> Iterator[str]:
        """Return the ids in order."""
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

        Raises:
            ValueError: they are not, or name a partition which is not there.
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

    def shard(place: int) -> Shard:
        span = low[place].as_py(), high[place].as_py()
        return Shard(ids[place], counts[place], sizes[place], *span)

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


def remembered_columns(rows: pa.Table, ids: StoredIds, number: str) -> StoredMap[int]:
    """Return the numbers of ids, times or versions, which the column of that name has."""
    return StoredMap(ids, integers(column(rows, number)).__getitem__, rows)


def number_columns(numbers: Column, ids: StoredIds) -> ColumnMap[int]:
    """Return a number for each id."""
    return ColumnMap(ids, integers(numbers).__getitem__)


def taken_columns(rows: pa.Table) -> StoredMap[tuple[RowsTaken, ...]]:
    """Return what was taken of shards, whose columns are `rows`."""
    takings = column(rows, "takings")

    def value(place: int) -> tuple[RowsTaken, ...]:
        return tuple(
            RowsTaken(
                taken["job"],
                taken["partition"],
                taken["rows"],
                KeyRange.between(taken["low"], taken["high"]),
            )
            for taken in takings[place].as_py()
        )

    return StoredMap(StoredIds(column(rows, "id")), value, rows)


def dispute_columns(rows: pa.Table) -> StoredMap[Dispute]:
    """Return the disputes whose columns are `rows`.

    Raises:
        ValueError: one has a reason that is not known here.
    """
    times, jobs = integers(column(rows, "time_ms")), column(rows, "inputs")
    reasons = [DisputeReason(text) for text in piece(rows, "reason").to_pylist()]

    def value(place: int) -> Dispute:
        return Dispute(reasons[place], times[place], tuple(jobs[place].as_py()))

    return StoredMap(StoredIds(column(rows, "id")), value, rows)


def _sums_to(numbers: Column, ends: Column) -> memoryview:
    """Return the sums of the numbers before each end, after a 0."""
    sums = pc.cumulative_sum(numbers.cast(pa.int64())).take(pc.subtract(ends, 1))
    return integers(pa.concat_arrays([pa.array([0], pa.int64()), sums]))
