"""`dormouse query`: rows by key or key range, to a person, a pipe or a file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import pyarrow as pa
import typer

from dormouse.client import TableHandle
from dormouse.client.keys import KeyLike, Ranges
from dormouse_cli.arguments import parse_columns, parse_keys
from dormouse_cli.row_output import Writer, table_of_rows, write_csv, write_json, write_parquet
from dormouse_cli.session import table_of
from dormouse_cli.terminal import note, notes, results

ROWS_SHOWN = 50

RowKeys = list[str] | None


class RowFormat(StrEnum):
    """How rows are written."""

    table = "table"
    json = "json"
    csv = "csv"
    parquet = "parquet"


WRITERS: dict[RowFormat, Writer] = {
    RowFormat.json: write_json,
    RowFormat.csv: write_csv,
    RowFormat.parquet: write_parquet,
}


ExactOption = Annotated[
    RowKeys,
    typer.Option(metavar="KEY=VALUE", help="Rows of this key; repeat for more of its parts."),
]
FromOption = Annotated[
    RowKeys, typer.Option("--from", metavar="KEY=VALUE,…", help="Rows from this key on.")
]
ToOption = Annotated[
    RowKeys, typer.Option("--to", metavar="KEY=VALUE,…", help="Rows before this key.")
]
ColumnsOption = Annotated[list[str] | None, typer.Option(metavar="A,B", help="Just these columns.")]
LimitOption = Annotated[
    int | None,
    typer.Option(metavar="N", min=0, help=f"The most rows; by default a table shows {ROWS_SHOWN}."),
]
FormatOption = Annotated[
    RowFormat | None, typer.Option("--format", help="By default as --output ends, else a table.")
]
OutputOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write there, not to standard output.")
]


def query(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The table's name.")],
    exact: ExactOption = None,
    start: FromOption = None,
    end: ToOption = None,
    columns: ColumnsOption = None,
    limit: LimitOption = None,
    count: Annotated[bool, typer.Option("--count", help="Just count the rows.")] = False,
    form: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Find rows by key or key range, sorted by the keys.

    The first several row keys are enough: --exact carrier=AA finds all rows of that carrier. Ranges
    are half-open: --from carrier=AA,flight=10 --to carrier=B6 finds AA from flight 10 on, and
    all carriers between AA and B6. Timestamps and dates are ISO 8601, bytes base64.

    JSON is an object a line: timestamps and dates ISO 8601, bytes base64, decimals text, floats
    which are not finite the texts NaN, Infinity and -Infinity.
    """
    chosen = form or _format_of(output)
    if exact and (start or end):
        raise typer.BadParameter("--exact does not go with --from and --to")
    if count and (columns or limit is not None or form or output):
        raise typer.BadParameter("--count goes with --exact, --from and --to alone")
    if chosen is RowFormat.parquet and output is None:
        raise typer.BadParameter("--format parquet needs --output")
    if chosen is RowFormat.table and output is not None:
        raise typer.BadParameter("--output needs --format json, csv or parquet")
    handle = table_of(ctx, name)
    ranges, key = _wanted(handle, exact, start, end)
    if count:
        typer.echo(handle.count(ranges, exact=key))
        return
    names = parse_columns(columns or [], handle.schema)
    began = time.monotonic()
    shown = _shown(chosen, limit)
    found = handle.query_result(ranges, exact=key, columns=names, limit=shown)
    if chosen is RowFormat.table:
        rows = _print_table(found.reader, limit)
    else:
        with _sink(output) as sink:
            rows = WRITERS[chosen](found.reader, sink)
    _tell(rows, found.shards_opened, began)


def _shown(form: RowFormat, limit: int | None) -> int | None:
    """Give the rows to ask for: a table without a limit wants to know whether there are more."""
    return ROWS_SHOWN + 1 if form is RowFormat.table and limit is None else limit


def _wanted(
    handle: TableHandle, exact: RowKeys, start: RowKeys, end: RowKeys
) -> tuple[Ranges | None, KeyLike | None]:
    low, high, key = (
        parse_keys(given, handle.schema) if given else None for given in (start, end, exact)
    )
    return ([(low, high)] if low or high else None), key


def _format_of(output: Path | None) -> RowFormat:
    suffix = output.suffix.removeprefix(".") if output else ""
    suffix = {"jsonl": "json", "ndjson": "json"}.get(suffix, suffix)
    return RowFormat(suffix) if suffix in RowFormat.__members__ else RowFormat.table


def _print_table(found: pa.RecordBatchReader, limit: int | None) -> int:
    table, rows, more = table_of_rows(found, ROWS_SHOWN if limit is None else limit)
    results().print(table)
    if more:
        note(f"the first {rows} rows; --limit N shows more")
    return rows


def _tell(rows: int, shards: int, began: float) -> None:
    """Tell a person, but no log file, what the query took."""
    if notes().is_terminal:
        seconds = time.monotonic() - began
        note(f"{rows:,} rows from {shards:,} shards in {seconds:.2f} s")


@contextmanager
def _sink(output: Path | None) -> Iterator[BinaryIO]:
    """Give where rows go; a file appears under its name only when it is whole."""
    if output is None:
        yield typer.get_binary_stream("stdout")
        return
    partial = output.with_name(f".{output.name}.partial")
    try:
        with partial.open("wb") as sink:
            yield sink
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
