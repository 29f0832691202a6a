"""Things as text and as HTML, for an interactive session and a notebook.

Text is escaped for both: control characters are written out, and nothing of a row is markup.
"""

import html
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import msgspec

_T = TypeVar("_T")

HtmlText: TypeAlias = str
MAX_CELL = 60
"""The most characters of a cell that are shown."""


class Shown(ABC):
    """Base of what shows itself as a person wants to see it, in a notebook too."""

    __slots__ = ()

    @abstractmethod
    def _shown(self) -> tuple[str, HtmlText]:
        """Return text and HTML."""

    def __repr__(self) -> str:
        return self._shown()[0]

    def _repr_html_(self) -> HtmlText:
        return self._shown()[1]


class Listing(Shown, list[_T]):
    """A list that shows itself as a table."""

    def __init__(
        self,
        items: Iterable[_T],
        title: str,
        columns: Sequence[str],
        row: Callable[[_T], Sequence[object]] | None = None,
    ) -> None:
        """List `items`, each shown as a `row` of `columns`, by default of its attributes of these
        names; the title has their number before it.
        """
        super().__init__(items)
        self._title, self._columns = title, columns
        self._row = row or (lambda item: [getattr(item, name) for name in columns])

    def _shown(self) -> tuple[str, HtmlText]:
        title = f"{len(self):,} {self._title}"
        return show_table(title, self._columns, [self._row(item) for item in self])


def show_facts(title: str, facts: Mapping[str, object]) -> tuple[str, HtmlText]:
    """Return a title and named facts, a line each, as text and as HTML."""
    texts = {name: printable(_value_text(value)) for name, value in facts.items()}
    width = max(map(len, texts), default=0)
    lines = [printable(title), *(f"  {name:<{width}}  {text}" for name, text in texts.items())]
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
        for name, text in texts.items()
    )
    return "\n".join(lines), f"<p><b>{html.escape(printable(title))}</b></p><table>{rows}</table>"


def show_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> tuple[str, HtmlText]:
    """Return a title and rows as a table, as text and as HTML."""
    heads = [printable(name) for name in columns]
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    lines = [printable(title)]
    if heads:
        lines += [_line(heads, widths), _line(["─" * width for width in widths], widths)]
        lines += [_line(row, widths) for row in cells]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in cells
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return "\n".join(lines), f"<p><b>{html.escape(printable(title))}</b></p>{table}"


def _cell(value: object) -> str:
    text = "null" if value is None else printable(_value_text(value))
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"


def _value_text(value: object) -> str:
    """Return a value as text; numbers are digits alone, so that they can be pasted into a call."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
    return "  ".join(padded).rstrip()


def printable(text: str) -> str:
    """Return `text` with control characters written out, which a terminal would act upon."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


_encoder = msgspec.json.Encoder()
_ACTED_UPON = re.compile(rb"\x7f|\xc2[\x80-\x9f]")
"""The control characters, in UTF-8, that JSON does not escape."""


def json_lines(objects: Iterable[object]) -> bytes:
    """Return each object as one line of JSON without control characters."""
    lines = _encoder.encode_lines(objects)
    return _ACTED_UPON.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), lines)
