"""`dormouse serve`: the API of an instance at a port of this machine."""

from __future__ import annotations

import os
import secrets
from functools import partial
from typing import Annotated

import typer

from dormouse_cli.local.signals import interruptible, run_command
from dormouse_cli.session import instance_of
from dormouse_cli.terminal import note

URI_VARIABLE, TOKEN_VARIABLE = "DORMOUSE_HTTP_API", "DORMOUSE_HTTP_TOKEN"
"""The variables that name the API and its token to programs."""


def serve(
    ctx: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND]", help="Run this, with the API, and then end."),
    ] = None,
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.", max=65535, min=0)] = 0,
    token: Annotated[
        str | None,
        typer.Option(envvar=TOKEN_VARIABLE, help="The token; by default a new one."),
    ] = None,
) -> None:
    """Serve the HTTP API of the instance to programs on this machine, until Ctrl-C.

    Prints its address and its token as variables to export; no other machine can reach it, and no
    program without the token. /openapi.json describes the API, and the console is its page for
    people. With a command, such as
    `-- python load.py`, the variables are the command's; the exit code is its, too.
    """
    from dormouse.console import console_uri, is_console, with_console
    from dormouse.features.http.door import guarded
    from dormouse.features.http.problems import refusal
    from dormouse.features.http.serve_http import serve_http
    from dormouse.features.websocket.upgrades import with_websocket
    from dormouse.http.loopback import LoopbackServer

    instance = instance_of(ctx, works=True)
    key = token or secrets.token_urlsafe(24)
    api = with_websocket(partial(serve_http, instance), instance)
    answer = guarded(with_console(api), key, is_open=is_console)
    with LoopbackServer(answer, port, refuse=refusal, streamed=("PUT",)) as server:
        found = {URI_VARIABLE: server.url, TOKEN_VARIABLE: key}
        if command:
            raise typer.Exit(run_command(command, {**os.environ, **found}))
        with interruptible() as interruptions:
            print(
                *(f"export {name}={value}" for name, value in found.items()), sep="\n", flush=True
            )
            note(f"console: {console_uri(server.url, key)}")
            note("serving; Ctrl-C ends it")
            interruptions.get()
