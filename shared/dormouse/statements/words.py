"""The function `has` of statements, and what texts in WHERE bound the rows that are read.

Terms of WHERE that look for constants in a column of text become a condition, by which the term
index of the table is asked. DuckDB tests all rows itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa

from dormouse.arrow.words import has_words, matching
from dormouse.schema.schema import Schema
from dormouse.schema.types import Primitive
from dormouse.sql.conditions import (
    MAX_CONDITION_DEPTH,
    Column,
    Condition,
    Expression,
    Literal,
    depth,
    truth,
)
from dormouse.statements.statement import HAS, Node, ParsedStatement, filtered_table

_FUNCTIONS = {
    HAS: "has",
    "contains": "contains",
    "starts_with": "starts_with",
    "prefix": "starts_with",
    "^@": "starts_with",
    "ends_with": "ends_with",
    "suffix": "ends_with",
}
_WILD = re.compile("[%_]")
MOST_PARTS = 16
"""So many parts of a pattern bound what is read."""


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the function known to a database."""
    texts = ["VARCHAR"] * 2
    connection.create_function(HAS, _has, texts, "BOOLEAN", type="arrow")  # type: ignore[call-overload]  # no types by name in the stubs


def _has(texts: Any, wanted: Any) -> Any:
    needles = wanted.unique().to_pylist()
    if len(needles) == 1:
        return _matching(texts, needles[0])
    cells = zip(texts.to_pylist(), wanted.to_pylist(), strict=True)
    return pa.array([_matching(pa.array([t]), w)[0].as_py() for t, w in cells], pa.bool_())


def _matching(texts: Any, wanted: str) -> Any:
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    if not has_words(wanted):
        return pa.repeat(pa.scalar(False), len(texts))
    return matching(texts.cast(pa.string()), wanted)


def with_text_bounds(
    statement: ParsedStatement, schemas: Mapping[str, Schema], parameters: Mapping[str, object]
) -> ParsedStatement:
    """Return a statement with what its WHERE asks of texts as a bound of its only reference."""
    source = filtered_table(statement.tree)
    if source is None or len(schemas) != 1:
        return statement
    (schema,) = schemas.values()
    table = (source["alias"] or source["table_name"]).lower()
    found = _term(statement.tree["where_clause"], schema, table, parameters)
    if found is None or depth(found) > MAX_CONDITION_DEPTH:
        return statement
    bound = Condition(found)
    return replace(statement, bound=statement.bound.and_also(bound) if statement.bound else bound)


def _term(
    node: Node, schema: Schema, table: str, parameters: Mapping[str, object]
) -> Expression | None:
    """Return what is true of every row of which a part of WHERE is; None if nothing is known."""
    if node["type"] in ("CONJUNCTION_AND", "CONJUNCTION_OR"):
        terms = [_term(each, schema, table, parameters) for each in node["children"]]
        known = [term for term in terms if term is not None]
        is_or = node["type"] == "CONJUNCTION_OR"
        if not known or (is_or and len(known) < len(terms)):
            return None
        return known[0] if len(known) == 1 else truth("OR" if is_or else "AND", *known)
    if node["type"] == "COMPARE_EQUAL":
        operands, name = [node["left"], node["right"]], "="
    elif node["type"] == "FUNCTION" and len(node["arguments"]) == 2:
        operands = [each["expression"] for each in node["arguments"]]
        name = node["function_name"].lower()
    else:
        return None
    column, text = _column(operands[0], schema, table), _text(operands[1], parameters)
    if column is None or not text:
        return None
    if name == "~~":
        return _like(column, text)
    op = "=" if name == "=" else _FUNCTIONS.get(name)
    return truth(op, column, Literal(text, column.type)) if op else None


def _like(column: Column, pattern: str) -> Expression | None:
    """Return what texts that fit a pattern hold; without ESCAPE it has no other characters that
    stand for others.
    """
    parts = _WILD.split(pattern)
    terms: list[Expression] = []
    for at, part in enumerate(parts):
        ends = at == 0, at == len(parts) - 1
        ops = {(True, True): "=", (True, False): "starts_with", (False, True): "ends_with"}
        if part and len(terms) < MOST_PARTS:
            terms.append(truth(ops.get(ends, "contains"), column, Literal(part, column.type)))
    return truth("AND", *terms) if len(terms) > 1 else terms[0] if terms else None


def _column(node: Node, schema: Schema, table: str) -> Column | None:
    """Return the column of text that a node is."""
    names = [name.lower() for name in node.get("column_names", ())]
    if node["type"] != "COLUMN_REF" or len(names) > 2 or (len(names) == 2 and names[0] != table):
        return None
    field = next((f for f in schema.fields if f.name.lower() == names[-1]), None)
    if field is None or field.type is not Primitive.STRING or field.encrypted is not None:
        return None
    return Column(field.name, field.type)


def _text(node: Node, parameters: Mapping[str, object]) -> str:
    """Return the text that a node is, empty if it is another value."""
    value = None
    if node["type"] == "VALUE_PARAMETER":
        value = parameters.get(node["identifier"])
    elif node["type"] == "VALUE_CONSTANT" and node.get("literal", {}).get("kind") == "STRING":
        value = node["literal"]["text"]
    return value if isinstance(value, str) else ""
