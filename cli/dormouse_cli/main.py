"""The `dormouse` command: its verbs, each from the module that has it."""

from __future__ import annotations

from typing import Annotated

import typer

from dormouse import __version__
from dormouse_cli import queue_commands, table_commands
from dormouse_cli.check_command import check
from dormouse_cli.errors import EXIT_CODES, Commands
from dormouse_cli.ingest_commands import ingest, wait_until_done
from dormouse_cli.jobs_command import jobs
from dormouse_cli.local import commands as local_commands
from dormouse_cli.metrics_command import metrics
from dormouse_cli.query_command import query
from dormouse_cli.rebuild_command import rebuild
from dormouse_cli.report_command import report
from dormouse_cli.session import Session
from dormouse_cli.status_command import status

app = typer.Typer(
    cls=Commands,
    epilog=EXIT_CODES,
    rich_markup_mode="markdown",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(table_commands.app, name="table")
app.command()(ingest)
app.command("wait")(wait_until_done)
app.command()(query)
app.command()(status)
app.command()(jobs)
app.command()(metrics)
app.command()(queue_commands.queues)
app.add_typer(queue_commands.app, name="dlq")
app.command()(check)
app.command()(rebuild)
app.command()(report)
app.add_typer(local_commands.app, name="local")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dormouse {__version__}")
        raise typer.Exit


@app.callback()
def choose_instance(
    ctx: typer.Context,
    instance: Annotated[
        str | None,
        typer.Option(
            "--instance", metavar="NAME", help="The instance; by default $DORMOUSE_INSTANCE."
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Tables on S3 that sleep until something happens: drop files in, find rows by key."""
    if instance is not None or ctx.obj is None:
        ctx.obj = Session(instance)


def main() -> None:
    """Run the command line."""
    app(prog_name="dormouse")
