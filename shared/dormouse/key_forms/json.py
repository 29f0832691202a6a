"""Keys as messages carry them: lists of parts, numbers as numbers, everything else as text."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from dormouse.errors import InvalidRequestError
from dormouse.key_forms.text import check_split_point, parse_key_part, show_key_part, show_keys
from dormouse.keys.ranges import Key, KeyPart
from dormouse.schema.schema import Field, Primitive, Schema


def split_points_of_json(
    schema: Schema, points: Sequence[tuple[object, ...]], *, strings_base64: bool
) -> list[Key]:
    """Return the keys that split points mean.

    Raises:
        InvalidRequestError: one has no parts or too many, or one does not fit its column.
    """
    keys = []
    for number, point in enumerate(points, start=1):
        where = f"split point {number}"
        key = key_of_json(schema, point, where, strings_base64=strings_base64)
        keys.append(check_split_point(schema, key, where))
    return keys


def key_of_json(
    schema: Schema, parts: tuple[object, ...], where: str, *, strings_base64: bool = False
) -> Key:
    """Return the key, or the prefix of one, that a list of parts means; `where` is for errors.

    Sort keys go on where all row keys are given.

    Raises:
        InvalidRequestError: it has no parts or too many, or one does not fit its column.
    """
    if not 1 <= len(parts) <= len(schema.keys):
        raise InvalidRequestError(
            f"{where} has {len(parts)} parts, not 1 to {len(schema.keys)}",
            hint=f"the table has {show_keys(schema)}",
        )
    return tuple(
        _part(part, field, where, strings_base64)
        for part, field in zip(parts, schema.keys, strict=False)
    )


def key_to_json(schema: Schema, key: Key) -> tuple[object, ...]:
    """Return a key as messages carry it: numbers as numbers, everything else as text."""
    return tuple(
        part
        if field.type in (Primitive.INT, Primitive.LONG, Primitive.TIMESTAMP)
        else show_key_part(part, Primitive(field.type))
        for part, field in zip(key, schema.keys, strict=False)
    )


def _part(part: object, field: Field, where: str, strings_base64: bool) -> KeyPart:
    is_number = isinstance(part, int) and not isinstance(part, bool)
    if field.type is Primitive.STRING and is_number or not (is_number or isinstance(part, str)):
        raise InvalidRequestError(f"{where}: {part!r} is no value for {field.name}")
    if field.type is Primitive.STRING and strings_base64:
        return _decoded(str(part), field, where)
    assert isinstance(field.type, Primitive)  # a key always is
    try:
        return parse_key_part(str(part), field.type)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{where}: {error}", hint=error.hint) from error


def _decoded(text: str, field: Field, where: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError as error:
        raise InvalidRequestError(
            f"{where}: {text!r} is not the base64 of text for {field.name}: {error}"
        ) from error
