"""Constants of a condition as values of the types that they are compared with.

They come from the nodes of a parser, which show themselves as SQL in errors.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal
from typing import Protocol

from dormouse.errors import InvalidRequestError
from dormouse.key_forms.python import uuid_bytes
from dormouse.keys.ranges import INT64_MAX, INT64_MIN
from dormouse.schema.schema import DecimalType, FieldType, Primitive, show_type
from dormouse.schema.times import from_days, parse_clock, parse_count, to_days, type_of_time
from dormouse.schema.types import NANOSECONDS, TIMESTAMPS, ZONED
from dormouse.schema.uuids import parse_uuid
from dormouse.sql.expressions import Literal, common_type

DIALECT = "postgres"
_SHOWN = 60
_NUMBER = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
_NOT_FINITE = re.compile(r"(?P<number>[+-]?inf(inity)?)|[+-]?nan", re.IGNORECASE)
"""What floats may be beside numbers, as CSV files have it."""
FLOATS = (Primitive.FLOAT, Primitive.DOUBLE)
_NUMBERS = (Primitive.INT, Primitive.LONG, *FLOATS)
_MOST_DIGITS = 400  # before the point or after it: a double has fewer


class Shown(Protocol):
    """A part of a condition."""

    def sql(self, dialect: str, /) -> str:
        """Return it as SQL."""
        ...


def show_node(node: Shown) -> str:
    """Return a part of a condition as text, shortened, for an error message."""
    text = node.sql(DIALECT)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def number(node: Shown, text: str) -> Literal:
    """Return a number as a literal; `coerce_literal` finds its final type.

    Raises:
        InvalidRequestError: it is none, or no column can hold it.
    """
    if not _NUMBER.fullmatch(text):
        raise InvalidRequestError(f"{text!r} is not a number")
    value = Decimal(text)
    if abs(value.adjusted()) > _MOST_DIGITS:
        raise InvalidRequestError(f"{show_node(node)} is beyond all numbers that a column can hold")
    if value == value.to_integral_value() and INT64_MIN <= value <= INT64_MAX:
        return Literal(int(value), Primitive.LONG)
    return Literal(value, Primitive.DOUBLE)


def coerce_literal(node: Shown, literal: Literal, kind: FieldType) -> Literal:
    """Return a number as a literal of the type that it is compared with; other literals unchanged.

    Raises:
        InvalidRequestError: that type cannot hold the number.
    """
    value = literal.value
    if literal.type is Primitive.STRING and isinstance(value, str):
        literal = _of_text(node, value, kind)
        value = literal.value
    if literal.type in (Primitive.DATE, *TIMESTAMPS) and kind in TIMESTAMPS:
        return _timestamp(node, cast_time(literal, kind) or literal, Primitive(kind))
    if kind is Primitive.UUID and isinstance(value, bytes):
        return _uuid(value)
    if literal.type not in (Primitive.LONG, Primitive.DOUBLE) or isinstance(value, float):
        return literal  # a float has been cast to one, or is one already
    assert isinstance(value, int | Decimal)
    exact = Decimal(value)
    if kind in (Primitive.INT, Primitive.LONG):
        if exact == exact.to_integral_value() and INT64_MIN <= exact <= INT64_MAX:
            return Literal(int(exact), Primitive.LONG)
        raise InvalidRequestError(f"{show_node(node)}: {exact} is not a whole number of 64 bits")
    if kind in FLOATS:
        number = float(exact)
        if number in (float("inf"), float("-inf")):
            raise InvalidRequestError(
                f"{show_node(node)}: {exact} is beyond what a double can hold"
            )
        return Literal(number + 0.0, Primitive.DOUBLE)  # of -0.0, to which -1e-400 is rounded
    if isinstance(kind, DecimalType):
        return _decimal(node, exact, kind)
    return literal


def _of_text(node: Shown, text: str, kind: FieldType) -> Literal:
    """Return a text as a constant of the type that it is compared with, as SQL does."""
    if kind in (*TIMESTAMPS, Primitive.DATE, Primitive.TIME):
        return text_as_time(text, kind)
    if kind is Primitive.UUID:
        return _uuid(text)
    if kind in FLOATS and (found := _NOT_FINITE.fullmatch(text)):
        # always the same NaN, so that equal conditions are equal
        return Literal(float(text) if found["number"] else math.nan, Primitive.DOUBLE)
    is_number = kind in _NUMBERS or isinstance(kind, DecimalType)
    return number(node, text) if is_number else Literal(text, Primitive.STRING)


def _timestamp(node: Shown, literal: Literal, kind: Primitive) -> Literal:
    """Return a time as one of the type that it is compared with; without a zone, it is in UTC."""
    assert isinstance(literal.value, int)
    if literal.type in ZONED and kind not in ZONED:
        raise InvalidRequestError(
            f"{show_node(node)}: the time has a zone, and {show_type(kind)} has none",
            hint="write the time without a zone",
        )
    count = literal.value * (1 if literal.type in NANOSECONDS else 1000)
    if kind not in NANOSECONDS:
        if count % 1000:
            raise InvalidRequestError(f"{show_node(node)}: times are whole microseconds")
        return Literal(count // 1000, kind)
    if not INT64_MIN <= count <= INT64_MAX:
        raise InvalidRequestError(
            f"{show_node(node)}: the time is beyond what {show_type(kind)} can hold"
        )
    return Literal(count, kind)


def _uuid(value: str | bytes) -> Literal:
    try:
        return Literal(uuid_bytes(value), Primitive.UUID)
    except ValueError as error:
        raise InvalidRequestError(
            "a value that is compared with a UUID is none",
            hint="write it as '123e4567-e89b-12d3-a456-426614174000'",
        ) from error


def _decimal(node: Shown, value: Decimal, kind: DecimalType) -> Literal:
    """Return a number as a decimal with exactly the digits that it has."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    if precision <= 38:
        own = DecimalType(precision, scale)
        if common_type(own, kind) is not None:
            return Literal(value, own)
    raise InvalidRequestError(
        f"{show_node(node)}: {value} and {show_type(kind)} have no 38 digits in common"
    )


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
