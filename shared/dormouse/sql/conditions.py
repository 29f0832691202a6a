"""Conditions on rows: which rows match, in SQL that somebody wrote or made by code."""

from __future__ import annotations

from dataclasses import dataclass

from dormouse.schema.schema import Primitive, Schema
from dormouse.sql.expressions import Call, Column, Expression, Literal, columns_of, leaf_sql, render


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a row: the row matches where it is true; not where it is false or null."""

    expression: Expression

    @property
    def columns(self) -> frozenset[str]:
        """The names of the columns it needs."""
        return frozenset(columns_of(self.expression))

    @property
    def sql(self) -> str:
        """The normal form: SQL that parses to the same condition, the same for equal ones."""
        return render(self.expression, leaf_sql)

    def negated(self) -> Condition:
        """Return the condition which just those rows match that do not match this one."""
        is_true = Call("IS TRUE", (self.expression,), Primitive.BOOLEAN)
        return Condition(Call("NOT", (is_true,), Primitive.BOOLEAN))

    def and_also(self, other: Condition) -> Condition:
        """Return the condition which those rows match that match both."""
        both = (self.expression, other.expression)
        return Condition(Call("AND", both, Primitive.BOOLEAN))


def parse_condition(text: str, schema: Schema) -> Condition:
    """Parse a condition in SQL on the columns of `schema`.

    Raises:
        InvalidRequestError: it is no condition, names something unknown, does what is not allowed,
            or its types do not fit; the message says where and why.
    """
    from dormouse.sql import parser as sql_parser  # most processes never see a condition

    return Condition(sql_parser.parse(text, schema))


def greater_than(column: Column, value: int) -> Condition:
    """Return the condition that a column, whose cells are whole numbers, is above `value`."""
    least = Literal(value, column.type)
    return Condition(Call(">", (column, least), Primitive.BOOLEAN))
