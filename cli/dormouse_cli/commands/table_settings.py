"""`dormouse table rename, set, unset, reinitialise`: what changes a table and not its columns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dormouse.client import TableHandle
from dormouse.schema.schema import Schema
from dormouse.tables.table import property_sources
from dormouse_cli.commands.table import contents_of
from dormouse_cli.listings import Format, print_listing
from dormouse_cli.session import instance_of, table_of
from dormouse_cli.terminal import confirm, note, with_consent
from dormouse_cli.values.arguments import parse_properties, read_file
from dormouse_cli.values.parameters import (
    ForceOption,
    FormatOption,
    NewTableName,
    ReleaseTagsOption,
    TableName,
)
from dormouse_cli.values.property_output import PROPERTY_COLUMNS, property_rows
from dormouse_cli.values.split_points import Base64Option, parse_split_points

Settings = Annotated[
    list[str],
    typer.Argument(metavar="KEY=VALUE…", help="Properties; `dormouse table show NAME` lists all."),
]
Names = Annotated[list[str], typer.Argument(metavar="KEY…", help="Names of properties.")]


def rename(ctx: typer.Context, old: TableName, new: NewTableName) -> None:
    """Rename a table. Files are dropped for it under the new name from then on.

    Files dropped under the old name that no job has taken up yet are refused.
    """
    instance_of(ctx).rename_table(old, new)
    note(f"table {old} is called {new} now")


def set_properties(
    ctx: typer.Context,
    name: TableName,
    settings: Settings,
    force: ForceOption = False,
    form: FormatOption = Format.table,
) -> None:
    """Set properties of a table. They hold at once, for what begins from now on.

    Asks first if new filters or aggregations hide rows that the table has.
    """
    given = parse_properties(settings)
    instance = instance_of(ctx)
    with_consent(lambda yes: instance.set_properties(name, given, hide_rows=yes), force)
    _show_changed(ctx, table_of(ctx, name), [text.partition("=")[0] for text in settings], form)


def unset_properties(
    ctx: typer.Context,
    name: TableName,
    names: Names,
    force: ForceOption = False,
    form: FormatOption = Format.table,
) -> None:
    """Unset properties of a table: those of the instance hold again, or the defaults.

    Asks first if filters or aggregations of the instance hide rows that the table has.
    """
    instance = instance_of(ctx)
    with_consent(lambda yes: instance.set_properties(name, unset=names, hide_rows=yes), force)
    _show_changed(ctx, table_of(ctx, name), names, form)


def reinitialise(
    ctx: typer.Context,
    name: TableName,
    splits: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where its partitions meet then, as `table add` has it."),
    ] = None,
    base64: Base64Option = False,
    delete_partitions: Annotated[
        bool,
        typer.Option("--delete-partitions", help="Leave it a single partition, without --splits."),
    ] = False,
    schema: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The schema it has then, as JSON; ids in it are ignored."
        ),
    ] = None,
    force: ForceOption = False,
    release_tags: ReleaseTagsOption = False,
) -> None:
    """Empty a table: its rows are lost, its name and properties stay.

    Its partitions and schema stay, too, unless they are given by files, or the partitions are
    deleted. Files that were ingested can be ingested again; those dropped for it and not ingested
    yet are refused. Versions with a tag can still be read, unless the tags are released.
    """
    table = table_of(ctx, name)
    wanted = Schema.loads(read_file(schema)) if schema else None
    points = parse_split_points(read_file(splits), wanted or table.schema, base64) if splits else []
    replaces = delete_partitions or splits is not None  # by a file without any, too
    if not force:
        leaves = sum(1 for _ in table.state().partitions.leaves())
        fate = f"become {len(points) + 1:,}" if replaces else "stay"
        lost = f"{contents_of(table)} are lost; its {leaves:,} leaf partitions {fate}."
        lost += " It gets another schema." if wanted else ""
        confirm(f"Empty table {name}? {lost}")
    instance_of(ctx).reinitialise_table(
        name, points, delete_partitions=replaces, schema=wanted, release_tags=release_tags
    )
    note(f"table {name} is empty")


def _show_changed(ctx: typer.Context, table: TableHandle, names: list[str], form: Format) -> None:
    origins = property_sources(table.table.own, instance_of(ctx).defaults())
    rows = property_rows(table.table.properties, origins)
    print_listing(PROPERTY_COLUMNS, [row for row in rows if row["property"] in names], form)
