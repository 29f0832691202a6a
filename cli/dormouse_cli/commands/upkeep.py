"""`dormouse compact, split, gc`: what happens by itself, asked for now."""

from __future__ import annotations

from typing import Annotated

import typer

from dormouse.client.waiting import WAIT_SECONDS
from dormouse_cli.commands.ingest import wait_for
from dormouse_cli.session import instance_of, table_of
from dormouse_cli.terminal import counted, note
from dormouse_cli.values import (
    JobPropertyOption,
    SparkOption,
    TableName,
    TimeoutOption,
    parse_spark,
)

WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until nothing is pending.")]


def compact(
    ctx: typer.Context,
    name: TableName,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Merge all that each leaf holds, whatever the strategy says."),
    ] = False,
    spark: SparkOption = False,
    properties: JobPropertyOption = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = WAIT_SECONDS,
) -> None:
    """Begin the compactions of a table that are due now, or merge all of each leaf partition.

    It works on tables that are offline too. A leaf of very many shards is merged in several goes:
    ask again until nothing is begun. If the table has iceberg=on, --all also rewrites lone shards
    that old readers read slowly, or whose rows are partly dead.
    """
    asked = parse_spark(spark, properties)
    begun = instance_of(ctx).compact(name, everything=everything, spark=asked)
    note(f"{counted(begun, 'compaction')} of table {name} started")
    if wait:
        wait_for(table_of(ctx, name), timeout)


def split(
    ctx: typer.Context,
    name: TableName,
    partition: Annotated[
        str, typer.Argument(metavar="[PARTITION]", help="A leaf; by default all that are due.")
    ] = "",
    forced: Annotated[bool, typer.Option("--forced", help="Also those with few rows.")] = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = WAIT_SECONDS,
) -> None:
    """Split the leaf partitions of a table that have too many rows now, or one of them.

    It works on tables that are offline too. A leaf whose rows all share one key stays whole.
    """
    begun = instance_of(ctx).split(name, partition, forced=forced)
    note(f"{counted(begun, 'split')} of table {name} started")
    if wait:
        wait_for(table_of(ctx, name), timeout)


def collect(ctx: typer.Context, name: TableName) -> None:
    """Delete the shards of a table that nothing needs any more and whose delay is over."""
    shards = instance_of(ctx).collect_garbage(name)
    note(f"{counted(shards, 'shard')} of table {name} will be deleted in a moment")
