"""Which keys a table can have: as many parts as it has row keys, of their types, and of a size.

The state keeps the types of its row keys (`state.TableState.key_types`), so that the fold can judge
every key in an entry; ingest refuses rows whose key is too large before anything is written.
"""

from __future__ import annotations

import re

from dormouse.keys.ranges import INT64_MAX, INT64_MIN, Key, KeyPart
from dormouse.schema.types import Primitive

KeyTypes = tuple[Primitive, ...]

MAX_KEY_BYTES = 4096
"""What the parts of one row key may take together: text and bytes by their bytes, numbers 8 each.

Footers, partitions and shards in the state each hold a few keys. With this, they stay far below
the 400 KB of a DynamoDB item, and a footer is read in one request."""

_INT32 = range(-(2**31), 2**31)
_INT64 = range(INT64_MIN, INT64_MAX + 1)
_WHOLE = {
    Primitive.INT: _INT32,
    Primitive.DATE: _INT32,
    Primitive.LONG: _INT64,
    Primitive.TIMESTAMP: _INT64,
}
_HALF_OF_A_CHARACTER = re.compile("[\ud800-\udfff]")


def key_size_bytes(key: Key) -> int:
    """Return what a key takes, as `MAX_KEY_BYTES` counts it."""
    return sum(_size_bytes(part) for part in key)


def key_fault(key: Key, types: KeyTypes, *, fewest_parts: int) -> str:
    """Return what keeps `key` from being a key of row keys of these types; empty if nothing does.

    A full key has as many parts as there are types, a prefix has at least `fewest_parts`. The key
    itself is not quoted: it is a value of the table's rows.
    """
    if not fewest_parts <= len(key) <= len(types):
        return f"it has {len(key)} parts, not {_between(fewest_parts, len(types))}"
    for number, (part, kind) in enumerate(zip(key, types, strict=False), start=1):
        if not _fits(part, kind):
            return f"its part {number} is no {kind.value}"
    if (size_bytes := key_size_bytes(key)) > MAX_KEY_BYTES:
        return f"it takes {size_bytes:,} bytes, more than {MAX_KEY_BYTES:,}"
    return ""


def part_fault(key: Key) -> str:
    """Return what keeps `key` from being a key of any table at all; empty if nothing does."""
    for number, part in enumerate(key, start=1):
        if not any(
            _fits(part, kind) for kind in (Primitive.LONG, Primitive.STRING, Primitive.BYTES)
        ):
            return f"its part {number} is of no type that a row key can have"
    return ""


def _fits(part: KeyPart, kind: Primitive) -> bool:
    if kind in _WHOLE:
        return type(part) is int and part in _WHOLE[kind]  # a bool is no number here
    if kind is Primitive.BYTES:
        return isinstance(part, bytes)
    return isinstance(part, str) and not _HALF_OF_A_CHARACTER.search(part)


def _size_bytes(part: KeyPart) -> int:
    if isinstance(part, int):
        return 8
    return len(part if isinstance(part, bytes) else part.encode())


def _between(fewest: int, most: int) -> str:
    return str(most) if fewest == most else f"{fewest} to {most}"
