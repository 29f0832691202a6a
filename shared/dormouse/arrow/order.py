"""The sort order of rows: check it, and find the positions of keys in sorted batches."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, cast

import pyarrow as pa

from dormouse.arrow.types import Array
from dormouse.errors import UnsortedRowsError
from dormouse.key_forms.arrow import FEW_ROWS, key_column, key_part, row_key, taken_keys
from dormouse.keys.ranges import Key, KeyRange, encode_key
from dormouse.schema.schema import Field, Schema

_SIDES = ("left", "right")
MANY = 8
"""Rows that are more than this part (1/8) of a batch are compared where they are, not taken out."""


class OrderCheck:
    """Checks that the batches of a stream are sorted, and raises at the first row out of order."""

    def __init__(self, schema: Schema) -> None:
        """Check by the keys of `schema`, which must be the first columns of the batches."""
        self._schema = schema
        self._rows = 0
        self._last: Key | None = None

    def see(self, batch: pa.RecordBatch) -> None:
        """Check that the rows of `batch` ascend, and follow the rows of the batch before.

        Raises:
            UnsortedRowsError: they do not; the message names the row.
        """
        if not batch.num_rows:
            return
        first = sort_key(batch, 0, self._schema)
        if self._last is not None and first < self._last:
            raise self._error(self._rows)
        if (row := _first_descent(batch, len(self._schema.keys))) is not None:
            raise self._error(self._rows + row + 1)
        self._rows += batch.num_rows
        self._last = sort_key(batch, batch.num_rows - 1, self._schema)

    def _error(self, row: int) -> UnsortedRowsError:
        return UnsortedRowsError(
            f"rows are not sorted: the key of row {row} is less than that of the row before it"
        )


def rows_below(batch: pa.RecordBatch, bound: Key, schema: Schema) -> int:
    """Return the number of rows of a sorted batch whose key is less than `bound`,
    which may be a prefix of a key.

    The batch must begin with as many key columns as the bound has parts.
    """
    fields = schema.keys[: len(bound)]
    return bisect_left(range(batch.num_rows), bound, key=lambda row: _parts(batch, row, fields))


def row_span(batch: pa.RecordBatch, key: Key, schema: Schema) -> tuple[int, int]:
    """Return the positions of the first row of a sorted batch that begins with `key`,
    and of the first row after those.

    `key` may be any prefix of a row's keys, sort keys included. If no row begins with it, both
    positions are where such a row would be inserted.

    For example, in a batch with the keys (a, 1) (a, 2) (b, 1) (c, 1), the span of ("a",) is (0, 2),
    of ("b", 1) it is (2, 3), and of ("b", 0) it is (2, 2).
    """
    return _narrowed(batch, key, 0, (0, batch.num_rows), schema)


def row_spans(batch: pa.RecordBatch, keys: Sequence[Key], schema: Schema) -> list[tuple[int, int]]:
    """Return `row_span` for each of `keys`, found together. Requires:
    each key has at least one part.
    """
    firsts = key_column([key[0] for key in keys], schema.keys[0].type)
    lows, highs = (_places(batch.column(0), firsts, side) for side in _SIDES)
    spans = zip(lows, highs, strict=True)
    return [_narrowed(batch, key, 1, span, schema) for key, span in zip(keys, spans, strict=True)]


def _narrowed(
    batch: pa.RecordBatch, key: Key, known: int, span: tuple[int, int], schema: Schema
) -> tuple[int, int]:
    """Narrow the span of the first `known` parts of a key to the span of the whole key.

    Rows that agree in the first parts are sorted by the next one, so each part is found by
    bisection within the span of the parts before.
    """
    low, high = span
    for i in range(known, len(key)):
        if low == high:
            break
        cells = batch.column(i).slice(low, high - low)
        part = key_column([key[i]], schema.keys[i].type)
        low, high = (low + _places(cells, part, side)[0] for side in _SIDES)
    return low, high


def _places_of(batch: pa.RecordBatch, bounds: Sequence[Key], schema: Schema) -> list[int]:
    """Return for each bound the number of rows below it; the first parts are looked up together."""
    parts = [bound[0] for bound in bounds if bound]
    firsts = key_column(parts, schema.keys[0].type)
    lows = iter(_places(batch.column(0), firsts, "left") if parts else ())
    return [_place_of(batch, bound, next(lows), schema) if bound else 0 for bound in bounds]


def _place_of(batch: pa.RecordBatch, bound: Key, low: int, schema: Schema) -> int:
    """Return the number of rows below a bound, of which `low` are below its first part."""
    if len(bound) == 1:
        return low
    first = key_column([bound[0]], schema.keys[0].type)
    (high,) = _places(batch.column(0), first, "right")
    low, high = _narrowed(batch, bound[:-1], 1, (low, high), schema)
    if low == high:
        return low
    at = len(bound) - 1
    last = key_column([bound[at]], schema.keys[at].type)
    return low + _places(batch.column(at).slice(low, high - low), last, "left")[0]


def _places(cells: Array, values: Array, side: str) -> list[int]:
    import pyarrow.compute as pc  # which takes long to import, and whole shards need none of it

    if pa.types.is_fixed_size_binary(cells.type):  # which Arrow does not search
        cells, values = cells.cast(pa.binary()), values.cast(pa.binary())
    found = pc.search_sorted(cells, values, side=side)  # type: ignore[attr-defined]  # stubs lag
    return cast("list[int]", found.to_pylist())


def sort_key(batch: pa.RecordBatch | pa.Table, row: int, schema: Schema) -> Key:
    """Return the row keys and sort keys of one row of `batch`, whose first columns they are."""
    return _parts(batch, row, schema.keys)


def sort_keys(batch: pa.RecordBatch | pa.Table, rows: Sequence[int], schema: Schema) -> list[Key]:
    """Return `sort_key` of some rows; many are taken together, which is quicker."""
    if len(rows) <= FEW_ROWS:
        return [sort_key(batch, row, schema) for row in rows]
    return taken_keys(batch, rows, schema.keys)


def rows_in_ranges(
    batch: pa.RecordBatch, ranges: Sequence[KeyRange], schema: Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a sorted batch that are in each of some disjoint ascending ranges.

    The batch must begin with the row keys, and as many sort keys as the bounds of the ranges have.
    The bounds must be values of these columns (`arrow.ranges.fit_range`).
    """
    for start, end in spans_in_ranges(batch, ranges, schema):
        yield batch.slice(start, end - start)


def spans_in_ranges(
    batch: pa.RecordBatch, ranges: Sequence[KeyRange], schema: Schema
) -> Iterator[tuple[int, int]]:
    """Yield the positions of the rows that `rows_in_ranges` returns: of the first row of a range,
    and the one after its last. Ranges without rows are left out.
    """
    if not batch.num_rows:
        return
    among = ranges
    if len(ranges) > 1:  # the others are not worth to be looked for
        rows = 0, batch.num_rows - 1
        low, high = (encode_key(row_key(batch, row, schema)) for row in rows)
        among = [wanted for wanted in ranges if wanted.overlaps_span(low, high)]
    ends = [bound for wanted in among for bound in (wanted.min, wanted.max) if bound is not None]
    places = iter(_places_of(batch, ends, schema))
    for wanted in among:
        start = next(places)
        end = batch.num_rows if wanted.max is None else next(places)
        if start < end:
            yield start, end


def rows_within(
    batches: Iterable[pa.RecordBatch], span: KeyRange, schema: Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in `span` of a sorted stream, which is read no further than the first row
    after them.

    The batches must begin with as many key columns as the bounds have parts.
    """
    has_begun = not span.min
    for batch in batches:
        rows = batch.num_rows
        if not rows:
            continue
        ends_in = span.max is not None and sort_key(batch, rows - 1, schema) >= span.max
        end = rows_below(batch, span.max, schema) if span.max is not None and ends_in else rows
        start = 0 if has_begun else rows_below(batch, span.min, schema)
        has_begun = has_begun or start < rows
        if start < end:
            yield batch.slice(start, end - start)
        if ends_in:
            return


def _parts(batch: pa.RecordBatch | pa.Table, row: int, fields: Sequence[Field]) -> Key:
    return tuple(key_part(batch.column(i)[row], field.type) for i, field in enumerate(fields))


def _first_descent(batch: pa.RecordBatch, keys: int) -> int | None:
    """Return the first row that the next row has a lesser key than; None if there is none.

    The first key columns of most rows ascend, and these rows need no other look. For example, for
    the keys (a, 2) (a, 1) (b, 0), only the first row and the next are compared further: they agree
    in the first column, and in the second 2 > 1.
    """
    import pyarrow.compute as pc

    rows = batch.select(range(keys))
    before, after = rows.slice(0, rows.num_rows - 1), rows.slice(1)
    ascends = pc.less(before.column(0), after.column(0))
    if ascends.true_count == len(ascends):
        return None
    unclear = pc.indices_nonzero(pc.invert(ascends))
    if not len(unclear):
        return None
    if MANY * len(unclear) > before.num_rows:
        first: int = pc.index(_descents(before, after), True).as_py()
        return None if first < 0 else first
    first = pc.index(_descents(before.take(unclear), after.take(unclear)), True).as_py()
    return None if first < 0 else unclear[first].as_py()


def _descents(before: pa.RecordBatch, after: pa.RecordBatch) -> pa.BooleanArray:
    """Return for each row of `before` whether the same row of `after` has a lesser key.

    For example, for the keys (a, 2) and (a, 1) of the first rows, (a, 1) and (b, 0) of the second:
    in the second column 2 > 1 and 1 > 0, but the latter does not count, because a and b differ. The
    result is true, false.
    """
    import pyarrow.compute as pc

    descents = pc.greater(before.column(0), after.column(0))
    equal = pc.equal(before.column(0), after.column(0))
    for i in range(1, before.num_columns):
        greater = pc.greater(before.column(i), after.column(i))
        descents = pc.or_(descents, pc.and_(equal, greater))
        equal = pc.and_(equal, pc.equal(before.column(i), after.column(i)))
    return descents


def sort_in_memory(batches: Sequence[pa.RecordBatch], schema: Schema) -> Iterator[pa.RecordBatch]:
    """Sort the few rows of a look-up by the keys of `schema`; the sort is stable."""
    import pyarrow.compute as pc

    if batches:
        rows = pa.Table.from_batches(batches)
        keys: list[tuple[str, Literal["ascending", "descending"]]] = [
            (field.name, "ascending") for field in schema.keys
        ]
        # Table.sort_by would load Arrow's own query engine, and would take the same time to sort.
        yield from rows.take(pc.sort_indices(rows, sort_keys=keys)).to_batches()
