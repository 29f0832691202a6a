"""The types of foreign Arrow columns, of frames and Parquet files, as types of a table.

A type that a table does not have is widened to one that holds each of its values, or refused by
name. Which is which is the one table that `docs/schema.md` prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyarrow import types

from dormouse.arrow.plain import LISTS
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
from dormouse.schema.types import check_column_name, nullable_members

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
    "arrow.bool8": Primitive.BOOLEAN,
}
_DECIMALS = (pa.Decimal32Type, pa.Decimal64Type, pa.Decimal128Type, pa.Decimal256Type)
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
            kind, problem = infer_type(field.type), ""
            if not as_written:
                kind = nullable_members(kind)
            if b"variant" in (field.metadata or {}).get(_NAME, b""):
                raise _variant()
        except InvalidRequestError as error:
            kind, problem = None, str(error)
        remark = (remarks or {}).get(field.name) or ", ".join(_extensions(field))
        nullable = field.nullable or not as_written
        yield FoundColumn(field.name, str(field.type), kind, nullable, problem, remark)


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
    """Return the type that columns of an Arrow type have in a table.

    Raises:
        InvalidRequestError: tables have none; the message continues "column 'x' …".
    """
    if isinstance(kind, pa.DictionaryType | pa.RunEndEncodedType):
        return infer_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _EXTENSIONS.get(kind.extension_name) or infer_type(kind.storage_type)
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
            raise _variant()
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


def _variant() -> InvalidRequestError:
    return InvalidRequestError(f"is a VARIANT, which tables do not have: {VARIANT_AS_TEXT}")


def _decimal(precision: int, scale: int) -> FieldType:
    if not 0 <= scale <= precision <= 38:
        raise InvalidRequestError(
            f"is a decimal({precision},{scale}); decimals have up to 38 digits, and no negative "
            "scale"
        )
    return DecimalType(precision, scale)
