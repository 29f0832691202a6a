"""The tables of a statement, and the rows that its scans read: of one version of each table."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import repeat
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from dormouse.access import VisibleTable
from dormouse.arrow.order import requested_ranges
from dormouse.arrow.types import arrow_schema, frame_schema
from dormouse.errors import DormouseError, InvalidRequestError
from dormouse.keys import Key, KeyRange
from dormouse.query.result import PeekableBatches, QueryResult
from dormouse.query.rows import QueryResources, count_rows, query_slices
from dormouse.query.selection import (
    Selection,
    bytes_to_read,
    select,
    selected_ranges,
    slices_to_read,
)
from dormouse.schema.row_tags import tags_of
from dormouse.schema.schema import ASKED, TAGS, Field, Schema
from dormouse.schema.types import FieldType, Primitive, StructType, nested_parts
from dormouse.shards.reading import ReadCounters, Slice
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
from dormouse.sql.key_bounds import exact_ranges
from dormouse.sql.operands import compared, number
from dormouse.state.state import TableState
from dormouse.statements.limits import ReadLimitError
from dormouse.statements.statement import (
    HAS,
    Node,
    ParsedStatement,
    TableReference,
    all_nodes,
    filtered_tables,
    folded,
)
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table

if TYPE_CHECKING:
    import pyarrow.compute as pc


# What WHERE says of the rows that count, as conditions of Dormouse: taken from DuckDB's tree.
#
# DuckDB tests all rows itself. Terms that compare texts and parts of documents with constants
# become a condition, by which term indexes and the columns of paths are asked; what it offers of
# all other columns when it plans, `source` takes.


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
    """Return the column, or the call, that a node is or is a part of, and the names and places that
    lead to the part; None if one is computed. A name before that of the column is one of `aliases`.
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
        return node, tuple(steps)
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
            for column in tables[alias]:
                own = folded(column.name)
                columns[alias, own] = column
                if each.is_all and counts[own] == 1:
                    columns[(own,)] = column
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
        field = self.columns.get(tuple(map(folded, column.get("column_names", ()))))
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


UNTESTED_ROWS = 50_000
"""So many first rows of a scan are not tested here: to load what tests them takes longer."""
MANY_ROWS = 2**62
"""A limit that no table reaches: it only says that few rows may be enough."""

Opened: TypeAlias = tuple[VisibleTable, TableState]
"""What the statement's caller may see of a table, and the state of the version to read."""
OpenTable: TypeAlias = Callable[[str, str], Opened]
"""Open a table by name, at a version; at the newest if the version is empty."""


@dataclass(frozen=True, slots=True)
class TableScan:
    """What a scan asks of a reference: some columns. Rows for which `condition` is not true, or
    what `test` returns as an expression of Arrow, need not come.
    """

    columns: tuple[str, ...]
    condition: Condition | None = None
    test: Callable[[], pc.Expression | None] | None = None


@dataclass(frozen=True, slots=True)
class First:
    """How many of the first rows of a table may be enough: any of those that pass; if `is_ordered`,
    just the first in key order of those for which `condition` is true.
    """

    rows: int
    condition: Condition | None = None
    is_ordered: bool = False


@dataclass(frozen=True, slots=True)
class SqlTables:
    """The tables of a statement: one version of each, for all its scans. `columns` has what the
    scans read of each table, in rows or conditions, by its id; `reads` counts for all of them. Its
    only reference needs no more than the rows `first`, if there are such.
    """

    resources: QueryResources
    open_table: OpenTable
    time_ms: int
    first: First | None = None
    columns: dict[str, set[str]] = field(default_factory=dict)
    opened: dict[tuple[str, str], Opened] = field(default_factory=dict)
    references: dict[str, Opened] = field(default_factory=dict)
    slices: dict[tuple[str, tuple[KeyRange, ...]], list[list[Slice]]] = field(default_factory=dict)
    reads: ReadCounters = field(default_factory=ReadCounters)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, reference: TableReference, asked: Sequence[str] = ()) -> Schema:
        """Open the table of a reference, and return what the caller may see of its schema, and what
        else is `asked` for, as columns.
        Raises DormouseError: there is none, or not that version; the message says where it is
        named. Or two of its columns are one for DuckDB.
        """
        key = (reference.table, reference.as_of)
        if key not in self.opened:
            try:
                self.opened[key] = self.open_table(*key)
            except DormouseError as error:
                where = f"line {reference.line}, column {reference.column}"
                raise type(error)(f"{where}: {error}", hint=error.hint) from error
            visible = self.opened[key][0]
            _check_names(visible.schema, reference.table)
            self.columns.setdefault(visible.table.id, set())
        visible = self.opened[key][0]
        self.references[reference.name] = self.opened[key]
        hidden = visible.permission.hidden
        for name in asked:
            if (TAGS.name if tag_key(name) else name) in hidden:
                raise InvalidRequestError(f"{name} of {reference.table!r} is hidden from you")
        return with_asked(visible.schema, asked)

    @property
    def versions(self) -> Mapping[str, tuple[int, ...]]:
        """The versions of each table that are read, ascending, by the names of tables."""
        by_table: dict[str, set[int]] = {}
        for opened, state in self.references.values():
            by_table.setdefault(opened.table.name, set()).add(state.version)
        return {name: tuple(sorted(versions)) for name, versions in by_table.items()}

    def result(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> QueryResult:
        """Return rows as the result of the statement."""
        versions = dict(self.versions)
        numbers = [version for of_table in versions.values() for version in of_table]
        only = numbers[0] if len(numbers) == 1 else 0
        return QueryResult(schema, PeekableBatches(batches), self.reads, only, versions)

    def rows(self, name: str, scan: TableScan) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the rows of a scan, and their schema; they are read while they are taken."""
        visible, _ = self.references[name]
        schema = arrow_schema(with_asked(visible.table.schema.opened, scan.columns))
        columns = frame_schema(pa.schema([schema.field(column) for column in scan.columns]))
        return columns, self._rows(name, scan, columns)

    def count(
        self,
        name: str,
        condition: Condition | None,
        most: int | None,
        check: Callable[[], None] | None,
    ) -> int | None:
        """Return the number of rows of a reference for which a condition is true, if no row has to
        be tested for it. Keys are only read with `check`, which is called meanwhile.
        Raises ReadLimitError: they may be more bytes than `most`.
        """
        visible, state = self.references[name]
        scan = TableScan((), condition)
        selection = self.selection(name, scan)
        if selection.condition is not None:
            return None
        if not self.has_rules(name):
            return count_rows(self.resources, visible.table, state, selection)
        if check is None:
            return None
        self.check_reads(name, scan, most, 0)
        return count_rows(self.resources, visible.table, state, selection, check)

    def has_rules(self, name: str) -> bool:
        """Return whether the rows of a reference are others than those that are stored."""
        visible, state = self.references[name]
        return has_rules(visible.table, state)

    def selection(self, name: str, scan: TableScan) -> Selection:
        """Return the selection of a scan, and note the columns that it reads."""
        visible, state = self.references[name]
        schema = visible.table.schema
        stored = [name for name in scan.columns if not tag_key(name)]
        columns = stored or [schema.fields[0].name] if scan.columns else None
        selection = select(
            schema,
            state.version,
            self.time_ms,
            permission=visible.permission,
            columns=columns,
            condition=scan.condition,
            limit=None if self.first is None else self.first.rows,
        )
        with self.lock:
            self.columns[visible.table.id].update(stored)
        if len(stored) < len(scan.columns):
            selection = replace(selection, columns=(*stored, TAGS.name))
        return _by_ranges(selection, schema)

    def parts(self, name: str, selection: Selection) -> Iterable[list[Slice]]:
        """Return the slices that a selection of a reference needs (`slices_to_read`): who decides
        about a scan asks for them before it begins.
        """
        visible, state = self.references[name]
        ranges = tuple(selected_ranges(visible.table, selection))
        if self.first is not None:
            return slices_to_read(state, ranges)
        if (name, ranges) not in self.slices:
            self.slices[name, ranges] = list(slices_to_read(state, ranges))
        return self.slices[name, ranges]

    def check_reads(self, name: str, scan: TableScan, most: int | None, earlier: int) -> int:
        """Return about how many bytes of shards a scan reads, by the state and the share of the
        columns, if they are limited. `earlier` scans read so many; the first rows by key do not
        count.
        Raises ReadLimitError: together they are more than `most`.
        """
        if self.first is not None or most is None:
            return 0
        visible, state = self.references[name]
        selection = self.selection(name, scan)
        whole = bytes_to_read(state, selected_ranges(visible.table, selection))
        columns = max(1, len(scan.columns))  # a key, if rows are only counted
        estimate = whole * columns // len(visible.table.schema.fields)
        if earlier + estimate > most:
            more = "more bytes of shards than"
            if self.shows_all_rows(name):
                more = f"about {earlier + estimate:,} bytes of shards, more than"
            raise ReadLimitError(
                f"the statement would read {more} {most:,}",
                hint="ask for fewer rows or columns, or let it read more",
            )
        return estimate

    def shows_all_rows(self, name: str) -> bool:
        """Return whether the caller may know of all rows and keys that are stored of a table."""
        visible, state = self.references[name]
        sees_all = "administer" in visible.permission.verbs or not has_rules(visible.table, state)
        return visible.shows_all_keys and sees_all

    def _rows(self, name: str, scan: TableScan, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        visible, state = self.references[name]
        table, selection = visible.table, self.selection(name, scan)
        is_ordered = self.first is not None and self.first.is_ordered
        if self.first is not None:
            limit = self.first.rows if is_ordered else MANY_ROWS
            condition = self.first.condition if is_ordered else selection.condition
            selection = replace(selection, limit=limit, condition=condition)
        is_sifted = is_ordered or has_rules(table, state)
        parts = self.parts(name, selection)
        result = query_slices(
            self.resources, table, parts, selection, is_sifted=is_sifted, reads=self.reads
        ).for_programs()
        with closing(result):
            rows, test = 0, None
            for batch in map(_with_tags, result.batches, repeat(columns.names)):
                rows += batch.num_rows
                if scan.test is not None and rows > UNTESTED_ROWS:
                    test, scan = scan.test(), replace(scan, test=None)
                passed = batch if test is None else batch.filter(test)
                if passed.num_rows:
                    yield passed.select(columns.names)


def with_asked(schema: Schema, names: Collection[str]) -> Schema:
    """Return a schema with those of some columns that are no columns of a table."""
    tags = (Field(n, Primitive.STRING, nullable=True) for n in names if tag_key(n))
    return schema.with_values(*(field for field in ASKED if field.name in names), *tags)


def tag_key(column: str) -> str:
    """Return the key of the row tag that a column of a statement is; empty if it is another one."""
    return column[5:-2] if column.startswith("tag('") and column.endswith("')") else ""


def _with_tags(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return rows with the columns of the row tags that are among `names`."""
    if TAGS.name not in batch.schema.names:
        return batch
    texts = batch.column(TAGS.name).dictionary_encode()
    tags_by_text = [tags_of(text or "") for text in texts.dictionary.to_pylist()]
    for name in names:
        if key := tag_key(name):
            values = pa.array([tags.get(key) for tags in tags_by_text], pa.string())
            batch = batch.append_column(name, values.take(texts.indices))
    return batch


def has_rules(table: Table, state: TableState) -> bool:
    """Return whether deletions, filters or aggregations change the rows that are stored."""
    return bool(state.deletions) or not row_rules(table.schema, table.properties).is_empty


def _check_names(schema: Schema, table: str) -> None:
    """Refuse columns, or members of a struct, whose names differ only by the case of letters from
    A to Z: DuckDB would take one for the other.
    """
    structs = [kind for f in schema.fields for kind in _structs(f.type)]
    for names in ([f.name for f in schema.fields], *([m.name for m in s.members] for s in structs)):
        first: dict[str, str] = {}
        for name in names:
            other = first.setdefault(folded(name), name)
            if other != name:
                raise InvalidRequestError(
                    f"SQL cannot read table {table!r}: {other} and {name} differ only by case",
                    hint=f"rename one: dormouse table alter {table} --rename-field OLD=NEW; "
                    "queries by keys and conditions read both",
                )


def _structs(kind: FieldType) -> Iterator[StructType]:
    if isinstance(kind, StructType):
        yield kind
    for part in nested_parts(kind):
        yield from _structs(part)


def _by_ranges(selection: Selection, schema: Schema) -> Selection:
    """Return a selection of the whole table with ranges in place of its condition, if these say the
    same: then no row has to be tested, and rows can be counted without being read.
    """
    condition = selection.condition
    ranges = None if condition is None else exact_ranges(condition, schema)
    if ranges is None:
        return selection
    fitting = tuple(requested_ranges(schema, ranges)) if ranges else ()
    return replace(selection, ranges=fitting or (KeyRange((), ()),), condition=None)


def known_ends(table: Table, state: TableState) -> tuple[Key, Key] | None:
    """Return the first row key of the least and of the greatest row, if the state alone knows
    them.
    """
    parts = slices_to_read(state, [KeyRange()])
    slices = [slice for part in parts for slice in part]
    low = [slice.shard.min_key for slice in slices if _holds(slice, slice.shard.low)]
    high = [slice.shard.max_key for slice in slices if _holds(slice, slice.shard.high)]
    if has_rules(table, state) or not low or not high:
        return None
    # a slice that begins or ends within its shard has rows up to there that the state does not know
    lowest = min(max(slice.shard.min_key, slice.range.min) for slice in slices)
    highest = max(
        min(slice.shard.max_key, slice.range.max or slice.shard.max_key) for slice in slices
    )
    if min(low)[:1] > lowest[:1] or max(high)[:1] < highest[:1]:
        return None
    return min(low)[:1], max(high)[:1]


def _holds(slice: Slice, key: bytes) -> bool:
    return slice.range.contains_span(key, key)
