"""JSON values → Arrow columns: what a JSON value of each field type looks like, exactly.

The objects of a struct have no names but its members'; one that may be null may be left out.
Text stands for what JSON has no form for: bytes in base64, times and dates in ISO 8601 (or times
as microseconds and dates as days since 1970), decimals as text or as numbers of any length.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from dormouse.model.schema import (
    DecimalType,
    FieldType,
    ListType,
    MapType,
    Member,
    Primitive,
    StructType,
)
from dormouse.model.types import has
from dormouse.shards.arrow import Array, arrow_type
from dormouse.shards.decimals import with_exact_decimals

_KEPT = (bytes, dt.datetime, dt.date, Decimal)
_MAX_FLOAT32 = 3.4028234663852886e38


def _integers(bits: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)]


_TYPES: dict[Primitive, Any] = {
    Primitive.INT: _integers(32),
    Primitive.LONG: _integers(64),
    Primitive.FLOAT: Annotated[float, msgspec.Meta(ge=-_MAX_FLOAT32, le=_MAX_FLOAT32)],
    Primitive.DOUBLE: float,
    Primitive.BOOLEAN: bool,
    Primitive.STRING: str,
    Primitive.BYTES: bytes,
    Primitive.TIMESTAMP: dt.datetime | _integers(64),
    Primitive.DATE: dt.date | _integers(32),
}


@cache
def cell_decoder(kind: FieldType) -> msgspec.json.Decoder[object]:
    """Give the decoder of one JSON value of type `kind`, or null.

    Threads that ask at once may each make one, of classes of its own: none meets a class that
    another is about to learn (see `model.decoding`).
    """
    return msgspec.json.Decoder(_python_type(kind) | None)


def column(values: Sequence[object], kind: FieldType) -> Array:
    """Give decoded values as a column. Raises ArrowInvalid or ValueError if one does not fit."""
    if has(kind, StructType):
        values = msgspec.to_builtins(values, builtin_types=_KEPT)
    if has(kind, DecimalType):
        values = [with_exact_decimals(value, kind) for value in values]
    return pa.array(values, arrow_type(kind))


def _python_type(kind: FieldType) -> Any:
    match kind:
        case Primitive():
            return _TYPES[kind]
        case DecimalType():
            return Decimal
        case ListType(element=element):
            return list[_python_type(element) | None]  # type: ignore[misc]  # built at run time
        case MapType():
            key, value = _python_type(kind.key), _python_type(kind.value) | None
            if kind.key is Primitive.BOOLEAN:  # no name of a JSON object is a boolean
                return list[tuple[key, value]]  # type: ignore[valid-type]
            return dict[key, value] | list[tuple[key, value]]  # type: ignore[valid-type]
        case StructType(members=members):
            return _object_of(members)


def _object_of(members: Sequence[Member]) -> type[msgspec.Struct]:
    """Give a class that decodes a struct; attributes are numbered, as not all names could be."""
    fields: list[tuple[str, Any, Any]] = []
    for i, member in enumerate(members):
        kind = _python_type(member.type)
        fields.append(
            (f"f{i}", kind | None, None) if member.nullable else (f"f{i}", kind, msgspec.NODEFAULT)
        )
    return msgspec.defstruct(
        "Object",
        fields,
        rename={f"f{i}": member.name for i, member in enumerate(members)},
        forbid_unknown_fields=True,
        kw_only=True,
    )
