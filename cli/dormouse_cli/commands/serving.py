"""`dormouse serve, console, iceberg`: an instance for programs, browsers and engines."""

import os
import secrets
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from dormouse.errors import needs_extra
from dormouse_cli.local import signals
from dormouse_cli.session import table_named, the_instance, the_session
from dormouse_cli.terminal import note, print_listing
from dormouse_cli.values import ListFormatOption, PortOption, TableName

if TYPE_CHECKING:
    from dormouse.http.messages import Responder

URI_VARIABLE, TOKEN_VARIABLE = "DORMOUSE_HTTP_API", "DORMOUSE_HTTP_TOKEN"
"""The variables that name the API and its token to programs."""


CommandArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- COMMAND]", help="Run this while it serves, and then end."),
]


def serve(
    command: CommandArgument = None,
    port: PortOption = 0,
    token: Annotated[
        str | None, typer.Option(envvar=TOKEN_VARIABLE, help="The token; by default a new one.")
    ] = None,
) -> None:
    """Serve the HTTP API of the instance to programs on this machine, until Ctrl-C.

    Prints its address and its token as variables to export; no other machine can reach it, and no
    program without the token. /openapi.json describes the API, and the console is its page for
    people. With a command, such as `-- python load.py`, the variables are set for the command, and
    its exit code is passed on.
    """
    from dormouse.console import console_uri, is_console, with_console
    from dormouse.features.http.calls import guarded, refusal
    from dormouse.features.http.serve_http import serve_http
    from dormouse.http.loopback import LoopbackServer

    instance = the_instance(works=True)
    key = token or secrets.token_urlsafe(24)
    answer = guarded(with_console(partial(serve_http, instance)), key, is_open=is_console)
    with LoopbackServer(answer, port, refuse=refusal, streamed=("PUT",)) as server:
        exports = {URI_VARIABLE: server.url, TOKEN_VARIABLE: key}

        def announce() -> None:
            lines = (f"export {name}={value}" for name, value in exports.items())
            print(*lines, sep="\n", flush=True)
            note(f"console: {console_uri(server.url, key)}")

        signals.serve(command, exports, announce)


def console(
    api: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Where the HTTP API of a deployment is: the output ApiUri of its stack.",
        ),
    ] = "",
    port: PortOption = 0,
    opens: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
) -> None:
    """Open the console of the instance in a browser, and serve it until Ctrl-C.

    For an instance in a folder, this also works on the folder meanwhile, as `serve` does. For a
    deployment, requests of the page are signed with your AWS credentials and sent to its HTTP API:
    the page can do what you may do there. Nobody else on this machine, and no other page, can use
    it. On a local stack, the console of that stack is opened.
    """
    from dormouse.console import console_uri, is_console, with_console
    from dormouse.features.http.calls import guarded, refusal
    from dormouse.http.loopback import LoopbackServer

    uri, token = os.environ.get(URI_VARIABLE), os.environ.get(TOKEN_VARIABLE)
    if uri and token and not api:
        _show(console_uri(uri, token), opens)
        return
    (answer, streamed), key = _answer(api), secrets.token_urlsafe(24)
    door = guarded(with_console(answer), key, is_open=is_console)
    with LoopbackServer(door, port, refuse=refusal, streamed=streamed) as server:
        signals.serve(None, {}, lambda: _show(console_uri(server.url, key), opens))


def _answer(api: str) -> "tuple[Responder, tuple[str, ...]]":
    """Return what answers the requests of the page, and the methods whose bodies it reads as they
    arrive.
    """
    from dormouse.settings import Settings

    settings = Settings.from_environment(instance=the_session().name)
    if settings.folder is not None and not api:
        from dormouse.features.http.serve_http import serve_http

        return partial(serve_http, the_instance(works=True)), ("PUT",)
    with needs_extra("aws", "the console of a deployment"):
        from dormouse.aws.http_proxy import SigningProxy, api_uri
    return SigningProxy(api or api_uri(settings.instance)).answer, ()


def _show(uri: str, opens: bool) -> None:
    import webbrowser

    print(uri, flush=True)
    if opens and not webbrowser.open(uri):
        note("no browser could be opened: open the address yourself")


def show(name: TableName, form: ListFormatOption = "table") -> None:
    """Show what readers of Iceberg find of a table, and a line to paste for each engine.

    The lines read the version that is published now, also when there are later ones.
    """
    facts = table_named(name).iceberg.show().facts
    rows = [{"what": what, "value": str(value)} for what, value in facts.items()]
    print_listing(("what", "value"), rows, form)


def publish(
    name: TableName,
    everything: Annotated[
        bool, typer.Option("--all", help="Publish all of it again, as if nothing were published.")
    ] = False,
) -> None:
    """Publish what is new in a table for readers of Iceberg at once.

    This happens by itself within about a minute of each change.
    """
    table_named(name).iceberg.publish(everything=everything)
    note(f"table {name} will be published in a moment")


def check(name: TableName) -> None:
    """Check that all objects are there that readers of Iceberg may open; exit 1 if not."""
    problems = table_named(name).iceberg.check()
    for problem in problems:
        typer.echo(problem)
    if problems:
        note(f"`dormouse iceberg publish {name} --all` publishes all of it again")
        raise typer.Exit(1)
    note(f"all that is published of table {name} is there")


def files(name: TableName, form: ListFormatOption = "table") -> None:
    """List the files that readers of the newest published version open."""
    entries = table_named(name).iceberg.files()
    from dormouse.client.iceberg import holds

    rows = [{"uri": each.uri, "holds": holds(each)} for each in entries]
    print_listing(("uri", "holds"), rows, form)


URI_VARIABLES = ("DORMOUSE_CATALOG_URI", "PYICEBERG_CATALOG__DORMOUSE__URI")
"""The variables that name the catalog to a command; by the second, PyIceberg knows it."""


def serve_catalog(command: CommandArgument = None, port: PortOption = 0) -> None:
    """Serve the published tables as an Iceberg REST catalog to engines on this machine, until
    Ctrl-C.

    Prints the URI of the catalog, which no other machine can reach. Engines can only read. With a
    command, such as `-- python read.py`, the URI is in its variable DORMOUSE_CATALOG_URI, and
    PyIceberg finds the catalog as load_catalog("dormouse"); the exit code is the command's.
    """
    from dormouse.iceberg.rest import BASE

    with the_instance().serve_catalog(port) as server:
        uri = f"{server.url}{BASE}"
        announce = partial(print, uri, flush=True)
        signals.serve(command, dict.fromkeys(URI_VARIABLES, uri), announce)
