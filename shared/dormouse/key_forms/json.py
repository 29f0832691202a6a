"""Key parts in messages: numbers as JSON numbers, everything else as text."""

from __future__ import annotations

import base64

from dormouse.errors import InvalidRequestError
from dormouse.key_forms.text import parse_part, show_part
from dormouse.keys.ranges import KeyPart
from dormouse.schema.schema import Field, Primitive
from dormouse.schema.types import TIMESTAMPS


def part_from_json(
    part: object, field: Field, where: str, *, strings_base64: bool = False
) -> KeyPart:
    """Return the key part in a message; `where` names its key in errors.

    Raises:
        InvalidRequestError: it does not fit its column.
    """
    is_number = isinstance(part, int) and not isinstance(part, bool)
    is_text_only = field.type in (Primitive.STRING, Primitive.TIME, Primitive.UUID)
    if is_text_only and is_number or not (is_number or isinstance(part, str)):
        raise InvalidRequestError(f"{where}: {part!r} is not a value of {field.name}")
    if field.type is Primitive.STRING and strings_base64:
        return _decoded(str(part), field, where)
    try:
        return parse_part(str(part), Primitive(field.type))
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{where}: {error}", hint=error.hint) from error


def part_to_json(part: KeyPart, field: Field) -> object:
    """Return a key part as messages carry it."""
    is_number = field.type in (Primitive.INT, Primitive.LONG, *TIMESTAMPS)
    return part if is_number else show_part(part, Primitive(field.type))


def _decoded(text: str, field: Field, where: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError as error:
        raise InvalidRequestError(
            f"{where}: {text!r} is not the base64 of text for {field.name}: {error}"
        ) from error
