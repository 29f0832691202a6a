"""Convert Python values to columns of the table, exactly: what a program writes row by row.

pyarrow alone is too lenient for this: it drops the zone of a time, the clock of a datetime in a
date column, and takes a boolean for a number. Errors say what a value is, and never quote it.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import SupportsIndex

import pyarrow as pa

from dormouse.arrow.plain import leaves
from dormouse.arrow.types import Array, arrow_schema, arrow_type
from dormouse.errors import RefusedSourceError
from dormouse.key_forms.python import uuid_bytes
from dormouse.schema.schema import (
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    Primitive,
    Schema,
    StructType,
)
from dormouse.schema.times import to_count
from dormouse.schema.types import NANOSECONDS, TIMESTAMPS, ZONED
from dormouse.sources.cells.casting import cell_refusal, convert
from dormouse.sources.cells.text_cells import check_years

Row = Mapping[str, object]


def rows_to_batch(rows: Sequence[Row], schema: Schema, first: int = 0) -> pa.RecordBatch:
    """Return rows as a batch of the table; `first` rows were before them.

    Raises:
        RefusedSourceError: a value does not fit its column; the message names the row, from 1.
    """

    def place(row: int) -> str:
        return f"row {first + row + 1}"

    columns = [python_column([row.get(f.name) for row in rows], f, place) for f in schema.fields]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def check_row_names(row: Row, schema: Schema) -> None:
    """Check that a row has no names but those of columns; nullable columns may be missing.

    Raises:
        RefusedSourceError: it has others, or lacks some.
    """
    names = {field.name for field in schema.fields}
    columns_hint = "the table has: " + ", ".join(field.name for field in schema.fields)
    if unknown := [name for name in row if name not in names]:
        raise RefusedSourceError(
            f"the table has no column {', '.join(map(repr, unknown))}", hint=columns_hint
        )
    if missing := [f.name for f in schema.fields if not f.nullable and f.name not in row]:
        raise RefusedSourceError(
            f"the row has no value for {', '.join(map(repr, missing))}", hint=columns_hint
        )


def python_column(values: list[object], field: Field, place: Callable[[int], str]) -> Array:
    """Return values as a column of the table.

    Raises:
        RefusedSourceError: a value does not fit it; the message names its `place`.
    """
    if not field.nullable and (empty := [i for i, value in enumerate(values) if value is None]):
        reason = "there is no value, and the column cannot be null"
        raise cell_refusal(place(empty[0]), field, reason)
    return convert(values, field, place, lambda cells: _array(cells, field.type))


def _array(values: Sequence[object], kind: FieldType) -> Array:
    plain = [None if value is None else _plain(value, kind) for value in values]
    column: Array = pa.array(plain, arrow_type(kind))
    for leaf in leaves(column):
        check_years(leaf)  # a zone takes the first and last hours of Python beyond them
    return column


def _plain(value: object, kind: FieldType) -> object:
    """Return a value as pyarrow converts it without loss. Raises ValueError if it does not fit."""
    match kind:
        case Primitive():
            return _PRIMITIVES[kind](value)
        case DecimalType():
            return _decimal(value)
        case ListType(element=element):
            return [_or_none(item, element) for item in _items(value)]
        case MapType(key=key, value=inner):
            pairs = value.items() if isinstance(value, Mapping) else map(_pair, _items(value))
            return [(_plain(name, key), _or_none(item, inner)) for name, item in pairs]
        case StructType(members=members):
            if not isinstance(value, Mapping):
                raise _mistyped(value)
            if set(value) - {member.name for member in members}:
                raise ValueError("a struct has an unknown member")
            for member in members:
                if not member.nullable and value.get(member.name) is None:
                    raise ValueError(f"{member.name!r} has no value in it, and cannot be null")
            return {m.name: _or_none(value.get(m.name), m.type) for m in members}


def _or_none(value: object, kind: FieldType) -> object:
    return None if value is None else _plain(value, kind)


def _items(value: object) -> Sequence[object]:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return value
    if hasattr(value, "tolist"):  # an array of numpy
        items = value.tolist()
        if isinstance(items, list):
            return items
    raise _mistyped(value)


def _pair(value: object) -> tuple[object, object]:
    if isinstance(value, tuple | list) and len(value) == 2:
        return value[0], value[1]
    raise ValueError("a map is a dict, or pairs of key and value")


def _whole(value: object) -> int:
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        return value.__index__()
    raise _mistyped(value)


def _double(value: object) -> float:
    plain = value.item() if _is_numpy(value) else value  # type: ignore[attr-defined]
    if isinstance(plain, bool) or not isinstance(plain, float | int):
        raise _mistyped(value)
    if isinstance(plain, int) and float(plain) != plain:
        raise ValueError("the whole number does not fit a float exactly")
    return float(plain)


def _single(value: object) -> float:
    number = _double(value)
    if math.isfinite(number) and abs(number) > _LARGEST_SINGLE:
        raise ValueError("the number is too large")
    if isinstance(value, int) and abs(value) > 2**24:
        raise ValueError("the whole number may not fit a float exactly")
    return number


_LARGEST_SINGLE = (2 - 2**-23) * 2.0**127


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if _is_numpy(value) and isinstance(plain := value.item(), bool):  # type: ignore[attr-defined]
        return plain
    raise _mistyped(value)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise _mistyped(value)


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise _mistyped(value)


def _timestamp(kind: Primitive) -> Callable[[object], int]:
    def count(value: object) -> int:
        if not isinstance(value, dt.datetime):
            raise _mistyped(value)
        if bool(value.tzinfo) != (kind in ZONED):
            raise ValueError(f"the time has {'no' if kind in ZONED else 'a'} time zone")
        if getattr(value, "nanosecond", 0) and kind not in NANOSECONDS:
            raise ValueError("times are whole microseconds")
        return to_count(value, kind)

    return count


def _clock(value: object) -> dt.time:
    if isinstance(value, dt.time) and value.tzinfo is None:
        return value
    raise _mistyped(value)


def _date(value: object) -> dt.date:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    raise _mistyped(value)


def _decimal(value: object) -> Decimal:
    number = Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(number, Decimal):
        raise _mistyped(value)
    if not number.is_finite():
        raise ValueError("the decimal is not finite")
    return number


def _is_numpy(value: object) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "item")


def _mistyped(value: object) -> ValueError:
    return ValueError(f"the value is of the type {type(value).__name__}")


_PRIMITIVES: dict[Primitive, Callable[[object], object]] = {
    Primitive.INT: _whole,
    Primitive.LONG: _whole,
    Primitive.FLOAT: _single,
    Primitive.DOUBLE: _double,
    Primitive.BOOLEAN: _boolean,
    Primitive.STRING: _text,
    Primitive.BYTES: _bytes,
    Primitive.DATE: _date,
    Primitive.TIME: _clock,
    Primitive.UUID: uuid_bytes,
    **{kind: _timestamp(kind) for kind in TIMESTAMPS},
}
