"""Keys as messages carry them: lists of parts, numbers as numbers, everything else as text."""

from __future__ import annotations

from dormouse.errors import InvalidRequestError
from dormouse.model.keys import Key, KeyPart
from dormouse.model.schema import Field, Primitive, Schema
from dormouse.shards.text import parse_key_part


def key_of_json(schema: Schema, parts: tuple[object, ...], where: str) -> Key:
    """Give the key, or the prefix of one, that a list of parts means; `where` is for errors.

    Raises:
        InvalidRequestError: it has no parts or too many, or one does not fit its column.
    """
    if not 1 <= len(parts) <= len(schema.row_keys):
        raise InvalidRequestError(
            f"{where} has {len(parts)} parts, not 1 to {len(schema.row_keys)}"
        )
    return tuple(
        _part(part, field, where) for part, field in zip(parts, schema.row_keys, strict=False)
    )


def _part(part: object, field: Field, where: str) -> KeyPart:
    is_number = isinstance(part, int) and not isinstance(part, bool)
    if field.type is Primitive.STRING and is_number or not (is_number or isinstance(part, str)):
        raise InvalidRequestError(f"{where}: {part!r} is no value for {field.name}")
    assert isinstance(field.type, Primitive)  # a key always is
    try:
        return parse_key_part(str(part), field.type)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{where}: {error}", hint=error.hint) from error
