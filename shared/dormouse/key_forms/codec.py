"""The keys of one schema: convert them from and to the forms that callers use, and check them.

A query may bound rows by row keys and then sort keys. A split point has row keys only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dormouse.errors import InvalidRequestError
from dormouse.key_forms.assignments import join_assignments, split_assignments, split_range
from dormouse.key_forms.json import part_from_json, part_to_json
from dormouse.key_forms.python import (
    KeyLike,
    KeyValue,
    Ranges,
    part_from_python,
    part_to_python,
)
from dormouse.key_forms.text import part_from_text, show_part
from dormouse.keys.ranges import Key, KeyPart, KeyRange, show_key
from dormouse.schema.key_types import key_problem
from dormouse.schema.schema import Field, Primitive, Schema

_V = TypeVar("_V")

JsonEnds = tuple[tuple[object, ...] | None, tuple[object, ...] | None]
"""The ends of a range in a message: a first key, inclusive, and a last, exclusive; None is open."""

EMPTY_RANGE = KeyRange((), ())


@dataclass(frozen=True, slots=True)
class KeyCodec:
    """Convert keys of `schema`.

    Every method raises InvalidRequestError for a value that does not fit its column, for too many
    parts, for an unknown column, and for parts that are not the first of the keys.
    """

    schema: Schema

    def from_python(self, given: KeyLike) -> Key:
        """Return the key that a program passed: its parts in order, by name, or its first part."""
        if isinstance(given, Mapping):
            values = self._in_order(given)
        else:
            values = given if isinstance(given, tuple) else (given,)
        if len(values) > len(self.schema.keys):
            raise InvalidRequestError(
                f"the key has {len(values)} parts, but the table has {self._names()}"
            )
        fields = self.schema.keys
        return tuple(part_from_python(v, field) for v, field in zip(values, fields, strict=False))

    def to_python(self, key: Key) -> tuple[KeyValue, ...]:
        """Return a key as a program passes it, which `from_python` reads."""
        fields = self.schema.keys
        return tuple(part_to_python(part, field) for part, field in zip(key, fields, strict=False))

    def range_from_python(self, low: KeyLike | None, high: KeyLike | None) -> KeyRange:
        """Return the range from `low`, inclusive, to `high`, exclusive; None leaves an end open.

        Raises:
            InvalidRequestError: also if the end comes before the start.
        """
        start = () if low is None else self.from_python(low)
        end = None if high is None else self.from_python(high)
        if end is not None and end < start:
            raise InvalidRequestError(
                f"the range ends ({show_key(end)}) before it starts ({show_key(start)})"
            )
        return KeyRange(start, end)

    def spans_from_python(self, ranges: Ranges | None) -> list[KeyRange]:
        """Return pairs of keys as ranges. Raises InvalidRequestError."""
        pairs = (
            () if ranges is None else tuple(ranges) if isinstance(ranges, Iterable) else (ranges,)
        )
        # a text of two characters would be taken for a pair
        if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            raise InvalidRequestError(
                "ranges are a list of pairs of keys",
                hint="write ranges=[(low, high)], with None for an open end; exact=… for keys",
            )
        return [self.range_from_python(low, high) for low, high in pairs]

    def ranges_from_python(
        self, ranges: Ranges | None, exact: KeyLike | list[KeyLike] | None
    ) -> list[KeyRange]:
        """Return the ranges of a query, at least one; the whole table if both arguments are None.

        `exact` is one key or prefix, or a list of them, whose rows are added to those in `ranges`.
        """
        if ranges is None and exact is None:
            return [KeyRange()]
        keys = exact if isinstance(exact, list) else [] if exact is None else [exact]
        found = self.spans_from_python(ranges)
        found += [KeyRange.exactly(self.from_python(key)) for key in keys]
        return found or [EMPTY_RANGE]

    def from_json(
        self, parts: Sequence[object], where: str, *, strings_base64: bool = False
    ) -> Key:
        """Return the key in a message; `where` names it in errors.

        With `strings_base64`, strings are base64 of their UTF-8.
        """
        fields = self.schema.keys
        if not 1 <= len(parts) <= len(fields):
            raise InvalidRequestError(
                f"{where} has {len(parts)} parts, not 1 to {len(fields)}",
                hint=f"the table has {self._names()}",
            )
        return tuple(
            part_from_json(part, field, where, strings_base64=strings_base64)
            for part, field in zip(parts, fields, strict=False)
        )

    def to_json(self, key: Key) -> tuple[object, ...]:
        """Return a key as messages carry it: numbers as numbers, everything else as text."""
        fields = self.schema.keys
        return tuple(part_to_json(part, field) for part, field in zip(key, fields, strict=False))

    def range_from_json(self, ends: JsonEnds, where: str) -> KeyRange:
        """Return the range in a message; `where` names it in errors. No key is below an end without
        parts.

        Raises:
            InvalidRequestError: also if the end comes before the start.
        """
        first, last = ends
        low = () if first is None else self.from_json(first, where)
        high = None if last is None else self.from_json(last, where) if last else ()
        if high is not None and high < low:
            raise InvalidRequestError(
                f"{where} ends ({show_key(high)}) before it starts ({show_key(low)})"
            )
        return KeyRange(low, high)

    def range_to_json(self, span: KeyRange) -> JsonEnds:
        """Return a range as messages carry it, which `range_from_json` reads."""
        high = None if span.max is None else self.to_json(span.max)
        return self.to_json(span.min) or None, high

    def keys_to_json(self, keys: Iterable[KeyLike]) -> tuple[tuple[object, ...], ...]:
        """Return the keys that a program passed as messages carry them."""
        return tuple(self.to_json(self.from_python(key)) for key in keys)

    def from_assignments(self, text: str) -> Key:
        """Return the key written as ``name=value,name=value`` on the command line."""
        key: dict[str, KeyPart] = {}
        for name, value in split_assignments(text, self.schema):
            if name in key:
                raise InvalidRequestError(f"key {name!r} is given twice")
            key[name] = part_from_text(value, self._key_after_comma(name, is_first=not key))
        return self._in_order(key)

    def to_assignments(self, key: Key) -> str:
        """Return a key as it is written on the command line, which `from_assignments` reads."""
        parts = zip(key, self.schema.keys, strict=False)
        texts = [(field.name, show_part(part, Primitive(field.type))) for part, field in parts]
        return join_assignments(texts, self.schema)

    def range_to_assignments(self, span: KeyRange) -> str:
        """Return a range as ``from..to``, which `range_from_assignments` reads.

        It does not read a string with two dots before a name and ``=``.
        """
        high = "" if span.max is None else self.to_assignments(span.max)
        return f"{self.to_assignments(span.min)}..{high}"

    def range_from_assignments(self, text: str) -> tuple[Key | None, Key | None]:
        """Return the ends of a range written as ``from..to``; None for an open end."""
        low, high = (
            self.from_assignments(t) if t else None for t in split_range(text, self.schema)
        )
        return low, high

    def split_point(self, key: Key, where: str) -> Key:
        """Return `key` if partitions can meet at it; `where` names it in errors.

        Raises:
            InvalidRequestError: it has a sort key, or is larger than a row key may be.
        """
        if len(key) > len(self.schema.row_keys):
            name = self.schema.keys[len(self.schema.row_keys)].name
            raise InvalidRequestError(
                f"{where} has a value for {name!r}, which is a sort key",
                hint="partitions are ranges of row keys alone",
            )
        if problem := key_problem(key, self.schema.key_types, fewest_parts=1):
            raise InvalidRequestError(
                f"{where} cannot be a key of the table: {problem}", hint="choose a shorter one"
            )
        return key

    def split_points_from_json(
        self, points: Iterable[Sequence[object]], *, strings_base64: bool = False
    ) -> list[Key]:
        """Return the split points in a message."""
        keys = []
        for number, point in enumerate(points, start=1):
            where = f"split point {number}"
            key = self.from_json(point, where, strings_base64=strings_base64)
            keys.append(self.split_point(key, where))
        return keys

    def split_points_to_json(self, points: Iterable[KeyLike]) -> tuple[tuple[object, ...], ...]:
        """Return the split points that a program passed as messages carry them."""
        keys = (self.split_point(self.from_python(point), "a split point") for point in points)
        return tuple(self.to_json(key) for key in keys)

    def _in_order(self, given: Mapping[str, _V]) -> tuple[_V, ...]:
        """Return values by name as a tuple; they must be those of the first keys."""
        for name in given:
            self._key_named(name)
        names = [field.name for field in self.schema.keys[: len(given)]]
        for name in names:
            if name not in given:
                raise InvalidRequestError(
                    f"the key needs a value for {name!r} too",
                    hint=f"the table has {self._names()}; give them without a gap",
                )
        return tuple(given[name] for name in names)

    def _key_named(self, name: str) -> Field:
        field = self.schema.field_named(name)
        if field not in self.schema.keys:
            raise InvalidRequestError(
                f"column {name!r} is not a row key or sort key",
                hint=f"the table has {self._names()}; find rows by other columns with a condition",
            )
        return field

    def _key_after_comma(self, name: str, *, is_first: bool) -> Field:
        try:
            return self._key_named(name)
        except InvalidRequestError as error:
            if is_first:
                raise
            hint = r"a comma that belongs to the value before it is written \,"
            raise InvalidRequestError(str(error), hint=f"{error.hint}; {hint}") from error

    def _names(self) -> str:
        """Return the names of the keys for an error: ``the row keys a, b, then the sort key c``."""
        names = [field.name for field in self.schema.row_keys]
        if not names:
            return "no keys by which rows can be found"
        shown = f"the row keys {', '.join(names)}" if len(names) > 1 else f"one row key, {names[0]}"
        sort_keys = ", ".join(field.name for field in self.schema.sort_keys)
        if not sort_keys:
            return shown
        return f"{shown}, then the sort key{'s'[: len(self.schema.sort_keys) > 1]} {sort_keys}"
