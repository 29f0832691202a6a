"""`dormouse iceberg`: what is published for readers of Iceberg, and a REST catalog of it."""

from functools import partial
from typing import Annotated

import typer

from dormouse.client.iceberg import holds
from dormouse.iceberg.rest import BASE
from dormouse_cli.listings import ListFormat, print_listing
from dormouse_cli.local import signals
from dormouse_cli.session import instance_of, table_of
from dormouse_cli.terminal import note
from dormouse_cli.values import ListFormatOption, PortOption, TableName


def show(ctx: typer.Context, name: TableName, form: ListFormatOption = ListFormat.table) -> None:
    """Show what readers of Iceberg find of a table, and a line to paste for each engine.

    The lines read the version that is published now, also when there are later ones.
    """
    facts = table_of(ctx, name).iceberg.show().facts
    rows = [{"what": what, "value": str(value)} for what, value in facts.items()]
    print_listing(("what", "value"), rows, form)


def publish(
    ctx: typer.Context,
    name: TableName,
    everything: Annotated[
        bool, typer.Option("--all", help="Publish all of it again, as if nothing were published.")
    ] = False,
) -> None:
    """Publish what is new in a table for readers of Iceberg at once.

    This happens by itself within about a minute of each change.
    """
    table_of(ctx, name).iceberg.publish(everything=everything)
    note(f"table {name} will be published in a moment")


def check(ctx: typer.Context, name: TableName) -> None:
    """Check that all objects are there that readers of Iceberg may open; exit 1 if not."""
    problems = table_of(ctx, name).iceberg.check()
    for problem in problems:
        typer.echo(problem)
    if problems:
        note(f"`dormouse iceberg publish {name} --all` publishes all of it again")
        raise typer.Exit(1)
    note(f"all that is published of table {name} is there")


def files(ctx: typer.Context, name: TableName, form: ListFormatOption = ListFormat.table) -> None:
    """List the files that readers of the newest published version open."""
    entries = table_of(ctx, name).iceberg.files()
    rows = [{"uri": each.uri, "holds": holds(each)} for each in entries]
    print_listing(("uri", "holds"), rows, form)


URI_VARIABLES = ("DORMOUSE_CATALOG_URI", "PYICEBERG_CATALOG__DORMOUSE__URI")
"""The variables that name the catalog to a command; by the second, PyIceberg knows it."""


def serve(
    ctx: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND]", help="Run this, with the catalog, and then end."),
    ] = None,
    port: PortOption = 0,
) -> None:
    """Serve the published tables as an Iceberg REST catalog to engines on this machine, until
    Ctrl-C.

    Prints the URI of the catalog, which no other machine can reach. Engines can only read. With a
    command, such as `-- python read.py`, the URI is in its variable DORMOUSE_CATALOG_URI, and
    PyIceberg finds the catalog as load_catalog("dormouse"); the exit code is the command's.
    """
    with instance_of(ctx).serve_catalog(port) as server:
        uri = f"{server.url}{BASE}"
        announce = partial(print, uri, flush=True)
        signals.serve(command, dict.fromkeys(URI_VARIABLES, uri), announce)
