"""Types as people write them: ``list<string>``, ``decimal(10,2)``, ``struct<a:long,b:date?>``.

A list of columns is written ``id:long, at:timestamp, name:string?``, on one line or on several.

Type names are those of schemas, or the same without ``Type``, in any case; ``bytes`` means
``ByteArrayType``. A nullable struct member ends in ``?``. A member name that contains one of the
marks of this notation needs the JSON form, which is accepted as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeVar

from dormouse.errors import InvalidRequestError
from dormouse.schema.types import (
    DecimalType,
    FieldType,
    ListType,
    MapType,
    Member,
    Primitive,
    StructType,
    parse_type,
)

_T = TypeVar("_T")
_TOKEN = re.compile(r"\s*([<>(),:?]|[^<>(),:?]+)")
_SHORT = {kind: kind.value.removesuffix("Type").lower() for kind in Primitive} | {
    Primitive.BYTES: "bytes",
    Primitive.TIMESTAMP_NTZ: "timestamp_ntz",
    Primitive.TIMESTAMP_NS: "timestamp_ns",
    Primitive.TIMESTAMP_NTZ_NS: "timestamp_ntz_ns",
}
_BY_NAME = {name: kind for kind, name in _SHORT.items()} | {
    kind.value.lower(): kind for kind in Primitive
}
_HINT = (
    f"types: {', '.join(_SHORT.values())}, decimal(10,2), list<…>, map<…,…>, struct<name:type,…>"
)


def parse_type_text(text: str) -> FieldType:
    """Return the type that `text` describes, in short form or as JSON.

    Raises:
        InvalidRequestError: it describes none; the message says at which character.
    """
    if text.lstrip()[:1] in ("{", '"'):
        try:
            body = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidRequestError(f"the type {text!r} is not valid JSON: {error}") from error
        return parse_type(body, "the type")
    parser = _Parser(text)
    kind = parser.type()
    parser.end()
    # Through the JSON form, so that its checks apply here, too.
    return parse_type(kind.to_json(), f"the type {text!r}")


def parse_members_text(text: str) -> tuple[Member, ...]:
    """Return the columns that `text` lists as ``name:type``, separated by commas or line ends; one
    that may be null ends in ``?``.

    Raises:
        InvalidRequestError: it is no such list; the message says at which character.
    """
    lines = (line.strip().rstrip(",") for line in text.splitlines())
    parser = _Parser(", ".join(line for line in lines if line))
    members = parser.members()
    parser.end()
    return tuple(
        Member(m.name, parse_type(m.type.to_json(), f"column {m.name!r}"), m.nullable)
        for m in members
    )


def show_type(kind: FieldType) -> str:
    """Return the short form of a type."""
    match kind:
        case Primitive():
            return _SHORT[kind]
        case DecimalType(precision=precision, scale=scale):
            return f"decimal({precision},{scale})"
        case ListType(element=element):
            return f"list<{show_type(element)}>"
        case MapType(key=key, value=value):
            return f"map<{show_type(key)},{show_type(value)}>"
        case StructType(members=members):
            return "struct<" + ",".join(_show_member(member) for member in members) + ">"


def _show_member(member: Member) -> str:
    return f"{member.name}:{show_type(member.type)}" + ("?" if member.nullable else "")


class _Parser:
    """Parse a type from left to right, by recursive descent."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [(found.start(1), found[1].strip()) for found in _TOKEN.finditer(text)]
        self._at = 0

    def type(self) -> FieldType:
        place, name = self._next()
        match name.lower():
            case "list" | "listtype":
                return ListType(self._within("<", ">", self.type))
            case "map" | "maptype":
                return self._within("<", ">", self._map)
            case "struct" | "structtype":
                return StructType(self._within("<", ">", self.members))
            case "decimal" | "decimaltype":
                return self._within("(", ")", self._decimal)
            case lowered if lowered in _BY_NAME:
                return _BY_NAME[lowered]
        raise self._error(place, f"there is no type {name!r}" if name else "a type is missing")

    def members(self) -> tuple[Member, ...]:
        """Parse ``name:type`` and more of them after commas."""
        members = [self._member()]
        while self._skip(","):
            members.append(self._member())
        return tuple(members)

    def end(self) -> None:
        """Check that no text is left."""
        place, token = self._next()
        if token:
            raise self._error(place, f"{token!r} is unexpected")

    def _within(self, opening: str, closing: str, inner: Callable[[], _T]) -> _T:
        self._expect(opening)
        found = inner()
        self._expect(closing)
        return found

    def _map(self) -> MapType:
        place, _ = self._peek()
        key = self.type()
        if not isinstance(key, Primitive):
            raise self._error(place, "the key of a map must be a primitive type")
        self._expect(",")
        return MapType(key, self.type())

    def _member(self) -> Member:
        _, name = self._next()
        self._expect(":")
        return Member(name, self.type(), nullable=self._skip("?"))

    def _decimal(self) -> DecimalType:
        precision = self._number()
        return DecimalType(precision, self._number() if self._skip(",") else 0)

    def _number(self) -> int:
        place, digits = self._next()
        if not re.fullmatch(r"[0-9]{1,3}", digits):
            raise self._error(place, "a number is missing")
        return int(digits)

    def _peek(self) -> tuple[int, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else (len(self._text), "")

    def _next(self) -> tuple[int, str]:
        found = self._peek()
        self._at += 1
        return found

    def _skip(self, token: str) -> bool:
        skipped = self._peek()[1] == token
        self._at += skipped
        return skipped

    def _expect(self, token: str) -> None:
        place, found = self._next()
        if found != token:
            raise self._error(place, f"{token!r} is missing")

    def _error(self, place: int, reason: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"the type {self._text!r}, character {place + 1}: {reason}", hint=_HINT
        )
