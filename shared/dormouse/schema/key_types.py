"""Check keys against the types of a table's row keys: number of parts, type of each, total size.

The state keeps these types (`state.TableState.key_types`), so that the fold can validate every key
in a log entry. Ingest refuses rows whose key is too large before it writes anything.
"""

from __future__ import annotations

import re

from dormouse.keys.ranges import INT64_MAX, INT64_MIN, Key, KeyPart
from dormouse.schema.type_text import show_type
from dormouse.schema.types import MAX_TIME, TIMESTAMPS, UUID_BYTES, Primitive

KeyTypes = tuple[Primitive, ...]

MAX_KEY_BYTES = 4096
"""The most bytes that the parts of one row key may take together: strings by their UTF-8 bytes,
numbers 8 each.

Footers, partitions and shards in the state each hold a few keys. This limit keeps them far below
the 400 KB of a DynamoDB item, and lets a reader fetch a footer in one request."""

_INT32 = range(-(2**31), 2**31)
_INT64 = range(INT64_MIN, INT64_MAX + 1)
_WHOLE = {
    Primitive.INT: _INT32,
    Primitive.DATE: _INT32,
    Primitive.LONG: _INT64,
    Primitive.TIME: range(MAX_TIME + 1),
    **dict.fromkeys(TIMESTAMPS, _INT64),
}
_HALF_OF_A_CHARACTER = re.compile("[\ud800-\udfff]")


def key_problem(key: Key, types: KeyTypes, *, fewest_parts: int) -> str:
    """Return why `key` does not fit row keys of these types; an empty string if it does.

    A full key has as many parts as there are types; a prefix has at least `fewest_parts`. The text
    does not quote the key, which is a value from the table's rows.
    """
    if not fewest_parts <= len(key) <= len(types):
        return f"it has {len(key)} parts, not {_between(fewest_parts, len(types))}"
    size_bytes = 0
    for number, part in enumerate(key):
        if types[number] is Primitive.STRING and type(part) is str and part.isascii():
            size_bytes += len(part)  # as most parts are
        elif _fits(part, types[number]):
            size_bytes += _size_bytes(part)
        else:
            return f"its part {number + 1} is not of type {show_type(types[number])}"
    if size_bytes > MAX_KEY_BYTES:
        return f"it takes {size_bytes:,} bytes, more than {MAX_KEY_BYTES:,}"
    return ""


def key_part_problem(key: Key) -> str:
    """Return why no table at all can have `key`; an empty string if one can."""
    for number, part in enumerate(key, start=1):
        if not (_is_text(part) or isinstance(part, bytes) or _fits(part, Primitive.LONG)):
            return f"its part {number} has a type that no row key can have"
    return ""


def _fits(part: KeyPart, kind: Primitive) -> bool:
    if kind is Primitive.STRING:
        return _is_text(part)
    if kind in _WHOLE:
        return type(part) is int and part in _WHOLE[kind]  # a bool is not a number here
    if kind is Primitive.BYTES:
        return isinstance(part, bytes)
    if kind is Primitive.UUID:
        return isinstance(part, bytes) and len(part) == UUID_BYTES
    return _is_text(part)


def _is_text(part: KeyPart) -> bool:
    return isinstance(part, str) and (part.isascii() or not _HALF_OF_A_CHARACTER.search(part))


def _size_bytes(part: KeyPart) -> int:
    if isinstance(part, int):
        return 8
    return len(part) if isinstance(part, bytes) or part.isascii() else len(part.encode())


def _between(fewest: int, most: int) -> str:
    return str(most) if fewest == most else f"{fewest} to {most}"
