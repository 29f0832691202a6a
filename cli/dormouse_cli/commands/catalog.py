"""`dormouse iceberg serve`: the published tables as a REST catalog, at a port of this machine."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from dormouse.iceberg.rest import BASE
from dormouse_cli.local.signals import interruptible, run_command
from dormouse_cli.session import instance_of
from dormouse_cli.terminal import note
from dormouse_cli.values import PortOption

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
        if command:
            environment = {**os.environ, **dict.fromkeys(URI_VARIABLES, uri)}
            raise typer.Exit(run_command(command, environment))
        with interruptible() as interruptions:
            print(uri, flush=True)
            note("serving; Ctrl-C ends it")
            interruptions.get()
