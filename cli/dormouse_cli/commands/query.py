"""`dormouse query, changes`: rows of a table, to a person, a pipe or a file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import pyarrow as pa
import typer

from dormouse.client.waiting import WAIT_SECONDS
from dormouse.errors import NotFoundError
from dormouse.files.results import Cells, ResultFormat, json_cells, json_text
from dormouse.files.results import write_rows as write_stream
from dormouse.key_codec import KeyCodec, KeyLike, Ranges
from dormouse.query.result import QueryResult
from dormouse.schema.schema import Schema
from dormouse.state.versions import parse_as_of
from dormouse_cli.listings import Format, print_facts, print_table
from dormouse_cli.session import table_of
from dormouse_cli.terminal import counted, note, notes, progress_bars
from dormouse_cli.values import AsOfOption, TableName, TimeoutOption, parse_columns

ROWS_SHOWN = 50


class RowFormat(StrEnum):
    """How rows are written."""

    table = "table"
    json = "json"
    csv = "csv"
    arrow = "arrow"
    feather = "feather"
    parquet = "parquet"


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
    bool,
    typer.Option(
        "--explain",
        help="Show no rows, but what is read for them.",
    ),
]
ColumnsOption = Annotated[list[str] | None, typer.Option(metavar="A,B", help="Just these columns.")]
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
FormatOption = Annotated[
    RowFormat | None,
    typer.Option("--format", help="By default by the ending of --output, else a table."),
]
OutputOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write there, not to standard output.")
]


def query(
    ctx: typer.Context,
    name: TableName,
    key: KeyOption = None,
    key_range: RangeOption = None,
    where: WhereOption = None,
    columns: ColumnsOption = None,
    limit: LimitOption = None,
    as_of: AsOfOption = None,
    count: Annotated[bool, typer.Option("--count", help="Just count the rows.")] = False,
    explain: ExplainOption = False,
    remote: RemoteOption = False,
    timeout: TimeoutOption = WAIT_SECONDS,
    form: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Find rows by key, key range and condition, sorted by the keys.

    The first several row keys are enough: --key carrier=AA finds all rows of that carrier. Sort
    keys can follow all row keys. Write a comma in a value as \\, if a name and = come after it, and
    a backslash that ends a value before such a comma as \\\\.
    Ranges are half-open, and may be open at an end: --range carrier=AA,flight=10..carrier=B6 finds
    AA from flight 10 on, and all carriers between AA and B6. Timestamps and dates are ISO 8601,
    bytes base64. Conditions are SQL: --where "delay > 60 AND dest IN ('JFK', 'LGA')".

    JSON has one object a line, with decimals as text, and NaN, Infinity and -Infinity as text.
    """
    row_format = form or format_of(output)
    if count and (columns or limit is not None or form or output or explain):
        raise typer.BadParameter("--count goes with --key, --range, --where and --as-of alone")
    if remote and (count or explain):
        raise typer.BadParameter("--remote goes with neither --count nor --explain")
    check_output(row_format, output, explain=explain)
    handle = table_of(ctx, name)
    ranges, exact = _keys(handle.schema, key, key_range)
    version = None if as_of is None else parse_as_of(as_of)
    if count:
        typer.echo(handle.count(ranges, exact=exact, where=where, as_of=version))
        return
    began = time.monotonic()
    result = handle.query(
        ranges,
        exact=exact,
        where=where,
        columns=parse_columns(columns or [], handle.schema),
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
    ctx: typer.Context,
    name: TableName,
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
            "--before", help="In a table that keeps the latest rows, also what changed rows were."
        ),
    ] = False,
    form: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Show the rows that were ingested since a version, as ingest wrote them; of a table that keeps
    the latest rows, those that changed.

    Compactions in between change nothing. The version to ask for next is shown at the end. Changes
    are kept for gc_delay_seconds of the table.
    """
    row_format = form or format_of(output)
    check_output(row_format, output, explain=False)
    handle, began = table_of(ctx, name), time.monotonic()
    result = handle.changes(
        parse_as_of(since),
        where=where,
        columns=parse_columns(columns or [], handle.schema),
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
    if form is RowFormat.table:
        rows = _print_table(result.reader, limit)
    else:
        with _sink(output) as sink, _watched(_first(result.reader, limit), output) as reader:
            rows = write_stream(ResultFormat(form), reader, reader.schema, sink)
    _tell(rows, len(result.reads.shards), began)


def check_output(form: RowFormat, output: Path | None, *, explain: bool) -> None:
    """Refuse a format that does not fit where rows go."""
    if explain and (output is not None or form not in (RowFormat.table, RowFormat.json)):
        raise typer.BadParameter("--explain shows no rows: it goes with --format table or json")
    if form in (RowFormat.parquet, RowFormat.feather) and output is None:
        raise typer.BadParameter(f"--format {form.value} needs --output")
    if form is RowFormat.table and output is not None:
        raise typer.BadParameter("--output needs --format json, csv, arrow, feather or parquet")


def _keys(
    schema: Schema, keys: list[str] | None, key_ranges: list[str] | None
) -> tuple[Ranges | None, list[KeyLike] | None]:
    """Return the ranges and the exact keys that were typed; None for none."""
    codec = KeyCodec(schema)
    ranges = [codec.range_from_assignments(text) for text in key_ranges or ()]
    exact: list[KeyLike] = [codec.from_assignments(text) for text in keys or ()]
    return ranges or None, exact or None


def why(
    ctx: typer.Context,
    name: TableName,
    key: Annotated[
        str, typer.Option("--key", metavar="KEY=VALUE,…", help="The key of the rows, or a prefix.")
    ],
    as_of: AsOfOption = None,
    form: Annotated[
        Format, typer.Option("--format", help="The form of the answer.")
    ] = Format.table,
) -> None:
    """Tell where the rows of a key come from: file, line, commit, and each shard since.

    File and commit are known of rows that were ingested with the property row_origin=on; of others,
    the files that may have them. The exit code is 3 if there is no such row.
    """
    handle = table_of(ctx, name)
    version = None if as_of is None else parse_as_of(as_of)
    origins = handle.why(KeyCodec(handle.schema).from_assignments(key), as_of=version)
    if not origins:
        raise NotFoundError(f"table {name!r} has no row of that key")
    for number, each in enumerate(origins):
        facts = asdict(each)
        if form is Format.json:
            print_facts(facts, form)
            continue
        keys, steps, shards = facts.pop("key"), facts.pop("steps"), facts.pop("shards")
        files = facts.pop("files")
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
    print_facts(facts, Format.json if form is RowFormat.json else Format.table)


def _shown(form: RowFormat, limit: int | None) -> int | None:
    """Return the rows to ask for: a table without a limit wants to know whether there are more."""
    return ROWS_SHOWN + 1 if form is RowFormat.table and limit is None else limit


def format_of(output: Path | None) -> RowFormat:
    """Return the format that a file's name means; without a file, a table."""
    suffix = output.suffix.removeprefix(".") if output else ""
    suffix = {"jsonl": "json", "ndjson": "json"}.get(suffix, suffix)
    return RowFormat(suffix) if suffix in RowFormat.__members__ else RowFormat.table


def _print_table(reader: pa.RecordBatchReader, limit: int | None) -> int:
    most = ROWS_SHOWN if limit is None else limit
    rows: list[Cells] = []
    for batch in reader:
        few = batch.slice(0, most + 1 - len(rows))
        rows += zip(*(json_cells(column) for column in few.columns), strict=True)
        if len(rows) > most:
            break
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


@contextmanager
def _sink(output: Path | None) -> Iterator[BinaryIO]:
    """Return where rows go; a file appears under its name only when it is whole."""
    if output is None:
        yield typer.get_binary_stream("stdout")
        return
    partial = output.with_name(f".{output.name}.partial")
    try:
        with partial.open("wb") as sink:
            yield sink
        partial.replace(output)
    except OSError as error:
        raise NotFoundError(
            f"cannot write {str(output)!r}: {error.strerror or error}",
            hint="name a file in a folder that is there, that you may write to, and that has room",
        ) from error
    finally:
        if partial.parent.is_dir():
            partial.unlink(missing_ok=True)


def _first(reader: pa.RecordBatchReader, limit: int | None) -> pa.RecordBatchReader:
    """Return at most `limit` rows of a stream, and read on no further than these need."""
    if limit is None:
        return reader

    def batches() -> Iterator[pa.RecordBatch]:
        remaining = limit
        while remaining and (batch := next(reader, None)) is not None:
            yield batch.slice(0, remaining)
            remaining -= min(remaining, batch.num_rows)

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


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
