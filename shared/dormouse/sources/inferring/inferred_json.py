"""Infer the types of columns from the values of JSON objects.

Values of one column must be alike: numbers, texts, truth values, arrays or objects. Texts that are
all dates or all times are these. An array has one type of element, an object any of the names that
some object there has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

import pyarrow as pa

from dormouse.errors import InvalidRequestError
from dormouse.keys.ranges import INT64_MAX, INT64_MIN
from dormouse.schema.columns import FoundColumn
from dormouse.schema.schema import DecimalType, FieldType, ListType, Member, Primitive, StructType
from dormouse.schema.types import MAX_TYPE_DEPTH, TIMESTAMPS
from dormouse.sources.inferring.inferred_text import TextColumn

_TEXTS_HELD = 1024
_DIGITS, _UNSIGNED_DIGITS = 38, 20
"""The digits of the widest decimal, and of unsigned numbers of 64 bits."""
_SPECIAL = TIMESTAMPS | {Primitive.DATE, Primitive.TIME, Primitive.UUID}
"""The types whose values are texts in JSON, and which a text in JSON may therefore be."""


class JsonColumns:
    """The columns of the objects seen so far, in the order in which their names came."""

    def __init__(self) -> None:
        """Begin with none."""
        self._shapes: defaultdict[str, _Shape] = defaultdict(_Shape)

    def see(self, line: int, values: Mapping[str, object]) -> None:
        """Add the values of one object, which is on `line`."""
        for name, value in values.items():
            self._shapes[name].see(value, line, 1)

    def found(self) -> Iterator[FoundColumn]:
        """Yield the columns with their types."""
        for name, shape in self._shapes.items():
            try:
                kind, problem = shape.type(), ""
            except InvalidRequestError as error:
                kind, problem = None, str(error)
            yield FoundColumn(name, shape.words, kind, problem=problem)


@dataclass(slots=True)
class _Shape:
    """What the values at one place of the objects are; `lines` has the first line of each kind."""

    lines: dict[str, int] = field(default_factory=dict)
    numbers: _Numbers = field(default_factory=lambda: _Numbers())
    texts: TextColumn = field(default_factory=TextColumn)
    held: list[str] = field(default_factory=list)
    elements: _Shape | None = None
    members: defaultdict[str, _Shape] = field(default_factory=lambda: defaultdict(_Shape))

    def see(self, value: object, line: int, depth: int) -> None:
        if value is None:
            return
        if depth > MAX_TYPE_DEPTH:
            self.lines.setdefault("values nested too deep", line)
            return
        match value:
            case bool():
                kind = "truth values"
            case int() | float() | Decimal():
                kind = "numbers"
                self.numbers.see(value)
            case str():
                kind = "texts"
                self._hold(value)
            case list():
                kind = "arrays"
                self.elements = self.elements or _Shape()
                for item in value:
                    self.elements.see(item, line, depth + 1)
            case _:
                kind = "objects"
                assert isinstance(value, Mapping)
                for name, item in value.items():
                    self.members[name].see(item, line, depth + 1)
        self.lines.setdefault(kind, line)

    @property
    def words(self) -> str:
        """What the values are, for people."""
        return " and ".join(self.lines) or "nothing"

    def type(self) -> FieldType:
        """Return the type of all values.

        Raises:
            InvalidRequestError: they have none in common; the message continues "column 'x' …".
        """
        if not self.lines:
            raise InvalidRequestError("is null in every row")
        if len(self.lines) > 1:
            mixed = " and ".join(f"{kind} (line {line})" for kind, line in self.lines.items())
            raise InvalidRequestError(f"mixes {mixed}")
        (kind,) = self.lines
        match kind:
            case "truth values":
                return Primitive.BOOLEAN
            case "numbers":
                return self.numbers.type()
            case "texts":
                return self._text_type()
            case "arrays":
                assert self.elements is not None
                return ListType(_inner(self.elements, "has arrays, and what is in them"))
            case "objects" if self.members:
                return StructType(tuple(_member(name, s) for name, s in self.members.items()))
        raise InvalidRequestError(
            "has values that are nested too deep"
            if kind != "objects"
            else "has objects without names"
        )

    def _hold(self, text: str) -> None:
        self.held.append(text)
        if len(self.held) >= _TEXTS_HELD:
            self._look()

    def _look(self) -> None:
        self.texts.see(pa.array(self.held, pa.string()))
        self.held.clear()

    def _text_type(self) -> FieldType:
        self._look()
        kind = self.texts.found("").type
        return kind if kind in _SPECIAL else Primitive.STRING


@dataclass(slots=True)
class _Numbers:
    """What the numbers at one place are: how many digits they have before and after the point, and
    which types hold each of them.
    """

    is_long: bool = True
    is_whole: bool = True
    is_double: bool = True
    before: int = 0
    after: int = 0

    def see(self, value: float | Decimal) -> None:
        if isinstance(value, int):
            is_large = not -(10**_DIGITS) < value < 10**_DIGITS
            self.before = max(self.before, _DIGITS + 1 if is_large else len(str(abs(value))))
            self.is_long = self.is_long and INT64_MIN <= value <= INT64_MAX
            self.is_double = self.is_double and not is_large and int(float(value)) == value
            return
        self.is_long = self.is_whole = False
        self.is_double = self.is_double and isinstance(value, float)
        number = Decimal(repr(value)) if isinstance(value, float) else value
        exponent = number.as_tuple().exponent
        assert isinstance(exponent, int)  # it is finite
        self.before = max(self.before, number.adjusted() + 1)
        self.after = max(self.after, -exponent)

    def type(self) -> FieldType:
        """Return the first type that holds all numbers. Raises InvalidRequestError if none does."""
        if self.is_long:
            return Primitive.LONG
        if self.is_double and not self.is_whole:
            return Primitive.DOUBLE
        if self.before + self.after > _DIGITS:
            raise InvalidRequestError(
                f"has numbers that no double and no decimal of {_DIGITS} digits holds exactly"
            )
        is_unsigned = self.is_whole and self.before <= _UNSIGNED_DIGITS
        return DecimalType(_UNSIGNED_DIGITS if is_unsigned else _DIGITS, self.after)


def _inner(shape: _Shape, what: str) -> FieldType:
    try:
        return shape.type()
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{what} {error}") from error


def _member(name: str, shape: _Shape) -> Member:
    return Member(name, _inner(shape, f"has objects whose {name!r}"), nullable=True)
