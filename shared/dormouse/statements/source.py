"""A reference to a table as DuckDB scans it: what bounds its rows, and the rows.

DuckDB offers the conditions of a scan while it plans. None is taken from it: DuckDB tests all rows.
But rows for which an offered condition is not true do not count, so that these bound the keys and
values that are read (`as_condition`); and where a scan has many rows, Arrow leaves them out before
DuckDB takes them.

``duckdb._sources`` is not public: its version is pinned, and `tests/unit/statements` hold what is
relied on.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache, cached_property, partial, reduce
from operator import and_
from typing import TYPE_CHECKING, Any, TypeAlias

import duckdb
import pyarrow as pa
from duckdb._sources import ArrowScanSource
from duckdb._sources.nodes import Binary, Col, In, Lit, Node, Postfix, Unary, Untranslatable
from duckdb._sources.to_arrow import to_arrow

from dormouse.arrow.documents import ABSENT, holds, values_at
from dormouse.schema import types
from dormouse.schema.schema import TAGS, Schema
from dormouse.schema.types import Primitive
from dormouse.sql.conditions import (
    MAX_CONDITION_DEPTH,
    MAX_LIST,
    Call,
    Column,
    Condition,
    Expression,
    Literal,
    depth,
    truth,
)
from dormouse.sql.operands import number
from dormouse.statements.statement import HAS, ParsedStatement, folded, parsed_tree
from dormouse.statements.statement import Node as Tree
from dormouse.statements.tables import (
    TableScan,
    aliases_in,
    comparison,
    is_constant,
    path_of,
    tag_key,
)

if TYPE_CHECKING:
    import pyarrow.compute as pc


# Comparisons of what is in JSON documents with constants, as conditions compare it.
#
# DuckDB would cast the documents' text to the type of the constant: a text to a number, with an
# error if it is none. So such comparisons become calls of a function here, in the tree of the
# statement.


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


def _written(whole: Tree, parser: duckdb.DuckDBPyConnection) -> str:
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
    def template(self) -> Tree:
        """A call of a function as DuckDB has it in a tree."""
        whole = parsed_tree(f"SELECT {FUNCTION}('', json_array())", self.parser)
        call: Tree = whole["statements"][0]["node"]["select_list"][0]
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

    def said(self, node: Tree) -> str:
        """Return what DuckDB calls a column that a node says."""
        path = self.path(node)
        if path is not None and node["type"] != "ARRAY_EXTRACT":
            return str(path[1][-1])
        whole = parsed_tree("SELECT 1", self.parser)
        whole["statements"][0]["node"]["select_list"] = [node]
        return _written(whole, self.parser).removeprefix("SELECT ")

    def path(self, node: Tree) -> tuple[Tree, tuple[str | int, ...]] | None:
        """Return the column of documents that a node is, or is a part of, and what leads there."""
        path = path_of(node, self.aliases)
        return path if path and folded(path[0]["column_names"][-1]) in self.names else None

    def _part(self, part: Tree, steps: Sequence[str | int], alias: str = "") -> Tree:
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
        return self._call("concat", [self._call("to_json", [constant])])  # empty of NULL

    def _text(self, text: str) -> Tree:
        literal: Tree = self.template["arguments"][0]["expression"]
        return {**literal, "literal": {"kind": "STRING", "text": text}}


def _is_plain(step: str | int) -> bool:
    return isinstance(step, int) or not _ODD.search(step)


def _step(step: str | int) -> str:
    """Return a step as a path of DuckDB's: by its pointers, digits may be places, too."""
    if isinstance(step, int):
        return f"$[{step}]"
    is_quotable = step and not {*'"\\'} & {*step}
    return f'$."{step}"' if is_quotable else "/" + step.replace("~", "~0").replace("/", "~1")


Rows: TypeAlias = Callable[[TableScan], tuple[pa.Schema, Iterator[pa.RecordBatch]]]
"""Begin a scan; return the schema of its columns, and the rows."""


class TableSource(ArrowScanSource):
    """A table as a source of scans. `failure` is the first error that one of them had: DuckDB only
    passes on its text.
    """

    schema_is_stable = True

    def __init__(
        self, schema: Schema, arrow: pa.Schema, rows: Rows, bound: Condition | None = None
    ) -> None:
        """Read nothing: `rows` is called when a scan begins. `bound` is true of all that count."""
        super().__init__(None)
        self._schema, self._arrow, self._rows, self._bound = schema, arrow, rows, bound
        self._offered: list[Node] = []
        self.failure: BaseException | None = None

    def __arrow_c_schema__(self) -> object:
        """Return the schema that scans select columns of."""
        return self._arrow.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested: object | None = None) -> object:
        """Return all rows: DuckDB looks for this method, and calls `stream` instead."""
        return self.stream(None, ())[0]

    def accepts(self, predicate: Node) -> bool:
        """Note a condition that all rows which count fulfil; DuckDB tests it all the same."""
        self._offered.append(predicate)
        return False

    def offered(self, names: Collection[str]) -> TableScan:
        """Return the scan that a plan has offered the conditions of: of those columns that its
        statement names, or all if it names all.
        """
        lower_names = {name.lower() for name in names}
        every = self._arrow.names
        columns = [n for n in every if "*" in lower_names or n.lower() in lower_names]
        return TableScan(tuple(columns or every[:1]), self._condition())

    def stream(self, columns: Sequence[int] | None, filters: Sequence[Node]) -> tuple[object, bool]:
        """Return the rows that count, with some columns, as an Arrow stream."""
        try:
            every = self._arrow.names
            names = every if columns is None else [every[at] for at in columns]
            scan = TableScan(tuple(names), self._condition(), self._test)
            schema, batches = self._rows(scan)
            reader: Any = pa.RecordBatchReader.from_batches(schema, self._watched(batches))
        except BaseException as error:
            self._fail(error)
            raise
        return reader.__arrow_c_stream__(), True

    def _test(self) -> pc.Expression | None:
        """Return the conjunction of what was offered as Arrow evaluates it, where it does so as
        DuckDB; None if there is nothing.
        """
        terms = []
        for each in self._offered:
            with suppress(Untranslatable):
                terms.append(to_arrow(each, self._arrow))
        return reduce(and_, terms) if terms else None

    def _condition(self) -> Condition | None:
        """Return the conjunction of what was offered, as far as conditions have forms for it."""
        bound = self._bound.expression if self._bound else None
        forms = [bound, *(as_condition(each, self._schema) for each in self._offered)]
        terms = list(dict.fromkeys(form for form in forms if form is not None))
        if len(terms) < 2:
            return Condition(terms[0]) if terms else None
        return Condition(truth("AND", *terms))

    def _watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except GeneratorExit:
            raise
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error


def as_condition(predicate: Node, schema: Schema) -> Expression | None:
    """Return a filter of DuckDB as an expression that is true of every row for which the filter is
    true; None if it has no such form.
    """
    try:
        term = _expression(predicate, schema)
    except (_HasNoFormError, RecursionError):
        return None
    return term if depth(term) <= MAX_CONDITION_DEPTH else None


class _HasNoFormError(Exception):
    """A filter has no form as a condition."""


def _expression(node: Node, schema: Schema) -> Expression:
    match node:
        case Binary(op="AND" | "OR" as op, left=left, right=right):
            terms = tuple(_expression(each, schema) for each in _chain(op, left, right))
            if len(terms) > MAX_LIST:
                raise _HasNoFormError
            return truth(op, *terms)
        case Unary(op="NOT", operand=operand):
            return truth("NOT", _expression(operand, schema))
        case Postfix(op="IS NULL", operand=Col() as column):
            return truth("IS NULL", _column(column, schema))
        case Postfix(op="IS NOT NULL", operand=Col() as column):
            return truth("NOT", truth("IS NULL", _column(column, schema)))
        case Binary(op=op, left=Col() as column, right=Lit() as value):
            named = _column(column, schema)
            return truth("<>" if op == "!=" else op, named, _literal(value, named.type))
        case In(operand=Col() as column, values=values) if len(values) <= MAX_LIST:
            named = _column(column, schema)
            literals = [_literal(each, named.type) for each in values if isinstance(each, Lit)]
            if len(literals) == len(values):
                return truth("IN", named, *literals)
    raise _HasNoFormError


def _chain(op: str, left: Node, right: Node) -> list[Node]:
    """Return the terms of a chain of one operator, in their order, however it is nested."""
    terms, rest = [], [right, left]
    while rest:
        node = rest.pop()
        if isinstance(node, Binary) and node.op == op:
            rest += [node.right, node.left]
        else:
            terms.append(node)
    return terms


def _column(column: Col, schema: Schema) -> Column | Call:
    if len(column.parts) != 1:  # a member of a struct
        raise _HasNoFormError
    field = schema.field_named(column.parts[0])
    if field.encrypted is not None:  # shards have no values to compare
        raise _HasNoFormError
    if key := tag_key(field.name):
        return Call("tag", (Column(TAGS.name, TAGS.type), Literal(key, TAGS.type)), field.type)
    return Column(field.name, field.type)


_SAME: dict[types.FieldType, type] = {
    types.Primitive.BOOLEAN: bool,
    types.Primitive.INT: int,
    types.Primitive.LONG: int,
    types.Primitive.STRING: str,
    types.Primitive.BYTES: bytes,
    types.Primitive.TIMESTAMP: int,
}
"""The types of constants that are the same in a condition."""


def _literal(literal: Lit, kind: types.FieldType) -> Literal:
    """Return a constant, which DuckDB gives in exactly the type of the column."""
    match kind, literal.value:
        case types.DecimalType(), Decimal() as number:
            return Literal(number, kind)
        case types.Primitive.DATE, dt.date() as day:
            return Literal(types.to_days(day), kind)
        case types.Primitive.TIME, dt.time() as clock:
            return Literal(types.clock_count(clock), kind)
        case types.Primitive.TIMESTAMP_NTZ, dt.datetime() as time:
            return Literal(types.to_microseconds(time.replace(tzinfo=dt.UTC)), kind)
        case types.Primitive(), bool() | int() | str() | bytes() as value:
            if type(value) is _SAME.get(kind):
                return Literal(value, kind)
    raise _HasNoFormError  # floats: what bounds them would have to know NaN and the sign of zero
