"""What commands say on the terminal: notes, questions, progress, lines of JSON.

`listings` prints lists. Rich is imported where something moves or is drawn: most commands need none
of it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from dormouse.errors import HiddenRowsError
from dormouse.showing import json_lines, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


def notes() -> "Console":
    """Return the console for notes and progress, on standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


@contextmanager
def progress_bars() -> "Iterator[Progress]":
    """Show progress bars on a terminal, and nothing elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = notes()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        yield progress


@contextmanager
def progress_of(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar; yield a function to call with the number done, and the number of all."""
    with progress_bars() as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)


def note(text: str) -> None:
    """Print a message for people on standard error; results go to standard output."""
    typer.echo("\n".join(map(printable, text.split("\n"))), err=True)


def confirm(question: str) -> None:
    """Ask, and end the command with 1 unless the answer is yes."""
    typer.confirm(question, abort=True, err=True)


def with_consent(change: Callable[..., object], consent: bool) -> None:
    """Call ``change(hide_rows=consent)``; if it would hide rows, ask, and let it."""
    try:
        change(hide_rows=consent)
    except HiddenRowsError as error:
        confirm(f"{str(error).capitalize()}. Go on?")
        change(hide_rows=True)


def print_json(*objects: object) -> None:
    """Print each object as one line of JSON."""
    typer.echo(json_lines(objects).decode(), nl=False)


def counted(count: int, noun: str) -> str:
    """Return a number with what it counts, such as ``1 shard`` or ``2,000 shards``."""
    return f"{count:,} {noun}{'s'[: count != 1]}"
