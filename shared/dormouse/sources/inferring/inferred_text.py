"""Infer the type of a column of texts: the narrowest that reads all of them as ingest would."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.types import Array
from dormouse.errors import InvariantError
from dormouse.schema.columns import FoundColumn
from dormouse.schema.schema import DecimalType, Field, FieldType, Primitive
from dormouse.sources.cells.text_cells import exact_number, text_parser

_INTEGER = r"^(0|-?[1-9][0-9]*)$"
"""A whole number whose digits say nothing more: 007 and +41 are codes, and stay text."""
_REAL = (
    r"^-?(0|[1-9][0-9]*|)([.][0-9]*)?$|^-?[0-9]([.][0-9]+([eE][+-]?|e)|[eE][+-]|e)[0-9]+$"
    r"|(?i)^-?inf(inity)?$|(?i)^nan$"
)
"""A number as programs write floats. Codes such as 12E3 and 4E7 are none."""
_LONG_OR_TINY = r"[0-9]([.]?[0-9]){15}|[eE]-[0-9]{3}|[.]0{290}"
"""The numbers that a double may not return: all others have at most 15 digits."""
_BEYOND_DECIMALS = r"^-?[0-9]{39,}$"
"""A whole number that no decimal holds: a double might, but hardly the next one."""
_ENDS_IN_ZERO = r"[.][0-9]+0$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_ZONED = r"[0-9] ?(Z|UTC|[+-][0-9]{2}(:?[0-9]{2})?)$"
_CLOCK = r"[T ][0-9]{2}"

_CANDIDATES: tuple[tuple[FieldType, str, str], ...] = (
    (Primitive.BOOLEAN, r"(?i)^(true|false)$", "true and false"),
    (Primitive.LONG, _INTEGER, "whole numbers"),
    (DecimalType(20, 0), _INTEGER, "whole numbers beyond 64 bits"),
    (DecimalType(38, 0), _INTEGER, "whole numbers beyond 64 bits"),
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
        self._has_finite = False
        self._decimals: set[int] = set()
        self._ends_in_zero = False

    def see(self, cells: Array) -> None:
        """Drop the types that cannot read some of these cells."""
        values = cells.drop_null()
        if not len(values):
            return
        self._values += len(values)
        self._left = [
            candidate for candidate in self._left if _reads(values, candidate[0], candidate[1])
        ]
        if any(kind is Primitive.DOUBLE for kind, *_ in self._left):
            self._see_digits(values)

    def _see_digits(self, values: Array) -> None:
        """Learn of numbers what a double does not keep: 1.10 and 1.100 may be two versions."""
        self._has_finite |= _any(values, "[0-9]")
        self._ends_in_zero |= _any(values, _ENDS_IN_ZERO)
        fractions = values.filter(pc.match_substring(values, "."))
        decimals: Array = pc.replace_substring_regex(fractions, "^[^.]*[.]", "")
        lengths = pc.call_function("utf8_length", [decimals])
        self._decimals.update(pc.unique(lengths).to_pylist())

    def _is_kept(self, kind: FieldType) -> bool:
        """Return whether a type keeps what the texts say: a double does if zeros at their ends only
        fill them up to one number of decimals, and if there are numbers at all.
        """
        if kind is not Primitive.DOUBLE:
            return True
        return self._has_finite and not (self._ends_in_zero and len(self._decimals) > 1)

    def found(self, name: str) -> FoundColumn:
        """Return the column with the narrowest type that is left."""
        if not self._values:
            return FoundColumn(name, "nothing", None, problem="is empty in every row")
        for kind, _, words in self._left:
            if self._is_kept(kind):
                return FoundColumn(name, words, kind)
        return FoundColumn(name, "text", Primitive.STRING)


def _any(values: Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(values, pattern)).as_py())


def _reads(values: Array, kind: FieldType, pattern: str) -> bool:
    if not pc.all(pc.match_substring_regex(values, pattern)).as_py():
        return False
    if kind is Primitive.DOUBLE:
        doubtful = values.filter(pc.match_substring_regex(values, _LONG_OR_TINY))
        if not all(isinstance(exact_number(str(text)), float) for text in doubtful.to_pylist()):
            return False
        if _any(values, _BEYOND_DECIMALS):
            return False
    parse: Callable[[Array], Array] | None = text_parser(Field("", kind))
    if parse is None:
        raise InvariantError(f"{kind} is not read from text")
    try:
        parse(values)
    except (pa.ArrowException, ValueError, OverflowError):
        return False
    return True
