"""The process that computes a statement; `fork_server` begins it.

It has two open files: a socket for messages, and a pipe for results. It has no credentials, and no
code that would use any. It is killed if it needs too much.
"""

from __future__ import annotations

import os
import resource
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

import msgspec
import pyarrow as pa
from datafusion import DataFrame, SessionContext

from dormouse.arrow.types import arrow_schema, frame_schema
from dormouse.errors import DormouseError, InvalidRequestError, InvariantError
from dormouse.schema.schema import Schema
from dormouse.sql.exact.rewriting import exact_sql
from dormouse.sql.statements import Statement, parse_statement
from dormouse.statements import protocol
from dormouse.statements.child.cuts import CutPlanner, cut
from dormouse.statements.child.datasets import TableDataset
from dormouse.statements.child.planning import ROWS_ALONE, FileUse, ScanPlan, file_use, plan_scans
from dormouse.statements.child.session import (
    explained,
    is_panic,
    open_session,
    plan,
    register,
    register_files,
    result_schema,
    without_views,
)

_Parameters: TypeAlias = "dict[str, pa.Scalar[Any]]"
_Answer = TypeVar("_Answer", bound=protocol.Message)


class _Child:
    """One run of one statement."""

    def __init__(self, channel: socket.socket, results: int, run: protocol.Run) -> None:
        self._channel, self._results, self._run = channel, results, run
        self._lock = threading.Lock()  # scans are opened by threads of DataFusion
        self._context = self._session()
        self._schemas: dict[str, Schema] = {}
        self._scans: dict[str, protocol.Scan] = {}
        self._has_begun = False

    def run(self) -> None:
        """Run the statement, and write its results.

        Raises:
            DormouseError: it cannot be run.
        """
        statement = parse_statement(self._run.text)
        parameters = _parameters(self._run.parameters, statement)
        self._find_tables(statement)
        try:
            if self._run.cut_ms:
                self._cut(statement, parameters)
                return
            sql = self._exact(statement.sql, parameters)
            frame = self._planned(sql, parameters, explains=statement.explains)
            if statement.explains:
                self._explain(frame)
            else:
                names = self._names(statement.sql, parameters) if sql != statement.sql else []
                self._write(frame, names or frame.schema().names)
        except DormouseError:
            raise
        except BrokenPipeError:  # nobody wants the rest
            return
        except BaseException as error:  # DataFusion has no class of errors of its own
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            columns = [f.name for schema in self._schemas.values() for f in schema.fields]
            known = dict.fromkeys(columns)
            raise explained(error, known, of_rows=self._has_begun) from error

    def _find_tables(self, statement: Statement) -> None:
        asked = tuple(
            protocol.Named(each.name, each.table, each.as_of, each.line, each.column)
            for each in statement.references
        )
        found = self._ask(protocol.FindTables(asked), protocol.Tables) if asked else None
        for name, schema in found.schemas.items() if found else ():
            self._schemas[name] = Schema.from_json(schema, is_part=True)
            register(self._context, name, self._dataset(name), fenced=False)

    def _exact(self, sql: str, parameters: _Parameters) -> str:
        """Return the statement as DataFusion understands it as it is meant."""
        return exact_sql(sql, self._schemas, {n: _value(v) for n, v in parameters.items()})

    def _names(self, sql: str, parameters: _Parameters) -> list[str]:
        """Return the names that columns have by the words of the statement, if DataFusion
        understands them.
        """
        try:
            return plan(self._context, sql, parameters).schema().names
        except Exception:  # DataFusion has no class of errors; it may refuse what `exact` mends
            return []

    def _planned(self, sql: str, parameters: _Parameters, *, explains: bool) -> DataFrame:
        """Return the frame of the statement, once its scans are known."""
        frame, fenced = self._find_scans(sql, parameters)
        found = {} if explains else self._find_files()
        if not found:
            return frame
        no_nan = {name: files.no_nan for name, files in found.items()}
        use = file_use(frame.optimized_logical_plan(), self._schemas, no_nan)
        self._reopen({name: files.folder for name, files in found.items()}, fenced, use)
        return plan(self._context, sql, parameters)

    def _find_scans(self, sql: str, parameters: _Parameters) -> tuple[DataFrame, frozenset[str]]:
        """Keep what the scans of a text need; return its frame, and the references with fences."""
        fenced: frozenset[str] = frozenset()
        while True:
            frame = plan(self._context, sql, parameters)
            found: ScanPlan = plan_scans(frame.optimized_logical_plan(), self._schemas, fenced)
            if not found.to_fence:
                self._scans = dict(found.scans)
                return frame, fenced
            fenced |= found.to_fence
            for name in found.to_fence:
                register(self._context, name, self._dataset(name), fenced=True)

    def _cut(self, statement: Statement, parameters: _Parameters) -> None:
        """Write the parts of the statement, as a row with their JSON form."""

        def where(sql: str, name: str) -> str:
            self._find_scans(self._exact(sql, parameters), parameters)
            return self._scans[name].where

        names = self._names(statement.sql, parameters)
        exact = partial(self._exact, parameters=parameters)
        planner = CutPlanner(self._context, parameters, self._schemas, where, exact)
        found = cut(planner, statement, names, self._run.cut_ms)
        text = msgspec.json.encode(found).decode()
        self._write_rows(pa.RecordBatch.from_pydict({"cut": [text]}))

    def _find_files(self) -> Mapping[str, protocol.LinkedFiles]:
        """Return the files of scans that can read them themselves."""
        scans = tuple(
            protocol.ScanRows(name, scan) for name, scan in self._scans.items() if scan.reads_all
        )
        return self._ask(protocol.FindFiles(scans), protocol.Files).found if scans else {}

    def _reopen(self, folders: Mapping[str, str], fenced: frozenset[str], use: FileUse) -> None:
        """Begin another session, in which scans read files."""
        self._context = self._session(use)
        for name, schema in self._schemas.items():
            if name in folders:
                register_files(self._context, name, folders[name], schema, use)
            else:
                register(self._context, name, self._dataset(name), fenced=name in fenced)

    def _session(self, use: FileUse = ROWS_ALONE) -> SessionContext:
        run = self._run
        return open_session(run.scratch, run.memory_bytes, run.threads, use)

    def _dataset(self, name: str) -> TableDataset:
        schema = frame_schema(arrow_schema(self._schemas[name]))
        return TableDataset(schema, partial(self._rows, name))

    def _rows(self, name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a scan, while the other process reads them."""
        scan = msgspec.structs.replace(self._scans[name], columns=tuple(columns))
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as source:
            with self._lock:
                protocol.send(self._channel, protocol.ScanRows(name, scan), [writing])
            os.close(writing)
            with pa.ipc.open_stream(source) as rows:
                yield from rows

    def _write(self, frame: DataFrame, names: Sequence[str]) -> None:
        schema = without_views(result_schema(self._context, frame))
        schema = pa.schema([f.with_name(n) for f, n in zip(schema, names, strict=True)])
        with os.fdopen(self._results, "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            sink.flush()
            self._has_begun = True
            for batch in frame.execute_stream():
                writer.write_batch(_conformed(batch.to_pyarrow(), schema))
                sink.flush()

    def _explain(self, frame: DataFrame) -> None:
        names = [name for name, scan in self._scans.items()]
        scans = tuple(protocol.ScanRows(name, self._scans[name]) for name in names)
        found = self._ask(protocol.Explain(scans), protocol.Explained)
        logical = frame.optimized_logical_plan().display_indent()
        physical = frame.execution_plan().display_indent()
        rows = [
            {"step": f"read {each.table}", "plan": _shown(scan.scan, each), **_facts(each)}
            for scan, each in zip(scans, found.readings, strict=True)
        ]
        rows += [{"step": "logical plan", "plan": logical}]
        rows += [{"step": "physical plan", "plan": physical}]
        self._write_rows(pa.RecordBatch.from_pylist(rows, EXPLANATION))

    def _write_rows(self, batch: pa.RecordBatch) -> None:
        with os.fdopen(self._results, "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as rows:
            rows.write_batch(batch)

    def _ask(self, message: protocol.Message, kind: type[_Answer]) -> _Answer:
        with self._lock:
            protocol.send(self._channel, message)
            answer = protocol.receive(self._channel)
        if answer is None or not isinstance(answer[0], kind):
            raise InvariantError("the other process does not answer")
        return answer[0]


_FACTS = ("version", "partitions", "shards", "row_groups", "requests", "bytes")
EXPLANATION = pa.schema(
    [(name, pa.string()) for name in ("step", "plan")] + [(name, pa.int64()) for name in _FACTS]
)
"""The columns of the rows that EXPLAIN returns."""


def _facts(reading: protocol.Reading) -> dict[str, int]:
    return {name: getattr(reading, name) for name in _FACTS}


def _shown(scan: protocol.Scan, reading: protocol.Reading) -> str:
    lines = [f"columns: {', '.join(scan.columns) or 'none, just the number of rows'}"]
    lines += [f"ranges: {' '.join(reading.ranges)}"]
    lines += [f"condition: {scan.where}"] if scan.where else []
    order = "from the end of the key order" if scan.from_end else "in key order"
    lines += [f"limit: {scan.limit}, {order}"] if scan.limit is not None else []
    if scan.first is not None:
        direction = "descending" if scan.first.descending else "ascending"
        lines += [f"the first {scan.first.rows} by {scan.first.column}, {direction}"]
    lines += ["only the least and the greatest first row key"] if scan.ends else []
    return "\n".join(lines)


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with exactly this schema: DataFusion may differ in what can be null, and has
    views of texts.
    """
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _value(parameter: pa.Scalar[Any]) -> object:
    """Return a parameter that is a number or a text as a value of Python, others as None."""
    kind = parameter.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return parameter.as_py() if is_number or pa.types.is_string(kind) else None


def _parameters(stream: bytes, statement: Statement) -> dict[str, pa.Scalar[Any]]:
    """Return the values of the parameters by name.

    Raises:
        InvalidRequestError: the statement names others.
    """
    values: dict[str, pa.Scalar[Any]] = {}
    if stream:
        table = pa.ipc.open_stream(stream).read_all()
        values = {name: table.column(name)[0] for name in table.column_names}
    missing = [name for name in statement.parameters if name not in values]
    unknown = [name for name in values if name not in statement.parameters]
    if missing or unknown:
        problem = f"has no value for ${missing[0]}" if missing else f"has no ${unknown[0]}"
        raise InvalidRequestError(
            f"the statement {problem}", hint="give each of its parameters one value"
        )
    return values


def main(messages: int, results: int) -> None:
    """Run the statement that comes first on the channel; say how it ended."""
    channel = socket.socket(fileno=messages)
    begun = protocol.receive(channel)
    if begun is None or not isinstance(begun[0], protocol.Run):
        return
    run = begun[0]
    # SIGXCPU says why it ends; where both limits are the same, the kernel sends SIGKILL
    resource.setrlimit(resource.RLIMIT_CPU, (run.cpu_seconds, run.cpu_seconds + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(run.scratch)
    os.putenv("TMPDIR", run.scratch)
    try:
        _Child(channel, results, run).run()
        outcome: protocol.Message = protocol.Finished()
    except DormouseError as error:
        outcome = protocol.Failed(type(error).__name__, str(error), error.hint)
    protocol.send(channel, outcome)
