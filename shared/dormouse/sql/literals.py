"""Literals in a parsed SQL condition, with their types; used by `parser`."""

from __future__ import annotations

import re
from decimal import Decimal

from sqlglot import exp

from dormouse.errors import InvalidRequestError
from dormouse.key_forms.python import uuid_bytes
from dormouse.keys.ranges import INT64_MAX, INT64_MIN
from dormouse.schema.schema import DecimalType, FieldType, Primitive, type_name
from dormouse.schema.types import NANOSECONDS, TIMESTAMPS, ZONED
from dormouse.sql.casts import cast_time, text_as_time
from dormouse.sql.expressions import Literal, common_type

_DIALECT = "postgres"
_SHOWN = 60
_NUMBER = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
_NUMBERS = (Primitive.INT, Primitive.LONG, Primitive.FLOAT, Primitive.DOUBLE)
_TYPED: dict[exp.DType, Primitive] = {
    exp.DType.TIMESTAMP: Primitive.TIMESTAMP,
    exp.DType.TIMESTAMPTZ: Primitive.TIMESTAMP,
    exp.DType.DATE: Primitive.DATE,
    exp.DType.TIME: Primitive.TIME,
    exp.DType.UUID: Primitive.UUID,
}
_MOST_DIGITS = 400  # before the point or after it: a double has fewer


def parse_literal(node: exp.Expr) -> Literal:
    """Return the value of a literal. A number gets its final type later, by `coerce_literal`.

    Raises:
        InvalidRequestError: it is malformed, or no column can hold it.
    """
    match node:
        case exp.Boolean():
            return Literal(bool(node.this), Primitive.BOOLEAN)
        case exp.HexString():
            return Literal(_bytes(node), Primitive.BYTES)
        case exp.Cast():
            return _typed(node)
        case exp.Neg():
            return _number(node, f"-{node.this.name}")
        case exp.Literal(is_string=True):
            return Literal(node.name, Primitive.STRING)
    return _number(node, node.name)


def show_node(node: exp.Expr) -> str:
    """Return a part of a condition as text, shortened, for an error message."""
    text = node.sql(_DIALECT)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _number(node: exp.Expr, text: str) -> Literal:
    if not _NUMBER.fullmatch(text):
        raise InvalidRequestError(f"{text!r} is not a number")
    value = Decimal(text)
    if abs(value.adjusted()) > _MOST_DIGITS:
        raise InvalidRequestError(f"{show_node(node)} is beyond all numbers that a column can hold")
    if value == value.to_integral_value() and INT64_MIN <= value <= INT64_MAX:
        return Literal(int(value), Primitive.LONG)
    return Literal(value, Primitive.DOUBLE)


def coerce_literal(node: exp.Expr, literal: Literal, kind: FieldType) -> Literal:
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
    if literal.type not in (Primitive.LONG, Primitive.DOUBLE):
        return literal
    assert isinstance(value, int | Decimal)
    exact = Decimal(value)
    if kind in (Primitive.INT, Primitive.LONG):
        if exact == exact.to_integral_value() and INT64_MIN <= exact <= INT64_MAX:
            return Literal(int(exact), Primitive.LONG)
        raise InvalidRequestError(f"{show_node(node)}: {exact} is not a whole number of 64 bits")
    if kind in (Primitive.FLOAT, Primitive.DOUBLE):
        number = float(exact)
        if number in (float("inf"), float("-inf")):
            raise InvalidRequestError(
                f"{show_node(node)}: {exact} is beyond what a double can hold"
            )
        return Literal(number + 0.0, Primitive.DOUBLE)  # of -0.0, to which -1e-400 is rounded
    if isinstance(kind, DecimalType):
        return _decimal(node, exact, kind)
    return literal


def _of_text(node: exp.Expr, text: str, kind: FieldType) -> Literal:
    """Return a text as a constant of the type that it is compared with, as SQL does."""
    if kind in (*TIMESTAMPS, Primitive.DATE, Primitive.TIME):
        return text_as_time(text, kind)
    if kind is Primitive.UUID:
        return _uuid(text)
    is_number = kind in _NUMBERS or isinstance(kind, DecimalType)
    return _number(node, text) if is_number else Literal(text, Primitive.STRING)


def _timestamp(node: exp.Expr, literal: Literal, kind: Primitive) -> Literal:
    """Return a time as one of the type that it is compared with; without a zone, it is in UTC."""
    assert isinstance(literal.value, int)
    if literal.type in ZONED and kind not in ZONED:
        raise InvalidRequestError(
            f"{show_node(node)}: the time has a zone, and {type_name(kind)} has none",
            hint="write the time without a zone",
        )
    count = literal.value * (1 if literal.type in NANOSECONDS else 1000)
    if kind not in NANOSECONDS:
        if count % 1000:
            raise InvalidRequestError(f"{show_node(node)}: times are whole microseconds")
        return Literal(count // 1000, kind)
    if not INT64_MIN <= count <= INT64_MAX:
        raise InvalidRequestError(
            f"{show_node(node)}: the time is beyond what {type_name(kind)} can hold"
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


def _decimal(node: exp.Expr, value: Decimal, kind: DecimalType) -> Literal:
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
        f"{show_node(node)}: {value} and {type_name(kind)} have no 38 digits in common"
    )


def _bytes(node: exp.HexString) -> bytes:
    try:
        return bytes.fromhex(node.name)
    except ValueError as error:
        raise InvalidRequestError(
            f"X'{node.name}' is not bytes: write two hex digits for each byte"
        ) from error


def _typed(node: exp.Cast) -> Literal:
    """Return the literal ``TIMESTAMP '…'``, ``DATE '…'``, ``TIME '…'`` or ``UUID '…'``, which the
    parser represents as a cast of text.
    """
    assert isinstance(node.this, exp.Literal)
    return text_as_time(node.this.name, _TYPED[node.to.this])


def is_typed(node: exp.Expr) -> bool:
    """Return whether a node is a literal with its type before it, or a text cast to such a type."""
    return (
        isinstance(node, exp.Cast)
        and isinstance(node.this, exp.Literal)
        and node.this.is_string
        and node.to.this in _TYPED
        and not node.to.expressions
    )
