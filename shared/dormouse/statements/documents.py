"""Comparisons of what is in JSON documents with constants, as conditions compare it.

DuckDB would cast the documents' text to the type of the constant: a text to a number, with an error
if it is none. So such comparisons and casts become calls of functions here, in the tree of the
statement; and where values are compared that may be of any kind, it is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from functools import cache, cached_property, partial
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

from dormouse.arrow.documents import ABSENT, holds, typed, values_at
from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Schema
from dormouse.schema.types import Primitive
from dormouse.sql.calls import FUNCTIONS, OF_TEXT, type_named
from dormouse.sql.operands import IN_DOCUMENTS, number
from dormouse.statements.statement import HAS, ParsedStatement, all_nodes, folded, parsed_tree
from dormouse.statements.statement import Node as Tree
from dormouse.statements.tables import comparison, is_constant, path_of

FUNCTION, _WHOLE = "dormouse_json_holds", "dormouse_json_whole"
_KIND = """CREATE MACRO json_kind(part) AS CASE json_type(part)
    WHEN 'NULL' THEN 'null' WHEN 'BOOLEAN' THEN 'boolean' WHEN 'VARCHAR' THEN 'string'
    WHEN 'ARRAY' THEN 'array' WHEN 'OBJECT' THEN 'object'
    ELSE CASE WHEN json_type(part) IS NOT NULL THEN 'number' END END"""
_CASTS = {kind: f"dormouse_json_{kind.name.lower()}" for kind in IN_DOCUMENTS}
_WIDER: dict[Any, Primitive] = {
    **{kind: kind for kind in IN_DOCUMENTS},
    **{Primitive.INT: Primitive.LONG, Primitive.FLOAT: Primitive.DOUBLE},
    **dict.fromkeys(OF_TEXT, Primitive.STRING),
}
_CAST_MACROS = """
CREATE MACRO dormouse_json_string(part) AS
    CASE json_type(part) WHEN 'VARCHAR' THEN json_extract_string(part, '$') END;
CREATE MACRO dormouse_json_boolean(part) AS
    CASE json_type(part) WHEN 'BOOLEAN' THEN part = 'true' END;
CREATE MACRO dormouse_json_double(part) AS CASE json_kind(part) WHEN 'number'
    THEN CASE WHEN isfinite(part::DOUBLE) THEN part::DOUBLE END END;
CREATE MACRO dormouse_json_long(part) AS CASE json_type(part)
    WHEN 'DOUBLE' THEN dormouse_json_whole(part)
    ELSE CASE json_kind(part) WHEN 'number' THEN TRY_CAST(part::VARCHAR AS BIGINT) END END"""
_ODD = re.compile(r'^\s*([-+.\d]|$)|["\\]')
"""A name that DuckDB takes for a place, or not at all."""
_COLLATE = "COLLATE"
_PATTERNS = {HAS, "~~", "!~~", "~~*", "!~~*", "like_escape", "ilike_escape", "~~~"}
_OF_TEXTS = {*FUNCTIONS, *_PATTERNS, "concat", "||"}
_TAKING = {"->", "->>", "count", "typeof"}
"""Functions that any part of a document may be given to, beside those of JSON."""
_STANDING = ("LAMBDA", "OPERATOR_IS_NOT_NULL", "OPERATOR_IS_NULL", "TABLE_FUNCTION")
_AGGREGATES = {
    *("any_value", "arg_max", "arg_min", "argmax", "argmin", "first", "last", "max_by", "min_by")
}
_SAME = {*_AGGREGATES, "first_value", "lag", "last_value", "lead", "nth_value"}
"""Functions that give on a value of their first argument as it is."""
_HOLDING = {"array_agg", "list", "row", "struct_pack"}
"""Functions that give on values within others."""
_OF_GROUPS = {*_AGGREGATES, "array_agg", "count", "list"}
_OF_ROWS = ("key", "value", "type", "atom", "id", "parent", "fullkey", "path")
"""The columns of json_each and json_tree."""
_OF_JSON = (str, int, float, Decimal, list, dict, type(None))
_NOT_GROUPED = "STANDARD_HANDLING"
_HELD = ("arguments", "child", "children", "expression", "function", "lhs")


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the functions known to a database."""
    connection.execute(_KIND)
    takes = ["VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR[]"]
    for name, made, kinds, result in (
        (FUNCTION, _holds, takes, "BOOLEAN"),
        (_WHOLE, _whole, takes[:1], "BIGINT"),
    ):
        connection.create_function(  # type: ignore[call-overload]  # the stubs lack types by name
            name, made, kinds, result, type="arrow", null_handling="special"
        )
    connection.execute(_CAST_MACROS)


def _holds(texts: Any, paths: Any, ops: Any, constants: Any) -> Any:
    """Return whether comparisons hold; path and operator are those of all rows."""
    path = tuple(json.loads(paths[0].as_py()))
    op = ops[0].as_py()
    loads = partial(json.loads, parse_float=Decimal, parse_constant=_beyond)
    parse = cache(lambda text: loads(text or "null"))
    values = values_at(texts.to_pylist(), [path])[0]
    pairs = zip(values, constants.to_pylist(), strict=True)
    return pa.array([_tested(op, value, [*map(parse, each)]) for value, each in pairs], pa.bool_())


def _whole(texts: Any) -> Any:
    """Return the whole numbers that numbers with a point or an exponent are."""
    return typed(values_at(texts.to_pylist(), [()])[0], Primitive.LONG)


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
    statement: ParsedStatement,
    schemas: Mapping[str, Schema],
    parameters: Mapping[str, object],
    parser: duckdb.DuckDBPyConnection,
) -> ParsedStatement:
    """Return a statement in which what is in documents is compared and cast as conditions do it.
    Raises InvalidRequestError: it stands where values are compared that have no kind, or is
    compared with a parameter that JSON has no kind for.
    """
    fields = [field for schema in schemas.values() for field in schema.fields]
    if not any(field.type is Primitive.DYNAMIC for field in fields):
        return statement
    whole = parsed_tree(statement.sql, parser)
    (query,) = whole["statements"]
    before = query["node"]
    query["node"] = tree = _Replacing(before, schemas, parameters, parser).replaced(before)
    if tree == before:
        return statement
    return replace(statement, sql=_written(whole, parser), tree=tree)


def _written(whole: Tree, parser: duckdb.DuckDBPyConnection) -> str:
    try:
        row = parser.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(whole)]).fetchone()
    except duckdb.SerializationException as error:  # it has more levels than what was written
        raise InvalidRequestError("the statement is nested too deeply") from error
    assert row is not None
    return str(row[0])


_Path: TypeAlias = tuple[Tree, tuple[str | int, ...]]
"""A column of documents, and what leads to a part."""
_Columns: TypeAlias = list[tuple[str, bool | None]]
"""Names, `folded`, and whether each is of documents; None if these are within its values."""


class _Replacing:
    """Replaces in a tree what is said of documents."""

    def __init__(
        self,
        tree: Tree,
        schemas: Mapping[str, Schema],
        parameters: Mapping[str, object],
        parser: duckdb.DuckDBPyConnection,
    ) -> None:
        """Take the tree of a statement, the schemas of the tables in it, and its parameters."""
        self.parser, self._schemas, self._parameters = parser, schemas, parameters
        self._scopes: list[Mapping[str, Mapping[str, bool | None]]] = []
        maps = [node["cte_map"]["map"] for node in all_nodes(tree) if node.get("cte_map")]
        self._named = {folded(each["key"]): each["value"] for map in maps for each in map}
        self._columns: dict[int, _Columns] = {}
        self._compared = set(map(id, _compared_selects(tree)))

    @cached_property
    def template(self) -> Tree:
        """A call of a function as DuckDB has it in a tree."""
        whole = parsed_tree(f"SELECT {FUNCTION}('', json_array())", self.parser)
        call: Tree = whole["statements"][0]["node"]["select_list"][0]
        return call

    def replaced(self, node: Any, *, may_stand: bool = False) -> Any:
        """Return a tree with calls in place of what has a kind; `may_stand` says that a part of a
        document may be there without one.
        """
        if isinstance(node, list):
            return [self.replaced(part, may_stand=may_stand) for part in node]
        if not isinstance(node, dict):
            return node
        if (new := self._comparison(node) or self._taken(node)) is not None:
            return new
        for name in self._joined_by(node):
            if self._kind({"type": "COLUMN_REF", "column_names": [name]}) is not False:
                raise _no_kind(name)
        if "select_list" in node:
            return self._selected(node)
        if "setop_type" in node:
            return self._united(node)
        if "type" not in node:
            return self._within(node, may_stand=may_stand)
        kind = self._kind(node)
        if not may_stand:
            self._check_standing(node, kind)
        if node["type"] == "STAR":
            return {**node, "replace_list": self.replaced(node["replace_list"])}
        path = self.path(node)
        if path is not None and not all(map(_is_plain, path[1])):
            return self._part(*path, node["alias"])
        name = _function(node)
        may_stand &= kind is not False
        may_stand |= name in _TAKING or "json" in name or node["type"] in _STANDING
        return self._within(node, may_stand=may_stand and not node.get("distinct"))

    def _within(self, node: Tree, *, may_stand: bool) -> Tree:
        parts = {
            name: self.replaced(part, may_stand=may_stand and name in _HELD)
            for name, part in node.items()
        }
        if _function(node) in _SAME:
            parts["arguments"][1:] = self.replaced(node["arguments"][1:])
        return parts

    def _check_standing(self, node: Tree, kind: bool | None) -> None:
        """Refuse documents, and columns that hold or mean some, where values have a kind."""
        if node["type"] == "STAR":
            for name in (n for n, each in _starred(node, self._scopes[-1]) if each is not False):
                raise _no_kind(name)
        path = self.path(node)
        if path is not None and path[0]["type"] == "COLUMN_REF":
            raise _no_kind(".".join(map(str, (*path[0]["column_names"], *path[1]))))
        if kind:
            raise _no_kind(self.said(node))
        if kind is None:
            raise InvalidRequestError(
                f"{self.said(node)} holds what may be of any kind, and is used where one is needed",
                hint="write CAST(… AS TEXT), or another kind, in place of what it holds",
            )

    def _united(self, union: Tree) -> Tree:
        """Return a set operation: no column of its rows has documents and other values."""
        columns = self._columns_of(union)
        for each in union["children"]:
            some = self._columns_of(each)
            is_by_name = union["setop_type"] == "UNION_BY_NAME"
            others = [dict(some).get(*of) for of in columns] if is_by_name else [k for _, k in some]
            for (name, kind), other in zip(columns, others, strict=False):
                if kind is not other:
                    raise _no_kind(name)
        orders = self._ordered(union["modifiers"], columns, dict(columns))
        parts = {n: self.replaced(part) for n, part in union.items() if n != "modifiers"}
        return {**parts, "modifiers": orders}

    def _joined_by(self, node: Tree) -> list[str]:
        """Return the names of columns that are the same in both sides of a join."""
        if node.get("ref_type") != "NATURAL":
            return [*node.get("using_columns", ())]
        left, right = (self._scope(node[side]).values() for side in ("left", "right"))
        return sorted(set().union(*left) & set().union(*right))

    def _selected(self, select: Tree) -> Tree:
        """Return a SELECT, of which values are documents if they are not compared with others."""
        is_grouped = select["group_expressions"] or select["aggregate_handling"] != _NOT_GROUPED
        is_compared = id(select) in self._compared or _is_distinct(select)
        columns = self._columns_of(select)
        self._scopes.append(self._scope(select["from_table"]))
        aliases = {folded(e["alias"]): self._kind(e) for e in select["select_list"]}
        self._scopes.insert(-1, {"": aliases})  # columns of tables come first
        items = []
        for item in select["select_list"]:
            is_own = not is_grouped or any(_function(n) in _OF_GROUPS for n in all_nodes(item))
            new = self.replaced(item, may_stand=is_own and not is_compared)
            if new != item and not new["alias"] and item["type"] != "STAR":
                new["alias"] = self.said(item)
            items.append(new)
        orders = self._ordered(select["modifiers"], columns, aliases)
        rest = {n: part for n, part in select.items() if n not in ("select_list", "modifiers")}
        rest = {name: self.replaced(part) for name, part in rest.items()}
        del self._scopes[-2:]
        return {**rest, "select_list": items, "modifiers": orders}

    def _ordered(
        self, modifiers: Sequence[Tree], columns: _Columns, aliases: Mapping[str, bool | None]
    ) -> Any:
        """Return the modifiers of a query, whose rows have some columns, if these can be ordered;
        names of these come before those of tables.
        """
        terms = [term["expression"] for each in modifiers for term in each.get("orders", ())]
        terms += [term for each in modifiers for term in each.get("distinct_on_targets", ())]
        for term in terms:
            chosen = columns if term["type"] == "STAR" else []
            literal, place = term.get("literal") or {}, term.get("index", 0)
            if literal.get("kind") == "INTEGER" or place:
                place = place or int(literal["text"])
                chosen = columns[max(place - 1, 0) : place]
            for name in (name for name, kind in chosen if kind is not False):
                raise _no_kind(name)
        self._scopes.append({"": aliases})
        new = self.replaced(modifiers)
        self._scopes.pop()
        return new

    def _scope(self, source: Tree) -> dict[str, dict[str, bool | None]]:
        """Return the columns of what a FROM joins, by its names: whether each is a document."""
        if source["type"] == "JOIN":
            left = self._scope(source["left"])
            self._scopes.append(left)  # which LATERAL names
            right = self._scope(source["right"])
            self._scopes.pop()
            return left | right
        if source["type"] == "PIVOT":  # which groups by all columns that it does not name
            some = [each for own in self._scope(source["source"]).values() for each in own.items()]
            for name in (name for name, kind in some if kind is not False):
                raise _no_kind(name)
        columns, called = [], source.get("column_name_alias", [])
        if source["type"] == "SUBQUERY":
            columns = self._columns_of(source["subquery"]["node"])
        elif call := source.get("function"):
            columns = [(name, name in ("value", "atom")) for name in _OF_ROWS]
            columns = columns if "json" in _function(call) else [("unnest", self._kind(call))]
        elif schema := self._schemas.get(source.get("table_name", "")):
            columns = [(folded(f.name), f.type is Primitive.DYNAMIC) for f in schema.fields]
        elif query := self._named.get(folded(source.get("table_name", ""))):
            columns = self._columns_of(query["query_node"])
            called = [*called, *query["aliases"][len(called) :]]
        names = [*map(folded, called), *(name for name, _ in columns[len(called) :])]
        kinds = [kind for _, kind in columns]
        own = dict(zip(names, kinds, strict=False))
        return {folded(source.get("alias") or source.get("table_name") or str(id(source))): own}

    def _columns_of(self, query: Tree) -> _Columns:
        """Return the columns of the rows of a query."""
        if id(query) in self._columns:
            return self._columns[id(query)]
        columns = self._columns[id(query)] = []  # as one that names itself finds them
        if "select_list" in query:
            scope = self._scope(query["from_table"])
            self._scopes.append(scope)
            for item in query["select_list"]:
                if item["type"] == "STAR":
                    columns += _starred(item, scope)
                else:
                    *_, name = item.get("column_names") or ("",)
                    columns.append((folded(item["alias"] or name), self._kind(item)))
            self._scopes.pop()
        else:
            first, *others = [query["left"]] if query.get("left") else query["children"]
            columns += self._columns_of(first)
            for each in others if query.get("setop_type") == "UNION_BY_NAME" else ():
                columns += [own for own in self._columns_of(each) if own[0] not in dict(columns)]
        return columns

    def _comparison(self, node: Tree) -> Tree | None:
        """Return the call for a comparison of a part of a document with constants."""
        op, operands = comparison(node) or ("", [])
        if _COLLATE in (node.get("type"), *(each["type"] for each in operands)):
            texts = {name: self._texts(part) for name, part in node.items()}
            return texts if texts != node else None
        path = self.path(operands[0]) if operands else None
        if path is None or not all(map(is_constant, operands[1:])):
            return None
        column, steps = self.replaced(path[0], may_stand=True), path[1]
        constants = self._call("list_value", [self._json(each) for each in operands[1:]])
        arguments = [column, self._text(json.dumps(steps)), self._text(op), constants]
        return self._call(FUNCTION, arguments, node["alias"])

    def _taken(self, node: Tree) -> Tree | None:
        """Return a call or a cast by which parts of documents are values of one kind."""
        if node.get("type") == "OPERATOR_CAST":
            path, kind = self.path(node["child"]), None
            with suppress(InvalidRequestError):
                kind = type_named(str(node["type_expr"].get("type_name")).upper(), [])
            wide = _WIDER.get(kind)
            if path is None or wide is None:
                return None
            value = self._call(_CASTS[wide], [self._part(*path)], node["alias"])
            return value if wide is kind else {**node, "child": {**value, "alias": ""}}
        name, (*names, _) = _function(node), node.get("qualified_name", {}).get("path") or [""]
        if name and names and self.path({"type": "COLUMN_REF", "column_names": names}):
            raise _no_kind(".".join(names))  # as in p.x.lower()
        if name not in _OF_TEXTS and not name.startswith("regexp_"):
            return None
        many = len(node["arguments"]) if name != "contains" else 1  # which is IN of a list, too
        arguments = [
            self._texts(each) if n < many and self.path(each["expression"]) else self.replaced(each)
            for n, each in enumerate(node["arguments"])
        ]
        return {**node, "arguments": arguments} if arguments != node["arguments"] else None

    def said(self, node: Tree) -> str:
        """Return what DuckDB calls a column that a node says."""
        path = self.path(node)
        if path and path[0]["type"] == "COLUMN_REF" and node["type"] != "ARRAY_EXTRACT":
            return str(path[1][-1])
        whole = parsed_tree("SELECT 1", self.parser)
        whole["statements"][0]["node"]["select_list"] = [{**node, "alias": ""}]
        return _written(whole, self.parser).removeprefix("SELECT ")

    def path(self, node: Tree) -> _Path | None:
        """Return what gives a document, if a node is that or a part of it, and what leads there."""
        return self._place(node) if self._kind(node) else None

    def _place(self, node: Tree) -> _Path | None:
        """Return what `path_of` does: a name is of a table if this has a column of the next one."""
        path = path_of(node, {name for scope in self._scopes for name in scope if name})
        table, *names = map(folded, path[0].get("column_names", ("",))) if path else ("",)
        if names and not any(names[0] in scope.get(table, ()) for scope in self._scopes):
            return path_of(node, ())
        return path

    def _kind(self, node: Tree) -> bool | None:
        """Return whether the value of a node is a document or a part of one; None if it holds some,
        as a list of them, or the row of a table.
        """
        path = self._place(node) if "type" in node else None
        if path is None:
            return False
        base, name = path[0], _function(path[0])
        match base["type"]:
            case "COLUMN_REF":
                return self._meant(*map(folded, base["column_names"]))
            case "POSITIONAL_REFERENCE":  # as in #1, and of ARRAY (SELECT …)
                tables = (own for name, own in self._scopes[-1].items() if name)
                kinds = [kind for own in tables for kind in own.values()]
                return dict(enumerate(kinds, start=1)).get(base["index"], False)
            case "OPERATOR_CAST":
                return str(base["type_expr"].get("type_name")).upper() == "JSON"
        if name == "json_extract" or base.get("syntax_type") == "SINGLE_ARROW":
            place = base.get("expr") or _arguments(base)[-1]
            is_one = is_constant(place) and "*" not in place.get("literal", {}).get("text", "")
            return is_one or None
        if name == "unnest":
            return self._kind(_arguments(base)[0]) is None
        if name in _SAME and not (name in _AGGREGATES and len(_arguments(base)) > 2):
            return self._kind(_arguments(base)[0])
        held = any(self._kind(each) is not False for each in _arguments(base))
        return None if name in _HOLDING and held else False

    def _meant(self, *names: str) -> bool | None:
        """Return the kind of a column, which is named alone or after its table, or of a table."""
        *table, name = names
        for scope in reversed(self._scopes):
            own = scope.values() if not table else [scope[table[0]]] if table[0] in scope else []
            for columns in own:
                if name in columns:
                    return columns[name]
            if not table and name and any(scope.get(name, {}).values()):
                return None
        return False

    def _part(self, part: Tree, steps: Sequence[str | int], alias: str = "") -> Tree:
        """Return what is at a path. DuckDB itself would take a text such as '0' for a place."""
        part = self.replaced(part, may_stand=True)
        for step in steps:
            part = self._call("json_extract", [part, self._text(_step(step))])
        return {**part, "alias": alias}

    def _texts(self, part: Any) -> Any:
        """Return a part of a node in which parts of documents are texts, null of other values."""
        if isinstance(part, list):
            return [self._texts(each) for each in part]
        if not isinstance(part, dict):
            return part
        if "expression" in part:
            return {**part, "expression": self._texts(part["expression"])}
        path = self.path(part)
        if path is None:
            return self.replaced(part)
        return self._call(_CASTS[Primitive.STRING], [self._part(*path)])

    def _call(self, name: str, arguments: Sequence[Tree], alias: str = "") -> Tree:
        children = [{"name": "", "expression": each} for each in arguments]
        path = {**self.template["qualified_name"], "path": [name]}
        parts = {"function_name": name, "arguments": children, "qualified_name": path}
        return {**self.template, **parts, "alias": alias}

    def _json(self, constant: Tree) -> Tree:
        """Return a constant as JSON with all its digits: DuckDB makes doubles of exponents."""
        match constant:
            case {"literal": {"kind": "NUMERIC", "text": text}}:
                return self._text(str(number(text.replace("_", "")).value))
            case {"identifier": name} if not isinstance(self._parameters.get(name), _OF_JSON):
                raise InvalidRequestError(
                    f"${name} is compared with what is in a document, and JSON has no such values",
                    hint="give a number, a text or a truth value, or CAST what is in the document",
                )
        return self._call("concat", [self._call("to_json", [constant])])  # empty of NULL

    def _text(self, text: str) -> Tree:
        literal: Tree = self.template["arguments"][0]["expression"]
        return {**literal, "literal": {"kind": "STRING", "text": text}}


def _compared_selects(tree: Tree) -> Iterator[Tree]:
    """Yield the SELECTs whose rows are compared with those of others, or with a value."""
    for node in all_nodes(tree):
        if "setop_type" in node and not (node["setop_all"] and "UNION" in node["setop_type"]):
            yield from _selects(node)
        elif node.get("subquery_type") not in (None, "EXISTS", "NOT_EXISTS"):
            yield from _selects(node["subquery"]["node"])


def _selects(query: Tree) -> Iterator[Tree]:
    """Yield the SELECTs of which a query has all rows."""
    if "select_list" in query:
        yield query
    for each in query["children"] if "setop_type" in query else ():
        yield from _selects(each)


def _is_distinct(select: Tree) -> bool:
    modifiers = (each for each in select["modifiers"] if each["type"] == "DISTINCT_MODIFIER")
    return any(not each["distinct_on_targets"] for each in modifiers)


def _starred(star: Tree, scope: Mapping[str, Mapping[str, bool | None]]) -> _Columns:
    """Return the columns that a star means, or may mean by a pattern."""
    of, left = folded(star["relation_name"]), {*map(folded, star["exclude_list"])}
    left.update(folded(each["column"]) for each in star["qualified_exclude_list"])
    new = {folded(each["key"]["column"]): folded(each["value"]) for each in star["rename_list"]}
    values = {folded(each["key"]) for each in star["replace_list"]}
    some = [column for name, own in scope.items() if of in ("", name) for column in own.items()]
    return [(new.get(n, n), n not in values and kind) for n, kind in some if n not in left]


def _no_kind(said: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{said} may be of any kind, and is used where one is needed",
        hint=f"write CAST({said} AS TEXT), or AS BIGINT, DOUBLE, BOOLEAN; or {said}->>'$' for its "
        "text",
    )


def _function(node: Tree) -> str:
    return str(node.get("function_name") or "").lower()


def _arguments(call: Tree) -> list[Tree]:
    return [each["expression"] for each in call.get("arguments", ())]


def _is_plain(step: str | int) -> bool:
    return isinstance(step, int) or not _ODD.search(step)


def _step(step: str | int) -> str:
    """Return a step as a path of DuckDB's: by its pointers, digits may be places, too."""
    if isinstance(step, int):
        return f"$[{step}]"
    is_quotable = step and not {*'"\\'} & {*step}
    return f'$."{step}"' if is_quotable else "/" + step.replace("~", "~0").replace("/", "~1")
