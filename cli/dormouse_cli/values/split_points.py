"""Files of split points: what `table add --splits` takes and `splits` prints.

A line is a value of the first row key, as `parse_part` reads it; or a JSON list of the values
of the first several row keys. So a string that looks like a JSON list must be in one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Annotated

import typer

from dormouse.errors import InvalidRequestError
from dormouse.key_forms.codec import KeyCodec
from dormouse.key_forms.text import part_from_text, show_part
from dormouse.keys.ranges import Key, KeyPart
from dormouse.schema.schema import Field, Primitive, Schema

Base64Option = Annotated[
    bool, typer.Option("--base64", help="Strings in the split points are base64 of their UTF-8.")
]


def parse_split_points(
    content: bytes, schema: Schema, strings_base64: bool = False
) -> list[tuple[KeyPart, ...]]:
    """Return the split points of a file, which ascend.

    Raises:
        InvalidRequestError: a line is no split point, or out of order; the message has its number.
    """
    try:
        lines = content.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"the split points are not UTF-8 text: {error}") from error
    points: list[tuple[KeyPart, ...]] = []
    for number, line in enumerate(lines if content else [], start=1):
        where = f"split points, line {number}"
        point = _split_point(line.removesuffix("\r"), schema, where, strings_base64)
        if points and not points[-1] < point:
            raise InvalidRequestError(
                f"{where}: {line.strip()} does not come after the line before",
                hint="split points ascend, without repeats",
            )
        points.append(point)
    return points


def show_split_points(points: Iterable[Key], schema: Schema, strings_base64: bool = False) -> str:
    """Return the file of split points which `parse_split_points` reads as these."""
    return "".join(f"{_line(point, schema, strings_base64)}\n" for point in points)


def _line(point: Key, schema: Schema, strings_base64: bool) -> str:
    texts = [
        _shown(part, field, strings_base64)
        for part, field in zip(point, schema.row_keys, strict=False)
    ]
    text = texts[0]
    is_plain = text and not text.startswith("[") and not text.endswith("\r") and "\n" not in text
    return text if is_plain and len(texts) == 1 else json.dumps(texts, ensure_ascii=False)


def _shown(part: KeyPart, field: Field, strings_base64: bool) -> str:
    if isinstance(part, str) and strings_base64:
        return base64.b64encode(part.encode()).decode()
    return show_part(part, Primitive(field.type))


def _split_point(
    line: str, schema: Schema, where: str, strings_base64: bool
) -> tuple[KeyPart, ...]:
    if not line:
        raise InvalidRequestError(
            f"{where} is empty", hint='remove it; the empty string is written [""]'
        )
    texts = _json_list(line) or [line]
    if len(texts) > len(schema.keys):
        raise InvalidRequestError(
            f"{where} has {len(texts)} values for {len(schema.row_keys)} row keys"
        )
    try:
        point = tuple(
            _part(_text(value), field, strings_base64)
            for value, field in zip(texts, schema.keys, strict=False)
        )
        return KeyCodec(schema).split_point(point, "it")
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{where}: {error}", hint=error.hint) from error


def _part(text: str, field: Field, strings_base64: bool) -> KeyPart:
    if field.type is not Primitive.STRING or not strings_base64:
        return part_from_text(text, field)
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError as error:
        raise InvalidRequestError(f"{text!r} is not the base64 of text: {error}") from error


def _json_list(line: str) -> list[object] | None:
    if not line.startswith("["):
        return None
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, list) else None


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise InvalidRequestError(f"{json.dumps(value)} cannot be part of a key")
