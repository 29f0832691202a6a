"""The sort order of rows: check it, and find the positions of keys in sorted batches."""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.types import COUNTS, Array, Scalar, arrow_type
from dormouse.errors import InvalidRequestError, UnsortedRowsError
from dormouse.key_codec import plain_part
from dormouse.keys import (
    Key,
    KeyPart,
    KeyRange,
    encode_key,
    intersect_ranges,
    prefix_successor,
    union_ranges,
)
from dormouse.schema.evolution import later_part
from dormouse.schema.schema import Field, Schema, whole_numbers
from dormouse.schema.types import UUID_BYTES, DecimalType, FieldType, Primitive
from dormouse.sql.conditions import Condition
from dormouse.sql.key_bounds import key_bounds
from dormouse.tables.row_rules import group_keys
from dormouse.tables.table import Table

# Keys in Arrow batches and in Parquet statistics.

FEW_ROWS = 3
"""Up to so many rows, their keys are read faster one by one than together."""


def row_key(batch: pa.RecordBatch, row: int, schema: Schema) -> Key:
    """Return the row key of one row of `batch`, whose first columns are those of `schema`."""
    return _parts(batch, row, schema.row_keys)


def taken_keys(
    batch: pa.RecordBatch | pa.Table, rows: Sequence[int], fields: Sequence[Field]
) -> list[Key]:
    """Return the keys of some rows of `batch`, whose first columns are `fields`; many are taken
    together, which is quicker.
    """
    if len(rows) <= FEW_ROWS:
        return [_parts(batch, row, fields) for row in rows]
    indexes = pa.array(rows, pa.int64())
    parts = []
    for i, field in enumerate(fields):
        cells = batch.column(i).take(indexes)
        plain: Any = cells.cast(COUNTS[field.type]) if field.type in COUNTS else cells
        values = plain.to_pylist()  # an integer, a string or bytes, as a key part is, or a decimal
        is_plain = not isinstance(field.type, DecimalType)
        parts.append(values if is_plain else [plain_part(each, field.type) for each in values])
    return list(zip(*parts, strict=True))


def key_part(value: object, kind: FieldType) -> KeyPart:
    """Return the key part of one cell, an Arrow scalar or the result of its ``as_py()``.

    A timestamp becomes microseconds since 1970, a date days since 1970. A time without a zone is
    UTC.
    """
    if isinstance(value, pa.TimestampScalar | pa.Date32Scalar | pa.Time64Scalar):
        # not as_py: Arrow's range of years is larger than Python's
        value = value.value  # type: ignore[union-attr]  # the stubs lack that of Date32Scalar
    elif isinstance(value, pa.Scalar):
        value = value.as_py()
    return plain_part(value, kind)


def key_column(parts: Sequence[KeyPart], kind: FieldType) -> Array:
    """Return key parts as a column of the Arrow type of `kind`. Requires: they fit it."""
    target = arrow_type(kind)
    stored = COUNTS.get(kind, target)
    column = pa.Array.from_buffers(
        stored, len(parts), [None, *map(pa.py_buffer, _buffers(parts, stored))]
    )
    return column if stored is target else column.view(target)


def _buffers(parts: Sequence[KeyPart], stored: pa.DataType) -> list[bytes]:
    """Return the buffers of a column in Arrow's columnar format, without that of nulls.

    `pa.array` would import pandas where it is installed, which takes longer than a look-up.
    """
    if pa.types.is_decimal(stored):
        return [b"".join(cast(int, part).to_bytes(16, "little", signed=True) for part in parts)]
    if pa.types.is_integer(stored):
        return [struct.pack(f"={len(parts)}{'i' if stored == pa.int32() else 'q'}", *parts)]
    cells = [part.encode() if isinstance(part, str) else cast(bytes, part) for part in parts]
    if pa.types.is_fixed_size_binary(stored):
        return [b"".join(cells)]
    ends = accumulate(map(len, cells))
    return [struct.pack(f"={len(cells) + 1}i", 0, *ends), b"".join(cells)]


def key_scalar(part: KeyPart, kind: FieldType) -> Scalar:
    """Return a key part as a scalar of the Arrow type of `kind`. Requires: it fits it."""
    value: Scalar = key_column([part], kind)[0]
    return value


_SIDES = ("left", "right")
FEW_PARTS = 4
"""So few parts of keys are looked up one after the other."""
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
        Raises UnsortedRowsError: they do not; the message names the row.
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


def row_span(batch: pa.RecordBatch, key: Key, schema: Schema) -> tuple[int, int]:
    """Return the positions of the first row of a sorted batch that begins with `key`,
    and of the first row after those.

    `key` may be any prefix of a row's keys, sort keys included. If no row begins with it, both
    positions are where such a row would be inserted: the number of rows below `key`.

    For example, in a batch with the keys (a, 1) (a, 2) (b, 1) (c, 1), the span of ("a",) is (0, 2),
    of ("b", 1) it is (2, 3), and of ("b", 0) it is (2, 2).
    """
    return row_spans(batch, [key], schema)[0]


def row_spans(
    batch: pa.RecordBatch, keys: Sequence[Key], schema: Schema, *, have_ends: bool = True
) -> list[tuple[int, int]]:
    """Return `row_span` for each of `keys`, whose first parts are looked up together. Unless they
    `have_ends`, those of keys of one part may be empty, which takes half of the time.
    """
    firsts, kind = [key[0] for key in keys if key], schema.keys[0].type
    lows = _places(batch.column(0), firsts, kind, "left")
    if have_ends or any(len(key) > 1 for key in keys):
        spans = zip(lows, _places(batch.column(0), firsts, kind, "right"), strict=True)
    else:
        spans = zip(lows, lows, strict=True)
    every_row = 0, batch.num_rows
    return [_narrowed(batch, key, next(spans), schema) if key else every_row for key in keys]


def _narrowed(
    batch: pa.RecordBatch, key: Key, span: tuple[int, int], schema: Schema
) -> tuple[int, int]:
    """Narrow the span of the first part of a key to the span of the whole key.

    Rows that agree in the first parts are sorted by the next one, so each part is found by
    bisection within the span of the parts before.
    """
    low, high = span
    for i in range(1, len(key)):
        if low == high:
            break
        cells = batch.column(i).slice(low, high - low)
        kind = schema.keys[i].type
        low, high = (low + _places(cells, [key[i]], kind, side)[0] for side in _SIDES)
    return low, high


def _places(cells: Array, parts: Sequence[KeyPart], kind: FieldType, side: str) -> list[int]:
    """Return for each part of a key how many cells are less; with "right", not greater."""
    # Arrow searches no decimals, and to import what it searches with takes a thousand times as long
    if len(parts) <= FEW_PARTS or isinstance(kind, DecimalType):
        find = bisect_left if side == "left" else bisect_right
        stored, body = COUNTS.get(kind, cells.type), cells.buffers()[1]
        if body and pa.types.is_integer(stored):  # the numbers, without a scalar of each
            numbers = memoryview(body).cast("i" if stored == pa.int32() else "q")
            first, end = cells.offset, cells.offset + len(cells)
            return [find(numbers, part, first, end) - first for part in parts]
        rows = range(len(cells))
        if kind in (Primitive.STRING, Primitive.BYTES):  # their bytes sort as they do
            cell = _bytes_at(cells)
            return [find(rows, _encoded(part), key=cell) for part in parts]
        return [find(rows, part, key=lambda row: key_part(cells[row], kind)) for part in parts]
    import pyarrow.compute as pc

    values = key_column(parts, kind)
    if pa.types.is_fixed_size_binary(cells.type):  # which Arrow does not search
        cells, values = cells.cast(pa.binary()), values.cast(pa.binary())
    places = pc.search_sorted(cells, values, side=side)  # type: ignore[attr-defined]  # stubs lag
    return cast("list[int]", places.to_pylist())


def _encoded(part: Any) -> bytes:
    return part.encode(errors="surrogatepass") if isinstance(part, str) else part


def _bytes_at(cells: Array) -> Callable[[int], bytes]:
    """Return what gives the bytes of a cell of a column without nulls, without a scalar of it."""
    if cells.type not in (pa.string(), pa.binary()):
        return lambda row: _encoded(cells[row].as_py())
    _, ends, body = cells.buffers()
    if ends is None or body is None:  # all cells are empty
        return lambda row: b""
    starts, first, data = memoryview(ends).cast("i"), cells.offset, memoryview(body)
    return lambda row: bytes(data[starts[first + row] : starts[first + row + 1]])


def sort_key(batch: pa.RecordBatch | pa.Table, row: int, schema: Schema) -> Key:
    """Return the row keys and sort keys of one row of `batch`, whose first columns they are."""
    return _parts(batch, row, schema.keys)


def rows_in_ranges(
    batch: pa.RecordBatch, ranges: Sequence[KeyRange], schema: Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a sorted batch that are in each of some disjoint ascending ranges.

    The batch must begin with the row keys, and as many sort keys as the bounds of the ranges have.
    The bounds must be values of these columns (`arrow.order.fit_range`).
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
        among = [span for span in ranges if span.overlaps_span(low, high)]
    ends = [bound for span in among for bound in (span.min, span.max) if bound is not None]
    places = (below for below, _ in row_spans(batch, ends, schema, have_ends=False))
    for span in among:
        start = next(places)
        end = batch.num_rows if span.max is None else next(places)
        if start < end:
            yield start, end


def rows_within(
    batches: Iterable[pa.RecordBatch], span: KeyRange, schema: Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in `span` of a sorted stream, read no further than the first row after.

    The batches must begin with as many key columns as the bounds have parts.
    """
    has_begun = not span.min
    for batch in batches:
        rows = batch.num_rows
        if not rows:
            continue
        ends_in = span.max is not None and sort_key(batch, rows - 1, schema) >= span.max
        end = row_span(batch, span.max, schema)[0] if span.max is not None and ends_in else rows
        start = 0 if has_begun else row_span(batch, span.min, schema)[0]
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


# Key ranges whose bounds fit their columns.

_PYTHON_TYPES: dict[FieldType, type[KeyPart]] = {
    Primitive.STRING: str,
    Primitive.BYTES: bytes,
    Primitive.UUID: bytes,
}


def fit_range(span: KeyRange, schema: Schema) -> KeyRange:
    """Return a range of the same rows whose bounds are values of the key columns; it may be empty.

    A bound of a request may be outside its column's type, or have more parts than there are keys.

    For example, with one key of type int (32 bits): from 3,000,000,000 on there are no keys, so the
    range is empty; below 3,000,000,000 are all keys, so the upper bound is dropped. With two keys,
    the lower bound (a, 3,000,000,000) becomes the successor of (a).
    Raises InvalidRequestError: a part is of another type than its column.
    """
    return fit_range_to_fields(span, schema.keys)


def fit_range_to_fields(span: KeyRange, fields: Sequence[Field]) -> KeyRange:
    """Return a range as `fit_range` does, for columns that need not be keys."""
    first, end = span.min, span.max
    low = _fitted(first, fields)
    high = None if end is None else _fitted(end, fields)
    if low is None:
        return KeyRange((), ())
    # what fits, as it mostly does, is not encoded again: a look-up comes here often
    return span if low is first and high is end else KeyRange(low, high)


def requested_ranges(schema: Schema, ranges: Sequence[KeyRange]) -> list[KeyRange]:
    """Return disjoint ascending ranges that contain exactly the rows in any of `ranges`.

    No ranges mean the whole table.
    Raises InvalidRequestError: a bound of the wrong type.
    """
    return union_ranges([fit_range(r, schema) for r in ranges]) if ranges else [KeyRange()]


def ranges_to_read(
    table: Table, ranges: Sequence[KeyRange], condition: Condition | None
) -> list[KeyRange]:
    """Return disjoint ascending ranges that contain all stored rows
    that can contribute to the result.

    `ranges` are those of a selection. The result may contain more: rows that do not match the
    condition, and all rows of a group of which one row is requested, because the whole group
    decides about its result row.
    """
    schema, spans = table.schema, [span for span in ranges if not span.is_empty()]
    if condition is not None:
        bounds = [fit_range(r, schema) for r in key_bounds(condition, schema)]
        spans = intersect_ranges(spans, union_ranges(bounds))
    shared = len(group_keys(schema, table.properties))
    if shared == len(schema.keys):
        return spans
    return union_ranges([fit_range(span.widen_to_parts(shared), schema) for span in spans])


def _fitted(bound: Key, fields: Sequence[Field]) -> Key | None:
    """Return a bound whose parts fit their columns; None if it is above all keys."""
    for i, (part, field) in enumerate(zip(bound, fields, strict=False)):
        if isinstance(part, str) and field.type is Primitive.STRING:
            continue  # as mostly, so most of the time that takes
        _check_type(part, field)
        if isinstance(part, int):
            numbers = whole_numbers(field.type)
            if part < numbers.start:
                return bound[:i]
            if part >= numbers.stop:
                return _after(bound[:i], fields)
        if isinstance(part, bytes) and field.type is Primitive.UUID and len(part) != UUID_BYTES:
            nearest = _uuid_from(part)
            return _after(bound[:i], fields) if nearest is None else (*bound[:i], nearest)
    return _after(bound[: len(fields)], fields) if len(bound) > len(fields) else bound


def _after(key: Key, fields: Sequence[Field]) -> Key | None:
    past = prefix_successor(key)
    return None if past is None else _fitted(past, fields)


def _uuid_from(bound: bytes) -> bytes | None:
    """Return the least UUID that is not below bytes of another length; None if there is none."""
    if len(bound) < UUID_BYTES:
        return bound.ljust(UUID_BYTES, b"\0")
    after = int.from_bytes(bound[:UUID_BYTES], "big") + 1
    return None if after >> 8 * UUID_BYTES else after.to_bytes(UUID_BYTES, "big")


def _check_type(part: KeyPart, field: Field) -> None:
    kind = _PYTHON_TYPES.get(field.type, int)
    if not isinstance(part, kind) or isinstance(part, bool):
        raise InvalidRequestError(
            f"a key does not fit column {field.name!r}: its part is not of type {kind.__name__}"
        )


def column_span(
    group: pq.RowGroupMetaData, i: int, field: Field, stored: FieldType
) -> tuple[Key, Key] | None:
    """Return the least and greatest value of column `i`, which is `stored` in an earlier type or
    that of its field, as keys of one part; None if they are unknown.
    """
    statistics = group.column(i).statistics
    if statistics is None or not statistics.has_min_max:
        return None
    ends = (cast(int | bytes, raw) for raw in (statistics.min_raw, statistics.max_raw))
    is_text = field.type is Primitive.STRING
    parts = (end.decode() if is_text and isinstance(end, bytes) else end for end in ends)
    least, most = (later_part(part, stored, field.type) for part in parts)
    return (least,), (most,)
