"""Plain statements: those that one scan answers, so that no query engine is needed.

A plain statement selects columns of one table, or counts its rows or takes sums, least and greatest
values of columns; it may have a condition that compares columns with values, ORDER BY the first
keys, ascending, and LIMIT, or ORDER BY another column with LIMIT. What is not surely plain is not
plain: then DataFusion answers it, and says what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dormouse.schema.schema import Field, Primitive, Schema
from dormouse.sql.expressions import quoted, text_literal
from dormouse.sql.plain.reading import (
    COUNT,
    Item,
    NamedColumn,
    Order,
    PlainText,
    Term,
    Value,
)
from dormouse.sql.plain.tokens import NUMBER, PARAMETER, NotPlainError, need

WHOLE = {Primitive.INT: 32, Primitive.LONG: 64}
SUMMED = (*WHOLE, Primitive.DOUBLE)
COMPARED = (*WHOLE, Primitive.STRING, Primitive.TIMESTAMP, Primitive.DATE)
"""Columns of floats are none of these: what compares with NaN and -0.0 is DataFusion's matter."""
_TIME = re.compile(r"((?:1[89]|20|21)\d\d-\d\d-\d\d)(?:[T ](\d\d:\d\d:\d\d(?:\.\d{1,6})?)Z?)?")
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the result: a column of the table, or a function of all its values."""

    name: str
    column: str
    function: str = ""


@dataclass(frozen=True, slots=True)
class Plain:
    """A plain statement: the first `limit` rows for which `where` is true, empty for all, in key
    order, or in that of a column, `first`. If it `aggregates`, they become one row. With `ends`,
    only the least and the greatest first row key are asked for.
    """

    outputs: tuple[Output, ...]
    where: str
    limit: int | None
    aggregates: bool
    ends: bool
    first: Order | None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the table that are read; none if just the number of rows is wanted."""
        read = [output.column for output in self.outputs if output.column]
        return tuple(dict.fromkeys([*read, *([self.first.column.name] if self.first else [])]))


def read_plain(said: PlainText, schema: Schema, parameters: Mapping[str, object]) -> Plain | None:
    """Return a statement on a table with this schema as a plain one; None if it is not."""
    if set(parameters) != set(said.parameters):
        return None
    try:
        return _Reading(said, schema, parameters).plain()
    except NotPlainError:
        return None


class _Reading:
    """A text that is read as a plain statement on a table."""

    def __init__(self, said: PlainText, schema: Schema, parameters: Mapping[str, object]) -> None:
        self._said, self._parameters = said, parameters
        self._table = said.alias or said.table
        self._schema = schema
        self._fields = {field.name: field for field in schema.fields}

    def plain(self) -> Plain:
        """Return what it is.

        Raises:
            NotPlainError: it is not plain.
        """
        outputs = tuple(output for item in self._said.items for output in self._outputs(item))
        names = [output.name for output in outputs]
        need(outputs and len(set(names)) == len(names))
        functions = [bool(output.function) for output in outputs]
        need(all(functions) or not any(functions))
        where = " AND ".join(map(self._term, self._said.terms))
        if functions[0]:
            need(self._said.limit is None and not self._said.order)
        first = None if self._is_key_order(outputs) else self._first(outputs)
        ends = not where and self._are_ends(outputs)
        return Plain(outputs, where, self._said.limit, functions[0], ends, first)

    def _outputs(self, item: Item) -> Iterator[Output]:
        if item.column is None:
            if item.function == COUNT:
                yield Output(item.name or "count(*)", "", COUNT)
            else:
                yield from (Output(field, field) for field in self._fields)
            return
        field = self._field(item.column)
        if not item.function:
            yield Output(item.name or field.name, field.name)
            return
        need(field.type in (SUMMED if item.function == "sum" else COMPARED))
        # DataFusion writes other names in quotes, some of them
        need(item.name or all(map(_PLAIN_NAME.fullmatch, (field.name, self._table))))
        name = item.name or f"{item.function}({self._table}.{field.name})"
        yield Output(name, field.name, item.function)

    def _field(self, column: NamedColumn) -> Field:
        need(column.table in ("", self._table) and column.name in self._fields)
        return self._fields[column.name]

    def _are_ends(self, outputs: Sequence[Output]) -> bool:
        """Return whether only the least and the greatest first row key are asked for."""
        first = self._schema.row_keys[0] if self._schema.row_keys else None
        return first is not None and all(
            output.function in ("min", "max") and output.column == first.name for output in outputs
        )

    def _is_key_order(self, outputs: Sequence[Output]) -> bool:
        """Return whether the order is that of the first keys, none of which can be null."""
        order = self._said.order
        keys = self._schema.keys[: len(order)]
        names = [self._sorting(term, outputs) for term in order]
        is_ascending = not any(term.descending or term.nulls_first for term in order)
        return is_ascending and names == [key.name for key in keys if not key.nullable]

    def _first(self, outputs: Sequence[Output]) -> Order:
        """Return the only column of the order, if the rows that are first by it are wanted."""
        need(len(self._said.order) == 1 and self._said.limit)
        (term,) = self._said.order
        name = self._sorting(term, outputs)
        need(name not in [key.name for key in self._schema.keys])  # these need no statistics
        return term._replace(column=NamedColumn("", name))

    def _sorting(self, term: Order, outputs: Sequence[Output]) -> str:
        """Return the column that a term of the order is."""
        name = self._field(term.column).name
        # a name of the result comes before one of the table
        need(all(output.column == name for output in outputs if output.name == name))
        return name

    def _term(self, term: Term) -> str:
        """Return a term as a condition; each value as SQL of the type of the column."""
        field = self._field(term.column)
        values = [self._shown(field.type, value) for value in term.values]
        name = quoted(field.name)
        if term.operator == "IN":
            return f"({name} IN ({', '.join(values)}))"
        if term.operator == "IS NOT NULL":
            return f"(NOT ({name} IS NULL))"
        return f"({' '.join((name, term.operator, *values))})"

    def _shown(self, kind: object, said: Value) -> str:
        value = self._value(said)
        if not isinstance(kind, Primitive) or kind not in WHOLE:
            need(isinstance(value, str))
            return _text(str(value), kind)
        need(isinstance(value, int) and not isinstance(value, bool))
        assert isinstance(value, int)
        need(-(2 ** (WHOLE[kind] - 1)) <= value < 2 ** (WHOLE[kind] - 1))
        return str(value)

    def _value(self, said: Value) -> object:
        if said.kind == PARAMETER:
            return self._parameters[said.text]
        if said.kind == NUMBER:
            need(said.text.removeprefix("-").isdigit())
            return int(said.text)
        return said.text


def _text(value: str, kind: object) -> str:
    """Return text as a value of the type of the column that it is compared with."""
    if kind is Primitive.STRING:
        return text_literal(value)
    found = _TIME.fullmatch(value)
    need(found and kind in (Primitive.TIMESTAMP, Primitive.DATE))
    assert found is not None
    if kind is Primitive.DATE:
        need(found[2] is None)
        return f"DATE '{found[1]}'"
    return f"TIMESTAMP '{found[1]} {found[2] or '00:00:00'}'"
