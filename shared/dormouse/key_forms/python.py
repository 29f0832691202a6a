"""Key parts as Python programs pass them: a datetime for a timestamp, a date for a date."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping

from dormouse.errors import InvalidRequestError
from dormouse.keys.ranges import INT64_MAX, INT64_MIN, KeyPart
from dormouse.schema.schema import Field, FieldType, Primitive
from dormouse.schema.times import to_days, to_microseconds

KeyValue = int | str | bytes | dt.datetime | dt.date
"""One part of a key. A timestamp is an aware datetime or microseconds, a date a date or days,
since 1970."""

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


def plain_part(value: object, kind: FieldType) -> KeyPart:
    """Return the key part of a Python value that fits its column; a time without a zone is UTC."""
    if isinstance(value, dt.datetime):
        return to_microseconds(value)
    if isinstance(value, dt.date):
        return to_days(value)
    if isinstance(value, int | str | bytes) and not isinstance(value, bool):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be part of a key of type {kind}")


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
        case Primitive.TIMESTAMP, dt.datetime(tzinfo=zone):
            return "" if zone else "it has no time zone"
        case Primitive.DATE, dt.date() if not isinstance(value, dt.datetime):
            return ""
        case Primitive.INT | Primitive.LONG | Primitive.TIMESTAMP | Primitive.DATE, int():
            return "" if INT64_MIN <= value <= INT64_MAX else "it needs more than 64 bits"
        case Primitive(), _:
            return f"the column is {kind.value}"
        case _:
            return "the column cannot be a key"
