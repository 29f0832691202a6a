"""The types of foreign Arrow columns, of frames and Parquet files, as types of a table.

A type that a table does not have is widened to one that holds each of its values, or refused by
name. Which is which is the one table that `docs/schema.md` prints.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import types

from dormouse.errors import InvalidRequestError
from dormouse.schema.columns import FoundColumn
from dormouse.schema.schema import (
    DecimalType,
    FieldType,
    ListType,
    MapType,
    Member,
    Primitive,
    StructType,
)
from dormouse.schema.types import check_column_name

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
    "arrow.json": Primitive.STRING,
}
_DECIMALS = (pa.Decimal32Type, pa.Decimal64Type, pa.Decimal128Type, pa.Decimal256Type)
_LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)
LIST_VIEWS = (pa.ListViewType, pa.LargeListViewType)


def infer_columns(schema: pa.Schema) -> Iterator[FoundColumn]:
    """Yield the columns of an Arrow schema with their types in a table."""
    for field in schema:
        try:
            kind, problem = infer_type(plain_type(field.type)), ""
        except InvalidRequestError as error:
            kind, problem = None, str(error)
        yield FoundColumn(field.name, str(field.type), kind, field.nullable, problem)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column without run-end encoding and views of lists; these are decoded
    where a column has them, and refused where they are nested.
    """
    if isinstance(kind, pa.RunEndEncodedType):
        return plain_type(kind.value_type)
    return pa.list_(kind.value_type) if isinstance(kind, LIST_VIEWS) else kind


def infer_type(kind: pa.DataType) -> FieldType:
    """Return the type that columns of an Arrow type have in a table.

    Raises:
        InvalidRequestError: tables have none; the message continues "column 'x' …".
    """
    if isinstance(kind, pa.DictionaryType):
        return infer_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _of_extension(kind)
    if types.is_null(kind):
        raise InvalidRequestError("is null in every row")
    if kind in _EXACT:
        return _EXACT[kind]
    if isinstance(kind, _DECIMALS):
        return _decimal(kind.precision, kind.scale)
    if types.is_fixed_size_binary(kind):
        return Primitive.BYTES
    if isinstance(kind, pa.TimestampType):
        return _TIMESTAMPS[kind.unit == "ns", kind.tz is not None]
    if types.is_time(kind):
        return Primitive.TIME
    return _nested(kind)


def _nested(kind: pa.DataType) -> FieldType:
    if isinstance(kind, _LISTS):
        return ListType(infer_type(kind.value_type))
    if isinstance(kind, pa.MapType):
        key = infer_type(kind.key_type)
        if not isinstance(key, Primitive):
            raise InvalidRequestError(f"is a map whose keys are {kind.key_type}")
        return MapType(key, infer_type(kind.item_type))
    if isinstance(kind, pa.StructType):
        if not kind.num_fields:
            raise InvalidRequestError("is a struct without fields")
        members = (Member(check_column_name(f.name), infer_type(f.type), f.nullable) for f in kind)
        return StructType(tuple(members))
    raise InvalidRequestError(f"is {kind}, which no column of a table can be")


def _of_extension(kind: pa.BaseExtensionType) -> FieldType:
    if kind.extension_name in _EXTENSIONS:
        return _EXTENSIONS[kind.extension_name]
    raise InvalidRequestError(
        f"is of the extension type {kind.extension_name!r}, which tables do not have"
    )


def _decimal(precision: int, scale: int) -> FieldType:
    if not 0 <= scale <= precision <= 38:
        raise InvalidRequestError(
            f"is a decimal({precision},{scale}); decimals have up to 38 digits, and no negative "
            "scale"
        )
    return DecimalType(precision, scale)
