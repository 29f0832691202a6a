"""Operands of a condition: constants in the types that they are compared with, and which types go
together; used by `parser` and `calls`.
"""

import datetime as dt
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from functools import reduce

from dormouse.errors import InvalidRequestError
from dormouse.key_codec import uuid_bytes
from dormouse.keys import INT64_MAX, INT64_MIN
from dormouse.schema.types import (
    FLOATS,
    NANOSECONDS,
    TIMESTAMPS,
    WHOLE,
    ZONED,
    DecimalType,
    FieldType,
    Primitive,
    from_days,
    parse_clock,
    parse_count,
    parse_uuid,
    show_type,
    to_days,
    type_of_time,
)
from dormouse.sql.conditions import Call, Expression, Literal, common_type

# Errors say what is wrong; the parser says of which part of the text.

_NUMBER = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
_NOT_FINITE = re.compile(r"(?P<number>[+-]?inf(inity)?)|[+-]?nan", re.IGNORECASE)
"""What floats may be beside numbers, as CSV files have it."""
_NUMBERS = (*WHOLE, *FLOATS)
_MOST_DIGITS = 400  # before the point or after it: a double has fewer


def number(text: str) -> Literal:
    """Return a number as a literal; `coerce_literal` finds its final type.
    Raises InvalidRequestError: it is none, or no column can hold it.
    """
    if not _NUMBER.fullmatch(text):
        raise InvalidRequestError(f"{text!r} is not a number")
    value = Decimal(text)
    if abs(value.adjusted()) > _MOST_DIGITS:
        raise InvalidRequestError(f"{text[:60]} is beyond all numbers that a column can hold")
    if value == value.to_integral_value() and INT64_MIN <= value <= INT64_MAX:
        return Literal(int(value), Primitive.LONG)
    return Literal(value, Primitive.DOUBLE)


def coerce_literal(literal: Literal, kind: FieldType) -> Literal:
    """Return a number as a literal of the type that it is compared with; other literals unchanged.
    Raises InvalidRequestError: that type cannot hold the number.
    """
    value = literal.value
    if literal.type is Primitive.STRING and isinstance(value, str):
        literal = _of_text(value, kind)
        value = literal.value
    if literal.type in (Primitive.DATE, *TIMESTAMPS) and kind in TIMESTAMPS:
        return _timestamp(cast_time(literal, kind) or literal, Primitive(kind))
    if kind is Primitive.UUID and isinstance(value, bytes):
        return _uuid(value)
    if literal.type not in (Primitive.LONG, Primitive.DOUBLE) or isinstance(value, float):
        return literal  # a float has been cast to one, or is one already
    assert isinstance(value, int | Decimal)
    exact = Decimal(value)
    if kind in WHOLE:
        if exact == exact.to_integral_value() and INT64_MIN <= exact <= INT64_MAX:
            return Literal(int(exact), Primitive.LONG)
        raise InvalidRequestError(f"{exact} is not a whole number of 64 bits")
    if kind in FLOATS:
        number = float(exact)
        if number in (float("inf"), float("-inf")):
            raise InvalidRequestError(f"{exact} is beyond what a double can hold")
        return Literal(number + 0.0, Primitive.DOUBLE)  # of -0.0, to which -1e-400 is rounded
    if isinstance(kind, DecimalType):
        return _decimal(exact, kind)
    return literal


def _of_text(text: str, kind: FieldType) -> Literal:
    """Return a text as a constant of the type that it is compared with, as SQL does."""
    if kind in (*TIMESTAMPS, Primitive.DATE, Primitive.TIME):
        return text_as_time(text, kind)
    if kind is Primitive.UUID:
        return _uuid(text)
    if kind in FLOATS and (match := _NOT_FINITE.fullmatch(text)):
        # always the same NaN, so that equal conditions are equal
        return Literal(float(text) if match["number"] else math.nan, Primitive.DOUBLE)
    is_number = kind in _NUMBERS or isinstance(kind, DecimalType)
    return number(text) if is_number else Literal(text, Primitive.STRING)


def _timestamp(literal: Literal, kind: Primitive) -> Literal:
    """Return a time as one of the type that it is compared with; without a zone, it is in UTC."""
    assert isinstance(literal.value, int)
    if literal.type in ZONED and kind not in ZONED:
        raise InvalidRequestError(
            f"the time has a zone, and {show_type(kind)} has none",
            hint="write the time without a zone",
        )
    count = literal.value * (1 if literal.type in NANOSECONDS else 1000)
    if kind not in NANOSECONDS:
        if count % 1000:
            raise InvalidRequestError("times are whole microseconds")
        return Literal(count // 1000, kind)
    if not INT64_MIN <= count <= INT64_MAX:
        raise InvalidRequestError(f"the time is beyond what {show_type(kind)} can hold")
    return Literal(count, kind)


def _uuid(value: str | bytes) -> Literal:
    try:
        return Literal(uuid_bytes(value), Primitive.UUID)
    except ValueError as error:
        raise InvalidRequestError(
            "a value that is compared with a UUID is none",
            hint="write it as '123e4567-e89b-12d3-a456-426614174000'",
        ) from error


def _decimal(value: Decimal, kind: DecimalType) -> Literal:
    """Return a number as a decimal with exactly the digits that it has."""
    if not value:
        return Literal(Decimal(0), kind)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    if precision <= 38:
        own = DecimalType(precision, scale)
        if common_type(own, kind) is not None:
            return Literal(value, own)
    raise InvalidRequestError(f"{value} and {show_type(kind)} have no 38 digits in common")


def text_as_time(text: str, kind: FieldType) -> Literal:
    """Return a text as a constant of a type of times or UUIDs.
    Raises InvalidRequestError: it is none.
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


# Which types the operands of an expression may have, and the type of what they make.
#
# Used by `parser`.

_HINTS: dict[FieldType, str] = {
    **dict.fromkeys(TIMESTAMPS, "a time is written as TIMESTAMP '2026-01-31 12:00:00'"),
    Primitive.TIMESTAMP: "a time is written as TIMESTAMP '2026-01-31 12:00:00' (UTC)",
    Primitive.TIME: "a time of day is written as TIME '12:30:00'",
    Primitive.UUID: "a UUID is written as UUID '123e4567-e89b-12d3-a456-426614174000'",
    Primitive.DATE: "a date is written as DATE '2026-01-31'",
    Primitive.BYTES: "bytes are written as X'00ff'",
}
IN_DOCUMENTS = (Primitive.LONG, Primitive.DOUBLE, Primitive.STRING, Primitive.BOOLEAN)
"""The types that values in documents are cast to, and compared as."""
_WHOLE_AS_DECIMAL = DecimalType(19, 0)
"""What every whole number of 64 bits is exactly."""


def compared(operands: Sequence[Expression]) -> list[Expression]:
    """Return operands that are compared with each other, as `alike` does; whole ones beside a
    decimal, or a number that is none of 64 bits, as decimals: ``k > 1.5`` means what it says.
    Raises InvalidRequestError: they are of types that cannot be compared.
    """
    if any(e.type is Primitive.DYNAMIC for e in operands):
        return _with_document(operands)
    if any(
        isinstance(e.type, DecimalType) or (isinstance(e, Literal) and isinstance(e.value, Decimal))
        for e in operands
    ):
        operands = [
            Call("CAST", (e,), _WHOLE_AS_DECIMAL)
            if e.type in WHOLE and not isinstance(e, Literal)
            else e
            for e in operands
        ]
    return alike(operands)


def _with_document(operands: Sequence[Expression]) -> list[Expression]:
    """Return a part of a document and the constants that it is compared with: a number with
    numbers, a text with texts, a truth value with truth values.
    """
    constants = [e for e in operands if isinstance(e, Literal)]
    is_plain = all(
        isinstance(e.value, Decimal | int | str) and e.type in IN_DOCUMENTS for e in constants
    )
    if len(constants) < len(operands) - 1 or not is_plain:
        raise InvalidRequestError(
            "what is in a document is compared with numbers, texts in quotes, TRUE or FALSE",
            hint="CAST(payload.n AS BIGINT) is compared with columns; types: BIGINT, DOUBLE, TEXT, "
            "BOOLEAN",
        )
    return list(operands)


def text_of(expression: Expression) -> Expression:
    """Return what is in a document as the text that it is, null if it is another value; any other
    expression as it is.
    """
    if expression.type is not Primitive.DYNAMIC:
        return expression
    return Call("CAST", (expression,), Primitive.STRING)


def _looseness(expression: Expression) -> int:
    """Return how freely an operand takes the type of another: 0 if not at all, 1 if it was cast to
    a double, 2 if it is another literal.
    """
    if not isinstance(expression, Literal):
        return 0
    return 1 if isinstance(expression.value, float) else 2


def alike(operands: Sequence[Expression]) -> list[Expression]:
    """Return operands that must be of one type; literals take the type of the other operands.
    Raises InvalidRequestError: they are of types that cannot be compared.
    """
    if any(e.type is Primitive.DYNAMIC for e in operands):
        raise InvalidRequestError(
            "the values in documents are of any type",
            hint="CAST(payload.n AS BIGINT) is a number or null; types: BIGINT, DOUBLE, TEXT, "
            "BOOLEAN",
        )
    firmest = min(operands, key=_looseness).type
    parts = [coerce_literal(e, firmest) if isinstance(e, Literal) else e for e in operands]
    if not isinstance(firmest, Primitive | DecimalType):
        raise InvalidRequestError(
            f"{show_type(firmest)} cannot be compared", hint="it can only be tested with IS NULL"
        )
    kind = parts[0].type
    for other in parts[1:]:
        shared = common_type(kind, other.type)
        if shared is None:
            raise InvalidRequestError(
                f"{show_type(kind)} and {show_type(other.type)} cannot be compared",
                hint=_HINTS.get(other.type) or _HINTS.get(kind, ""),
            )
        kind = shared
    return parts


def calculated(op: str, both: Sequence[Expression]) -> Expression:
    """Return a calculation that cannot fail on any row: it divides by nothing that may be zero.
    Raises InvalidRequestError: it may fail, or its operands are no numbers.
    """
    if other := next((part.type for part in both if part.type not in _NUMBERS), None):
        raise InvalidRequestError(
            f"it calculates with {show_type(other)}",
            hint="only whole and floating numbers can be calculated with",
        )
    kind = common(both)
    divisor = both[1]
    value = divisor.value if isinstance(divisor, Literal) else None
    if op in "/%" and not (isinstance(value, int | float) and value > 0):
        raise InvalidRequestError("the divisor must be a number above zero")
    return Call(op, tuple(both), Primitive.LONG if kind in WHOLE else Primitive.DOUBLE)


def common(expressions: Sequence[Expression]) -> FieldType:
    """Return the type that values of all expressions have together."""
    kinds = (expression.type for expression in expressions)
    return reduce(lambda kind, other: common_type(kind, other) or kind, kinds)


def check_types(arguments: Sequence[Expression], kinds: Sequence[FieldType]) -> None:
    """Refuse the arguments of a function unless they are of the types that it is for.
    Raises InvalidRequestError: they are not.
    """
    if [a.type for a in arguments] != list(kinds):
        given_types = ", ".join(show_type(a.type) for a in arguments)
        right_types = ", ".join(show_type(kind) for kind in kinds)
        raise InvalidRequestError(f"it is for {right_types}, not for {given_types}")
