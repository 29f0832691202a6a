"""The order of rows: which columns sort them, and proof that they are sorted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.types import Array, key_column, key_part, row_key
from dormouse.errors import UnsortedRowsError
from dormouse.keys.ranges import Key, KeyRange
from dormouse.schema.schema import Field, Schema

_SIDES = ("left", "right")


class OrderCheck:
    """Sees the batches of a sorted stream go by and raises at the first row out of order."""

    def __init__(self, schema: Schema) -> None:
        """Check by the keys of `schema`, which are the first columns of the batches."""
        self._schema = schema
        self._rows = 0
        self._last: Key | None = None

    def see(self, batch: pa.RecordBatch) -> None:
        """Check that the rows of `batch` ascend, and follow those seen before.

        Raises:
            UnsortedRowsError: they do not; the message says where.
        """
        if not batch.num_rows:
            return
        first = sort_key(batch, 0, self._schema)
        if self._last is not None and first < self._last:
            raise self._error(self._rows)
        descents = _descents(batch, len(self._schema.keys))
        if descents is not None and pc.any(descents).as_py():
            row = pc.index(descents, True).as_py()
            raise self._error(self._rows + row + 1)
        self._rows += batch.num_rows
        self._last = sort_key(batch, batch.num_rows - 1, self._schema)

    def _error(self, row: int) -> UnsortedRowsError:
        return UnsortedRowsError(
            f"rows are not sorted: the key of row {row} is less than that of the row before it"
        )


def rows_below(batch: pa.RecordBatch, bound: Key, schema: Schema) -> int:
    """Count the rows of a sorted batch whose key is less than `bound`, which may be a prefix.

    The batch has its keys first, as many of them as the bound has parts.
    """
    fields = schema.keys[: len(bound)]
    return bisect_left(range(batch.num_rows), bound, key=lambda row: _parts(batch, row, fields))


def row_span(batch: pa.RecordBatch, key: Key, schema: Schema) -> tuple[int, int]:
    """Count the rows of a sorted batch that come before `key`, and those that come up to it.

    `key` may have any of the parts of a row's keys, sort keys included, from the first on: rows
    that begin with it lie between the two.
    """
    return _narrowed(batch, key, 0, (0, batch.num_rows), schema)


def row_spans(batch: pa.RecordBatch, keys: Sequence[Key], schema: Schema) -> list[tuple[int, int]]:
    """Return `row_span` for many keys, of one part at least, found together."""
    firsts = key_column([key[0] for key in keys], schema.keys[0].type)
    lows, highs = (_places(batch.column(0), firsts, side) for side in _SIDES)
    spans = zip(lows, highs, strict=True)
    return [_narrowed(batch, key, 1, span, schema) for key, span in zip(keys, spans, strict=True)]


def _narrowed(
    batch: pa.RecordBatch, key: Key, known: int, span: tuple[int, int], schema: Schema
) -> tuple[int, int]:
    """Narrow the span of the first `known` parts of a key to that of the key."""
    low, high = span
    for i in range(known, len(key)):
        if low == high:
            break
        cells = batch.column(i).slice(low, high - low)
        part = key_column([key[i]], schema.keys[i].type)
        low, high = (low + _places(cells, part, side)[0] for side in _SIDES)
    return low, high


def _places(cells: Array, values: Array, side: str) -> list[int]:
    found = pc.search_sorted(cells, values, side=side)  # type: ignore[attr-defined]  # stubs lag
    return cast("list[int]", found.to_pylist())


def sort_key(batch: pa.RecordBatch, row: int, schema: Schema) -> Key:
    """Return the row keys and sort keys of one row of `batch`, which has them first."""
    return _parts(batch, row, schema.keys)


def rows_in_ranges(
    batch: pa.RecordBatch, ranges: Sequence[KeyRange], schema: Schema
) -> Iterator[pa.RecordBatch]:
    """Return what of a sorted batch lies in each of some disjoint ascending ranges.

    It has its keys first, the row keys and as many sort keys as the ranges have ends with.
    """
    if not batch.num_rows:
        return
    low, high = row_key(batch, 0, schema), row_key(batch, batch.num_rows - 1, schema)
    for wanted in ranges:
        if wanted.contains_span(low, high):
            yield batch
        elif wanted.overlaps_span(low, high):
            start = rows_below(batch, wanted.min, schema)
            end = batch.num_rows if wanted.max is None else rows_below(batch, wanted.max, schema)
            if start < end:
                yield batch.slice(start, end - start)


def _parts(batch: pa.RecordBatch, row: int, fields: Sequence[Field]) -> Key:
    return tuple(key_part(batch.column(i)[row], field.type) for i, field in enumerate(fields))


def _descents(batch: pa.RecordBatch, keys: int) -> pa.BooleanArray | None:
    """Return for each row but the last whether the next has a lesser key; None if none has."""
    if batch.num_rows < 2:
        return None
    before, after = batch.slice(0, batch.num_rows - 1), batch.slice(1)
    descents: pa.BooleanArray | None = None
    equal: pa.BooleanArray | None = None
    for i in range(keys):
        greater = pc.greater(before.column(i), after.column(i))
        here = greater if equal is None else pc.and_(equal, greater)
        descents = here if descents is None else pc.or_(descents, here)
        if i + 1 == keys:
            break
        same = pc.equal(before.column(i), after.column(i))
        equal = same if equal is None else pc.and_(equal, same)
        if not pc.any(equal).as_py():
            break
    return descents
