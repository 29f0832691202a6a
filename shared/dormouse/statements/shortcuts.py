"""What the state of a table answers by itself, and which first rows are enough.

Only statements of one table are looked at, by their shape in DuckDB's tree: counts, the least and
greatest first key, and first rows. What is not surely such a statement is DuckDB's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dormouse.arrow.types import arrow_type
from dormouse.key_forms.arrow import key_scalar
from dormouse.schema.schema import Primitive, Schema
from dormouse.sql.conditions import Condition
from dormouse.sql.expressions import MAX_LIST, Call, Column, Expression, Literal
from dormouse.statements.statement import Node, Statement
from dormouse.statements.tables import First, Tables, known_ends

_COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_MORE = ("group_expressions", "group_sets", "having", "qualify", "sample")
"""Parts of a SELECT that are more than columns of one table, a condition, an order and a limit."""
_WIDTHS = {Primitive.INT: 2**31, Primitive.LONG: 2**63}


class _NotPlainError(Exception):
    """A statement has another shape, or a value of another type than its column."""


@dataclass(frozen=True, slots=True)
class _Plain:
    """A SELECT of one table: its name in the statement, and what is known of it."""

    name: str
    node: Node
    schema: Schema
    parameters: Mapping[str, object]

    def condition(self) -> Condition | None:
        """Return its condition, None if it has none.

        Raises:
            _NotPlainError: it is not a conjunction of comparisons of columns with values.
        """
        where = self.node["where_clause"]
        return None if where is None else Condition(self._term(where))

    def _term(self, node: Node) -> Expression:
        match node["type"]:
            case "CONJUNCTION_AND":
                return _call("AND", *map(self._term, node["children"]))
            case "COMPARE_BETWEEN":
                column = self.column(node["input"])
                low, high = (self._value(node[end], column) for end in ("lower", "upper"))
                return _call("AND", _call(">=", column, low), _call("<=", column, high))
            case "COMPARE_IN" if len(node["children"]) <= MAX_LIST:
                column = self.column(node["children"][0])
                return _call("IN", column, *(self._value(c, column) for c in node["children"][1:]))
            case kind if kind in _COMPARISONS:
                column = self.column(node["left"])
                return _call(_COMPARISONS[kind], column, self._value(node["right"], column))
        raise _NotPlainError

    def column(self, node: Node) -> Column:
        """Return the column that an expression is."""
        if node["type"] != "COLUMN_REF" or len(node["column_names"]) != 1:
            raise _NotPlainError
        (name,) = node["column_names"]
        for field in self.schema.fields:
            if field.name == name:
                return Column(name, field.type)
        raise _NotPlainError

    def _value(self, node: Node, column: Column) -> Literal:
        """Return a whole number or a text, which is compared with a column of such."""
        if node["type"] == "VALUE_PARAMETER":
            value = self.parameters.get(node["identifier"])
        elif node["type"] == "VALUE_CONSTANT" and "literal" in node:
            literal = node["literal"]
            value = int(literal["text"]) if literal["kind"] == "INTEGER" else literal["text"]
            if literal["kind"] not in ("INTEGER", "STRING"):
                raise _NotPlainError
        else:
            raise _NotPlainError
        most = _WIDTHS.get(column.type) if isinstance(column.type, Primitive) else None
        if most and type(value) is int and -most <= value < most:
            return Literal(value, column.type)
        if column.type is Primitive.STRING and type(value) is str:
            return Literal(value, column.type)
        raise _NotPlainError


def _call(op: str, *arguments: Expression) -> Call:
    return Call(op, arguments, Primitive.BOOLEAN)


def _plain(
    statement: Statement, schemas: Mapping[str, Schema], parameters: Mapping[str, object]
) -> _Plain:
    node = statement.tree
    if node["type"] != "SELECT_NODE" or len(statement.references) != 1:
        raise _NotPlainError
    source = node["from_table"]
    is_plain = source["type"] == "BASE_TABLE" and not source["column_name_alias"]
    if not is_plain or source["sample"] or any(node.get(part) for part in _MORE):
        raise _NotPlainError
    (name,) = schemas
    return _Plain(name, node, schemas[name], parameters)


def answer_from_state(
    tables: Tables,
    statement: Statement,
    schemas: Mapping[str, Schema],
    parameters: Mapping[str, object],
) -> pa.RecordBatch | None:
    """Return the only row of a statement that counts rows, or asks for the ends of the first key of
    a whole table; None if it is another, or the state does not know.
    """
    try:
        plain = _plain(statement, schemas, parameters)
        if plain.node["modifiers"]:
            raise _NotPlainError
        condition = plain.condition()
        asked = plain.node["select_list"]
        if all(each.get("function_name") == "count_star" for each in asked):
            _check_calls(asked)
            rows = tables.count(plain.name, condition)
            cells: list[Any] = [pa.scalar(rows, pa.int64())] * len(asked)
        elif condition is None:
            cells = list(_ends(tables, plain))
        else:
            raise _NotPlainError
    except _NotPlainError:
        return None
    names = [each["alias"] or _name_of(each) for each in asked]
    columns = [pa.repeat(cell, 1) for cell in cells]
    fields = [pa.field(name, cell.type) for name, cell in zip(names, cells, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _check_calls(asked: list[Node]) -> None:
    """Check that calls of aggregates are of all rows."""
    for each in asked:
        if each["type"] != "FUNCTION" or each["export_state"]:
            raise _NotPlainError
        if each["filter"] or each["order_bys"]["orders"]:
            raise _NotPlainError


def _ends(tables: Tables, plain: _Plain) -> Iterator[Any]:
    """Yield the least or the greatest first key, as is asked."""
    asked = plain.node["select_list"]
    _check_calls(asked)
    visible, state = tables.references[plain.name]
    first = visible.schema.row_keys[0] if visible.schema.row_keys else None
    names = [each["function_name"] for each in asked]
    if first is None or first.nullable or not set(names) <= {"min", "max"}:
        raise _NotPlainError
    if isinstance(first.type, Primitive) and first.type is Primitive.UUID:
        raise _NotPlainError
    for each in asked:
        columns = [plain.column(argument["expression"]).name for argument in each["arguments"]]
        if columns != [first.name]:  # more arguments ask for several ends
            raise _NotPlainError
    ends = known_ends(visible.table, state)
    if ends is None:
        raise _NotPlainError
    for name in names:
        (key,) = ends[name == "max"]
        yield key_scalar(key, first.type).cast(arrow_type(first.type))


def _name_of(call: Node) -> str:
    """Return the name that DuckDB gives the column of a call without an alias."""
    if call["function_name"] == "count_star":
        return "count_star()"
    (column,) = call["arguments"][0]["expression"]["column_names"]
    is_word = column.isidentifier() and column == column.lower()
    return f"{call['function_name']}({column if is_word else chr(34) + column + chr(34)})"


def first_rows(
    statement: Statement, schemas: Mapping[str, Schema], parameters: Mapping[str, object]
) -> First | None:
    """Return which first rows of its table may be enough for a statement; None if all count.

    ``SELECT … LIMIT`` takes any rows. With ``ORDER BY`` the first keys, and a condition that is one
    of ours, just the first rows in key order are needed.
    """
    try:
        plain = _plain(statement, schemas, parameters)
        *orders, limit = plain.node["modifiers"] or [{"type": ""}]
        if limit["type"] != "LIMIT_MODIFIER" or limit["limit_type"] != "ROW_COUNT":
            return None
        if not limit["limit"]:  # OFFSET alone takes all other rows
            return None
        rows = sum(_count(limit[part]) for part in ("limit", "offset") if limit[part])
        aliases = set(map(_alias_of, plain.node["select_list"]))
        if not orders:
            return First(rows)
        _check_order(orders, plain, aliases)
        return First(rows, plain.condition(), is_ordered=True)
    except _NotPlainError:
        return None


def _count(node: Node) -> int:
    if node["type"] != "VALUE_CONSTANT" or node.get("literal", {}).get("kind") != "INTEGER":
        raise _NotPlainError
    return int(node["literal"]["text"])


def _alias_of(node: Node) -> str:
    """Return the alias of a column; empty if it has none, or if it is all columns."""
    if node["type"] == "STAR":
        if any(value for name, value in node.items() if name.endswith("_list") or name == "expr"):
            raise _NotPlainError
        return ""
    if node["type"] != "COLUMN_REF":
        raise _NotPlainError
    return str(node["alias"]).lower()


def _check_order(orders: list[Node], plain: _Plain, aliases: set[str]) -> None:
    """Check that rows are ordered by the first keys, ascending."""
    if len(orders) != 1 or orders[0]["type"] != "ORDER_MODIFIER":
        raise _NotPlainError
    terms = orders[0]["orders"]
    keys = plain.schema.keys[: len(terms)]
    names = [plain.column(term["expression"]).name for term in terms]
    is_ascending = all(term["type"] in ("ORDER_DEFAULT", "ASCENDING") for term in terms)
    if names != [key.name for key in keys] or not is_ascending:
        raise _NotPlainError
    if any(key.nullable for key in keys) or aliases & {name.lower() for name in names}:
        raise _NotPlainError
