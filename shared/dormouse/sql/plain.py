"""Plain statements: those that one scan answers, so that no query engine is needed.

A plain statement selects columns of one table, or counts its rows or takes sums, least and greatest
values of columns; it may have a condition that compares columns with values, ORDER BY the first
keys, ascending, and LIMIT. What is not surely plain is not plain: then DataFusion answers it, and
says what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from dormouse.schema.schema import Primitive, Schema
from dormouse.sql.expressions import quoted, text_literal
from dormouse.sql.statements import Statement

MAX_CHARACTERS = 4096
"""The most characters of a plain statement."""
MAX_VALUES = 100
"""The most values of an IN list."""
WHOLE = {Primitive.INT: 32, Primitive.LONG: 64}
SUMMED = (*WHOLE, Primitive.DOUBLE)
COMPARED = (*WHOLE, Primitive.STRING, Primitive.TIMESTAMP, Primitive.DATE)
"""Columns of floats are none of these: what compares with NaN and -0.0 is DataFusion's matter."""
_BEGINS = re.compile(r"\s*SELECT\s", re.IGNORECASE)
_OTHERS = re.compile(
    r"\b(?:CASE|CAST|DISTINCT|EXCEPT|GROUP|HAVING|INTERSECT|JOIN|LIKE|OFFSET|OR|OVER|UNION|WINDOW)\b"
    r"|\(\s*SELECT\b",
    re.IGNORECASE,
)
_PARTS = frozenset({"expressions", "from_", "where", "order", "limit"})
_TABLE_PARTS = frozenset({"this", "alias", "version"})
_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_AGGREGATES: dict[type[exp.Expr], str] = {exp.Sum: "sum", exp.Min: "min", exp.Max: "max"}
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
    """A plain statement: the first `limit` rows, in key order, for which `where` is true, empty
    for all. If it `aggregates`, they become one row. With `ends`, only the least and the greatest
    first row key are asked for.
    """

    outputs: tuple[Output, ...]
    where: str
    limit: int | None
    aggregates: bool
    ends: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the table that are read; none if just the number of rows is wanted."""
        return tuple(dict.fromkeys(output.column for output in self.outputs if output.column))


class _NotPlainError(Exception):
    """A statement is not plain."""


def may_be_plain(text: str) -> bool:
    """Return whether a statement may be plain, without parsing it."""
    return len(text) <= MAX_CHARACTERS and bool(_BEGINS.match(text)) and not _OTHERS.search(text)


def read_plain(
    statement: Statement, schema: Schema, parameters: Mapping[str, object]
) -> Plain | None:
    """Return a statement on a table with this schema as a plain one; None if it is not."""
    if statement.explains or set(parameters) != set(statement.parameters):
        return None
    try:
        return _Reading(statement.tree, schema, parameters).plain()
    except (_NotPlainError, RecursionError):
        return None


def _need(fact: object) -> None:
    if not fact:
        raise _NotPlainError


class _Reading:
    """A tree that is read as a plain statement."""

    def __init__(self, tree: exp.Expr, schema: Schema, parameters: Mapping[str, object]) -> None:
        _need(isinstance(tree, exp.Select) and _said(tree) <= _PARTS)
        self._tree, self._parameters = tree, parameters
        table = tree.args["from_"].this if tree.args.get("from_") else None
        _need(isinstance(table, exp.Table) and _said(table) <= _TABLE_PARTS)
        assert isinstance(table, exp.Table)
        _need(isinstance(table.this, exp.Identifier))
        alias = table.args.get("alias")
        _need(alias is None or not alias.args.get("columns"))
        self._table = table.alias or table.name
        self._schema = schema
        self._fields = {field.name: field for field in schema.fields}

    def plain(self) -> Plain:
        """Return what it is.

        Raises:
            _NotPlainError: it is not plain.
        """
        outputs = tuple(self._outputs())
        names = [output.name for output in outputs]
        _need(outputs and len(set(names)) == len(names))
        functions = [bool(output.function) for output in outputs]
        _need(all(functions) or not any(functions))
        where = self._tree.args.get("where")
        condition = self._condition(where.this) if where else ""
        limit = self._limit()
        if functions[0]:
            _need(limit is None and not self._tree.args.get("order"))
        self._check_order(outputs)
        ends = not condition and self._are_ends(outputs)
        return Plain(outputs, condition, limit, functions[0], ends)

    def _outputs(self) -> Iterator[Output]:
        for each in self._tree.expressions:
            inner = each.this if isinstance(each, exp.Alias) else each
            name = each.alias if isinstance(each, exp.Alias) else ""
            if isinstance(inner, exp.Star):
                _need(not name and not _said(inner))
                yield from (Output(field, field) for field in self._fields)
            elif isinstance(inner, exp.Column):
                column = self._column(inner)
                yield Output(name or column, column)
            else:
                yield self._aggregate(inner, name)

    def _aggregate(self, inner: exp.Expr, name: str) -> Output:
        if isinstance(inner, exp.Count):
            _need(isinstance(inner.this, exp.Star) and _said(inner) <= {"this", "big_int"})
            return Output(name or "count(*)", "", "count")
        function = _AGGREGATES.get(type(inner), "")
        _need(function and _said(inner) == {"this"})
        column = self._column(inner.this)
        types = SUMMED if function == "sum" else COMPARED
        _need(self._fields[column].type in types)
        # DataFusion writes other names in quotes, some of them
        _need(name or (_PLAIN_NAME.fullmatch(column) and _PLAIN_NAME.fullmatch(self._table)))
        return Output(name or f"{function}({self._table}.{column})", column, function)

    def _column(self, node: object) -> str:
        _need(isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier))
        assert isinstance(node, exp.Column)
        _need(not node.args.get("db") and node.table in ("", self._table))
        _need(node.name in self._fields)
        return node.name

    def _are_ends(self, outputs: Sequence[Output]) -> bool:
        """Return whether only the least and the greatest first row key are asked for."""
        first = self._schema.row_keys[0] if self._schema.row_keys else None
        return first is not None and all(
            output.function in ("min", "max") and output.column == first.name for output in outputs
        )

    def _limit(self) -> int | None:
        limit = self._tree.args.get("limit")
        if limit is None:
            return None
        number = limit.expression if isinstance(limit, exp.Limit) else None
        _need(isinstance(number, exp.Literal) and number.args.get("this", "").isdigit())
        assert isinstance(number, exp.Literal)
        _need(not number.is_string and _said(limit) <= {"expression"})
        _need(int(number.name) < 2**63)
        return int(number.name)

    def _check_order(self, outputs: Sequence[Output]) -> None:
        """Make sure that the order is that of the first keys, none of which can be null."""
        order = self._tree.args.get("order")
        if order is None:
            return
        terms = order.expressions
        keys = self._schema.keys[: len(terms)]
        _need(len(keys) == len(terms) and not any(key.nullable for key in keys))
        sources = {output.name: output.column for output in outputs}
        for term, key in zip(terms, keys, strict=True):
            _need(isinstance(term, exp.Ordered) and not term.args.get("desc"))
            column = self._column(term.this)
            # a name of the result comes before one of the table
            _need(column == key.name == sources.get(column, column))

    def _condition(self, node: exp.Expr) -> str:
        match node:
            case exp.Paren():
                return self._condition(node.this)
            case exp.And():
                return f"{self._condition(node.this)} AND {self._condition(node.expression)}"
            case exp.Between():
                low, high = node.args["low"], node.args["high"]
                _need(_said(node) == {"this", "low", "high"})
                return (
                    f"{self._compared(node.this, '>=', low)} AND "
                    f"{self._compared(node.this, '<=', high)}"
                )
            case exp.In():
                values = node.expressions
                _need(_said(node) == {"this", "expressions"} and len(values) <= MAX_VALUES)
                shown = [self._shown(node.this, value) for value in values]
                _need(shown)
                return f"({quoted(self._column(node.this))} IN ({', '.join(shown)}))"
            case exp.Is():
                _need(isinstance(node.expression, exp.Null))
                is_null = f"{quoted(self._column(node.this))} IS NULL"
                return f"(NOT ({is_null}))" if node.args.get("negate") else f"({is_null})"
        operator = _OPERATORS.get(type(node), "")
        _need(operator)
        return self._compared(node.this, operator, node.args["expression"])

    def _compared(self, left: object, operator: str, right: exp.Expr) -> str:
        return f"({quoted(self._column(left))} {operator} {self._shown(left, right)})"

    def _shown(self, compared: object, node: exp.Expr) -> str:
        """Return a value as SQL of the type of the column that it is compared with."""
        kind = self._fields[self._column(compared)].type
        value = self._value(node)
        if not isinstance(kind, Primitive) or kind not in WHOLE:
            _need(isinstance(value, str))
            return _text(str(value), kind)
        _need(isinstance(value, int) and not isinstance(value, bool))
        assert isinstance(value, int)
        _need(-(2 ** (WHOLE[kind] - 1)) <= value < 2 ** (WHOLE[kind] - 1))
        return str(value)

    def _value(self, node: exp.Expr) -> object:
        match node:
            case exp.Parameter() | exp.Placeholder():
                name = str(node.this.name if isinstance(node.this, exp.Expr) else node.this)
                _need(name in self._parameters)
                return self._parameters[name]
            case exp.Literal(is_string=True):
                return node.name
            case exp.Literal():
                _need(node.name.isdigit())
                return int(node.name)
            case exp.Neg(this=exp.Literal(is_string=False)):
                _need(node.this.name.isdigit())
                return -int(node.this.name)
        raise _NotPlainError


def _text(value: str, kind: object) -> str:
    """Return text as a value of the type of the column that it is compared with."""
    if kind is Primitive.STRING:
        return text_literal(value)
    found = _TIME.fullmatch(value)
    _need(found and kind in (Primitive.TIMESTAMP, Primitive.DATE))
    assert found is not None
    if kind is Primitive.DATE:
        _need(found[2] is None)
        return f"DATE '{found[1]}'"
    return f"TIMESTAMP '{found[1]} {found[2] or '00:00:00'}'"


def _said(node: exp.Expr) -> set[str]:
    """Return the names of the parts that a node has."""
    return {name for name, part in node.args.items() if part}
