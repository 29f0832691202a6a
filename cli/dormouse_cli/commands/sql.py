"""`dormouse sql`: queries in SQL over the tables of an instance."""

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from dormouse.client.instance import Instance
from dormouse.client.versions import is_delete
from dormouse.errors import DormouseError
from dormouse.query.result import QueryResult
from dormouse.statements.limits import MEMORY_BYTES, TIMEOUT_SECONDS
from dormouse_cli.commands.query import (
    LimitOption,
    OutputOption,
    RemoteOption,
    RowFormat,
    RowFormatOption,
    format_for,
    write_rows,
)
from dormouse_cli.errors import print_error
from dormouse_cli.listings import ListFormat, print_listing
from dormouse_cli.session import instance_of
from dormouse_cli.terminal import note
from dormouse_cli.values import ForceOption, JobPropertyOption, parse_parameters, parse_spark

MIB = 1024 * 1024
MemoryOption = Annotated[
    int, typer.Option(metavar="MIB", help="What it may use before it spills to disk.")
]
SparkSqlOption = Annotated[
    bool,
    typer.Option("--spark", help="Let Spark compute what is too large here, in Spark's dialect."),
]


def sql(
    ctx: typer.Context,
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
    properties: JobPropertyOption = None,
    force: ForceOption = False,
) -> None:
    """Run a query in SQL over tables; or DELETE FROM a table, which asks first.

    Names of tables are case-sensitive. FROM flights FOR VERSION AS OF 33 reads a
    version, FOR VERSION AS OF 'name' a tag, FOR VERSION AS OF '2026-01-31T12:00:00Z' what was
    there at a time. EXPLAIN before the query shows what would be read, and reads no rows.
    """
    row_format = format_for(form, output)
    instance = instance_of(ctx)
    parameters = parse_parameters(param or [])

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
            spark=parse_spark(spark, properties),
        )
        with closing(result):
            if row_format is RowFormat.table and result.schema.names[:2] == ["step", "plan"]:
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


# The shell of `dormouse sql`: statements line by line, with history and completion.

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
                _print(("column", "type", "role"), described)
        elif command == "\\d":
            self._words.clear()  # there may be others since
            tables = self.instance.tables()
            _print(("table", "columns"), [(t.name, len(t.schema.fields)) for t in tables])
        else:
            typer.echo(HELP)


def _print(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    lines = [dict(zip(columns, row, strict=True)) for row in rows]
    print_listing(columns, lines, ListFormat.table)


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
