"""Columns of a snapshot, and the ids in them, which are found where they are.

`maps` has the maps of a state that lie over them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

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

    __slots__ = ("_block", "_data", "_fence", "_offsets", "_size", "column")

    def __init__(self, column: Column) -> None:
        """Hold a column of strings or of 16 bytes each.

        Raises:
            ValueError: the ids are not in order, so that some would not be found.
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
        start = block * self._block
        if self._fence[block] == wanted:
            return start
        end = min(self._size, start + self._block)
        # One search of the bytes of these ids takes half the time of comparing six of them.
        if self._offsets is None:
            return self._find_digest(wanted, start, end)
        return self._find_text(self._offsets, wanted.encode(), start, end)

    def _find_digest(self, wanted: str, start: int, end: int) -> int | None:
        """Return the place of 32 hex digits among the ids from `start` to `end`.

        What is found may also lie across two ids.
        """
        try:
            digest = bytes.fromhex(wanted)
        except ValueError:
            return None
        block = bytes(self._data[16 * start : 16 * end])
        at = block.find(digest)
        while at % 16 and at > 0:
            at = block.find(digest, at + 1)
        place = start + at // 16
        return place if at >= 0 and self[place] == wanted else None

    def _find_text(self, offsets: memoryview, wanted: bytes, start: int, end: int) -> int | None:
        """Return the place of an id among those from `start` to `end`.

        What is found may also be a part of a longer id, or lie across two.
        """
        first = offsets[start]
        block = bytes(self._data[first : offsets[end]])
        at = block.find(wanted)
        while at >= 0:
            place = bisect_right(offsets, first + at, start, end) - 1
            if offsets[place] == first + at and offsets[place + 1] == first + at + len(wanted):
                return place
            at = block.find(wanted, at + 1)
        return None


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
    return in_one(rows[name])


def in_one(values: Values) -> Column:
    """Return values in one piece, as they are if they are one already."""
    pieces = values.chunks
    return pieces[0] if len(pieces) == 1 else values.combine_chunks()


def places_among(wanted: Column, ids: Column) -> Column:
    """Return the place of each of the `wanted` among `ids`; null for one that is not there.

    The ids ascend, so no table of hashes is made of them, which would take more than they do.
    """
    if not len(ids):
        return pa.nulls(len(wanted), pa.int32())
    last = pa.scalar(len(ids) - 1, pa.int32())
    at = pc.call_function("search_sorted", [ids, wanted]).cast(pa.int32())
    at = pc.if_else(pc.greater(at, last), last, at)
    is_there = pc.equal(ids.take(at), wanted)
    places: Column = pc.if_else(is_there, at, pa.scalar(None, pa.int32()))
    return places


def hand_back(rows: int) -> None:
    """Let Arrow's pool hand back to the system what was needed beside so many rows, if many."""
    if rows >= _MANY_ROWS:
        pa.default_memory_pool().release_unused()


def check_order(ids: Column) -> None:
    """Check that ids ascend.

    Raises:
        ValueError: they do not, so that some would not be found.
    """
    if not pc.all(pc.less(ids[:-1], ids[1:]), min_count=0).as_py():
        raise ValueError("rows are not in order")


def integers(numbers: Column) -> memoryview:
    """Return a column of signed integers without nulls as a sequence of ints."""
    width = numbers.type.byte_width
    return _view(numbers.buffers()[1], width)[numbers.offset : numbers.offset + len(numbers)]


def narrowed(numbers: Column) -> Column:
    """Return whole numbers in 32 bits each if all of them fit, as versions do: a table remembers a
    great many sources.
    """
    largest = pc.max(pc.abs(numbers)).as_py() or 0
    return numbers.cast(pa.int32()) if largest < 2**31 else numbers


def _view(buffer: pa.Buffer | None, width: int) -> memoryview:
    """Return a buffer, which may be absent or end in padding, as integers of 4 or 8 bytes."""
    stored = memoryview(buffer or b"").cast("B")
    return stored[: len(stored) // width * width].cast("q" if width == 8 else "i")


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
    stored = digests.buffers()[1] if len(digests) else None
    data = stored.to_pybytes()[start : start + _BYTES * len(digests)] if stored else b""
    offsets = pa.array(range(0, _DIGITS * len(digests) + 1, _DIGITS), pa.int32())
    buffers = [None, offsets.buffers()[1], pa.py_buffer(data.hex().encode())]
    return pa.Array.from_buffers(pa.string(), len(digests), buffers)
