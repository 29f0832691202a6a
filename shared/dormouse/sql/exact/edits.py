"""Changes of a text by position, some of them within others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """The characters from `start` up to, not including, `end` become what `write` returns for the
    part of them from `inner_start`, in which other edits were made.
    """

    start: int
    end: int
    inner_start: int
    write: Callable[[str], str]


def replaced(span: tuple[int, int], text: str) -> Edit:
    """Return an edit that puts a text in place of a part."""
    return Edit(*span, span[1], lambda _: text)


def wrapped(span: tuple[int, int], before: str, after: str) -> Edit:
    """Return an edit that puts texts around a part."""
    return Edit(*span, span[0], lambda inner: f"{before}{inner}{after}")


def inserted(at: int, text: str) -> Edit:
    """Return an edit that puts a text in."""
    return Edit(at, at, at, lambda _: text)


def edited(text: str, edits: Sequence[Edit]) -> str:
    """Return a text with all edits made. Of two with the same ends, the first is around the other.

    For example, edits that put brackets around "a = 1.5" and another number in place of "1.5"
    return "(a = 2)".
    """
    ordered = sorted(edits, key=lambda edit: (edit.start, -edit.end))
    return _made(text, 0, len(text), ordered)


def _made(text: str, start: int, end: int, edits: Sequence[Edit]) -> str:
    parts, at, number = [], start, 0
    while number < len(edits):
        edit = edits[number]
        number += 1
        within = []
        while number < len(edits) and edits[number].start < edit.end:
            if edits[number].start >= edit.inner_start and edits[number].end <= edit.end:
                within.append(edits[number])
            number += 1
        parts.append(text[at : edit.start])
        parts.append(edit.write(_made(text, edit.inner_start, edit.end, within)))
        at = edit.end
    return "".join([*parts, text[at:end]])
