"""What commands say on the terminal: notes, questions, progress, lines of JSON.

`listings` prints lists. Rich is imported where something moves or is drawn: most commands need none
of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from dormouse.errors import HiddenRowsError
from dormouse.showing import json_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table


def notes() -> Console:
    """Return the console for notes and progress, on standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


@contextmanager
def progress_bars() -> Iterator[Progress]:
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


def with_consent(change: Callable[[bool], object], given: bool) -> None:
    """Call ``change(given)``; if it would hide rows, ask, and call ``change(True)``."""
    try:
        change(given)
    except HiddenRowsError as error:
        confirm(f"{str(error).capitalize()}. Go on?")
        change(True)


def print_json(*objects: object) -> None:
    """Print each object as one line of JSON."""
    typer.echo(json_lines(objects).decode(), nl=False)


def plain_table(columns: Sequence[str], sample: Sequence[object] = ()) -> Table:
    """Return an empty table with a header; columns whose sample is a number are set flush right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        is_number = i < len(sample) and isinstance(sample[i], int | float)
        justify = "right" if is_number and not isinstance(sample[i], bool) else "left"
        table.add_column(printable(column), justify=justify, overflow="fold")  # type: ignore[arg-type]  # a literal
    return table


def printable(text: str) -> str:
    """Return `text` with control characters, which a terminal would act upon, written out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def counted(count: int, noun: str) -> str:
    """Return a number with what it counts, such as ``1 shard`` or ``2,000 shards``."""
    return f"{count:,} {noun}{'s'[: count != 1]}"


def iso_time(time_ms: int) -> str:
    """Return a time in milliseconds since 1970 as ISO 8601, UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")[:-6] + "Z"
