"""Key parts as Python programs pass them: a datetime for a timestamp, a date for a date."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Protocol

from dormouse.errors import InvalidRequestError
from dormouse.keys.ranges import INT64_MAX, INT64_MIN, KeyPart
from dormouse.schema.schema import Field, FieldType, Primitive
from dormouse.schema.times import (
    clock_count,
    from_clock,
    from_days,
    from_microseconds,
    to_count,
    to_days,
)
from dormouse.schema.type_text import show_type
from dormouse.schema.types import NANOSECONDS, TIMESTAMPS, UUID_BYTES, ZONED
from dormouse.schema.uuids import parse_uuid, show_uuid

_COUNTED = TIMESTAMPS | {Primitive.INT, Primitive.LONG, Primitive.DATE}


class UuidValue(Protocol):
    """A UUID of Python's module of that name."""

    @property
    def bytes(self) -> bytes:
        """Its 16 bytes."""


KeyValue = int | str | bytes | dt.datetime | dt.date | dt.time | UuidValue
"""One part of a key. A timestamp is a datetime, aware or not as the column is, or its count since
1970, a date a date or days since 1970; a UUID may be its text or bytes."""

KeyLike = KeyValue | tuple[KeyValue, ...] | Mapping[str, KeyValue]
"""A key or a prefix of one: its parts in order, or by column name, or its first part alone."""

Ranges = Iterable[tuple[KeyLike | None, KeyLike | None]]
"""Pairs of keys or prefixes: from the first, inclusive, to the second, exclusive; None is open."""


def part_from_python(value: KeyValue, field: Field) -> KeyPart:
    """Return the key part of a value that a program passed.

    Raises:
        InvalidRequestError: the value has another type than the column.
    """
    if problem := _problem(value, field.type):
        raise InvalidRequestError(f"{value!r} cannot be a value of key {field.name!r}: {problem}")
    return plain_part(value, field.type)


def part_to_python(part: KeyPart, field: Field) -> KeyValue:
    """Return a key part as a program passes it.

    A UUID is its text. Times of nanoseconds, and what lies after the year 9999, are counts.
    """
    kind = field.type
    if isinstance(part, bytes) and kind is Primitive.UUID and len(part) == UUID_BYTES:
        return show_uuid(part)
    if not isinstance(part, int) or kind in NANOSECONDS:
        return part
    try:
        if kind in TIMESTAMPS:
            time = from_microseconds(part)
            return time if kind in ZONED else time.replace(tzinfo=None)
        if kind is Primitive.DATE:
            return from_days(part)
        return from_clock(part) if kind is Primitive.TIME else part
    except OverflowError:
        return part


def plain_part(value: object, kind: FieldType) -> KeyPart:
    """Return the key part of a Python value that fits its column; a time without a zone is UTC."""
    if kind is Primitive.UUID:
        return uuid_bytes(value)
    if isinstance(value, dt.datetime):
        return to_count(value, kind if isinstance(kind, Primitive) else Primitive.TIMESTAMP)
    if isinstance(value, dt.time):
        return clock_count(value)
    if isinstance(value, dt.date):
        return to_days(value)
    if isinstance(value, int | str | bytes) and not isinstance(value, bool):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be part of a key of type {kind}")


def uuid_bytes(value: object) -> bytes:
    """Return the bytes of a UUID, which may be given as text or bytes. Raises ValueError if it is
    none.
    """
    if isinstance(value, str):
        return parse_uuid(value)
    raw = value if isinstance(value, bytes) else getattr(value, "bytes", None)
    if isinstance(raw, bytes) and len(raw) == UUID_BYTES:
        return raw
    raise ValueError("it is no UUID")


def _uuid_problem(value: object) -> str:
    try:
        uuid_bytes(value)
    except ValueError as error:
        return str(error)
    return ""


def _problem(value: object, kind: object) -> str:
    """Return why `value` is not of type `kind`; an empty string if it is."""
    match kind, value:
        case _, bool():
            return "it is a boolean"
        case Primitive.STRING, str():
            has_surrogate = any("\ud800" <= character <= "\udfff" for character in value)
            return "it contains an unpaired surrogate" if has_surrogate else ""
        case Primitive.BYTES, bytes():
            return ""
        case Primitive.UUID, _:
            return _uuid_problem(value)
        case Primitive(), dt.datetime() if kind in TIMESTAMPS:
            return _datetime_problem(value, kind)
        case Primitive.TIME, dt.time(tzinfo=zone):
            return "it has a time zone" if zone else ""
        case Primitive.DATE, dt.date() if not isinstance(value, dt.datetime):
            return ""
        case Primitive(), int() if kind in _COUNTED:
            return "" if INT64_MIN <= value <= INT64_MAX else "it needs more than 64 bits"
        case Primitive(), _:
            return f"the column is {show_type(kind)}"
        case _:
            return "the column cannot be a key"


def _datetime_problem(time: dt.datetime, kind: Primitive) -> str:
    if bool(time.tzinfo) != (kind in ZONED):
        return "it has no time zone" if kind in ZONED else "it has a time zone"
    if getattr(time, "nanosecond", 0) and kind not in NANOSECONDS:
        return "it is finer than a microsecond"
    in_range = INT64_MIN <= to_count(time, kind) <= INT64_MAX
    return "" if in_range else "it needs more than 64 bits"
