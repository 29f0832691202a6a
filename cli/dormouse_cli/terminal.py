"""What commands say on the terminal: notes, questions, progress, lines of JSON, lists and facts.

Rich is imported where something moves or is drawn: most commands need none of it.

A list is a table for people, or JSON lines or CSV for programs. A table has a line for each row. On
a terminal that is too narrow for the lines, each row is a block of lines instead, one for each
column, so that nothing is cut off. A file or a pipe gets plain lines as long as they must be,
without styles and rules. Numbers are digits alone, keys and ids are whole: what is printed can be
given to a command. Control characters are written out, except in JSON, which escapes them.
"""

import csv
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeAlias

import typer
from rich.cells import cell_len

from dormouse.errors import HiddenRowsError, NotFoundError
from dormouse.showing import json_lines, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


def notes() -> "Console":
    """Return the console for notes and progress, on standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


@contextmanager
def sink_of(output: Path | None) -> Iterator[BinaryIO]:
    """Return where rows go; a file appears under its name only when it is whole.

    A pipe or device, such as /dev/null, is written to: a file must not take its place. Nor may one
    take that of the file that the standard output goes to, which is /dev/stdout by another name; so
    is `-`.
    """
    if output is None or _is_standard_output(output):
        yield typer.get_binary_stream("stdout")
        return
    target = Path(os.path.realpath(output))
    partial = target.with_name(f".{target.name}.partial")
    try:
        if output.exists() and not output.is_file():
            with output.open("wb") as sink:
                yield sink
            return
        with partial.open("wb") as sink:
            yield sink
        partial.replace(target)
    except OSError as error:
        raise NotFoundError(
            f"cannot write {str(output)!r}: {error.strerror or error}",
            hint="name a file in a folder that is there, that you may write to, and that has room",
        ) from error
    finally:
        # it is whole, or why it is not was said
        with suppress(OSError):
            partial.unlink()


def _is_standard_output(output: Path) -> bool:
    if str(output) == "-":
        return True
    with suppress(OSError):
        return os.path.samestat(output.stat(), os.fstat(1))
    return False


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


GAP = "  "
"""What separates the columns of a table."""

Cells = Sequence[object]
"""The values of a row, one for each column."""


Format: TypeAlias = Literal["table", "json"]
"""How facts and reports are written."""
ListFormat: TypeAlias = Literal["table", "json", "csv"]
"""How lists are written."""


def print_listing(
    columns: Sequence[str], rows: Sequence[Mapping[str, object]], form: ListFormat
) -> None:
    """Print rows as a table or as CSV of these columns, or as a JSON object each.

    What is None is blank, in JSON null.
    """
    if form == "json":
        print_json(*rows)
        return
    cells = [[row.get(column) for column in columns] for row in rows]
    if form == "csv":
        typer.echo(csv_text(columns, cells), nl=False)
    else:
        print_table(columns, cells)


def print_items(
    columns: Sequence[str], items: Iterable[object], form: ListFormat, **names: str
) -> None:
    """Print items as rows of these columns, as `row_of` returns them."""
    print_listing(columns, [row_of(columns, item, **names) for item in items], form)


def row_of(columns: Sequence[str], item: object, **names: str) -> dict[str, object]:
    """Return the attributes of an item by columns; `names` has those that have another name than
    their column. A time in milliseconds (``sent_ms``) is text in a column without that ending.
    """
    return {column: _attribute(item, names.get(column, column)) for column in columns}


def _attribute(item: object, name: str) -> object:
    if not hasattr(item, f"{name}_ms"):
        return getattr(item, name)
    from dormouse.state.versions import iso_time  # it takes a while to import

    time_ms: int | None = getattr(item, f"{name}_ms")
    return iso_time(time_ms) if time_ms else None


def print_facts(facts: Mapping[str, object], form: ListFormat) -> None:
    """Print one thing's facts: a line each, one JSON object, or a header and one line of CSV."""
    if form == "table":
        typer.echo("\n".join(_block(list(facts), list(facts.values()), cell_text, _is_styled())))
    else:
        print_listing(list(facts), [facts], form)


def cell_text(value: object) -> str:
    """Return the text of a value in a table; blank for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_part_text(part)}" for name, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_part_text, value))
    return str(value)


def _part_text(value: object) -> str:
    """Return a text in quotes that would be taken for several in a list, and others as they are."""
    text = cell_text(value)
    return json.dumps(text, ensure_ascii=False) if isinstance(value, str) and "," in text else text


def print_table(
    columns: Sequence[str], rows: Sequence[Cells], text: Callable[[object], str] = cell_text
) -> None:
    """Print a table, or blocks if the terminal is too narrow for it; `text` makes the cells."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in table_lines(columns, rows, text, width=width, is_styled=_is_styled()):
        typer.echo(line)


def table_lines(
    columns: Sequence[str],
    rows: Sequence[Cells],
    text: Callable[[object], str] = cell_text,
    *,
    width: int | None = None,
    is_styled: bool = False,
) -> list[str]:
    """Return the lines of a table, at most `width` wide, or of blocks if it does not fit.

    Columns of numbers are set flush right.
    """
    heads = [printable(column) for column in columns]
    cells = [[printable(text(value)) for value in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
    if width is not None and rows and sum(widths) + len(GAP) * (len(widths) - 1) > width:
        return _blocks(columns, rows, text, is_styled)
    right = [_is_number_column([row[i] for row in rows]) for i in range(len(heads))]
    lines = [_line(line, widths, right) for line in (heads, *cells)]
    if is_styled:
        rule = GAP.join("─" * each for each in widths)
        lines[:1] = [typer.style(lines[0], bold=True), typer.style(rule, dim=True)]
    return lines


def csv_text(columns: Sequence[str], rows: Sequence[Cells]) -> str:
    """Return a header and a line for each row; None is empty, a boolean is true or false, and what
    has names is JSON.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([printable(column) for column in columns])
    writer.writerows([printable(_csv_cell(value)) for value in row] for row in rows)
    return text.getvalue()


def _csv_cell(value: object) -> str:
    if isinstance(value, Mapping):
        return json_lines([value]).decode().strip()
    return str(value).lower() if isinstance(value, bool) else cell_text(value)


def _blocks(
    columns: Sequence[str], rows: Sequence[Cells], text: Callable[[object], str], is_styled: bool
) -> list[str]:
    """Return the lines of rows as blocks, with an empty line between them."""
    lines: list[str] = []
    for number, row in enumerate(rows):
        lines += [""] * bool(number) + _block(columns, row, text, is_styled)
    return lines


def _block(
    columns: Sequence[str], row: Cells, text: Callable[[object], str], is_styled: bool
) -> list[str]:
    """Return a line for each column of a row, except for what is None and blank."""
    named = zip(map(printable, columns), row, strict=True)
    shown = {name: text(value) for name, value in named if value is not None or text(value)}
    width = max(map(cell_len, shown), default=0)
    lines = []
    for name, cell in shown.items():
        padded = name + " " * (width - cell_len(name))
        head = typer.style(padded, bold=True) if is_styled else padded
        lines.append((head + GAP + printable(cell)).rstrip())
    return lines


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    """Return the cells of a line, each as wide as its column."""
    padded = []
    for cell, width, flush_right in zip(cells, widths, right, strict=True):
        space = " " * (width - cell_len(cell))
        padded.append(space + cell if flush_right else cell + space)
    return GAP.join(padded).rstrip()


def _is_number_column(values: Cells) -> bool:
    cells = [value for value in values if value is not None and value != ""]
    return bool(cells) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in cells
    )


def _is_styled() -> bool:
    """Return whether standard output is a terminal that shows bold text."""
    has_styles = os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
    return sys.stdout.isatty() and has_styles
