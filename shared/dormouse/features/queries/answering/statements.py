"""Sub-queries of a statement in SQL: the whole, a partial statement, or the final one."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from dormouse.access.rules import Permission
from dormouse.access.visible import VisibleTable
from dormouse.arrow.types import arrow_schema, conform, frame_schema
from dormouse.errors import LimitExceededError
from dormouse.features.queries.limits import Spent, statement_limits
from dormouse.features.queries.opening import statement_tables
from dormouse.features.queries.query import (
    PARTIAL_FORMAT,
    Query,
    TaskEnd,
    all_columns,
    all_versions,
)
from dormouse.features.queries.stored import load_pieces, load_task_ends
from dormouse.model.part_of_state import part_of_state
from dormouse.ports.services import Services
from dormouse.query.result import PeekableBatches, QueryResult
from dormouse.readers.read_counters import CountedObjects, ReadCounters
from dormouse.schema.schema import Schema
from dormouse.sql.cut.statement_cut import StatementCut
from dormouse.stored.query_paths import query_prefix

if TYPE_CHECKING:
    from dormouse.statements.limits import Watch
    from dormouse.statements.partials import Partials
    from dormouse.statements.scans import Tables

_WITH_SPARK = (
    "ask for less, or let Spark run it: spark.read.format('dormouse').option('table', …).load() "
    "reads a table, createOrReplaceTempView names it, and spark.sql runs the statement"
)


def statement_rows(
    services: Services,
    query: Query,
    task: int,
    before: Spent,
    read: dict[str, set[str]],
    watch: Watch,
) -> QueryResult:
    """Return the rows of a sub-query of a statement; add the columns that it reads to `read`, by
    the ids of tables. `watch` may end it while it is computed.

    Raises:
        LimitExceededError: it needs too much; at the latest, that is known when rows are taken.
    """
    reason = query.statement.whole_because if query.statement is not None else ""
    with _naming_spark(reason):
        found = _opened(services, query, task, before, read, watch)
    batches = PeekableBatches(_naming_spark_in(found.batches, reason))
    return replace(found, batches=batches)


def _opened(
    services: Services,
    query: Query,
    task: int,
    before: Spent,
    read: dict[str, set[str]],
    watch: Watch,
) -> QueryResult:
    from dormouse.statements.answering import run_statement

    limits, asked = statement_limits(services, query), query.asked
    if query.read is None or query.statement is None:
        tables = statement_tables(services, query, read)
        return run_statement(tables, asked.sql, asked.parameters, services.scratch, limits, watch)
    cut = query.statement
    if task == query.final_task:
        text, names, schema = cut.final, cut.final_names, _result_schema(cut)
        ends = load_task_ends(services.results, query.id, range(query.tasks - 1))
        read |= {table_id: set(columns) for table_id, columns in all_columns(ends).items()}
        source: Tables | Partials = _partials(services, query, cut, ends)
    else:
        limit = "" if cut.limit is None else f" LIMIT {max(0, cut.limit - before.rows)}"
        text, names = cut.partial + limit, cut.partial_names
        schema = _partial_schema(cut) if cut.final else _result_schema(cut)
        source = _piece(services, query, task, read)
    values = {name: asked.parameters[name] for name in names}
    found = run_statement(source, text, values, services.scratch, limits, watch)
    return _as(found, schema)


def _piece(services: Services, query: Query, task: int, noted: dict[str, set[str]]) -> Tables:
    """Return the part of its table that a partial statement reads, as who asked could see it."""
    from dormouse.statements.scans import Tables

    read = query.read
    assert read is not None
    hidden = {field.name for field in read.schema.fields} - set(read.selection.columns)
    visible = VisibleTable.of(read.table, Permission(frozenset({"read"}), frozenset(hidden)))
    state = part_of_state(load_pieces(services.results, query, task), read.selection.version)
    return Tables(services, lambda _name, _as_of: (visible, state), query.begun_ms, noted)


def _partials(
    services: Services, query: Query, cut: StatementCut, ends: Sequence[TaskEnd]
) -> Partials:
    """Return what the partial statements wrote, in the order of the pieces."""
    from dormouse.results.formats import ResultFormat
    from dormouse.results.reading import read_rows
    from dormouse.statements.partials import Partials

    reads = ReadCounters()
    schema = Schema.from_json(cut.columns, is_part=True)
    objects = CountedObjects(services.results, reads)

    def rows() -> Iterator[pa.RecordBatch]:
        for file in (file for end in ends for file in end.files):
            path = query_prefix(query.id) + file.name
            stored = arrow_schema(schema)
            form = ResultFormat(PARTIAL_FORMAT)
            yield from read_rows(objects, form, stored, path, file.size_bytes, file.rows)

    return Partials(schema, rows, reads, all_versions(ends))


def _partial_schema(cut: StatementCut) -> pa.Schema:
    return frame_schema(arrow_schema(Schema.from_json(cut.columns, is_part=True)))


def _result_schema(cut: StatementCut) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(cut.schema)))


def _as(found: QueryResult, schema: pa.Schema) -> QueryResult:
    """Return rows with exactly this schema: parts may differ in what can be null."""

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for batch in found.batches:
                yield conform(batch, schema)
        finally:
            found.close()

    return replace(found, schema=schema, batches=PeekableBatches(batches()))


def _naming_spark_in(batches: PeekableBatches, reason: str) -> Iterator[pa.RecordBatch]:
    try:
        with _naming_spark(reason):
            yield from batches
    finally:
        batches.close()


@contextmanager
def _naming_spark(reason: str) -> Iterator[None]:
    """Say what else to do about a statement that exceeds the limits of one process."""
    try:
        yield
    except LimitExceededError as error:
        whole = f"it is computed in one process, because {reason}: " if reason else ""
        raise LimitExceededError(str(error), hint=whole + _WITH_SPARK) from error
