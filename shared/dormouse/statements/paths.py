"""Comparisons of what is in JSON documents with constants, as conditions compare it.

DuckDB would cast the documents' text to the type of the constant: a text to a number, with an error
if it is none. So such comparisons become calls of a function here, in the tree of the statement. A
term of WHERE that has constants alone also bounds what is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from dormouse.arrow.documents import holds, values_at
from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Schema
from dormouse.schema.types import Primitive
from dormouse.sql.conditions import (
    Call,
    Column,
    Condition,
    Expression,
    Literal,
    truth,
)
from dormouse.sql.operands import compared, number
from dormouse.statements.statement import Node, ParsedStatement, filtered_table, parsed_tree

FUNCTION = "dormouse_json_holds"
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
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_KIND = """CREATE MACRO json_kind(part) AS CASE json_type(part)
    WHEN 'NULL' THEN 'null' WHEN 'BOOLEAN' THEN 'boolean' WHEN 'VARCHAR' THEN 'string'
    WHEN 'ARRAY' THEN 'array' WHEN 'OBJECT' THEN 'object'
    ELSE CASE WHEN json_type(part) IS NOT NULL THEN 'number' END END"""
_PATTERNS = ("~~", "!~~", "~~*", "!~~*")


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the functions known to a database."""
    connection.execute(_KIND)
    texts = ["VARCHAR"] * 4
    connection.create_function(  # type: ignore[call-overload]  # the stubs lack types by name
        FUNCTION, _holds, texts, "BOOLEAN", type="arrow", null_handling="special"
    )


def _holds(texts: Any, paths: Any, ops: Any, constants: Any) -> Any:
    """Return whether comparisons hold; path and operator are those of all rows."""
    path = tuple(json.loads(paths[0].as_py()))
    op = ops[0].as_py()
    read: dict[str, list[object]] = {}
    found = []
    for value, text in zip(
        values_at(texts.to_pylist(), [path])[0], constants.to_pylist(), strict=True
    ):
        if text not in read:
            read[text] = json.loads(text, parse_float=Decimal)
        found.append(_tested(op, value, read[text]))
    return pa.array(found, pa.bool_())


def _tested(op: str, value: object, constants: list[object]) -> bool | None:
    if None in constants:  # a parameter that is null: documents have no NULL of SQL in them
        return None
    if op != "BETWEEN":
        return holds(op, value, constants)
    least, most = holds(">=", value, constants[:1]), holds("<=", value, constants[1:])
    return None if least is None else bool(least and most)


@dataclass(frozen=True, slots=True)
class _Path:
    """A part of a document in a statement: its column there, and the names and places in it."""

    column: Node
    name: str
    steps: tuple[str | int, ...]


def with_paths(
    statement: ParsedStatement,
    schemas: Mapping[str, Schema],
    parameters: Mapping[str, object],
    parser: duckdb.DuckDBPyConnection,
) -> ParsedStatement:
    """Return a statement in which what is in documents is compared as conditions compare it, with
    what bounds the rows of its only reference.
    """
    names = {f.name.lower() for s in schemas.values() for f in s.fields if _is_dynamic(f.type)}
    if not names:
        return statement
    whole = parsed_tree(statement.sql, parser)
    replacing = _Replacing(names, _aliases(whole), _template(parser), statement.sql.encode())
    node = replacing.replaced(whole["statements"][0]["node"])
    if not replacing.is_used:
        return statement
    bound = None
    if len(schemas) == 1:
        ((name, schema),) = schemas.items()
        bound = _bound(whole["statements"][0]["node"], replacing, schema, parameters)
    whole["statements"][0]["node"] = node
    row = parser.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(whole)]).fetchone()
    assert row is not None
    return replace(statement, sql=str(row[0]), tree=node, bound=bound)


def _is_dynamic(kind: object) -> bool:
    return kind is Primitive.DYNAMIC


def _aliases(node: Any) -> set[str]:
    """Return all names that tables have in a statement, in small letters."""
    found = set()
    for each in _nodes(node):
        if str(each.get("type")).endswith(("_TABLE", "SUBQUERY", "_FUNCTION", "_REF")):
            found |= {str(each.get(part, "")).lower() for part in ("alias", "table_name")}
    return found - {""}


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for part in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _nodes(part)


def _template(parser: duckdb.DuckDBPyConnection) -> Node:
    """Return a call of a function as DuckDB has it in a tree."""
    whole = parsed_tree(f"SELECT {FUNCTION}('', json_array())", parser)
    call: Node = whole["statements"][0]["node"]["select_list"][0]
    return call


@dataclass
class _Replacing:
    """Replaces comparisons in a tree; `names` are the columns of documents, in small letters."""

    names: set[str]
    aliases: set[str]
    template: Node
    sql: bytes
    is_used: bool = False

    def replaced(self, node: Any) -> Any:
        """Return a tree with calls in place of comparisons."""
        if isinstance(node, list):
            return [self.replaced(part) for part in node]
        if not isinstance(node, dict):
            return node
        test = self.comparison(node)
        if test is not None:
            op, path, constants = test
            self.is_used = True
            array = self._call("json_array", constants)
            steps = self._text(json.dumps(path.steps))
            return self._call(FUNCTION, [path.column, steps, self._text(op), array], node["alias"])
        if node.get("function_name") in _PATTERNS and node.get("is_operator"):
            first = node["arguments"][0]
            part = self.path(first["expression"])
            if part is not None and part.steps:
                self.is_used = True
                pointer = self._text("".join(map(_pointed, part.steps)))
                text = self._call("json_extract_string", [part.column, pointer])
                rest = self.replaced(node["arguments"][1:])
                return {**node, "arguments": [{**first, "expression": text}, *rest]}
        found = {name: self.replaced(part) for name, part in node.items()}
        for before, after in zip(
            node.get("select_list", ()), found.get("select_list", ()), strict=True
        ):
            if after != before and not after["alias"]:
                after["alias"] = self.said(before)
        return found

    def said(self, node: Node) -> str:
        """Return what a statement says where a node is, as DuckDB names a column by it."""
        start, length = node["query_location"], node["query_location_length"]
        return f"({self.sql[start : start + length].decode()})" if length else ""

    def comparison(self, node: Node) -> tuple[str, _Path, list[Node]] | None:
        """Return the operator, the path and the constants of a comparison; None if it is none."""
        op = _OPS.get(str(node.get("type")))
        if op is None:
            return None
        if op == "BETWEEN":
            operands = [node["input"], node["lower"], node["upper"]]
        elif op == "IN":
            operands = list(node["children"])
        else:
            operands = [node["left"], node["right"]]
            if _is_constant(operands[0]):
                op, operands = _MIRRORED.get(op, op), operands[::-1]
        path = self.path(operands[0])
        if path is None or not all(map(_is_constant, operands[1:])):
            return None
        return op, path, operands[1:]

    def path(self, node: Node) -> _Path | None:
        """Return what a node is, if that is a document or a part of one."""
        if node["type"] in ("ARRAY_EXTRACT", "STRUCT_EXTRACT"):
            whole, step = self.path(node["children"][0]), node["children"][1].get("literal")
            if whole is None or not step or step["kind"] not in ("INTEGER", "STRING"):
                return None
            value = int(step["text"]) if step["kind"] == "INTEGER" else step["text"]
            return replace(whole, steps=(*whole.steps, value))
        if node["type"] != "COLUMN_REF":
            return None
        names = node["column_names"]
        at = int(len(names) > 1 and names[0].lower() in self.aliases)
        if names[at].lower() not in self.names:
            return None
        column = {**node, "column_names": names[: at + 1]}
        return _Path(column, names[at], tuple(names[at + 1 :]))

    def _call(self, name: str, arguments: Sequence[Node], alias: str = "") -> Node:
        named = [{"name": "", "expression": each} for each in arguments]
        path = {**self.template["qualified_name"], "path": [name]}
        given = {"function_name": name, "arguments": named, "qualified_name": path, "alias": alias}
        return {**self.template, **given}

    def _text(self, text: str) -> Node:
        literal: Node = self.template["arguments"][0]["expression"]
        return {**literal, "literal": {"kind": "STRING", "text": text}}


def _pointed(step: str | int) -> str:
    return "/" + str(step).replace("~", "~0").replace("/", "~1")


def _is_constant(node: Node) -> bool:
    if node["type"] == "VALUE_CONSTANT":
        return "literal" in node and node["literal"]["kind"] != "NULL"
    if node["type"] == "FUNCTION" and node["function_name"] == "-":
        return all(_is_constant(each["expression"]) for each in node["arguments"])
    return bool(node["type"] == "VALUE_PARAMETER")


def _bound(
    node: Node, replacing: _Replacing, schema: Schema, parameters: Mapping[str, object]
) -> Condition | None:
    """Return what the comparisons among the terms of WHERE say together."""
    if filtered_table(node) is None:
        return None
    where = node["where_clause"]
    terms = where["children"] if where["type"] == "CONJUNCTION_AND" else [where]
    found = [_condition(replacing.comparison(each), schema, parameters) for each in terms]
    kept = [each for each in found if each is not None]
    return Condition(kept[0] if len(kept) == 1 else truth("AND", *kept)) if kept else None


def _condition(
    test: tuple[str, _Path, list[Node]] | None, schema: Schema, parameters: Mapping[str, object]
) -> Expression | None:
    if test is None:
        return None
    op, path, nodes = test
    field = next((f for f in schema.fields if f.name.lower() == path.name.lower()), None)
    constants = [_literal(node, parameters) for node in nodes]
    if field is None or not path.steps or None in constants:
        return None
    literals = [each for each in constants if each is not None]
    steps = [
        Literal(s, Primitive.STRING if isinstance(s, str) else Primitive.LONG) for s in path.steps
    ]
    part = Call("PATH", (Column(field.name, field.type), *steps), Primitive.DYNAMIC)
    try:
        if op == "BETWEEN":
            pairs = zip((">=", "<="), literals, strict=True)
            return truth("AND", *(truth(each, *compared([part, end])) for each, end in pairs))
        return truth(op, *compared([part, *literals]))
    except InvalidRequestError:
        return None


def _literal(node: Node, parameters: Mapping[str, object]) -> Literal | None:
    """Return a constant as conditions have it; None if they have none such."""
    if node["type"] == "VALUE_PARAMETER":
        value = parameters.get(node["identifier"])
        if isinstance(value, bool):
            return Literal(value, Primitive.BOOLEAN)
        if isinstance(value, str):
            return Literal(value, Primitive.STRING)
        return _number(str(value)) if isinstance(value, int | Decimal) else None
    if node["type"] != "VALUE_CONSTANT":
        argument = [each["expression"] for each in node["arguments"]]
        inner = argument[0].get("literal") if len(argument) == 1 else None
        is_number = inner and inner["kind"] in ("INTEGER", "NUMERIC")
        return _number(f"-{inner['text']}") if inner and is_number else None
    kind, text = node["literal"]["kind"], str(node["literal"].get("text"))
    match kind:
        case "STRING":
            return Literal(text, Primitive.STRING)
        case "BOOLEAN":
            return Literal(text.lower() == "true", Primitive.BOOLEAN)
        case "INTEGER" | "NUMERIC":
            return _number(text)
    return None


def _number(text: str) -> Literal | None:
    try:
        return number(text)
    except InvalidRequestError:
        return None
