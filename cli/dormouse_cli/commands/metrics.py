"""`dormouse metrics`: the values that the dashboard shows over time, as they are now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from dormouse.client import TableHandle
from dormouse.errors import CorruptDataError
from dormouse_cli.errors import end_if_damaged
from dormouse_cli.listings import ListFormat, print_facts, print_listing
from dormouse_cli.session import instance_of, table_of, tables_beginning
from dormouse_cli.values.parameters import ListFormatOption


def metrics(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="A table; by default all.", autocompletion=tables_beginning
        ),
    ] = None,
    form: ListFormatOption = ListFormat.table,
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
    listed = {table.name for table in tables}
    rows += [
        {"table": error.what, "damaged": str(error)}
        for error in entries
        if (error.name or error.table_id) and error.name not in listed
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
