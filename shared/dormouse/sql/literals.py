"""Literals in a parsed SQL condition, with their types; used by `parser`."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

from sqlglot import exp

from dormouse.errors import InvalidRequestError
from dormouse.keys.ranges import INT64_MAX, INT64_MIN
from dormouse.schema.schema import DecimalType, FieldType, Primitive, type_name
from dormouse.schema.times import parse_time, to_days, to_microseconds
from dormouse.sql.expressions import Literal, common_type

_DIALECT = "postgres"
_SHOWN = 60
_NUMBER = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
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
    """Return the literal ``TIMESTAMP '…'`` or ``DATE '…'``, which the parser represents as a cast
    of text.
    """
    if isinstance(node.this, exp.Literal) and node.this.is_string:
        text, kind = node.this.name, node.to.this
        try:
            if kind in (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPTZ):
                time = parse_time(text)
                # astimezone raises for a time outside the years that Python has
                utc = time.astimezone(dt.UTC) if time.tzinfo else time
                return Literal(to_microseconds(utc), Primitive.TIMESTAMP)
            if kind is exp.DataType.Type.DATE:
                return Literal(to_days(dt.date.fromisoformat(text)), Primitive.DATE)
        except (ValueError, OverflowError) as error:
            name = "time" if kind is not exp.DataType.Type.DATE else "date"
            raise InvalidRequestError(f"{text!r} is not a {name}: {error}") from error
    raise InvalidRequestError(f"{show_node(node)}: values cannot be cast in a condition")
