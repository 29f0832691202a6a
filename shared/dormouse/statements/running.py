"""Run a statement: find its tables, let DuckDB plan and compute it, watch it, end it.

DuckDB reads the tables by calling back (`source`), and computes in a thread of its own, so that
the caller can end it: when its time is over, when what watches it says so, on Ctrl-C, and when the
result is closed. Where a scan reads most of a large table from files of this machine, the statement
starts again with verified files in place of that table (`files`): DuckDB reads these in parallel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import duckdb
import pyarrow as pa

from dormouse.arrow.types import arrow_schema, frame_schema
from dormouse.errors import LimitExceededError
from dormouse.query.result import QueryResult
from dormouse.schema.schema import Schema
from dormouse.statements import engine
from dormouse.statements.explaining import EXPLANATION, reading
from dormouse.statements.files import linked_files
from dormouse.statements.limits import WATCH_MS, Limits, Watch
from dormouse.statements.parameters import checked_parameters
from dormouse.statements.shortcuts import answer_from_state, first_rows
from dormouse.statements.source import TableSource
from dormouse.statements.statement import Statement, parse_statement
from dormouse.statements.tables import Scan, Tables
from dormouse.system import SystemClock

_LOOK_SECONDS = 0.05
"""How often who waits for rows looks whether the statement should end."""
BATCH_ROWS = 65_536
_T = TypeVar("_T")


def run_statement(
    tables: Tables,
    text: str,
    parameters: Mapping[str, object],
    scratch: Path,
    limits: Limits,
    watch: Watch | None = None,
) -> QueryResult:
    """Return the rows of a statement, which are computed while they are taken; `watch` may end it.

    Raises:
        DormouseError: it cannot be planned, or takes too much.
    """
    database = engine.database(scratch, limits.memory_bytes)
    with database.connection.cursor() as parser:
        statement = parse_statement(text, parser)
    values = checked_parameters(statement, parameters)
    schemas = {each.name: tables.find(each) for each in statement.references}
    known = None
    if not statement.explains:
        known = answer_from_state(tables, statement, schemas, parameters)
    if known is not None:
        return tables.result(known.schema, [known])
    tables = replace(tables, first=first_rows(statement, schemas, parameters))
    running = _Running(tables, statement, values, schemas, database, limits, watch)
    try:
        if statement.explains:
            rows = running.explained()
            running.end()
            return tables.result(EXPLANATION, [rows])
        schema, batches = running.results()
    except BaseException:
        running.end()
        raise
    return tables.result(schema, batches)


class _ReadFiles(Exception):  # noqa: N818  # no error: the statement starts again
    """A reference is better read from files, which are verified now."""

    def __init__(self, name: str, sql: str) -> None:
        super().__init__(name)
        self.name, self.sql = name, sql


class _Running:
    """One statement while it runs."""

    def __init__(
        self,
        tables: Tables,
        statement: Statement,
        parameters: dict[str, object],
        schemas: Mapping[str, Schema],
        database: engine.Database,
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
        self._estimate = 0
        self._held = ExitStack()
        self._thread = ThreadPoolExecutor(1, "statement")
        self._clock = SystemClock()
        self._waited_ms = 0
        self._watched_ms = self._clock.now_ms()
        self._lock = threading.Lock()
        self._anew: _ReadFiles | None = None
        self._has_begun = False

    def results(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Wait for the first rows; return their schema and all rows."""
        while True:
            try:
                reader, schema = self._waited(self._begin)
                return schema, self._batches(reader, schema)
            except _ReadFiles as found:
                self._files[found.name] = found.sql
                self._anew = None

    def explained(self) -> pa.RecordBatch:
        """Return what would be read for each table, and DuckDB's plan; no row is read."""
        plan = self._waited(self._plan)
        rows = []
        for name, source in self._sources.items():
            scan = source.offered(self._statement.names)
            rows.append(reading(self._tables, name, scan).row(scan))
        rows.append({"step": "physical plan", "plan": plan})
        return pa.RecordBatch.from_pylist(rows, EXPLANATION)

    def _plan(self) -> str:
        for name, schema in self._schemas.items():
            self._register(name, schema)
        found = self._cursor.sql(
            f"EXPLAIN {self._statement.sql}", params=self._parameters or None
        ).fetchall()
        text = str(found[0][1])
        for each in self._statement.references:
            text = text.replace(each.name, each.table)
        return text

    def _begin(self) -> tuple[pa.RecordBatchReader, pa.Schema]:
        for name, schema in self._schemas.items():
            self._register(name, schema)
        tables = {each.name: each.table for each in self._statement.references}
        found, types = engine.plan(self._cursor, self._statement.sql, self._parameters, tables)
        reader = found.to_arrow_reader(BATCH_ROWS)
        with self._lock:
            if self._anew is not None:
                raise self._anew
            self._has_begun = True
        return reader, engine.result_schema(reader.schema, types)

    def _register(self, name: str, schema: Schema) -> None:
        def rows(scan: Scan) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
            return self._rows(name, scan)

        with suppress(duckdb.Error):
            self._cursor.unregister(name)
        if name in self._files:
            self._cursor.register(name, self._cursor.sql(self._files[name]))
            return
        source = TableSource(schema, frame_schema(arrow_schema(schema)), rows)
        self._sources[name] = source
        self._cursor.register(name, source)

    def _rows(self, name: str, scan: Scan) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the rows of a scan; called by threads of DuckDB.

        Raises:
            _ReadFiles: files are better.
        """
        with self._lock:
            if name not in self._streamed:
                most = self._limits.read_bytes
                self._estimate += self._tables.check_reads(name, scan, most, self._estimate)
                files = self._linked(name, scan)
                if files is not None:
                    self._anew = _ReadFiles(name, files)
                    raise self._anew
                self._streamed.add(name)
        return self._tables.rows(name, scan)

    def _linked(self, name: str, scan: Scan) -> str | None:
        """Return what reads files in place of a reference; None once rows were handed out: a part
        of a UNION may begin that late.
        """
        if self._has_begun:
            return None
        return linked_files(self._tables, name, scan, self._database.files, self._held)

    def _batches(self, reader: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            while (batch := self._waited(lambda: _next(reader))) is not None:
                yield conform_columns(batch, schema)
        finally:
            self._interrupt()
            with suppress(Exception):  # of the statement that nobody wants any more
                reader.close()
            self.end()

    def _waited(self, step: Callable[[], _T]) -> _T:
        """Return what a step returns, which DuckDB takes in its own thread; end it if it should.

        Raises:
            DormouseError: it failed, or was ended.
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
            self._interrupt()
            future.exception()  # it ends soon: it looks for the interruption between chunks of rows
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
            names = {each.name: each.table for each in self._statement.references}
            columns = dict.fromkeys(f.name for s in self._schemas.values() for f in s.fields)
            raise engine.explained(error, names, columns) from error
        raise error

    def _interrupt(self) -> None:
        with suppress(duckdb.ConnectionException):  # of a process that ends
            self._cursor.interrupt()

    def end(self) -> None:
        """End the statement, whatever it does; remove what is in scratch."""
        self._interrupt()
        self._thread.shutdown(wait=True)
        self._cursor.close()
        self._sources.clear()
        self._held.close()

    def _check_limits(self) -> None:
        """Refuse a statement that takes too long, or that who runs it ends.

        Raises:
            LimitExceededError: it does.
        """
        if self._waited_ms > self._limits.timeout_seconds * 1000:
            raise LimitExceededError(
                f"the statement took longer than {self._limits.timeout_seconds:g} seconds",
                hint="ask for less at once, or give it more time",
            )
        now_ms = self._clock.now_ms()
        if self._watch is not None and now_ms - self._watched_ms >= WATCH_MS:
            self._watched_ms = now_ms
            self._watch(self._tables.read_so_far())


def _next(reader: pa.RecordBatchReader) -> pa.RecordBatch | None:
    try:
        return reader.read_next_batch()
    except StopIteration:
        return None


def conform_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a batch, by position, in the types of a schema."""
    if batch.schema.equals(schema):
        return batch
    columns = [
        column if column.type.equals(each.type, check_metadata=True) else column.cast(each.type)
        for column, each in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
