"""Key parts as people write and read them: in split points, command lines and messages."""

from __future__ import annotations

import base64
import binascii
import datetime as dt

from dormouse.errors import InvalidRequestError
from dormouse.keys.ranges import INT64_MAX, INT64_MIN, KeyPart
from dormouse.schema.schema import Field, FieldType, Primitive
from dormouse.schema.times import from_days, from_microseconds, parse_time, to_days, to_microseconds

FORMS: dict[FieldType, str] = {
    Primitive.INT: "a whole number of 32 bits",
    Primitive.LONG: "a whole number of 64 bits",
    Primitive.BYTES: "bytes in base64",
    Primitive.TIMESTAMP: "an ISO 8601 time (UTC without a zone) or microseconds since 1970",
    Primitive.DATE: "an ISO 8601 date such as 2024-02-29 or days since 1970",
}
"""What a text must be to mean a value of each type, in keys and in ingested files."""


def part_from_text(text: str, field: Field) -> KeyPart:
    """Return the key part that `text` means in a key column.

    Raises:
        InvalidRequestError: it means none; the message names the column.
    """
    try:
        return parse_part(text, Primitive(field.type))
    except InvalidRequestError as error:
        raise InvalidRequestError(f"key {field.name!r}: {error}", hint=error.hint) from error


def parse_part(text: str, kind: Primitive) -> KeyPart:
    """Return the key part that `text` means in a key column of this type.

    Raises:
        InvalidRequestError: it means none; the message says what is expected.
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
            text.encode()  # raises for unpaired surrogates, which have no place in the key order
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
            return to_microseconds(parse_time(text))
        case Primitive.DATE:
            is_iso = len(text) == len("20240229") and text.isdecimal()
            if text.removeprefix("-").isdecimal() and not is_iso:
                return int(text)
            return to_days(dt.date.fromisoformat(text))
        case _:
            raise InvalidRequestError(f"{kind.value} cannot be the type of a key")


def show_part(part: KeyPart, kind: Primitive) -> str:
    """Return the text of a key part, which `parse_part` reads back."""
    if isinstance(part, bytes):
        return base64.b64encode(part).decode()
    try:
        if kind is Primitive.TIMESTAMP and isinstance(part, int):
            return from_microseconds(part).isoformat()
        if kind is Primitive.DATE and isinstance(part, int):
            return from_days(part).isoformat()
    except OverflowError:  # a year without an ISO form; 9 digits, since 8 would be read as a date
        return f"{part:09d}"
    return str(part)
