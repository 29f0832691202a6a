"""Infer the type of a column of texts: the narrowest that reads all of them as ingest would."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.types import Array
from dormouse.errors import InvariantError
from dormouse.schema.columns import FoundColumn
from dormouse.schema.schema import Field, Primitive
from dormouse.sources.cells.text_cells import text_parser

_INTEGER = r"^-?(0|[1-9][0-9]*)$"
"""A whole number whose digits say nothing more: 007 and +41 are codes, and stay text."""
_REAL = r"^-?(0|[1-9][0-9]*|)([.][0-9]*)?([eE][+-]?[0-9]+)?$|(?i)^-?inf(inity)?$|(?i)^nan$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_ZONED = r"[0-9] ?(Z|UTC|[+-][0-9]{2}(:?[0-9]{2})?)$"
_CLOCK = r"[T ][0-9]{2}"

_CANDIDATES: tuple[tuple[Primitive, str, str], ...] = (
    (Primitive.BOOLEAN, r"(?i)^(true|false)$", "true and false"),
    (Primitive.LONG, _INTEGER, "whole numbers"),
    (Primitive.DOUBLE, _REAL, "numbers"),
    (Primitive.DATE, _DATE, "dates"),
    (Primitive.TIMESTAMP, rf"{_CLOCK}.*{_ZONED}", "times with a zone"),
    (Primitive.TIMESTAMP_NS, rf"{_CLOCK}.*{_ZONED}", "times with a zone, of nanoseconds"),
    (Primitive.TIMESTAMP_NTZ, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}", "times without a zone"),
    (
        Primitive.TIMESTAMP_NTZ_NS,
        r"^[0-9]{4}-[0-9]{2}-[0-9]{2}",
        "times without a zone, of nanoseconds",
    ),
    (Primitive.TIME, r"^[0-9]{2}:[0-9]{2}", "times of day"),
    (Primitive.UUID, r"^[0-9a-fA-F]{8}-", "UUIDs"),
)
"""The types that a text may have, narrowest first: each with the form that its texts have."""


class TextColumn:
    """The types that all cells of a column, seen so far, can have."""

    def __init__(self) -> None:
        """Begin with every type."""
        self._left = list(_CANDIDATES)
        self._values = 0

    def see(self, cells: Array) -> None:
        """Drop the types that cannot read some of these cells."""
        values = cells.drop_null()
        if not len(values):
            return
        self._values += len(values)
        self._left = [
            candidate for candidate in self._left if _reads(values, candidate[0], candidate[1])
        ]

    def found(self, name: str) -> FoundColumn:
        """Return the column with the narrowest type that is left."""
        if not self._values:
            return FoundColumn(name, "nothing", None, problem="is empty in every row")
        if not self._left:
            return FoundColumn(name, "text", Primitive.STRING)
        kind, _, words = self._left[0]
        return FoundColumn(name, words, kind)


def _reads(values: Array, kind: Primitive, pattern: str) -> bool:
    if not pc.all(pc.match_substring_regex(values, pattern)).as_py():
        return False
    parse: Callable[[Array], Array] | None = text_parser(Field("", kind))
    if parse is None:
        raise InvariantError(f"{kind} is not read from text")
    try:
        parse(values)
    except (pa.ArrowException, ValueError, OverflowError):
        return False
    return True
