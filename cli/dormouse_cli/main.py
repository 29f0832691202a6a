"""The `dormouse` command. Its verbs are in `verbs`; each is imported when it is run."""

import signal
import threading
from types import FrameType
from typing import Annotated, Any

import typer

from dormouse import __version__
from dormouse_cli.commands.verbs import VERBS, commands
from dormouse_cli.errors import EXIT_CODES, Commands, TerminatedError
from dormouse_cli.session import Session


class _Dormouse(Commands):
    """All commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands.update(commands(VERBS))


app = typer.Typer(
    cls=_Dormouse,
    epilog=EXIT_CODES,
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"dormouse {__version__}")
        raise typer.Exit


@app.callback()
def choose_instance(
    ctx: typer.Context,
    instance: Annotated[
        str | None,
        typer.Option(
            "--instance",
            metavar="NAME|FOLDER",
            help="The instance: a folder, such as ./mice, or the name of a deployment or of a "
            "profile; by default $DORMOUSE_INSTANCE.",
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Tables on S3 or in a folder: drop files in, find rows by key."""
    if instance is not None or ctx.obj is None:
        ctx.obj = Session(instance)


def _end(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does: what was begun is handed back. Another SIGTERM ends the process."""
    signal.signal(number, signal.SIG_DFL)
    raise TerminatedError


def main() -> None:
    """Run the command line."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)
    app(prog_name="dormouse")


if __name__ == "__main__":
    main()
