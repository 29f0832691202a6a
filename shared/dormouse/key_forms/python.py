"""Keys as Python programs give them, turned into the model's by the schema.

What is asked of rows may go on from the row keys to the sort keys; split points may not.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping

from dormouse.arrow.types import key_part
from dormouse.errors import InvalidRequestError
from dormouse.key_forms.text import check_is_key, check_split_point, show_keys
from dormouse.keys.ranges import INT64_MAX, INT64_MIN, Key, KeyPart, KeyRange, show_key
from dormouse.schema.schema import Field, Primitive, Schema

KeyValue = int | str | bytes | dt.datetime | dt.date
"""One part of a key. A timestamp is an aware datetime or microseconds, a date a date or days,
since 1970."""

KeyLike = KeyValue | tuple[KeyValue, ...] | Mapping[str, KeyValue]
"""A key or a prefix of one: its parts in order, or by column name, or its first part alone."""


def key_of(schema: Schema, given: KeyLike) -> Key:
    """Return the model's key of what a caller gave: row keys, and sort keys after all of them.

    Raises:
        InvalidRequestError: a value of another type than its column, too many values, an unknown
            column, or columns that are no prefix of the keys.
    """
    if isinstance(given, Mapping):
        values = _in_order(schema, given)
    else:
        values = given if isinstance(given, tuple) else (given,)
    if len(values) > len(schema.keys):
        raise InvalidRequestError(
            f"the key has {len(values)} parts, but the table has {show_keys(schema)}"
        )
    return tuple(_part(value, field) for value, field in zip(values, schema.keys, strict=False))


def split_point_of(schema: Schema, given: KeyLike) -> Key:
    """Return the key at which a caller wants partitions to meet.

    Raises:
        InvalidRequestError: as `key_of`, or it has a sort key in it.
    """
    return check_split_point(schema, key_of(schema, given), "a split point")


def range_of(schema: Schema, low: KeyLike | None, high: KeyLike | None) -> KeyRange:
    """Return the range from `low`, inclusive, to `high`, exclusive; None leaves an end open.

    Raises:
        InvalidRequestError: as `key_of`, or the end comes before the start.
    """
    start = () if low is None else key_of(schema, low)
    end = None if high is None else key_of(schema, high)
    if end is not None and end < start:
        raise InvalidRequestError(
            f"the range ends ({show_key(end)}) before it starts ({show_key(start)})"
        )
    return KeyRange(start, end)


Ranges = Iterable[tuple[KeyLike | None, KeyLike | None]]
"""Pairs of keys or prefixes: from the first, inclusive, to the second, exclusive; None is open."""

NOTHING = KeyRange((), ())


def ranges_of(
    schema: Schema, ranges: Ranges | None, exact: KeyLike | list[KeyLike] | None
) -> list[KeyRange]:
    """Return the ranges a query asks for, at least one: everything if both arguments are None.

    Raises:
        InvalidRequestError: as `range_of`.
    """
    if ranges is None and exact is None:
        return [KeyRange()]
    keys = exact if isinstance(exact, list) else [] if exact is None else [exact]
    found = [range_of(schema, low, high) for low, high in ranges or ()]
    found += [KeyRange.exactly(key_of(schema, key)) for key in keys]
    return found or [NOTHING]


def _in_order(schema: Schema, given: Mapping[str, KeyValue]) -> tuple[KeyValue, ...]:
    names = [field.name for field in schema.keys]
    for name in given:
        check_is_key(schema, name)
    for name in names[: len(given)]:
        if name not in given:
            raise InvalidRequestError(
                f"the key needs a value for {name!r} too",
                hint=f"the table has {show_keys(schema)}; give them from the first on",
            )
    return tuple(given[name] for name in names[: len(given)])


def _part(value: KeyValue, field: Field) -> KeyPart:
    problem = _problem(value, field.type)
    if problem:
        raise InvalidRequestError(f"{value!r} cannot be a value of key {field.name!r}: {problem}")
    return key_part(value, field.type)


def _problem(value: object, kind: object) -> str:
    """Say why `value` is none of type `kind`; nothing if it is one."""
    match kind, value:
        case _, bool():
            return "it is a truth value"
        case Primitive.STRING, str():
            halves = any("\ud800" <= character <= "\udfff" for character in value)
            return "it has half of a character in it" if halves else ""
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
