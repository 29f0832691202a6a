"""Comparisons of what is in JSON documents with constants, as conditions compare it.

DuckDB would cast the documents' text to the type of the constant: a text to a number, with an error
if it is none. So such comparisons become calls of a function here, in the tree of the statement.
"""

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache, cached_property, partial
from typing import Any

import duckdb
import pyarrow as pa

from dormouse.arrow.documents import ABSENT, holds, values_at
from dormouse.schema.schema import Schema
from dormouse.schema.types import Primitive
from dormouse.sql.operands import number
from dormouse.statements.statement import HAS, Node, ParsedStatement, folded, parsed_tree
from dormouse.statements.tables import aliases_in, comparison, is_constant, path_of

FUNCTION = "dormouse_json_holds"
_KIND = """CREATE MACRO json_kind(part) AS CASE json_type(part)
    WHEN 'NULL' THEN 'null' WHEN 'BOOLEAN' THEN 'boolean' WHEN 'VARCHAR' THEN 'string'
    WHEN 'ARRAY' THEN 'array' WHEN 'OBJECT' THEN 'object'
    ELSE CASE WHEN json_type(part) IS NOT NULL THEN 'number' END END"""
_TEXT = "dormouse_json_text"
_TEXT_MACRO = f"""CREATE MACRO {_TEXT}(part) AS CASE json_type(part)
    WHEN 'VARCHAR' THEN json_extract_string(part, '$') END"""
_ODD = re.compile(r'^\s*([-+.\d]|$)|["\\]')
"""A name that DuckDB takes for a place, or not at all."""
_COLLATE = "COLLATE"
_PATTERNS = ("~~", "!~~", "~~*", "!~~*", "like_escape", "ilike_escape")


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the functions known to a database."""
    connection.execute(_KIND)
    connection.execute(_TEXT_MACRO)
    texts = ["VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR[]"]
    connection.create_function(  # type: ignore[call-overload]  # the stubs lack types by name
        FUNCTION, _holds, texts, "BOOLEAN", type="arrow", null_handling="special"
    )


def _holds(texts: Any, paths: Any, ops: Any, constants: Any) -> Any:
    """Return whether comparisons hold; path and operator are those of all rows."""
    path = tuple(json.loads(paths[0].as_py()))
    op = ops[0].as_py()
    loads = partial(json.loads, parse_float=Decimal, parse_constant=_beyond)
    parse = cache(lambda text: loads(text or "null"))
    values = values_at(texts.to_pylist(), [path])[0]
    pairs = zip(values, constants.to_pylist(), strict=True)
    return pa.array([_tested(op, value, [*map(parse, each)]) for value, each in pairs], pa.bool_())


def _beyond(word: str) -> Decimal:
    """Return a float that JSON has no number for: NaN is above all that documents have, too."""
    return Decimal(word.replace("NaN", "Infinity"))


def _tested(op: str, value: object, constants: list[object]) -> bool | None:
    if op == "BETWEEN":
        ends = _tested(">=", value, constants[:1]), _tested("<=", value, constants[1:])
        return False if False in ends else None if None in ends else True
    if None not in constants:
        return holds(op, value, constants)
    if op == "IN":  # with a NULL, as documents have none
        return holds(op, value, [each for each in constants if each is not None]) or None
    is_distinct = {"IS DISTINCT FROM": True, "IS NOT DISTINCT FROM": False}.get(op)
    return None if is_distinct is None else is_distinct == (value is not ABSENT)


def with_paths(
    statement: ParsedStatement, schemas: Iterable[Schema], parser: duckdb.DuckDBPyConnection
) -> ParsedStatement:
    """Return a statement in which what is in documents is compared as conditions compare it."""
    fields = (field for schema in schemas for field in schema.fields)
    names = {folded(field.name) for field in fields if field.type is Primitive.DYNAMIC}
    if not names:
        return statement
    whole = parsed_tree(statement.sql, parser)
    (query,) = whole["statements"]
    aliases = aliases_in(query["node"])
    replacing = _Replacing(names, aliases, parser)
    query["node"] = tree = replacing.replaced(query["node"])
    if not replacing.is_used:
        return statement
    return replace(statement, sql=_written(whole, parser), tree=tree)


def _written(whole: Node, parser: duckdb.DuckDBPyConnection) -> str:
    row = parser.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(whole)]).fetchone()
    assert row is not None
    return str(row[0])


@dataclass
class _Replacing:
    """Replaces comparisons in a tree; `names` are the columns of documents, `folded`."""

    names: Collection[str]
    aliases: Collection[str]
    parser: duckdb.DuckDBPyConnection
    is_used: bool = False

    @cached_property
    def template(self) -> Node:
        """A call of a function as DuckDB has it in a tree."""
        whole = parsed_tree(f"SELECT {FUNCTION}('', json_array())", self.parser)
        call: Node = whole["statements"][0]["node"]["select_list"][0]
        return call

    def replaced(self, node: Any) -> Any:
        """Return a tree with calls in place of comparisons."""
        if isinstance(node, list):
            return [self.replaced(part) for part in node]
        if not isinstance(node, dict):
            return node
        op, operands = comparison(node) or ("", [])
        if _COLLATE in (node.get("type"), *(each["type"] for each in operands)):
            node, operands = {name: self._texts(part) for name, part in node.items()}, []
        path = self.path(operands[0]) if operands else None
        if path is not None and all(map(is_constant, operands[1:])):
            column, steps = path
            self.is_used = True
            constants = self._call("list_value", [self._json(each) for each in operands[1:]])
            arguments = [column, self._text(json.dumps(steps)), self._text(op), constants]
            return self._call(FUNCTION, arguments, node["alias"])
        path = self.path(node) if "query_location" in node and "type" in node else None
        if path is not None and not all(map(_is_plain, path[1])):
            return self._part(*path, node["alias"])
        name = str(node.get("function_name")).lower()
        if name == HAS or (name in _PATTERNS and node["is_operator"]):
            first, *others = node["arguments"]
            path = self.path(first["expression"])
            if path is not None and path[1]:
                rest = self.replaced(others)
                return {**node, "arguments": [self._texts(first), *rest]}
        parts = {name: self.replaced(part) for name, part in node.items()}
        for before, after in zip(
            node.get("select_list", ()), parts.get("select_list", ()), strict=True
        ):
            if after != before and not after["alias"]:
                after["alias"] = self.said(before)
        return parts

    def said(self, node: Node) -> str:
        """Return what DuckDB calls a column that a node says."""
        path = self.path(node)
        if path is not None and node["type"] != "ARRAY_EXTRACT":
            return str(path[1][-1])
        whole = parsed_tree("SELECT 1", self.parser)
        whole["statements"][0]["node"]["select_list"] = [node]
        return _written(whole, self.parser).removeprefix("SELECT ")

    def path(self, node: Node) -> tuple[Node, tuple[str | int, ...]] | None:
        """Return the column of documents that a node is, or is a part of, and what leads there."""
        path = path_of(node, self.aliases)
        return path if path and folded(path[0]["column_names"][-1]) in self.names else None

    def _part(self, part: Node, steps: Sequence[str | int], alias: str = "") -> Node:
        """Return what is at a path. DuckDB itself would take a text such as '0' for a place."""
        self.is_used = True
        for step in steps:
            part = self._call("json_extract", [part, self._text(_step(step))])
        return {**part, "alias": alias}

    def _texts(self, part: Any) -> Any:
        """Return a part of a node in which what is in documents are texts, null of other values."""
        if isinstance(part, list):
            return [self._texts(each) for each in part]
        if not isinstance(part, dict):
            return part
        if "expression" in part:
            return {**part, "expression": self._texts(part["expression"])}
        path = self.path(part)
        return self._call(_TEXT, [self._part(*path)]) if path else part

    def _call(self, name: str, arguments: Sequence[Node], alias: str = "") -> Node:
        children = [{"name": "", "expression": each} for each in arguments]
        path = {**self.template["qualified_name"], "path": [name]}
        parts = {"function_name": name, "arguments": children, "qualified_name": path}
        return {**self.template, **parts, "alias": alias}

    def _json(self, constant: Node) -> Node:
        """Return a constant as JSON with all its digits: DuckDB makes doubles of exponents."""
        match constant:
            case {"literal": {"kind": "NUMERIC", "text": text}}:
                return self._text(str(number(text.replace("_", "")).value))
        return self._call("concat", [self._call("to_json", [constant])])  # empty of NULL

    def _text(self, text: str) -> Node:
        literal: Node = self.template["arguments"][0]["expression"]
        return {**literal, "literal": {"kind": "STRING", "text": text}}


def _is_plain(step: str | int) -> bool:
    return isinstance(step, int) or not _ODD.search(step)


def _step(step: str | int) -> str:
    """Return a step as a path of DuckDB's: by its pointers, digits may be places, too."""
    if isinstance(step, int):
        return f"$[{step}]"
    is_quotable = step and not {*'"\\'} & {*step}
    return f'$."{step}"' if is_quotable else "/" + step.replace("~", "~0").replace("/", "~1")
