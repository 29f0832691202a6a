"""Expressions on rows: checked trees of columns, literals and operators, and rendering as normal
SQL.

Of the text that somebody wrote, only names of columns of the schema and literals reach a tree. An
operator that is not in the tables below cannot be in one. Types are checked, so that evaluating a
tree never fails. `parser` builds trees from text, and `engine.predicates` evaluates them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from dormouse.schema.schema import DecimalType, FieldType, Primitive
from dormouse.schema.times import from_days, show_clock, show_count
from dormouse.schema.types import TIMESTAMPS
from dormouse.schema.uuids import show_uuid

MAX_CONDITION_CHARACTERS = 16 * 1024
"""The most characters of a condition."""
MAX_CONDITION_DEPTH = 16
"""How deeply a condition may be nested."""
MAX_BRACKETS = 2 * MAX_CONDITION_DEPTH
"""The most brackets that may be open at once. Some do not nest, but the parser recurses into
each."""
MAX_PATTERN = 1_000
"""The most characters of a LIKE or ILIKE pattern. The engine builds an automaton from it: it
refuses a pattern of 11,000 characters, and one of 1,000 takes up to 4 CPU seconds per MB of
text."""
MAX_LIST = 1_000
"""The most values of an IN list, and the most terms of one chain of AND or OR."""

ARITHMETIC = ("+", "-", "*", "/", "%")
TESTS = ("IS NULL", "IS TRUE", "IS FALSE")
CASTS = ("CAST", "TRY_CAST")
DATE_PARTS = ("YEAR", "QUARTER", "MONTH", "DAY", "DOW", "DOY", "HOUR", "MINUTE")
"""The parts that EXTRACT can take from a timestamp, in UTC, or from a date."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table."""

    name: str
    type: FieldType


@dataclass(frozen=True, slots=True)
class Literal:
    """A value. A timestamp is microseconds and a date days since 1970."""

    value: bool | int | float | Decimal | str | bytes
    type: FieldType


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function applied to arguments; the name of ``EXTRACT`` includes the part.

    ``FIELD``, ``ELEMENT`` and ``VALUE`` take a member of a struct, an element of a list and a value
    of a map; their second argument is the literal in the brackets. ``SHIFT`` adds an interval,
    which is a text, to a time. ``CASE`` alternates conditions and values, and may end with one
    value more, for all other rows. ``CAST`` converts to the type that it has.
    """

    op: str
    arguments: tuple[Expression, ...]
    type: FieldType


Expression: TypeAlias = "Column | Literal | Call"


def depth(expression: Expression) -> int:
    """Return how deeply an expression is nested: 0 for a column or literal."""
    if not isinstance(expression, Call):
        return 0
    return 1 + max((depth(argument) for argument in expression.arguments), default=0)


def render(
    expression: Expression,
    leaf: Callable[[Column | Literal], str],
    finish: Callable[[Call, list[str]], str] | None = None,
) -> str:
    """Return an expression as SQL. `leaf` renders columns and literals, `finish` renders calls."""
    if not isinstance(expression, Call):
        return leaf(expression)
    parts = [render(argument, leaf, finish) for argument in expression.arguments]
    return finish(expression, parts) if finish else call_sql(expression, parts)


def call_sql(call: Call, parts: list[str]) -> str:
    """Return a call as SQL; `parts` are its rendered arguments."""
    op = call.op
    if op == "IN":
        return f"({parts[0]} IN ({', '.join(parts[1:])}))"
    if op == "NOT":
        return f"(NOT {parts[0]})"
    if op in TESTS:
        return f"({parts[0]} {op})"
    if op.startswith("EXTRACT "):
        return f"EXTRACT({op.removeprefix('EXTRACT ')} FROM {parts[0]})"
    if op in CASTS:
        return f"{op}({parts[0]} AS {sql_type(call.type)})"
    if op in ("FIELD", "ELEMENT", "VALUE"):
        return f"{parts[0]}[{parts[1]}]"
    if op == "SHIFT":
        return f"({parts[0]} + INTERVAL {parts[1]})"
    if op == "CASE":
        return case_sql(parts)
    if op.islower():
        return f"{op}({', '.join(parts)})"
    return f"({f' {op} '.join(parts)})"


def case_sql(parts: list[str]) -> str:
    """Return ``CASE`` as SQL; `parts` alternate conditions and values."""
    whens = [f"WHEN {a} THEN {b}" for a, b in zip(parts[::2], parts[1::2], strict=False)]
    if len(parts) % 2:
        whens.append(f"ELSE {parts[-1]}")
    return f"(CASE {' '.join(whens)} END)"


_SQL_TYPES: dict[FieldType, str] = {
    Primitive.BOOLEAN: "BOOLEAN",
    Primitive.INT: "INT",
    Primitive.LONG: "BIGINT",
    Primitive.FLOAT: "REAL",
    Primitive.DOUBLE: "DOUBLE",
    Primitive.STRING: "TEXT",
    Primitive.DATE: "DATE",
    Primitive.TIMESTAMP_NTZ_NS: "TIMESTAMP",
}


def sql_type(kind: FieldType) -> str:
    """Return the name of a type that values can be cast to."""
    if isinstance(kind, DecimalType):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return _SQL_TYPES[kind]


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(value: str) -> str:
    """Return text as an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


def common_type(left: FieldType, right: FieldType) -> FieldType | None:
    """Return the type in which values of both types compare exactly; None if there is none.

    Two decimals need all the digits that either has on each side of the point: decimal(10, 2) and
    decimal(6, 4) compare as decimal(12, 4). Whole and floating numbers have no common type, since a
    double cannot hold every 64-bit integer.
    """
    if left == right:
        return left
    if isinstance(left, DecimalType) and isinstance(right, DecimalType):
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale
        return DecimalType(precision, scale) if precision <= 38 else None
    for wide, narrow in ((Primitive.LONG, Primitive.INT), (Primitive.DOUBLE, Primitive.FLOAT)):
        if {left, right} == {wide, narrow}:
            return wide
    return None


def columns_of(expression: Expression) -> set[str]:
    """Return the names of the columns in an expression."""
    match expression:
        case Column(name=name):
            return {name}
        case Call(arguments=arguments):
            return {name for argument in arguments for name in columns_of(argument)}
        case _:
            return set()


def leaf_sql(leaf: Column | Literal) -> str:
    """Return a column or literal as SQL."""
    if isinstance(leaf, Column):
        return quoted(leaf.name)
    value = leaf.value
    if leaf.type in TIMESTAMPS:
        assert isinstance(value, int) and isinstance(leaf.type, Primitive)
        # without its zone: the column that it is compared with says whether it is UTC
        text = show_count(value, leaf.type).removesuffix("+00:00")
        return f"TIMESTAMP '{text.replace('T', ' ')}'"
    if leaf.type is Primitive.TIME:
        assert isinstance(value, int)
        return f"TIME '{show_clock(value)}'"
    if leaf.type is Primitive.UUID:
        assert isinstance(value, bytes)
        return f"UUID '{show_uuid(value)}'"
    if leaf.type is Primitive.DATE:
        assert isinstance(value, int)
        return f"DATE '{from_days(value)}'"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, str):
        return text_literal(value)
    if isinstance(value, float) and not math.isfinite(value):
        word = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return f"CAST('{word}' AS DOUBLE)"
    return f"{value:f}" if isinstance(value, Decimal) else repr(value)
