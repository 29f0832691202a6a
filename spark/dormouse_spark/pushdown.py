"""Spark's pushed filters as conditions on rows, from Spark 4.1 on.

A filter is recognised by the name of its class, because Spark 4.0 does not have these classes. A
condition is true of exactly the rows for which Spark's filter is true: null and NaN are treated
alike in both. Filters without an equivalent here are left to Spark.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from dormouse.keys import INT64_MAX, INT64_MIN
from dormouse.schema.schema import Schema
from dormouse.schema.types import (
    MAX_TIME,
    UUID_BYTES,
    DecimalType,
    FieldType,
    Primitive,
    exact_decimal,
    to_days,
    to_microseconds,
)
from dormouse.sql.conditions import MAX_LIST, Call, Column, Condition, Expression, Literal

_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "IS NOT DISTINCT FROM",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_TEXT_TESTS = {
    "StringStartsWith": "starts_with",
    "StringEndsWith": "ends_with",
    "StringContains": "contains",
}


@dataclass(frozen=True, slots=True)
class Pushed:
    """The result of pushdown: the conjunction of the accepted filters,
    and the filters left to Spark.
    """

    condition: Condition | None
    left: tuple[object, ...]


def push_down(filters: Iterable[object], schema: Schema, also: Condition | None = None) -> Pushed:
    """Accept the filters that can be conditions on the columns of
    `schema`; `also` is another condition.
    """
    terms: list[Expression] = [] if also is None else [also.expression]
    others = []
    for each in filters:
        term = _term(each, schema)
        if term is None:
            others.append(each)
        else:
            terms.append(term)
    if len(terms) < 2:
        return Pushed(Condition(terms[0]) if terms else None, tuple(others))
    return Pushed(Condition(_call("AND", *terms)), tuple(others))


def _term(pushed: Any, schema: Schema) -> Expression | None:
    """Return a filter as an expression; None if it has no equivalent."""
    name = type(pushed).__name__
    if name == "Not":
        child = _term(pushed.child, schema)
        return None if child is None else _call("NOT", child)
    column = _column(getattr(pushed, "attribute", ()), schema)
    if column is None:
        return None
    match name:
        case "IsNull":
            return _call("IS NULL", column)
        case "IsNotNull":
            return _call("NOT", _call("IS NULL", column))
        case "EqualNullSafe" if pushed.value is None:
            return _call("IS NULL", column)
        case "In":
            return _among(column, pushed.value)
    literal = _literal(getattr(pushed, "value", None), column.type)
    if literal is None:
        return None
    if name in _TEXT_TESTS and column.type is Primitive.STRING:
        return _call(_TEXT_TESTS[name], column, literal)
    if name not in _COMPARISONS or (column.type is Primitive.BOOLEAN and not name.startswith("E")):
        return None
    return _call(_COMPARISONS[name], column, literal)


def _among(column: Column, values: Sequence[object]) -> Expression | None:
    literals = [_literal(value, column.type) for value in values]
    exact = [literal for literal in literals if literal is not None]
    if not exact or len(exact) < len(literals) or len(exact) > MAX_LIST:
        return None
    return _call("IN", column, *exact)


def _column(path: Sequence[str], schema: Schema) -> Column | None:
    """Return the top-level column that a path names; None for a nested part, and where what is
    stored is encrypted.
    """
    if len(path) != 1:
        return None
    plain = (field for field in schema.fields if field.encrypted is None)
    return next((Column(f.name, f.type) for f in plain if f.name == path[0]), None)


def _literal(value: object, kind: FieldType) -> Literal | None:
    """Return a value that can be compared exactly with cells of the type; None if it is not one."""
    if isinstance(value, bool) or kind is Primitive.BOOLEAN:
        alike = isinstance(value, bool) and kind is Primitive.BOOLEAN
        return Literal(bool(value), Primitive.BOOLEAN) if alike else None
    match kind, value:
        case ((Primitive.INT | Primitive.LONG), int()) if _in_64_bits(value):
            return Literal(value, Primitive.LONG)
        case ((Primitive.FLOAT | Primitive.DOUBLE), float()) if math.isfinite(value):
            return Literal(value + 0.0, Primitive.DOUBLE)  # + 0.0 makes -0.0 equal to 0.0
        case DecimalType(), Decimal():
            return _decimal(value, kind)
        case Primitive.STRING, str():
            return Literal(value, kind)
        case Primitive.BYTES, bytes() | bytearray():
            return Literal(bytes(value), kind)
        case Primitive.TIMESTAMP, dt.datetime() if value.tzinfo is not None:
            return Literal(to_microseconds(value), kind)
        case Primitive.TIMESTAMP_NTZ, dt.datetime() if value.tzinfo is None:
            return Literal(to_microseconds(value), kind)
        case Primitive.DATE, dt.date() if not isinstance(value, dt.datetime):
            return Literal(to_days(value), kind)
    return _stored_form(value, kind)


def _stored_form(value: object, kind: FieldType) -> Literal | None:
    """Return a value of a type that Spark reads as the number or the bytes that are stored."""
    match kind, value:
        case ((Primitive.TIMESTAMP_NS | Primitive.TIMESTAMP_NTZ_NS), int()) if _in_64_bits(value):
            return Literal(value, kind)
        case Primitive.TIME, int() if 0 <= value <= MAX_TIME:
            return Literal(value, kind)
        case Primitive.UUID, bytes() | bytearray() if len(value) == UUID_BYTES:
            return Literal(bytes(value), kind)
    return None


def _in_64_bits(value: int) -> bool:
    return INT64_MIN <= value <= INT64_MAX


def _decimal(value: Decimal, kind: DecimalType) -> Literal | None:
    try:
        return Literal(exact_decimal(value, kind), kind)
    except ValueError:
        return None


def _call(op: str, *arguments: Expression) -> Call:
    return Call(op, arguments, Primitive.BOOLEAN)
