"""Which types a condition can cast between, and text as a constant of the type that it is compared
with.

CAST is allowed where it cannot fail on any row; TRY_CAST, which makes NULL of what cannot be
converted, also elsewhere. Texts are not made of floating numbers, which each engine writes in its
own way.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from sqlglot import exp

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import DecimalType, FieldType, Primitive, type_name
from dormouse.schema.times import from_days, parse_clock, parse_count, to_days, type_of_time
from dormouse.schema.types import NANOSECONDS, TIMESTAMPS
from dormouse.schema.uuids import parse_uuid
from dormouse.sql.expressions import Literal

_WHOLE = (Primitive.INT, Primitive.LONG)
_FLOATS = (Primitive.FLOAT, Primitive.DOUBLE)
_TYPES: Mapping[exp.DType, FieldType] = {
    exp.DType.BOOLEAN: Primitive.BOOLEAN,
    exp.DType.INT: Primitive.INT,
    exp.DType.BIGINT: Primitive.LONG,
    exp.DType.FLOAT: Primitive.FLOAT,
    exp.DType.DOUBLE: Primitive.DOUBLE,
    exp.DType.TEXT: Primitive.STRING,
    exp.DType.VARCHAR: Primitive.STRING,
    exp.DType.DATE: Primitive.DATE,
    exp.DType.TIMESTAMP: Primitive.TIMESTAMP_NTZ_NS,
    exp.DType.TIMESTAMPTZ: Primitive.TIMESTAMP_NTZ_NS,
}
_NAMES = "BOOLEAN, INT, BIGINT, REAL, DOUBLE, DECIMAL(p, s), TEXT, DATE, TIMESTAMP"
_DIGITS = {Primitive.BOOLEAN: 1, Primitive.INT: 10, Primitive.LONG: 19}
_NUMBERS = frozenset({*_WHOLE, *_FLOATS, Primitive.BOOLEAN})
_TEXTUAL = frozenset({*_WHOLE, Primitive.BOOLEAN, Primitive.DATE, *TIMESTAMPS})


def target_type(node: exp.DataType) -> FieldType:
    """Return the type that a condition casts to.

    Raises:
        InvalidRequestError: conditions have no such type.
    """
    kind = _TYPES.get(node.this)
    sizes = [str(size.this.name) for size in node.expressions if isinstance(size.this, exp.Literal)]
    if node.this is exp.DType.DECIMAL and 1 <= len(sizes) <= 2 and all(map(str.isdigit, sizes)):
        return DecimalType(int(sizes[0]), int(sizes[1]) if len(sizes) > 1 else 0)
    if kind is None or sizes:
        raise InvalidRequestError(
            f"{node.sql('postgres')} is no type that conditions cast to", hint=f"types: {_NAMES}"
        )
    return kind


def can_cast(found: FieldType, wanted: FieldType, *, may_fail: bool) -> bool:
    """Return whether values of a type can be cast to another; with `may_fail`, if not all can."""
    if found == wanted:
        return True
    if isinstance(wanted, DecimalType):
        whole = wanted.precision - wanted.scale
        if isinstance(found, DecimalType):
            widens = wanted.scale >= found.scale and whole >= found.precision - found.scale
            return may_fail or widens
        if found in _WHOLE:
            return may_fail or whole >= _DIGITS[Primitive(found)]
        return may_fail and found in (Primitive.DOUBLE, Primitive.STRING)
    if isinstance(found, DecimalType):
        return wanted in _FLOATS or wanted is Primitive.STRING or (may_fail and wanted in _WHOLE)
    if wanted is Primitive.STRING:
        return found in _TEXTUAL
    if wanted is Primitive.DATE:
        return found in TIMESTAMPS or (may_fail and found is Primitive.STRING)
    if wanted is Primitive.TIMESTAMP_NTZ_NS:
        return may_fail and (found in (*TIMESTAMPS, Primitive.DATE, Primitive.STRING))
    return _is_number_cast(found, wanted, may_fail=may_fail)


def _is_number_cast(found: FieldType, wanted: FieldType, *, may_fail: bool) -> bool:
    if wanted not in _NUMBERS or found not in (*_NUMBERS, Primitive.STRING):
        return False
    if found is Primitive.STRING or (found in _FLOATS and wanted in _WHOLE):
        return may_fail
    if Primitive.BOOLEAN in (found, wanted):
        return found in _WHOLE or wanted in _WHOLE
    return may_fail or (found, wanted) != (Primitive.LONG, Primitive.INT)


def text_as_time(text: str, kind: FieldType) -> Literal:
    """Return a text as a constant of a type of times or UUIDs.

    Raises:
        InvalidRequestError: it is none.
    """
    try:
        if kind in TIMESTAMPS:
            own = type_of_time(text)
            return Literal(parse_count(text, own), own)
        if kind is Primitive.DATE:
            return Literal(to_days(dt.date.fromisoformat(text)), kind)
        if kind is Primitive.TIME:
            return Literal(parse_clock(text), kind)
        return Literal(parse_uuid(text), Primitive.UUID)
    except (ValueError, OverflowError) as error:
        name = {Primitive.DATE: "date", Primitive.UUID: "UUID"}.get(Primitive(kind), "time")
        raise InvalidRequestError(f"{text[:60]!r} is not a {name}: {error}") from error


def cast_time(literal: Literal, kind: FieldType) -> Literal | None:
    """Return a constant time as a date, or a date as a time; None if it is neither."""
    count = literal.value
    assert isinstance(count, int)
    if literal.type in TIMESTAMPS and kind is Primitive.DATE:
        per_day = 86_400_000_000 * (1000 if literal.type in NANOSECONDS else 1)
        return Literal(count // per_day, kind)
    if literal.type is Primitive.DATE and kind in TIMESTAMPS:
        from_days(count)
        return Literal(count * 86_400_000_000, Primitive.TIMESTAMP_NTZ)
    return literal if literal.type in TIMESTAMPS and kind in TIMESTAMPS else None


def refused_cast(node: str, found: FieldType, wanted: FieldType) -> InvalidRequestError:
    """Return the error for a cast that is not allowed."""
    if can_cast(found, wanted, may_fail=True):
        return InvalidRequestError(
            f"{node}: not every {type_name(found)} can be cast",
            hint="TRY_CAST makes NULL of those that cannot",
        )
    return InvalidRequestError(f"{node}: {type_name(found)} cannot be cast to that in a condition")
