"""`dormouse metrics`: the numbers that a dashboard shows over time, as they are now."""

from __future__ import annotations

from typing import Annotated

import typer

from dormouse.client import TableHandle
from dormouse_cli.parameters import FormatOption
from dormouse_cli.session import instance_of, table_of, tables_beginning
from dormouse_cli.terminal import Format, print_facts, print_listing


def metrics(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="A table; by default all.", autocompletion=tables_beginning
        ),
    ] = None,
    form: FormatOption = Format.table,
) -> None:
    """Show how tables stand: what the metrics of the instance are told every minute."""
    if name is not None:
        print_facts(_row(table_of(ctx, name)), form)
        return
    rows = [_row(table) for table in instance_of(ctx).tables()]
    print_listing(list(rows[0]) if rows else ["table"], rows, form)


def _row(table: TableHandle) -> dict[str, object]:
    levels = {
        measure.name.lower(): value if value % 1 else int(value)
        for measure, value in table.levels().items()
    }
    return {"table": table.name, **levels}
