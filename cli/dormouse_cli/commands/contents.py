"""`dormouse partitions`, `shards` and `files`: what a version of a table consists of."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from dormouse.client import AsOf
from dormouse.model.versions.as_of import parse_as_of
from dormouse_cli.listings import ListFormat, print_listing
from dormouse_cli.session import table_of
from dormouse_cli.values.parameters import ListFormatOption, TableName

AsOfOption = Annotated[
    str | None,
    typer.Option("--as-of", metavar="VERSION|TIME", help="As the table was then; by default now."),
]
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
    found = table_of(ctx, name).partitions(everything=everything, as_of=_version(as_of))
    rows = [
        {
            "partition": each.id,
            "range": each.range,
            "leaf": each.is_leaf,
            "depth": each.depth,
            "rows": each.rows,
            "shards": each.shards,
        }
        for each in found
    ]
    print_listing(_PARTITION, rows, form)


def shards(
    ctx: typer.Context,
    name: TableName,
    as_of: AsOfOption = None,
    form: ListFormatOption = ListFormat.table,
) -> None:
    """List a table's shards by their first key, with the keys that `query --key` takes.

    Of their rows, those count that were not compacted into other shards already: live_rows.
    """
    rows = [
        {
            "shard": each.id,
            "rows": each.rows,
            "live_rows": each.live_rows,
            "size_bytes": each.size_bytes,
            "min_key": each.first,
            "max_key": each.last,
            "partitions": " ".join(each.partitions),
            "jobs": " ".join(each.jobs),
        }
        for each in table_of(ctx, name).shards(as_of=_version(as_of))
    ]
    print_listing(_SHARD, rows, form)


def files(
    ctx: typer.Context,
    name: TableName,
    as_of: AsOfOption = None,
    form: ListFormatOption = ListFormat.table,
) -> None:
    """List a table's Parquet files as URIs, by their first key.

    A reader of the files alone sees all rows, live_rows of which are rows of the table.
    """
    rows = [asdict(each) for each in table_of(ctx, name).files(as_of=_version(as_of))]
    print_listing(_FILE, rows, form)


def _version(text: str | None) -> AsOf | None:
    return None if text is None else parse_as_of(text)
