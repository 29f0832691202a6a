"""`dormouse status`: the size of a table, and what is pending."""

from __future__ import annotations

from dataclasses import asdict

import typer

from dormouse_cli.listings import ListFormat, print_facts
from dormouse_cli.session import table_of
from dormouse_cli.values import ListFormatOption, TableName


def status(
    ctx: typer.Context,
    name: TableName,
    form: ListFormatOption = ListFormat.table,
) -> None:
    """Show a table in numbers: rows, bytes, shards, partitions, version, what is pending."""
    print_facts(asdict(table_of(ctx, name).status()), form)
