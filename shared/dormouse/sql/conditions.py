"""Conditions on rows: which rows match. People write them in SQL, and code makes them."""

from __future__ import annotations

from dataclasses import dataclass

from dormouse.schema.schema import Primitive, Schema
from dormouse.sql.expressions import Call, Column, Expression, Literal, columns_of, leaf_sql, render


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a row. A row matches if the condition is true of it; not if it is false or
    null.
    """

    expression: Expression

    @property
    def columns(self) -> frozenset[str]:
        """The names of the columns that it reads."""
        return frozenset(columns_of(self.expression))

    @property
    def sql(self) -> str:
        """The normal form: SQL that parses to the same condition, the same for equal conditions."""
        return render(self.expression, leaf_sql)

    def negated(self) -> Condition:
        """Return the condition that matches exactly the rows that this one does not match."""
        is_true = Call("IS TRUE", (self.expression,), Primitive.BOOLEAN)
        return Condition(Call("NOT", (is_true,), Primitive.BOOLEAN))

    def and_also(self, other: Condition) -> Condition:
        """Return the condition that matches the rows that match both."""
        both = (self.expression, other.expression)
        return Condition(Call("AND", both, Primitive.BOOLEAN))


def parse_condition(text: str, schema: Schema, *, now_ms: int | None = None) -> Condition:
    """Parse an SQL condition on the columns of `schema`.

    `now()` is `now_ms` for good: the normal form has that time. Without `now_ms` it is refused.

    Raises:
        InvalidRequestError: it is not a condition, names an unknown column or function, uses what
            is not allowed, or its types do not fit. The message says where and why.
    """
    from dormouse.sql.plain.conditions import read_condition  # most processes never see a condition

    plain = read_condition(text, schema) if isinstance(text, str) else None
    if plain is not None:
        return Condition(plain)
    from dormouse.sql.parsing import (
        parser as sql_parser,  # the parser of all SQL takes long to import
    )

    return Condition(sql_parser.parse(text, schema, now_ms))


def greater_than(column: Column, value: int) -> Condition:
    """Return the condition that a column of whole numbers is greater than `value`."""
    least = Literal(value, column.type)
    return Condition(Call(">", (column, least), Primitive.BOOLEAN))
