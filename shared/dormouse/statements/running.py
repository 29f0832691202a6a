"""Run a statement: find its tables, let DuckDB plan and compute it, watch it, end it.

DuckDB reads the tables by calling back (`source`), and computes in a thread of its own, so that
the caller can end it: when its time is over, when what watches it says so, on Ctrl-C, and when the
result is closed. Where a scan reads most of a large table from files of this machine, the statement
starts again with verified files in place of that table (`files`): DuckDB reads these in parallel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from dormouse.arrow.order import key_scalar
from dormouse.arrow.types import Array, arrow_schema, frame_schema, json_schema
from dormouse.errors import LimitExceededError
from dormouse.key_codec import KeyCodec
from dormouse.keys import KeyRange
from dormouse.query.result import QueryResult
from dormouse.query.rows import needed_blocks, reading_version, tagged_slices
from dormouse.query.selection import selected_ranges, slices_to_read
from dormouse.schema.evolution import is_same
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import FieldType, Primitive
from dormouse.shards.local_copies import MAX_GET_BYTES, LocalCopies, MergeWindow
from dormouse.shards.reading import (
    Blocks,
    CountedObjects,
    ReadCounters,
    Slice,
    coalesce,
    find_blocks,
)
from dormouse.sql import conditions
from dormouse.state.state import TableState
from dormouse.statements import engine
from dormouse.statements.documents import with_paths
from dormouse.statements.limits import WATCH_MS, Limits, ReadLimitError, Watch
from dormouse.statements.source import TableSource
from dormouse.statements.statement import (
    Node,
    ParsedStatement,
    checked_parameters,
    only_table,
    parse_statement,
)
from dormouse.statements.tables import (
    First,
    SqlTables,
    TableScan,
    comparison,
    has_rules,
    known_ends,
    literal,
    tested,
    with_bounds,
)
from dormouse.system import SystemClock
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table

# What the state of a table answers by itself, and which first rows are enough.
#
# Only statements of one table are looked at, by their shape in DuckDB's tree: counts, the least and
# greatest first key, and first rows. What is not surely such a statement is DuckDB's.

_MORE = ("group_expressions", "group_sets", "having", "qualify", "sample")
"""Parts of a SELECT that are more than columns of one table, a condition, an order and a limit."""
_WIDTHS: dict[FieldType, int] = {Primitive.INT: 2**31, Primitive.LONG: 2**63}


class _NotPlainError(Exception):
    """A statement has another shape, or a value of another type than its column."""


@dataclass(frozen=True, slots=True)
class PlainSelect:
    """A SELECT of one table: its name in the statement, and what is known of it."""

    name: str
    node: Node
    schema: Schema
    parameters: Mapping[str, object]

    def condition(self) -> conditions.Condition | None:
        """Return its condition, None if it has none.
        Raises _NotPlainError: it is not a conjunction of comparisons of columns with values.
        """
        where = self.node["where_clause"]
        return None if where is None else conditions.Condition(self._term(where))

    def _term(self, node: Node) -> conditions.Expression:
        if node["type"] == "CONJUNCTION_AND":
            return conditions.truth("AND", *map(self._term, node["children"]))
        op, operands = comparison(node) or ("", [])
        if not 2 <= len(operands) <= conditions.MAX_LIST:
            raise _NotPlainError
        column = self.column(operands[0])
        return tested(op, column, [self._value(each, column) for each in operands[1:]])

    def column(self, node: Node) -> conditions.Column:
        """Return the column that an expression is."""
        if node["type"] != "COLUMN_REF" or len(node["column_names"]) != 1:
            raise _NotPlainError
        (name,) = node["column_names"]
        types = {f.name: f.type for f in self.schema.fields if f.encrypted is None}
        if name not in types:
            raise _NotPlainError
        return conditions.Column(name, types[name])

    def _value(self, node: Node, column: conditions.Column) -> conditions.Literal:
        """Return a whole number or a text, which is compared with a column of such."""
        if node.get("literal", {}).get("kind") == "NUMERIC":
            raise _NotPlainError  # one may be a double, as which DuckDB compares then
        constant = literal(node, self.parameters)
        most = _WIDTHS.get(column.type, 0)
        if constant and type(constant.value) is int and -most <= constant.value < most:
            return conditions.Literal(constant.value, column.type)
        if constant and column.type is constant.type is Primitive.STRING:
            return constant
        raise _NotPlainError


def plain_select(
    statement: ParsedStatement, schemas: Mapping[str, Schema], parameters: Mapping[str, object]
) -> PlainSelect | None:
    """Return a statement as a SELECT of columns of one table; None if it is more."""
    node = statement.tree
    if len(statement.references) != 1 or only_table(node) is None or any(map(node.get, _MORE)):
        return None
    ((name, schema),) = schemas.items()
    return PlainSelect(name, node, schema, parameters)


def answer_from_state(
    tables: SqlTables,
    plain: PlainSelect,
    most: int | None = None,
    check: Callable[[], None] | None = None,
) -> pa.RecordBatch | None:
    """Return the only row of a statement that counts rows, or asks for the ends of the first key of
    a whole table; None if it is another, or the state does not know; with `check`, keys are read
    for it. Raises as `SqlTables.count`.
    """
    try:
        cells = _known_cells(tables, plain, most, check)
    except _NotPlainError:
        return None
    terms = plain.node["select_list"]
    names = [each["alias"] or _name_of(each) for each in terms]
    fields = [pa.field(name, cell.type) for name, cell in zip(names, cells, strict=True)]
    columns = [pa.repeat(cell, 1) for cell in cells]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _known_cells(
    tables: SqlTables, plain: PlainSelect, most: int | None, check: Callable[[], None] | None
) -> list[Any]:
    calls, condition = plain.node["select_list"], plain.condition()
    if plain.node["modifiers"]:
        raise _NotPlainError
    for each in calls:  # aggregates of all rows
        if each["type"] != "FUNCTION" or each["export_state"] or each["filter"]:
            raise _NotPlainError
        if each["order_bys"]["orders"]:
            raise _NotPlainError
    if any(each["function_name"] != "count_star" for each in calls):
        if condition is not None:
            raise _NotPlainError
        return list(_ends(tables, plain))
    rows = tables.count(plain.name, condition, most, check)
    if rows is None:
        raise _NotPlainError
    return [key_scalar(rows, Primitive.LONG)] * len(calls)


def _ends(tables: SqlTables, plain: PlainSelect) -> Iterator[Any]:
    """Yield the least or the greatest first key, as is asked."""
    calls = plain.node["select_list"]
    visible, state = tables.references[plain.name]
    first = visible.schema.row_keys[0] if visible.schema.row_keys else None
    names = [each["function_name"] for each in calls]
    if first is None or first.nullable or first.type is Primitive.UUID:
        raise _NotPlainError
    if not set(names) <= {"min", "max"}:
        raise _NotPlainError
    for each in calls:
        columns = [plain.column(argument["expression"]).name for argument in each["arguments"]]
        if columns != [first.name]:  # more arguments ask for several ends
            raise _NotPlainError
    ends = known_ends(visible.table, state)
    if ends is None:
        raise _NotPlainError
    for name in names:
        (key,) = ends[name == "max"]
        yield key_scalar(key, first.type)


def _name_of(call: Node) -> str:
    """Return the name that DuckDB gives the column of a call without an alias."""
    if call["function_name"] == "count_star":
        return "count_star()"
    (column,) = call["arguments"][0]["expression"]["column_names"]
    is_word = column.isidentifier() and column == column.lower()
    return f"{call['function_name']}({column if is_word else chr(34) + column + chr(34)})"


def first_rows(plain: PlainSelect) -> First | None:
    """Return which first rows of its table may be enough for a statement; None if all count.

    ``SELECT … LIMIT`` takes any rows. With ``ORDER BY`` the first keys, and a condition that is one
    of ours, just the first rows in key order are needed.
    """
    try:
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


def _check_order(orders: list[Node], plain: PlainSelect, aliases: set[str]) -> None:
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


# Scans of most of a table: DuckDB reads the files themselves, once they are verified.
#
# Where shards are files of this machine, and no rule of the table changes their rows, they are
# linked into the folder that DuckDB may read and verified, as for a merge. It reads them in
# parallel, which costs half or a third of reading the same rows from Python.

LEAST_BYTES = 1024 * 1024
"""Less is streamed: to verify and open files takes longer than to read so little."""
LEAST_SHARE = 2
"""At least one of so many row groups must be needed: each file is read whole."""


@dataclass(frozen=True, slots=True)
class VerifiedFiles:
    """The files in `folder` that DuckDB reads for a statement, until it ends. `windows` has them by
    the ids of their shards, and by the names of the columns that are verified.
    """

    folder: Path
    windows: dict[tuple[frozenset[str], frozenset[str]], MergeWindow] = field(default_factory=dict)

    def query(self, tables: SqlTables, name: str, scan: TableScan, least_bytes: int) -> str | None:
        """Return what reads all shards that a scan needs, as SQL in the place of a table; None if
        its rows are to be streamed, as those of shards with less than `least_bytes` are.
        Raises DormouseError: a shard is gone or damaged.
        """
        visible, state = tables.references[name]
        # few rows need few row groups, and files hold all columns
        if tables.first is not None or not visible.is_whole:
            return None
        if tables.resources.storage.is_remote or not _can_be_read_as_it_is(visible.table, state):
            return None
        with reading_version(tables.resources, visible.table, state.version):
            return self._query(tables, name, scan, least_bytes)

    def _query(self, tables: SqlTables, name: str, scan: TableScan, least_bytes: int) -> str | None:
        visible, state = tables.references[name]
        table, resources = visible.table, tables.resources
        selection = tables.selection(name, scan)
        selected = [slice for part in tables.parts(name, selection) for slice in part]
        shards = frozenset(slice.shard.id for slice in selected)
        if sum(slice.shard.size_bytes for slice in selected) < least_bytes:
            return None
        held_by_leaves = (s for s in _slices(state, [KeyRange()]) if s.shard.id in shards)
        slices = list(whole_shards(held_by_leaves))
        if not slices:
            return None
        storage = CountedObjects(resources.storage, tables.reads)
        cache, condition = resources.cache, selection.condition
        every = find_blocks(storage, table.id, slices, table.schema, cache, footers=True)
        targets = needed_blocks(storage, cache, table, selected, condition, footers=True)
        numbers: dict[str, set[int]] = {}
        for blocks in targets:
            numbers.setdefault(blocks.slice.shard.id, set()).update(blocks.numbers)
        count = sum(map(len, numbers.values()))
        whole = [replace(g, numbers=g.index.blocks) for g in every]
        if count * LEAST_SHARE < sum(len(blocks.numbers) for blocks in whole):
            return None
        if not all(_is_as_now(blocks, table.schema.fields) for blocks in whole):
            return None
        tables.reads.add((slice.shard.id for slice in slices), count)
        used = frozenset(scan.columns)
        if (shards, used) not in self.windows:
            fields = [field for field in table.schema.fields if field.name in used]
            copies = LocalCopies(storage, table.id, fields, self.folder, resources.memory_bytes)
            self.windows[shards, used] = copies.only_window(whole)
        return _reading(self.windows[shards, used], table, is_joined=len(tables.references) > 1)

    def close(self) -> None:
        """Remove the files."""
        while self.windows:
            self.windows.popitem()[1].discard()


def _reading(window: MergeWindow, table: Table, *, is_joined: bool) -> str:
    """Return a query of verified files, with the columns of a table.

    By default DuckDB does not look for the least and greatest keys in several files, and
    joins by them take twice the time; to look takes 0.3 ms a file each time that it plans. Columns
    with NaN have no such values (`NaNSearch`).
    """
    files = ", ".join(conditions.text_literal(str(each.path)) for each in window.files)
    columns = ", ".join(map(_read_column, table.schema.fields))
    most = len(window.files) if is_joined else 1
    return f"SELECT {columns} FROM read_parquet([{files}], maximum_files_for_stats = {most})"


def _read_column(field: Field) -> str:
    name = conditions.quoted(field.name)
    return f"{name}::JSON AS {name}" if field.type is Primitive.DYNAMIC else name


def _can_be_read_as_it_is(table: Table, state: TableState) -> bool:
    """Return whether the rows of shards are those of the table, in the types of programs."""
    schema = arrow_schema(table.schema)
    if table.schema.encrypted:
        return False
    return not has_rules(table, state) and frame_schema(schema).equals(json_schema(schema))


def _slices(state: TableState, ranges: Sequence[KeyRange]) -> list[Slice]:
    return [slice for part in slices_to_read(state, ranges) for slice in part]


def whole_shards(slices: Iterable[Slice]) -> Iterator[Slice]:
    """Yield each shard once; none if one of them has rows that do not count, or count twice.

    A shard that was ingested before its leaf was split, or with rows for several leaves, has a
    slice in each of them. Its file has the rows of all, if these leave no key out between them.
    """
    ranges: dict[str, list[Slice]] = {}
    for slice in slices:
        ranges.setdefault(slice.shard.id, []).append(slice)
    joined = [_joined(of_shard) for of_shard in ranges.values()]
    if all(slice is not None for slice in joined):
        yield from (slice for slice in joined if slice is not None)


def _joined(of_shard: Sequence[Slice]) -> Slice | None:
    """Return disjoint slices of a shard as the one that is all of it; None if they are not."""
    ranges = sorted((slice.range for slice in of_shard), key=lambda range: range.min)
    if any(a.max != b.min for a, b in pairwise(ranges)):
        return None
    whole = Slice(of_shard[0].shard, KeyRange(ranges[0].min, ranges[-1].max))
    return whole if whole.is_whole else None


def _is_as_now(blocks: Blocks, fields: tuple[Field, ...]) -> bool:
    """Return whether a shard has all columns under the names and in the types of now."""
    stored = blocks.index.stored_fields(fields)
    return all(
        each.name in stored
        and stored[each.name].name == each.name
        and is_same(stored[each.name], each)
        for each in fields
    )


# What a scan would read, from the state and the footers of shards alone.

MAX_RANGES_SHOWN = 20
_TEXTS = ("step", "plan")
_NUMBERS = ("version", "partitions", "shards", "row_groups", "requests", "bytes")
EXPLANATION = pa.schema(dict.fromkeys(_TEXTS, pa.string()) | dict.fromkeys(_NUMBERS, pa.int64()))
"""The columns of the rows that EXPLAIN returns."""


def reading(tables: SqlTables, name: str, scan: TableScan) -> dict[str, object]:
    """Return what a scan would read, as a row of an explanation; `bytes` are those of column
    chunks, as they are stored. Footers of shards are read for it.

    What is stored has rows that filters and aggregations take away. So that conditions find out
    nothing of these, nor of hidden keys, numbers are only for those who may see all.
    """
    visible, state = tables.references[name]
    table = visible.table
    selection = tables.selection(name, scan)
    ranges = selected_ranges(table, selection)
    texts = map(KeyCodec(table.schema).range_to_assignments, ranges[:MAX_RANGES_SHOWN])
    lines = [f"columns {', '.join(scan.columns)}", f"ranges: {' '.join(texts)}"]
    lines += [] if scan.condition is None else [f"condition {scan.condition.sql}"]
    row = {"step": f"read {table.name}", "plan": "\n".join(lines), "version": state.version}
    if not tables.shows_all_rows(name):
        return row
    parts = list(slices_to_read(state, ranges))
    if not row_rules(table.schema, table.properties).aggregates:
        parts = list(tagged_slices(parts, selection.condition))
    slices = [slice for part in parts for slice in part]
    storage = CountedObjects(tables.resources.storage, ReadCounters())
    cache, condition = tables.resources.cache, selection.condition
    blocks = needed_blocks(storage, cache, table, slices, condition, footers=True)
    blocks = [groups for groups in blocks if groups.numbers]
    columns = [f for f in table.schema.fields if f.name in scan.columns]
    requests = list(_requests(blocks, table, columns))
    return row | {
        "partitions": len(parts),
        "shards": len({groups.slice.shard.id for groups in blocks}),
        "row_groups": len({(g.slice.shard.id, n) for g in blocks for n in g.numbers}),
        "requests": len(requests),
        "bytes": sum(requests),
    }


def _requests(blocks: Iterable[Blocks], table: Table, fields: Sequence[Field]) -> Iterator[int]:
    """Yield the bytes of each ranged read."""
    keys = table.schema.row_keys
    columns = [*keys, *(field for field in fields if field not in keys)]
    numbers: dict[str, tuple[Blocks, set[int]]] = {}
    for groups in blocks:
        numbers.setdefault(groups.slice.shard.id, (groups, set()))[1].update(groups.numbers)
    for groups, each in numbers.values():
        for together in coalesce(groups.index.sections(sorted(each), columns), MAX_GET_BYTES):
            yield together[-1].end - together[0].start


_LOOK_SECONDS = 0.05
"""How often who waits for rows looks whether the statement should end."""
BATCH_ROWS = 65_536
_T = TypeVar("_T")


def run_statement(
    tables: SqlTables,
    text: str,
    parameters: Mapping[str, object],
    scratch: Path,
    limits: Limits,
    watch: Watch | None = None,
) -> QueryResult:
    """Return the rows of a statement, which are computed while they are taken; `watch` may end it.
    Raises DormouseError: it cannot be planned, or takes too much.
    """
    database = engine.database(scratch, limits.memory_bytes)
    with database.connection.cursor() as parser:
        statement = parse_statement(text, parser)
    values = checked_parameters(statement, parameters)
    schemas = {each.name: tables.find(each, statement.asked) for each in statement.references}
    statement = with_bounds(statement, schemas, values)
    with database.connection.cursor() as parser:
        statement = with_paths(statement, schemas, values, parser)
    if any(schema.encrypted for schema in schemas.values()):
        database = engine.database(scratch, limits.memory_bytes, spills=False)
    plain = None if statement.asked else plain_select(statement, schemas, values)
    if plain and not statement.explains and (batch := answer_from_state(tables, plain)):
        return tables.result(batch.schema, [batch])
    tables = replace(tables, first=first_rows(plain) if plain else None)
    running = _Running(tables, statement, values, schemas, database, limits, watch)
    try:
        if rows := running.explained() if statement.explains else running.known(plain):
            running.end()
            return tables.result(rows.schema, [rows])
        schema, batches = running.results()
    except BaseException:
        running.end()
        raise
    return tables.result(schema, batches)


class _EndedError(Exception):
    """A statement was ended meanwhile."""


class _Anew(Exception):  # noqa: N818  # no error: the statement starts again
    """A reference is better read from files, which are verified now."""


class _Running:
    def __init__(
        self,
        tables: SqlTables,
        statement: ParsedStatement,
        parameters: dict[str, object],
        schemas: Mapping[str, Schema],
        database: engine.DuckDatabase,
        limits: Limits,
        watch: Watch | None,
    ) -> None:
        self._tables, self._statement, self._parameters = tables, statement, parameters
        self._schemas, self._database, self._limits = schemas, database, limits
        self._watch = watch
        self._cursor = database.connection.cursor()
        self._sources: dict[str, TableSource] = {}
        self._files: dict[str, str] = {}
        self._streamed: set[str] = set()
        self._estimates: dict[str, int] = {}
        self._verified = VerifiedFiles(database.files)
        self._thread = ThreadPoolExecutor(1, "statement")
        self._clock = SystemClock()
        self._waited_ms = 0
        self._watched_ms = self._clock.now_ms()
        self._lock = threading.Lock()
        self._is_anew = self._has_begun = self._is_ended = False

    def results(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Wait for the first rows; return their schema and all rows."""
        while True:
            try:
                reader, schema = self._waited(self._begin)
                return schema, self._batches(reader, schema)
            except _Anew:
                # what has failed may leave its cursor interrupted
                self._cursor.close()
                self._cursor = self._database.connection.cursor()

    def known(self, plain: PlainSelect | None) -> pa.RecordBatch | None:
        """Return the only row of a statement that counts rows by keys; None of others."""
        if plain is None or not self._tables.has_rules(plain.name):
            return None
        most, check = self._limits.read_bytes, self._check_end
        return self._waited(partial(answer_from_state, self._tables, plain, most, check))

    def explained(self) -> pa.RecordBatch:
        """Return what would be read for each table, and DuckDB's plan; no row is read."""
        plan = self._waited(self._plan)
        names = self._statement.names
        scans = {name: source.offered(names) for name, source in self._sources.items()}
        rows = [reading(self._tables, name, scan) for name, scan in scans.items()]
        rows.append({"step": "physical plan", "plan": plan})
        return pa.RecordBatch.from_pylist(rows, EXPLANATION)

    def _plan(self) -> str:
        self._register_tables()
        sql = f"EXPLAIN {self._statement.sql}"
        text = str(self._cursor.sql(sql, params=self._parameters or None).fetchall()[0][1])
        for name, table in self._statement.tables.items():
            text = text.replace(name, table)
        return text

    def _begin(self) -> tuple[pa.RecordBatchReader, pa.Schema]:
        if self._is_anew:
            self._decide_others()
        self._register_tables()
        sql, tables = self._statement.sql, self._statement.tables
        relation, types = engine.plan(self._cursor, sql, self._parameters, tables)
        reader = relation.to_arrow_reader(BATCH_ROWS)
        with self._lock:
            if self._is_anew:
                raise _Anew
            self._has_begun = True
        return reader, engine.result_schema(reader.schema, types)

    def _register_tables(self) -> None:
        for name, schema in self._schemas.items():
            if name in self._files:
                self._cursor.execute(
                    f"CREATE TEMP VIEW {conditions.quoted(name)} AS {self._files[name]}"
                )
                continue
            arrow, rows = frame_schema(arrow_schema(schema.opened)), partial(self._rows, name)
            source = TableSource(schema, arrow, rows, self._statement.bounds.get(name))
            self._sources[name] = source
            self._cursor.register(name, source)

    def _rows(self, name: str, scan: TableScan) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the rows of a scan; called by threads of DuckDB.
        Raises _Anew: files are better.
        """
        with self._lock:
            if name not in self._streamed:
                self._decide(name, scan, LEAST_BYTES)
                if name in self._files:
                    self._is_anew = True
                    raise _Anew
                self._streamed.add(name)
        return self._tables.rows(name, scan)

    def _decide(self, name: str, scan: TableScan, least_bytes: int) -> None:
        """Count what a scan reads, and verify files in its place, if these are better. Once rows
        were handed out, none are: a part of a UNION may begin that late.
        """
        earlier = sum(each for other, each in self._estimates.items() if other != name)
        most = self._limits.read_bytes
        self._estimates[name] = self._tables.check_reads(name, scan, most, earlier)
        if self._has_begun or self._statement.asked:
            return
        query = self._verified.query(self._tables, name, scan, least_bytes)
        if query is not None:
            self._files[name] = query

    def _decide_others(self) -> None:
        """Decide by the plan about the other references, so that the statement does not start again
        for each of them. Small ones are files, too: these have bounds, by which joins are planned.
        """
        self._is_anew = False
        self._streamed.clear()
        for name, source in self._sources.items():
            if name not in self._files:
                with suppress(ReadLimitError):  # it may need fewer columns than its statement names
                    self._decide(name, source.offered(self._statement.names), 0)

    def _batches(self, reader: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            while (batch := self._waited(lambda: next(reader, None))) is not None:
                yield conform_columns(batch, schema)
        finally:
            self._interrupt()
            with suppress(Exception):  # of the statement that nobody wants any more
                reader.close()
            self.end()

    def _waited(self, step: Callable[[], _T]) -> _T:
        """Return what a step returns, which DuckDB takes in its own thread; end it if it should.
        Raises DormouseError: it failed, or was ended.
        """
        future = self._thread.submit(step)
        try:
            while True:
                before_ms = self._clock.now_ms()
                with suppress(TimeoutError):
                    future.exception(_LOOK_SECONDS)
                self._waited_ms += self._clock.now_ms() - before_ms
                if future.done():
                    return self._ended(future)
                self._check_limits()
        except BaseException:
            # A step that is done is not interrupted, or the next one would be. One that begins just
            # now forgets that it was: DuckDB looks between chunks of rows, from then on.
            while not future.done():
                self._interrupt()
                with suppress(TimeoutError):
                    future.exception(_LOOK_SECONDS)
            raise

    def _ended(self, future: Future[_T]) -> _T:
        error = future.exception()
        if error is None:
            return future.result()
        for source in self._sources.values():  # DuckDB tells only the text of their errors
            if source.failure is not None:
                failure, source.failure = source.failure, None
                raise failure
        if isinstance(error, OSError | pa.ArrowException):  # of a stream: with the text of DuckDB's
            error = duckdb.Error(str(error))
        if isinstance(error, duckdb.Error):
            columns = {f.name: f.opened.type for s in self._schemas.values() for f in s.fields}
            raise engine.explained(error, self._statement.tables, columns) from error
        raise error

    def _check_end(self) -> None:
        if self._is_ended:
            raise _EndedError

    def _interrupt(self) -> None:
        self._is_ended = True
        with suppress(duckdb.ConnectionException):  # of a process that ends
            self._cursor.interrupt()

    def end(self) -> None:
        """End the statement, whatever it does; remove what is in scratch."""
        self._interrupt()
        self._thread.shutdown(wait=True)
        self._cursor.close()
        self._sources.clear()
        self._verified.close()

    def _check_limits(self) -> None:
        """Refuse a statement that takes too long, or that who runs it ends.
        Raises LimitExceededError: it does.
        """
        if self._waited_ms > self._limits.timeout_seconds * 1000:
            raise LimitExceededError(
                f"the statement took longer than {self._limits.timeout_seconds:g} seconds",
                hint="ask for less at once, or give it more time",
            )
        now_ms = self._clock.now_ms()
        if self._watch is not None and now_ms - self._watched_ms >= WATCH_MS:
            self._watched_ms = now_ms
            self._watch(self._tables.reads)


def conform_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a batch, by position, in the types of a schema."""
    if batch.schema.equals(schema):
        return batch
    pairs = zip(batch.columns, schema, strict=True)
    columns = [_conformed(column, each.type) for column, each in pairs]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _conformed(column: Array, kind: pa.DataType) -> Array:
    if column.type.equals(kind, check_metadata=True):
        return column
    # only the name of the zone differs, and what casts takes long to import
    return column.view(kind) if pa.types.is_timestamp(kind) else column.cast(kind)
