"""Key parts as people write and read them: in split points, command lines and queries."""

from __future__ import annotations

import base64
import binascii
import datetime as dt

from dormouse.arrow.types import key_part
from dormouse.errors import InvalidRequestError
from dormouse.keys.ranges import INT64_MAX, INT64_MIN, Key, KeyPart
from dormouse.schema.key_types import key_problem
from dormouse.schema.schema import Field, FieldType, Primitive, Schema
from dormouse.sql.expressions import time_of

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
FORMS: dict[FieldType, str] = {
    Primitive.INT: "a whole number of 32 bits",
    Primitive.LONG: "a whole number of 64 bits",
    Primitive.BYTES: "bytes in base64",
    Primitive.TIMESTAMP: "an ISO 8601 time (UTC without a zone) or microseconds since 1970",
    Primitive.DATE: "an ISO 8601 date such as 2024-02-29 or days since 1970",
}
"""What texts, of keys and in files, stand for values of the types that have no other."""


def show_keys(schema: Schema) -> str:
    """Return what the keys of a table are called, to be shown in an error."""
    names = [field.name for field in schema.row_keys]
    shown = f"the row keys {', '.join(names)}" if len(names) > 1 else f"one row key, {names[0]}"
    sort_keys = ", ".join(field.name for field in schema.sort_keys)
    if not sort_keys:
        return shown
    return f"{shown}, then the sort key{'s' if len(schema.sort_keys) > 1 else ''} {sort_keys}"


def check_is_key(schema: Schema, name: str) -> Field:
    """Return the row or sort key called `name`.

    Raises:
        InvalidRequestError: there is no such column, or it is another one.
    """
    field = schema.field_named(name)
    if field not in schema.keys:
        raise InvalidRequestError(
            f"column {name!r} is not a row key or sort key",
            hint=f"the table has {show_keys(schema)}; look for other columns by a condition",
        )
    return field


def check_split_point(schema: Schema, key: Key, where: str) -> Key:
    """Return a key if partitions can meet at it; `where` is for errors.

    Raises:
        InvalidRequestError: it goes on with a sort key, or is larger than a row key may be.
    """
    if len(key) > len(schema.row_keys):
        name = schema.keys[len(schema.row_keys)].name
        raise InvalidRequestError(
            f"{where} goes on with {name!r}, which is a sort key",
            hint="partitions are ranges of row keys alone",
        )
    if fault := key_problem(key, schema.key_types, fewest_parts=1):
        raise InvalidRequestError(
            f"{where} is no key of the table: {fault}", hint="choose a shorter one"
        )
    return key


def parse_key_part(text: str, kind: Primitive) -> KeyPart:
    """Return the key part that `text` stands for in a key column of this type.

    Raises:
        InvalidRequestError: it stands for none; the message says what was expected.
    """
    try:
        part = _parse(text, kind)
    except (ValueError, OverflowError) as error:
        raise InvalidRequestError(f"{text!r} is not {FORMS.get(kind, kind.value)}") from error
    limits = (-(2**31), 2**31 - 1) if kind is Primitive.INT else (INT64_MIN, INT64_MAX)
    if isinstance(part, int) and not limits[0] <= part <= limits[1]:
        raise InvalidRequestError(f"{text!r} is not {FORMS[kind]}: it is out of range")
    return part


def _parse(text: str, kind: Primitive) -> KeyPart:
    match kind:
        case Primitive.STRING:
            text.encode()  # lone surrogates have no place in the order of keys
            return text
        case Primitive.INT | Primitive.LONG:
            return int(text)
        case Primitive.BYTES:
            try:
                return base64.b64decode(text, validate=True)
            except binascii.Error as error:
                raise ValueError(str(error)) from error
        case Primitive.TIMESTAMP:
            if text.removeprefix("-").isdecimal():
                return int(text)
            return key_part(time_of(text), kind)
        case Primitive.DATE:
            is_iso = len(text) == len("20240229") and text.isdecimal()
            if text.removeprefix("-").isdecimal() and not is_iso:
                return int(text)
            return key_part(dt.date.fromisoformat(text), kind)
        case _:
            raise InvalidRequestError(f"{kind.value} cannot be the type of a key")


def show_key_part(part: KeyPart, kind: Primitive) -> str:
    """Return the text of a key part, in the form `parse_key_part` reads where ISO 8601 has one."""
    if isinstance(part, bytes):
        return base64.b64encode(part).decode()
    try:
        if kind is Primitive.TIMESTAMP and isinstance(part, int):
            return (_EPOCH + dt.timedelta(microseconds=part)).isoformat()
        if kind is Primitive.DATE and isinstance(part, int):
            return (_EPOCH.date() + dt.timedelta(days=part)).isoformat()
    except OverflowError:  # beyond the years that have an ISO form; eight digits would be a date
        return f"{part:09d}"
    return str(part)
