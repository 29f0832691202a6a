"""Key parts as people write and read them: in split points, command lines and messages."""

from __future__ import annotations

import base64
import binascii
import datetime as dt

from dormouse.errors import InvalidRequestError
from dormouse.keys.ranges import INT64_MAX, INT64_MIN, KeyPart
from dormouse.schema.schema import Field, FieldType, Primitive
from dormouse.schema.times import (
    from_days,
    parse_clock,
    parse_count,
    show_clock,
    show_count,
    to_days,
)
from dormouse.schema.type_text import show_type
from dormouse.schema.types import TIMESTAMPS, UUID_BYTES
from dormouse.schema.uuids import parse_uuid, show_uuid

FORMS: dict[FieldType, str] = {
    Primitive.INT: "a whole number of 32 bits",
    Primitive.LONG: "a whole number of 64 bits",
    Primitive.BYTES: "bytes in base64",
    Primitive.TIMESTAMP: "an ISO 8601 time (UTC without a zone) or microseconds since 1970",
    Primitive.TIMESTAMP_NTZ: "an ISO 8601 time without a zone or microseconds since 1970",
    Primitive.TIMESTAMP_NS: "an ISO 8601 time (UTC without a zone) or nanoseconds since 1970",
    Primitive.TIMESTAMP_NTZ_NS: "an ISO 8601 time without a zone or nanoseconds since 1970",
    Primitive.DATE: "an ISO 8601 date such as 2024-02-29 or days since 1970",
    Primitive.TIME: "an ISO 8601 time of day such as 12:30:45.123456",
    Primitive.UUID: "a UUID such as 123e4567-e89b-12d3-a456-426614174000",
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
        case kind if kind in TIMESTAMPS:
            if text.removeprefix("-").isdecimal():
                return int(text)
            return parse_count(text, kind)
        case Primitive.TIME:
            is_count = text.removeprefix("-").isdecimal() and len(text) > len("123045")
            return int(text) if is_count else parse_clock(text)
        case Primitive.UUID:
            return bytes.fromhex(text[2:]) if text.startswith("0x") else parse_uuid(text)
        case Primitive.DATE:
            is_iso = len(text) == len("20240229") and text.isdecimal()
            if text.removeprefix("-").isdecimal() and not is_iso:
                return int(text)
            return to_days(dt.date.fromisoformat(text))
        case _:
            raise InvalidRequestError(f"{show_type(kind)} cannot be the type of a key")


def show_part(part: KeyPart, kind: Primitive) -> str:
    """Return the text of a key part, which `parse_part` reads back.

    The end of a range may be no value of the type: bytes that follow a UUID, or the end of a day.
    """
    if isinstance(part, bytes) and kind is Primitive.UUID:
        return show_uuid(part) if len(part) == UUID_BYTES else f"0x{part.hex()}"
    if isinstance(part, bytes):
        return base64.b64encode(part).decode()
    try:
        if kind in TIMESTAMPS and isinstance(part, int):
            return show_count(part, kind)
        if kind is Primitive.TIME and isinstance(part, int):
            return show_clock(part)
        if kind is Primitive.DATE and isinstance(part, int):
            return from_days(part).isoformat()
    except OverflowError:  # no ISO form has it; 9 digits, since 8 would be read as a date
        return f"{part:09d}"
    return str(part)
