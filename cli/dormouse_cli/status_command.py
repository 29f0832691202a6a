"""`dormouse status`: how a table stands."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from dormouse_cli.session import table_of
from dormouse_cli.terminal import Format, print_facts

FormatOption = Annotated[Format, typer.Option("--format", help="How to print it.")]


def status(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The table's name.")],
    form: FormatOption = Format.table,
) -> None:
    """Show a table in numbers: rows, shards, references, partitions, version, what is pending."""
    print_facts(asdict(table_of(ctx, name).status()), form)
