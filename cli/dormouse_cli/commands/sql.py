"""`dormouse sql`: queries in SQL over the tables of an instance."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from dormouse.query.result import QueryResult
from dormouse.statements.limits import MEMORY_BYTES, TIMEOUT_SECONDS
from dormouse_cli.commands.query import (
    FormatOption,
    LimitOption,
    OutputOption,
    RemoteOption,
    RowFormat,
    check_output,
    format_of,
    write_rows,
)
from dormouse_cli.commands.sql_shell import Shell, history_file, line_editing
from dormouse_cli.session import instance_of
from dormouse_cli.values import JobPropertyOption, parse_parameters, parse_spark

MIB = 1024 * 1024
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
    form: FormatOption = None,
    output: OutputOption = None,
    memory: Annotated[
        int, typer.Option(metavar="MIB", help="What it may use before it spills to disk.")
    ] = MEMORY_BYTES // MIB,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long it may take in all.")
    ] = TIMEOUT_SECONDS,
    remote: RemoteOption = False,
    spark: SparkSqlOption = False,
    properties: JobPropertyOption = None,
) -> None:
    """Run a query in SQL: SELECT with joins, groups, windows and sub-queries over tables.

    Names of tables are case-sensitive. FROM flights FOR VERSION AS OF 33 reads a
    version, FOR VERSION AS OF 'name' a tag, FOR VERSION AS OF '2026-01-31T12:00:00Z' what was
    there at a time. EXPLAIN before the query shows what would be read, and reads no rows.
    """
    row_format = form or format_of(output)
    check_output(row_format, output, explain=False)
    instance = instance_of(ctx)
    parameters = parse_parameters(param or [])

    def run(query: str) -> None:
        began = time.monotonic()
        result = instance.sql(
            query,
            parameters,
            memory_bytes=memory * MIB,
            timeout_seconds=timeout,
            run="remote" if remote else "here",
            spark=parse_spark(spark, properties),
        )
        try:
            _write(result, row_format, limit, output, began)
        finally:
            result.close()

    if text is not None or not sys.stdin.isatty():
        run(sys.stdin.read() if text is None else text)
        return
    shell = Shell(instance, run)
    with line_editing(shell, history_file()):
        shell.loop()


def _write(
    result: QueryResult, form: RowFormat, limit: int | None, output: Path | None, began: float
) -> None:
    if form is RowFormat.table and result.schema.names[:2] == ["step", "plan"]:
        _print_explanation(result)
    else:
        write_rows(result, form, limit, output, began)


def _print_explanation(result: QueryResult) -> None:
    """Print what would be read, and how it would be computed, as text."""
    for row in result.to_arrow().to_pylist():
        facts = [f"{name} {value:,}" for name, value in list(row.items())[2:] if value is not None]
        typer.echo(f"{row['step']}{': ' if facts else ''}{', '.join(facts)}")
        typer.echo("".join(f"  {line}\n" for line in row["plan"].splitlines()))
