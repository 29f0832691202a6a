"""What WHERE says of the rows that count, as conditions of Dormouse: taken from DuckDB's tree.

DuckDB tests all rows itself. Terms that compare texts and parts of documents with constants become
a condition, by which term indexes and the columns of paths are asked; what it offers of all other
columns when it plans, `source` takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive
from dormouse.sql.conditions import (
    MAX_CONDITION_DEPTH,
    MAX_PATTERN,
    MIRRORED,
    Call,
    Column,
    Condition,
    Expression,
    Literal,
    depth,
    truth,
)
from dormouse.sql.operands import compared, number
from dormouse.statements.statement import (
    HAS,
    Node,
    ParsedStatement,
    all_nodes,
    filtered_tables,
    folded,
)

_OPS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_DISTINCT_FROM": "IS DISTINCT FROM",
    "COMPARE_NOT_DISTINCT_FROM": "IS NOT DISTINCT FROM",
    "COMPARE_IN": "IN",
    "COMPARE_BETWEEN": "BETWEEN",
}
_OF_TEXTS = {
    "=": "=",
    HAS: "has",
    "contains": "contains",
    "starts_with": "starts_with",
    "prefix": "starts_with",
    "^@": "starts_with",
    "ends_with": "ends_with",
    "suffix": "ends_with",
    "~~": "LIKE",
}
"""Tests of a text by another: as DuckDB calls them, and as conditions do."""
_CASTS = ("VARCHAR", "TEXT", "BOOLEAN", "INTEGER", "BIGINT", "DOUBLE", "DECIMAL")


def comparison(node: Node) -> tuple[str, list[Node]] | None:
    """Return the operator and the operands of a comparison, of which constants come last; None if
    it is none. Of BETWEEN and IN the first operand is what is compared.
    """
    op = _OPS.get(str(node.get("type")))
    match op:
        case None:
            return None
        case "BETWEEN":
            return op, [node["input"], node["lower"], node["upper"]]
        case "IN":
            return op, list(node["children"])
    operands = [node["left"], node["right"]]
    return (MIRRORED.get(op, op), operands[::-1]) if is_constant(operands[0]) else (op, operands)


def is_constant(node: Node) -> bool:
    """Return whether a node is a parameter or a value, with a sign or as a text or number."""
    if node["type"] == "FUNCTION" and node["function_name"] in ("-", "+"):
        return all(is_constant(each["expression"]) for each in node["arguments"])
    if node["type"] == "OPERATOR_CAST" and node["type_expr"].get("type_name") in _CASTS:
        return is_constant(node["child"])
    return node["type"] in ("VALUE_CONSTANT", "VALUE_PARAMETER")


def literal(node: Node, parameters: Mapping[str, object]) -> Literal | None:
    """Return a constant as conditions have it; None of NULL, and of what they have no form for."""
    value: object = None
    match node:
        case {"type": "VALUE_PARAMETER", "identifier": name}:
            value = parameters.get(name)
        case {"literal": {"kind": "STRING", "text": text}}:
            value = text
        case {"literal": {"kind": "BOOLEAN", "text": text}}:
            value = text.lower() == "true"
        case {"literal": {"kind": "INTEGER" | "NUMERIC", "text": text}}:
            with suppress(InvalidRequestError):
                return number(text.replace("_", ""))
    if isinstance(value, bool):
        return Literal(value, Primitive.BOOLEAN)
    if isinstance(value, str):
        return Literal(value, Primitive.STRING)
    if isinstance(value, int | Decimal):
        with suppress(InvalidRequestError):
            return number(str(value))
    return None


def tested(op: str, value: Expression, constants: Sequence[Literal]) -> Call:
    """Return the test of a value by an operator of `comparison`."""
    if op == "BETWEEN":
        ends = zip((">=", "<="), constants, strict=True)
        return truth("AND", *(truth(each, value, end) for each, end in ends))
    return truth(op, value, *constants)


def path_of(node: Node, aliases: Collection[str]) -> tuple[Node, tuple[str | int, ...]] | None:
    """Return the column that a node is, or is a part of, and the names and places that lead to the
    part; None of another node. A name before that of the column is one of `aliases`.
    """
    steps: list[str | int] = []
    while node["type"] in ("ARRAY_EXTRACT", "STRUCT_EXTRACT"):
        node, step = node["children"]
        match step.get("literal"):
            case {"kind": "INTEGER", "text": text}:
                steps.insert(0, int(text))
            case {"kind": "STRING", "text": text}:
                steps.insert(0, text)
            case _:
                return None
    if node["type"] != "COLUMN_REF":
        return None
    names = node["column_names"]
    end = 1 + (len(names) > 1 and folded(names[0]) in aliases)
    return {**node, "column_names": names[:end]}, (*names[end:], *steps)


def aliases_in(tree: Node) -> set[str]:
    """Return all that tables and queries are called in a statement, `folded`."""
    kinds = ("_TABLE", "SUBQUERY", "_FUNCTION", "_REF")
    sources = (each for each in all_nodes(tree) if str(each.get("type")).endswith(kinds))
    return {folded(str(each.get("alias") or each.get("table_name", ""))) for each in sources}


def with_bounds(
    statement: ParsedStatement, schemas: Mapping[str, Schema], parameters: Mapping[str, object]
) -> ParsedStatement:
    """Return a statement with what each WHERE says as a bound of the tables beside it."""
    bounds: dict[str, Condition] = {}
    aliases = aliases_in(statement.tree)
    for each in filtered_tables(statement):
        tables = {alias: schemas[name].fields for alias, name in each.tables.items()}
        counts = Counter(folded(field.name) for fields in tables.values() for field in fields)
        for alias, name in each.tables.items():
            columns: dict[tuple[str, ...], Field] = {}
            for field in tables[alias]:
                own = folded(field.name)
                columns[alias, own] = field
                if each.is_all and counts[own] == 1:
                    columns[(own,)] = field
            term = _Terms(columns, aliases, parameters).of(each.where)
            if term is not None and depth(term) <= MAX_CONDITION_DEPTH:
                bound = Condition(term)
                bounds[name] = bounds[name].and_also(bound) if name in bounds else bound
    return replace(statement, bounds=bounds)


@dataclass(frozen=True, slots=True)
class _Terms:
    """Parts of a WHERE as conditions on one table, whose `columns` have all that they can be called
    there, `folded`.
    """

    columns: Mapping[tuple[str, ...], Field]
    aliases: Collection[str]
    parameters: Mapping[str, object]

    def of(self, node: Node) -> Expression | None:
        """Return what is true of every row of which a part is; None if nothing is known."""
        if node["type"] in ("CONJUNCTION_AND", "CONJUNCTION_OR"):
            terms = [self.of(each) for each in node["children"]]
            parts = [term for term in terms if term is not None]
            is_or = node["type"] == "CONJUNCTION_OR"
            if not parts or (is_or and len(parts) < len(terms)):
                return None
            return parts[0] if len(parts) == 1 else truth("OR" if is_or else "AND", *parts)
        test = comparison(node)
        if node["type"] == "FUNCTION" and len(node["arguments"]) == 2:
            test = node["function_name"].lower(), [e["expression"] for e in node["arguments"]]
        if test is None or (value := self._value(test[1][0])) is None:
            return None
        op, (_, *nodes) = test
        literals = [literal(each, self.parameters) for each in nodes]
        constants = [each for each in literals if each is not None]
        if len(constants) < len(nodes):
            return None
        return _test_of(op, value, constants)

    def _value(self, node: Node) -> Expression | None:
        """Return the column of text, or the part of a document, that a node is."""
        path = path_of(node, self.aliases)
        if path is None:
            return None
        column, steps = path
        field = self.columns.get(tuple(map(folded, column["column_names"])))
        if field is None or field.encrypted is not None:
            return None
        whole = Column(field.name, field.type)
        if field.type is Primitive.STRING and not steps:
            return whole
        if field.type is not Primitive.DYNAMIC or not steps:
            return None
        kinds = {str: Primitive.STRING, int: Primitive.LONG}
        literals = (Literal(step, kinds[type(step)]) for step in steps)
        return Call("PATH", (whole, *literals), Primitive.DYNAMIC)


def _test_of(op: str, value: Expression, constants: Sequence[Literal]) -> Expression | None:
    """Return the test of a column of text by another text, or of a part of a document."""
    if value.type is Primitive.DYNAMIC:
        with suppress(InvalidRequestError):
            compared([value, *constants])
            return tested(op, value, constants) if op in _OPS.values() else None
        return None
    text = constants[0].value
    own = _OF_TEXTS.get(op)
    if own is None or not isinstance(text, str) or not text or len(text) > MAX_PATTERN:
        return None
    if own == "LIKE":  # in which a backslash is one for DuckDB, without ESCAPE
        text = text.replace("\\", "\\\\")
    return truth(own, value, Literal(text, Primitive.STRING))
