"""`dormouse status`, `partitions`, `shards`, `files`: what a version of a table consists of."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated

import typer

from dormouse.client.table import TableHandle
from dormouse.errors import CorruptDataError
from dormouse.state.versions import AsOf, parse_as_of
from dormouse_cli.errors import end_if_damaged
from dormouse_cli.listings import ListFormat, print_facts, print_items, print_listing, row_of
from dormouse_cli.session import instance_of, table_of
from dormouse_cli.values import AnyTableName, AsOfOption, ListFormatOption, TableName


def status(ctx: typer.Context, name: TableName, form: ListFormatOption = ListFormat.table) -> None:
    """Show a table in numbers: rows, bytes, shards, partitions, version, what is pending."""
    print_facts(asdict(table_of(ctx, name).status()), form)


_PARTITION = ("partition", "range", "leaf", "depth", "rows", "shards")
_SHARD = ("shard", "rows", "live_rows", "size_bytes", "min_key", "max_key", "partitions", "jobs")
_FILE = ("uri", "size_bytes", "rows", "live_rows")


def partitions(
    ctx: typer.Context,
    name: TableName,
    everything: Annotated[
        bool, typer.Option("--all", help="Also partitions that were split and hold no rows now.")
    ] = False,
    as_of: AsOfOption = None,
    form: ListFormatOption = ListFormat.table,
) -> None:
    """List a table's partitions in key order, with the ranges that `query --range` takes."""
    parts = table_of(ctx, name).partitions(everything=everything, as_of=_version(as_of))
    print_items(_PARTITION, parts, form, partition="id", leaf="is_leaf")


def shards(
    ctx: typer.Context,
    name: TableName,
    as_of: AsOfOption = None,
    form: ListFormatOption = ListFormat.table,
) -> None:
    """List a table's shards by their first key, with the keys that `query --key` takes.

    live_rows are those of its rows that were not compacted into other shards yet.
    """
    items = table_of(ctx, name).shards(as_of=_version(as_of))
    print_items(_SHARD, items, form, shard="id", min_key="first", max_key="last")


def row_tags(
    ctx: typer.Context,
    name: TableName,
    as_of: AsOfOption = None,
    form: ListFormatOption = ListFormat.table,
) -> None:
    """List which row tags rows of a table have, and how many rows have just these.

    Rows get them when they are ingested; `tags` lists those of versions.
    """
    print_items(("tags", "rows"), table_of(ctx, name).row_tags(as_of=_version(as_of)), form)


def files(
    ctx: typer.Context,
    name: TableName,
    as_of: AsOfOption = None,
    form: ListFormatOption = ListFormat.table,
) -> None:
    """List a table's Parquet files as URIs, by their first key.

    A reader of the files alone sees all rows, live_rows of which are rows of the table.
    """
    items = table_of(ctx, name).files(as_of=_version(as_of))
    print_listing(_FILE, [row_of((*_FILE, "shard"), each) for each in items], form)


def _version(text: str | None) -> AsOf | None:
    return None if text is None else parse_as_of(text)


# `dormouse metrics`: the values that the dashboard shows over time, as they are now.


def metrics(
    ctx: typer.Context, name: AnyTableName = None, form: ListFormatOption = ListFormat.table
) -> None:
    """Show the metrics that each table publishes every minute.

    The row of a table that cannot be read says why; then the exit code is 1.
    """
    if name is not None:
        print_facts(_row(table_of(ctx, name)), form)
        return
    tables, entries = instance_of(ctx).list_readable()
    rows: list[Mapping[str, object]] = []
    damaged: list[CorruptDataError] = list(entries)
    for table in tables:
        try:
            rows.append(_row(table))
        except CorruptDataError as error:
            rows.append({"table": table.name, "damaged": str(error)})
            damaged.append(error)
    names = {table.name for table in tables}
    rows += [
        {"table": error.what, "damaged": str(error)}
        for error in entries
        if (error.name or error.table_id) and error.name not in names
    ]
    columns = dict.fromkeys(name for row in rows for name in row) or ["table"]
    print_listing(list(columns), [{**dict.fromkeys(columns), **r} for r in rows], form)
    end_if_damaged(damaged)


def _row(table: TableHandle) -> dict[str, object]:
    levels = {
        measure.name.lower(): value if value % 1 else int(value)
        for measure, value in table.metrics().items()
    }
    return {"table": table.name, **levels}
