"""`dormouse query, sql, changes, why, queries`: rows of tables, to a person, a pipe or a file."""

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Annotated, Literal, TypeAlias, get_args

import pyarrow as pa
import typer

from dormouse.client.instance import Instance
from dormouse.client.versions import is_delete
from dormouse.client.waiting import WAIT_SECONDS
from dormouse.errors import DormouseError, NotFoundError
from dormouse.files.results import Cells, ResultFormat, json_cells, json_text
from dormouse.files.results import write_rows as write_stream
from dormouse.key_codec import KeyCodec, show_part
from dormouse.query.result import QueryResult
from dormouse.query.rows import limited
from dormouse.state.jobs import DAMAGED, JobRecord
from dormouse.state.versions import parse_as_of
from dormouse.statements.limits import MEMORY_BYTES, TIMEOUT_SECONDS
from dormouse_cli import values
from dormouse_cli.commands.contents import records_of
from dormouse_cli.errors import print_error
from dormouse_cli.session import queries_beginning, table_named, the_instance
from dormouse_cli.terminal import (
    counted,
    note,
    notes,
    print_facts,
    print_listing,
    print_table,
    progress_bars,
    row_of,
    sink_of,
)

ROWS_SHOWN = 50


RowFormat: TypeAlias = Literal["table", "json", "csv", "arrow", "feather", "parquet"]
"""How rows are written."""
_OF_ENDING: dict[str, RowFormat] = {each: each for each in get_args(RowFormat)}
_OF_ENDING |= {"jsonl": "json", "ndjson": "json"}

KeyOption = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="KEY=VALUE,…", help="Rows of this key or prefix; repeatable."),
]
RangeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--range",
        metavar="KEY=VALUE,…..KEY=VALUE,…",
        help="Rows from one key up to, not including, another; repeatable.",
    ),
]
WhereOption = Annotated[
    str | None, typer.Option(metavar="SQL", help="Only rows for which this condition is true.")
]
ExplainOption = Annotated[
    bool, typer.Option("--explain", help="Show no rows, but what is read for them.")
]
ColumnsOption = Annotated[list[str] | None, typer.Option(metavar="A,B", help="Only these columns.")]
LimitOption = Annotated[
    int | None,
    typer.Option(metavar="N", min=0, help=f"The most rows; by default a table shows {ROWS_SHOWN}."),
]
RemoteOption = Annotated[
    bool,
    typer.Option(
        "--remote",
        help="Let the instance read the rows: a message asks it, and its result is read back.",
    ),
]
RowFormatOption = Annotated[
    RowFormat | None,
    typer.Option("--format", help="By default by the ending of --output, else a table."),
]
OutputOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write there, not to standard output.")
]


def query(
    name: values.TableName,
    key: KeyOption = None,
    key_range: RangeOption = None,
    where: WhereOption = None,
    columns: ColumnsOption = None,
    limit: LimitOption = None,
    as_of: values.AsOfOption = None,
    count: Annotated[bool, typer.Option("--count", help="Only count the rows.")] = False,
    explain: ExplainOption = False,
    remote: RemoteOption = False,
    timeout: values.TimeoutOption = WAIT_SECONDS,
    form: RowFormatOption = None,
    output: OutputOption = None,
) -> None:
    """Find rows by key, key range and condition, sorted by the keys.

    The first row keys are enough: --key carrier=AA finds all rows of that carrier. Sort keys can
    follow all row keys. Write a comma in a value as \\, if a name and = come after it, and
    a backslash that ends a value before such a comma as \\\\.
    Ranges are half-open, and may be open at an end: --range carrier=AA,flight=10..carrier=B6 finds
    AA from flight 10 on, and all carriers between AA and B6. Timestamps and dates are ISO 8601,
    bytes base64. Conditions are SQL: --where "delay > 60 AND dest IN ('JFK', 'LGA')".

    JSON has one object a line, with decimals as text, and NaN, Infinity and -Infinity as text.
    """
    if count and (columns or limit is not None or form or output or explain):
        raise typer.BadParameter("--count goes with --key, --range, --where and --as-of alone")
    if remote and (count or explain):
        raise typer.BadParameter("--remote goes with neither --count nor --explain")
    row_format = format_for(form, output, explain=explain)
    handle = table_named(name)
    ranges, exact = (
        values.parse_ranges(key_range, handle.schema),
        values.parse_keys(key, handle.schema) or None,
    )
    version = None if as_of is None else parse_as_of(as_of)
    if count:
        typer.echo(handle.count(ranges, exact=exact, where=where, as_of=version))
        return
    began = time.monotonic()
    result = handle.query(
        ranges,
        exact=exact,
        where=where,
        columns=values.parse_columns(columns or [], handle.schema),
        limit=limit if explain else _shown(row_format, limit),
        as_of=version,
        run="remote" if remote else "here",
        timeout_seconds=timeout,
    )
    if explain:
        _explain(result, row_format)
        return
    write_rows(result, row_format, limit, output, began)


def changes(
    name: values.TableName,
    since: Annotated[
        str, typer.Option("--since", metavar="VERSION|TAG|TIME", help="Rows ingested after it.")
    ],
    where: WhereOption = None,
    columns: ColumnsOption = None,
    limit: LimitOption = None,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Also rows that were deleted since: see _change.")
    ] = False,
    before: Annotated[
        bool,
        typer.Option(
            "--before",
            help="In a table that keeps the latest rows, also each row before its change.",
        ),
    ] = False,
    form: RowFormatOption = None,
    output: OutputOption = None,
) -> None:
    """Show the rows that were ingested since a version, as ingest wrote them; of a table that keeps
    the latest rows, those that changed.

    Compactions in between change nothing. The version to ask for next is shown at the end. Changes
    are kept for gc_delay_seconds of the table.
    """
    row_format = format_for(form, output)
    handle, began = table_named(name), time.monotonic()
    result = handle.changes(
        parse_as_of(since),
        where=where,
        columns=values.parse_columns(columns or [], handle.schema),
        limit=_shown(row_format, limit),
        deleted=deleted,
        before=before,
    )
    write_rows(result, row_format, limit, output, began)
    note(f"these are the changes of table {name} up to version {result.version}")


def write_rows(
    result: QueryResult, form: RowFormat, limit: int | None, output: Path | None, began: float
) -> None:
    """Write the rows of a result, and say what that took."""
    if form == "table":
        rows = _print_table(result.reader, limit)
    else:
        with sink_of(output) as sink, _watched(_first(result.reader, limit), output) as reader:
            rows = write_stream(ResultFormat(form), reader, reader.schema, sink)
    _tell(rows, len(result.reads.shards), began)


def format_for(form: RowFormat | None, output: Path | None, *, explain: bool = False) -> RowFormat:
    """Return the format that was said, or that the file's name means; without both, a table.
    Raises BadParameter: it does not fit where rows go.
    """
    suffix = output.suffix.removeprefix(".") if output else ""
    chosen = form or _OF_ENDING.get(suffix, "table")
    if explain and (output is not None or chosen not in ("table", "json")):
        raise typer.BadParameter("--explain shows no rows: it goes with --format table or json")
    if chosen in ("parquet", "feather") and output is None:
        raise typer.BadParameter(f"--format {chosen} needs --output")
    if chosen == "table" and output is not None:
        raise typer.BadParameter("--output needs --format json, csv, arrow, feather or parquet")
    return chosen


def why(
    name: values.TableName,
    key: Annotated[
        str, typer.Option("--key", metavar="KEY=VALUE,…", help="The key of the rows, or a prefix.")
    ],
    as_of: values.AsOfOption = None,
    form: values.FormatOption = "table",
) -> None:
    """Tell where the rows of a key come from: file, line, commit, and each shard since.

    File and commit are known of rows that were ingested with the property row_origin=on; of others,
    the files that may have them. The exit code is 3 if there is no such row.
    """
    handle = table_named(name)
    version = None if as_of is None else parse_as_of(as_of)
    codec = KeyCodec(handle.schema)
    origins = handle.why(codec.from_assignments(key), as_of=version)
    if not origins:
        raise NotFoundError(f"table {name!r} has no row of that key")
    for number, each in enumerate(origins):
        facts = asdict(each)
        if form == "json":
            print_facts(facts, form)
            continue
        keys, steps, shards = facts.pop("key"), facts.pop("steps"), facts.pop("shards")
        files = facts.pop("files")
        parts = zip(handle.schema.keys, codec.from_python(keys), strict=True)
        keys = {field.name: show_part(part, field.type) for field, part in parts}
        facts = {**keys, **facts, "shard": " ".join(shards)}
        facts |= {"possible files": ", ".join(files)} if files else {}
        for n, step in enumerate(steps, start=1):
            of = f"merged from {' '.join(step['made_of'])}" if step["made_of"] else "from files"
            facts[f"step {n}"] = f"{step['shard']}: job {step['job']}, {step['written']}, {of}"
        if number:
            typer.echo()
        print_facts(facts, form)


def _explain(result: QueryResult, form: RowFormat) -> None:
    """Read all rows without printing any, and print what was read for them."""
    rows = sum(batch.num_rows for batch in result)
    facts: dict[str, object] = {
        "version": result.version,
        "shards_opened": len(result.reads.shards),
        "row_groups": result.reads.row_groups,
        "requests": result.reads.requests,
        "bytes": result.reads.size_bytes,
        "scans": result.reads.scans,
        "rows": rows,
    }
    print_facts(facts, "json" if form == "json" else "table")


def _shown(form: RowFormat, limit: int | None) -> int | None:
    """Return the rows to ask for: a table without a limit wants to know whether there are more."""
    return ROWS_SHOWN + 1 if form == "table" and limit is None else limit


def _print_table(reader: pa.RecordBatchReader, limit: int | None) -> int:
    most = ROWS_SHOWN if limit is None else limit
    rows: list[Cells] = []
    for batch in limited(reader, most + 1):
        rows += zip(*(json_cells(column) for column in batch.columns), strict=True)
    print_table(reader.schema.names, rows[:most], json_text)
    if len(rows) > most:
        note(f"the first {counted(most, 'row')}; --limit N shows more")
    return min(len(rows), most)


def _tell(rows: int, shards: int, began: float) -> None:
    """Print for people, but into no log file, what the query took."""
    if notes().is_terminal:
        seconds = time.monotonic() - began
        where = f" from {counted(shards, 'shard')}" if shards else ""
        note(f"{counted(rows, 'row')}{where} in {seconds:.2f} s")


def _first(reader: pa.RecordBatchReader, limit: int | None) -> pa.RecordBatchReader:
    """Return at most `limit` rows of a stream, and read on no further than these need."""
    if limit is None:
        return reader
    return pa.RecordBatchReader.from_batches(reader.schema, limited(reader, limit))


@contextmanager
def _watched(reader: pa.RecordBatchReader, output: Path | None) -> Iterator[pa.RecordBatchReader]:
    """Yield the rows; show on a terminal how many were written, unless they go there."""
    if output is None:
        yield reader
        return
    with progress_bars() as progress:
        task = progress.add_task("rows written", total=None)

        def passed() -> Iterator[pa.RecordBatch]:
            for batch in reader:
                yield batch
                progress.advance(task, batch.num_rows)

        yield pa.RecordBatchReader.from_batches(reader.schema, passed())


_QUERY_COLUMNS = (
    "state",
    "query",
    "table",
    "who",
    "parts_done",
    "parts",
    "rows",
    "bytes_read",
    "requests",
    "started",
    "seconds",
    "reason",
)

QueryId = Annotated[
    str, typer.Argument(metavar="ID", help="A query's id.", autocompletion=queries_beginning)
]


def list_queries(
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Only what has not ended.")
    ] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Only what failed.")] = False,
    form: values.ListFormatOption = "table",
) -> None:
    """Show the queries over messages of the last seven days, the newest first.

    Parts are the sub-queries of a query; bytes and requests are those that read shards. A query
    whose message still waits in the queue is not among them.
    """
    matches = records_of(the_instance().queries(), unfinished=unfinished, failed=failed)
    print_listing(_QUERY_COLUMNS, [_query_row(record) for record in matches], form)
    if any(record.state == DAMAGED for record in matches):
        raise typer.Exit(1)


def show(query_id: QueryId, form: values.FormatOption = "table") -> None:
    """Show one query: its progress and, once it has ended, the files of its result."""
    query = the_instance().asked(query_id)
    record = query.record()
    facts = _query_row(record)
    if record.state == "finished":
        end = query.end()
        facts |= {
            "format": end.format,
            "versions": dict(end.versions),
            "result_bytes": end.size_bytes,
            "function_seconds": round(end.function_milliseconds / 1000, 1),
            "files": [file.name for file in end.files],
            "where": query.uri,
        }
    print_facts(facts, form)


def result(
    query_id: QueryId,
    limit: LimitOption = None,
    form: RowFormatOption = None,
    output: OutputOption = None,
    timeout: values.TimeoutOption = WAIT_SECONDS,
) -> None:
    """Wait for a query, and show or write the rows of its result, in any format."""
    row_format = format_for(form, output)
    began = time.monotonic()
    rows = the_instance().asked(query_id).result(timeout)
    write_rows(rows, row_format, limit, output, began)


def cancel(query_id: QueryId, timeout: values.TimeoutOption = WAIT_SECONDS) -> None:
    """Cancel a query that has not ended; it has no result then.

    Only the caller that asked it can, and one that administers all tables by an access rule.
    """
    query = the_instance().asked(query_id)
    if query.progress() is not None:
        query.cancel()
        query.polling.until_ended(query.progress, timeout_seconds=timeout)
    state = query.record().state
    note(f"query {query_id} {'was cancelled' if state == 'cancelled' else f'is {state} already'}")


def _query_row(record: JobRecord) -> dict[str, object]:
    names = {"query": "job_id", "table": "subject", "bytes_read": "size_bytes"}
    return row_of((*_QUERY_COLUMNS, "finished"), record, **names)


MIB = 1024 * 1024
MemoryOption = Annotated[
    int, typer.Option(metavar="MIB", help="What it may use before it spills to disk.")
]
SparkSqlOption = Annotated[
    bool,
    typer.Option("--spark", help="Let Spark compute what is too large here, in Spark's dialect."),
]


def sql(
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="[SQL]", help="The query; by default standard input, or a shell on a terminal."
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param", metavar="NAME=VALUE", help="The value of :NAME, as text; repeatable."
        ),
    ] = None,
    limit: LimitOption = None,
    form: RowFormatOption = None,
    output: OutputOption = None,
    memory: MemoryOption = MEMORY_BYTES // MIB,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long it may take in all.")
    ] = TIMEOUT_SECONDS,
    remote: RemoteOption = False,
    spark: SparkSqlOption = False,
    properties: values.JobPropertyOption = None,
    force: values.ForceOption = False,
) -> None:
    """Run a query in SQL over tables; or DELETE FROM a table, which asks first.

    Names of tables are case-sensitive. FROM flights FOR VERSION AS OF 33 reads a
    version, FOR VERSION AS OF 'name' a tag, FOR VERSION AS OF '2026-01-31T12:00:00Z' what was
    there at a time. EXPLAIN before the query shows what would be read, and reads no rows.
    """
    row_format = format_for(form, output)
    instance = the_instance()
    parameters = values.parse_parameters(param or [])

    def run(query: str) -> None:
        began = time.monotonic()
        if is_delete(query) and not force:
            _confirm(instance, query)
        result = instance.sql(
            query,
            parameters,
            memory_bytes=memory * MIB,
            timeout_seconds=timeout,
            run="remote" if remote else "here",
            spark=values.parse_spark(spark, properties),
        )
        with closing(result):
            if row_format == "table" and result.schema.names[:2] == ["step", "plan"]:
                _print_explanation(result)
            else:
                write_rows(result, row_format, limit, output, began)

    if text is not None or not sys.stdin.isatty():
        run(sys.stdin.read() if text is None else text)
        return
    shell = Shell(instance, run)
    with line_editing(shell, history_file()):
        shell.loop()


def _confirm(instance: Instance, statement: str) -> None:
    """Ask whether the rows may be deleted that a DELETE names."""
    from dormouse.features.delete_rows import parse_delete
    from dormouse_cli.commands.purge import confirm_deletion

    name, where = parse_delete(statement)
    confirm_deletion(instance.table(name), where)


def _print_explanation(result: QueryResult) -> None:
    """Print what would be read, and how it would be computed, as text."""
    for row in result.to_arrow().to_pylist():
        facts = [f"{name} {value:,}" for name, value in list(row.items())[2:] if value is not None]
        typer.echo(f"{row['step']}{': ' if facts else ''}{', '.join(facts)}")
        typer.echo("".join(f"  {line}\n" for line in row["plan"].splitlines()))


PROMPT, CONTINUED = "dormouse> ", "     ...> "
MAX_HISTORY = 1_000
HELP = r"""End a statement with a semicolon; it may have several lines. Ctrl-C drops or stops one.
\d         tables
\d NAME    the columns of a table
\q         leave, as Ctrl-D does"""
_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
        AND AS ASC BETWEEN BY CASE CAST COUNT DESC DISTINCT ELSE END EXCEPT EXPLAIN FROM
        GROUP HAVING IN INTERSECT IS JOIN LEFT LIKE LIMIT NOT NULL ON OR ORDER OVER
        PARTITION SELECT THEN UNION VERSION WHEN WHERE WITH
        """,
    )
)


@dataclass(slots=True)
class Shell:
    """A shell; `run` runs a statement and prints its rows, `read` returns a line for a prompt."""

    instance: Instance
    run: Callable[[str], None]
    read: Callable[[str], str] = input
    _words: list[str] = field(default_factory=list)

    def loop(self) -> None:
        """Read and run until the end of the input."""
        typer.echo(r"\? is help, \q leaves")
        lines: list[str] = []
        while True:
            try:
                line = self.read(CONTINUED if lines else PROMPT)
            except EOFError:
                typer.echo()
                return
            except KeyboardInterrupt:  # what was typed so far is dropped
                typer.echo()
                lines.clear()
                continue
            if not lines and line.strip().startswith("\\"):
                if line.split()[0] == "\\q":
                    return
                self._guarded(self._command, line)
                continue
            lines.append(line)
            if line.rstrip().endswith(";"):
                self._guarded(self.run, "\n".join(lines))
                lines.clear()
            elif not "".join(lines).strip():
                lines.clear()

    def words(self) -> list[str]:
        """Return what can be completed: keywords, tables, and their columns."""
        if not self._words:
            tables = self.instance.list_readable()[0]
            names = {table.name for table in tables}
            names |= {field.name for table in tables for field in table.schema.fields}
            self._words = sorted({*names, *_KEYWORDS})
        return self._words

    def complete(self, prefix: str, number: int) -> str | None:
        """Return one of the words that begin so; keywords in either case."""
        try:
            words = self.words()
        except DormouseError:
            return None
        upper = prefix.upper()
        candidates = [word for word in words if word.startswith(prefix)]
        candidates += sorted(w for w in _KEYWORDS if w.startswith(upper) and w not in candidates)
        return candidates[number] if number < len(candidates) else None

    def _guarded(self, run: Callable[[str], None], text: str) -> None:
        """Run something; an error or Ctrl-C ends it, and not the shell."""
        try:
            run(text)
        except DormouseError as error:
            print_error(error)
        except (KeyboardInterrupt, typer.Abort):
            note("stopped")

    def _command(self, line: str) -> None:
        command, *names = line.split()
        if command == "\\d" and names:
            for name in names:
                described = self.instance.table(name.rstrip(";")).schema.described()
                print_table(values.COLUMNS, described)
        elif command == "\\d":
            self._words.clear()  # there may be others since
            tables = self.instance.tables()
            print_table(("table", "columns"), [(t.name, len(t.schema.fields)) for t in tables])
        else:
            typer.echo(HELP)


@contextmanager
def line_editing(shell: Shell, history: Path) -> Iterator[None]:
    """Add history and completion to a terminal, where Python has readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    _prepare(readline, shell, history)
    try:
        yield
    finally:
        try:
            history.parent.mkdir(parents=True, exist_ok=True)
            history.touch(mode=0o600)  # statements may have values of rows
            readline.write_history_file(str(history))
        except OSError as error:
            note(f"the history is not kept: {error.strerror or error}")


def _prepare(readline: ModuleType, shell: Shell, history: Path) -> None:
    readline.set_completer(shell.complete)
    readline.set_completer_delims(" \t\n\"'(),;=<>*+-/%.")
    readline.parse_and_bind("tab: complete")
    readline.set_history_length(MAX_HISTORY)
    if history.is_file():
        readline.read_history_file(str(history))


def history_file() -> Path:
    """Return where statements are remembered."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "dormouse" / "sql_history"
