"""Values of Arrow columns: foreign types, exact decimals, inferred types, a total order.

Columns of foreign Arrow types as plain ones, at any depth, with every value kept.

Arrow 26 has no kernels for some of these types (it neither decodes nor casts a dictionary of
`string_view`), and breaks others (a list view with a null, cast to a list, shifts what follows).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dormouse.arrow.types import Array, arrow_type, widest_type, with_leaves
from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import FoundColumn
from dormouse.schema.types import (
    DecimalType,
    FieldType,
    ListType,
    MapType,
    Member,
    Primitive,
    StructType,
    check_column_name,
    nullable_members,
    parse_decimal,
)

LIST_VIEWS = (pa.ListViewType, pa.LargeListViewType)
LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, *LIST_VIEWS)
_PACKED = (pa.DictionaryType, pa.RunEndEncodedType, pa.BaseExtensionType, *LIST_VIEWS)


def plain(column: Array) -> Array:
    """Return a column without dictionaries, run ends, views of lists and extension types."""
    return rebuilt(column, _unpacked) if _is_packed(column.type) else column


def leaves(column: Array) -> Iterator[Array]:
    """Yield the columns of single values in a plain column, without those of null lists."""
    values: Any = column
    if isinstance(column.type, pa.MapType):
        values = _entries(column)
    if isinstance(values.type, pa.StructType):
        for child in values.flatten():
            yield from leaves(child)
    elif isinstance(values.type, LISTS):
        yield from leaves(values.flatten())
    else:
        yield values


def rebuilt(column: Array, replace: Callable[[Array], Array]) -> Array:
    """Return a column of the same lists, maps and structs, with the columns of single values in it
    replaced in their order.
    """
    values: Any = column
    match column.type:
        case pa.StructType():
            parts = [rebuilt(child, replace) for child in values.flatten()]
            names = [field.name for field in values.type]
            fields = [pa.field(name, p.type) for name, p in zip(names, parts, strict=True)]
            values = pa.StructArray.from_arrays(parts, fields=fields, mask=_nulls(values))
        case pa.MapType():
            lists: Any = rebuilt(_entries(column), replace)
            keys, items = lists.values.flatten()
            values = pa.MapArray.from_arrays(lists.offsets, keys, items, mask=_nulls(values))
        case kind if isinstance(kind, LISTS):
            items = rebuilt(values.flatten(), replace)  # without those of null lists
            values = pa.ListArray.from_arrays(_offsets(values), items, mask=_nulls(values))
        case _:
            values = replace(column)
    return cast(Array, values)


def check_map_keys(column: Array) -> None:
    """Check that no map in a column, at any depth, has a key twice: engines refuse to read such a
    column, or keep one of the values. Raises ValueError: one has.
    """
    values: Any = column
    match column.type:
        case pa.StructType():
            for child in values.flatten():
                check_map_keys(child)
        case pa.MapType():
            maps: Any = _entries(column)
            keys, items = maps.flatten().flatten()
            pairs = pa.table({"map": pc.list_parent_indices(maps), "key": keys})
            if pairs.group_by(["map", "key"]).aggregate([]).num_rows < len(keys):
                raise ValueError("a map has a key twice")
            check_map_keys(items)
        case kind if isinstance(kind, LISTS):
            check_map_keys(values.flatten())


def _is_packed(kind: pa.DataType) -> bool:
    if isinstance(kind, _PACKED):
        return True
    parts = (kind.field(at).type for at in range(kind.num_fields))
    return any(_is_packed(part) for part in parts)


def _unpacked(column: Array) -> Array:
    array: Any = column
    match column.type:
        case pa.DictionaryType(value_type=kind):
            values = array.dictionary
            if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
                values = values.cast(pa.string() if kind == pa.string_view() else pa.binary())
            return plain(values).take(array.indices)
        case pa.RunEndEncodedType():
            return plain(pc.call_function("run_end_decode", [array]))
        case pa.BaseExtensionType():
            return plain(array.storage)
        case _:
            return column


def _entries(column: Any) -> Array:
    """Return a map as a list of structs; what the slice does not have is not in it."""
    keys, items = column.type.key_field, column.type.item_field
    return cast(Array, column.cast(pa.list_(pa.struct([keys, items]))))


def _offsets(column: Any) -> pa.Int32Array:
    lengths = pc.coalesce(pc.list_value_length(column).cast(pa.int32()), pa.scalar(0, pa.int32()))
    ends = pc.call_function("cumulative_sum_checked", [lengths])
    return cast(pa.Int32Array, pa.concat_arrays([pa.array([0], pa.int32()), ends]))


def _nulls(column: Array) -> Array | None:
    return column.is_null() if column.null_count else None


# Parse decimal numbers of ingested files exactly as they are written, or refuse them.
#
# Arrow's conversion is used where it is correct: to 76 digits, for plain numbers of up to 38
# digits. Arrow misreads numbers with more digits than the decimal type has, and numbers with
# extreme exponents, and on some of them it crashes the process.

_PLAIN = "^[+-]?[0-9]{1,19}([.][0-9]{0,19})?$"
"""Numbers that Arrow converts correctly: with 76 digits, they fit at any scale."""


def parse_decimals(cells: Array, kind: DecimalType) -> Array:
    """Return text as decimals. Raises ValueError: a cell is no number, or has too many digits."""
    target = arrow_type(kind)
    if pc.all(pc.match_substring_regex(cells, _PLAIN), min_count=0).as_py():
        return cells.cast(widest_type(kind)).cast(target)
    texts = cells.to_pylist()
    return pa.array([None if t is None else parse_decimal(t, kind) for t in texts], target)


# The types of foreign Arrow columns, of frames and Parquet files, as types of a table.
#
# A type that a table does not have is widened to one that holds each of its values, or refused by
# name. Which is which is the one table that `docs/schema.md` prints.

_WIDENED: tuple[tuple[pa.DataType, FieldType], ...] = (
    (pa.bool_(), Primitive.BOOLEAN),
    *((kind, Primitive.INT) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8())),
    (pa.uint16(), Primitive.INT),
    (pa.uint32(), Primitive.LONG),
    (pa.int64(), Primitive.LONG),
    (pa.uint64(), DecimalType(20, 0)),
    (pa.float16(), Primitive.FLOAT),
    (pa.float32(), Primitive.FLOAT),
    (pa.float64(), Primitive.DOUBLE),
    *((kind, Primitive.STRING) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *((kind, Primitive.BYTES) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    (pa.date32(), Primitive.DATE),
    (pa.date64(), Primitive.DATE),
)
_EXACT = dict(_WIDENED)
_TIMESTAMPS = {
    (False, True): Primitive.TIMESTAMP,
    (False, False): Primitive.TIMESTAMP_NTZ,
    (True, True): Primitive.TIMESTAMP_NS,
    (True, False): Primitive.TIMESTAMP_NTZ_NS,
}
"""By whether a timestamp has nanoseconds, and a zone."""
_EXTENSIONS: dict[str, FieldType] = {
    "arrow.uuid": Primitive.UUID,
    "arrow.json": Primitive.DYNAMIC,
    "arrow.bool8": Primitive.BOOLEAN,
}
DECIMALS = (pa.Decimal32Type, pa.Decimal64Type, pa.Decimal128Type, pa.Decimal256Type)
VARIANT_AS_TEXT = "write it as text of JSON (v::JSON in DuckDB, to_json(v) in Spark)"
_NAME = b"ARROW:extension:name"


def infer_columns(
    schema: pa.Schema, remarks: Mapping[str, str] | None = None, *, as_written: bool = False
) -> Iterator[FoundColumn]:
    """Yield the columns of an Arrow schema with their types in a table.

    `remarks` say of columns what they were where the file was written. All columns can be null,
    unless the schema was written by a person (`as_written`): libraries derive it from some rows.
    """
    for field in schema:
        try:
            kind, problem = _column_type(field), ""
            if not as_written:
                kind = nullable_members(kind)
        except InvalidRequestError as error:
            kind, problem = None, str(error)
        remark = (remarks or {}).get(field.name) or ", ".join(_extensions(field))
        nullable = field.nullable or not as_written
        yield FoundColumn(field.name, str(field.type), kind, nullable, problem, remark)


def _column_type(field: pa.Field[Any]) -> FieldType:
    is_named = b"variant" in (field.metadata or {}).get(_NAME, b"")
    is_shaped = isinstance(field.type, pa.StructType) and is_variant(field.type)
    return Primitive.DYNAMIC if is_named or is_shaped else infer_type(field.type)


def _extensions(field: pa.Field[Any]) -> Iterator[str]:
    """Yield the extension types in a column that tables do not have."""
    kind = field.type
    name = (field.metadata or {}).get(_NAME, b"").decode(errors="replace")
    if isinstance(kind, pa.BaseExtensionType):
        name, kind = kind.extension_name, kind.storage_type
    if name and name not in _EXTENSIONS:
        yield name
    for at in range(kind.num_fields):
        yield from _extensions(kind.field(at))


def infer_type(kind: pa.DataType) -> FieldType:
    """Return a column's type by Arrow's. Raises InvalidRequestError: tables have none."""
    if isinstance(kind, pa.DictionaryType | pa.RunEndEncodedType):
        return infer_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _EXTENSIONS.get(kind.extension_name) or infer_type(kind.storage_type)
    if types.is_null(kind):
        raise InvalidRequestError("is null in every row")
    if kind in _EXACT:
        return _EXACT[kind]
    if isinstance(kind, DECIMALS):
        return _decimal(kind.precision, kind.scale)
    if types.is_fixed_size_binary(kind):
        return Primitive.BYTES
    if isinstance(kind, pa.TimestampType):
        return _TIMESTAMPS[kind.unit == "ns", kind.tz is not None]
    if types.is_time(kind):
        return Primitive.TIME
    return _nested(kind)


def _nested(kind: pa.DataType) -> FieldType:
    if isinstance(kind, LISTS):
        return ListType(infer_type(kind.value_type))
    if isinstance(kind, pa.MapType):
        key = infer_type(kind.key_type)
        if not isinstance(key, Primitive):
            raise InvalidRequestError(f"is a map whose keys are {kind.key_type}")
        return MapType(key, infer_type(kind.item_type))
    if isinstance(kind, pa.StructType):
        if not kind.num_fields:
            raise InvalidRequestError("is a struct without fields")
        if is_variant(kind):
            raise InvalidRequestError(f"has a VARIANT within it: {VARIANT_AS_TEXT}")
        members = (Member(check_column_name(f.name), infer_type(f.type), f.nullable) for f in kind)
        return StructType(tuple(members))
    raise InvalidRequestError(f"is {kind}, which no column of a table can be")


def is_variant(kind: pa.StructType) -> bool:
    """Return whether a struct is a VARIANT as it lies in a file: what is in `typed_value` differs
    from file to file, so it must not become a type of a table.
    """
    parts = {field.name: field.type for field in kind}
    binary = [parts.pop(name, pa.null()) for name in ("metadata", "value")]
    is_binary = [types.is_binary(t) or types.is_large_binary(t) for t in binary]
    return parts.keys() <= {"typed_value"} and is_binary[0] and (is_binary[1] or bool(parts))


def _decimal(precision: int, scale: int) -> FieldType:
    if not 0 <= scale <= precision <= 38:
        raise InvalidRequestError(
            f"is a decimal({precision},{scale}); decimals have up to 38 digits, and no negative "
            "scale"
        )
    return DecimalType(precision, scale)


# A total order of the cells of every type, and their equality.
#
# Floats are ordered as conditions compare them: -inf, …, 0.0, …, inf, NaN. -0.0 equals 0.0, and all
# NaNs are equal. Equal cells are ordered by their bits, so that choosing one of several equal cells
# never depends on the order of the input, and returns one of them bit by bit.
#
# The bits of a float, read as an integer, are already in the right order for positive numbers.
# Negative numbers are in reverse order, because the sign is stored apart from the magnitude, and
# NaNs with a sign come first. `to_sortable` inverts the magnitude of negative numbers, and shifts
# the integers so that the NaNs with a sign wrap around to the end.

_BITS: dict[Any, Any] = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
_NEGATIVE_NANS: dict[Any, int] = {pa.float32(): 2**23 - 1, pa.float64(): 2**52 - 1}
"""The number of NaNs with a sign bit: by their bits, they precede all other floats."""


def to_sortable(column: Array) -> Array:
    """Return a column, not nested, that Arrow sorts and compares in this order.

    Cells that differ in their bits stay different; equal cells become neighbours.
    """
    kind = column.type
    bits = _BITS.get(kind)
    if bits is None:
        return column
    by_bits = _swapped(column.view(bits))
    # the subtraction wraps around, which moves NaNs with a sign after all other NaNs
    wrapped: Array = pc.subtract(by_bits, pa.scalar(_NEGATIVE_NANS[kind], bits))
    return wrapped


def from_sortable(column: Array, kind: pa.DataType) -> Array:
    """Return the cells from which `to_sortable` made `column`; integers may wrap around."""
    bits = _BITS.get(kind)
    if bits is not None:
        by_bits: Array = pc.add(column, pa.scalar(_NEGATIVE_NANS[kind], bits))
        return _swapped(by_bits).view(kind)
    return column if column.type == kind else column.cast(kind, safe=False)


def canonical(column: Array) -> Array:
    """Return a column, not nested, in which equal cells have equal bits."""
    kind = column.type
    if kind not in _BITS:
        return column
    positive = pc.add(column, pa.scalar(0.0, kind))
    one: Array = pc.if_else(pc.is_nan(column), pa.scalar(math.nan, kind), positive)
    return one


def sort_columns(column: Array) -> list[Array]:
    """Return columns by which Arrow sorts a column of any type; slow for nested types.

    Equal cells are equal in all of them except the last, which is equal only for identical cells.
    """
    if not pa.types.is_nested(column.type):
        exact = to_sortable(column)
        return [exact] if column.type not in _BITS else [to_sortable(canonical(column)), exact]
    # times as numbers: Arrow's range of years is larger than Python's
    counted: Any = column.cast(with_leaves(column.type, _counted))
    cells = counted.to_pylist()
    return [
        pa.array([None if cell is None else repr(shown(cell)) for cell in cells], pa.string())
        for shown in (_unified_cell, _exact_cell)
    ]


def sorted_positions(columns: Sequence[Array]) -> Array:
    """Return the positions of rows in the order of some columns, nulls first."""
    names = [str(i) for i in range(len(columns))]
    keys: list[Any] = [(name, "ascending", "at_start") for name in names]
    return pc.sort_indices(pa.RecordBatch.from_arrays(list(columns), names=names), sort_keys=keys)


def with_ties_in_order(
    batch: pa.RecordBatch, same: Array, columns: Callable[[Array], Sequence[Array]]
) -> pa.RecordBatch:
    """Return sorted rows in which those that tie are sorted by more columns, nulls first.

    `same` says of each row but the first whether it ties with the one before; `columns` returns the
    columns of the rows that a mask selects. For example, sorted by the first letter, of the rows a7
    b9 b2 c1 d5 d4 those that tie are b9 b2 in group 0 and d5 d4 in group 1. In the order of group
    and column they are b2 b9 d4 d5, and take the places that tied rows had.
    """
    if not pc.any(same).as_py():
        return batch
    edge = pa.array([False])
    follows = pa.concat_arrays([edge, same])
    tied = pc.or_(follows, pa.concat_arrays([same, edge]))
    groups = pc.cumulative_sum(pc.cast(pc.invert(pc.filter(follows, tied)), pa.int32()))
    in_order = pc.indices_nonzero(tied).take(sorted_positions([groups, *columns(tied)]))
    rows = pa.arange(0, batch.num_rows).cast(pa.uint64())  # type: ignore[attr-defined]  # stubs lag
    return batch.take(pc.replace_with_mask(rows, tied, in_order))


def _unified_cell(cell: object) -> object:
    if isinstance(cell, float):
        return math.nan if math.isnan(cell) else cell + 0.0
    return _of_parts(cell, _unified_cell)


def _exact_cell(cell: object) -> object:
    return struct.pack(">d", cell) if isinstance(cell, float) else _of_parts(cell, _exact_cell)


def _of_parts(cell: object, shown: Callable[[object], object]) -> object:
    if isinstance(cell, list | tuple):
        return [shown(part) for part in cell]
    return {k: shown(v) for k, v in cell.items()} if isinstance(cell, dict) else cell


def _swapped(bits: Array) -> Array:
    """Invert the magnitude of negative numbers, which reverses their order; twice restores them."""
    magnitude = pa.scalar((1 << (bits.type.bit_width - 1)) - 1, bits.type)
    negative = pc.less(bits, pa.scalar(0, bits.type))
    swapped: Array = pc.if_else(negative, pc.bit_wise_xor(bits, magnitude), bits)
    return swapped


def _counted(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(kind) else kind
