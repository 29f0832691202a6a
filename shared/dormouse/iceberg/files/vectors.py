"""Deletion vectors of Iceberg's format 3: a bitmap of the dead rows of a shard, in a Puffin file.

Dead rows are few long runs, so the bitmap has run containers alone. It is a 64-bit Roaring bitmap:
one 32-bit bitmap for each value of the upper half, of containers for each 65,536 positions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from struct import pack
from typing import TypeAlias

from dormouse.stored.crc32 import crc32

RowRange: TypeAlias = tuple[int, int]
"""The first of some rows of a shard, and the row after the last."""
_PUFFIN = b"PFA1"
_VECTOR = b"\xd1\xd3\x39\x64"
_RUN_COOKIE = 12347
_CONTAINER_BITS, _BITMAP_BITS = 16, 32
_LEAST_WITH_OFFSETS = 4
_ROW_POSITION_ID = 2147483645
VECTOR_OFFSET = len(_PUFFIN)
"""Where the vector begins in its file."""


def count_rows(rows: Sequence[RowRange]) -> int:
    """Return the number of rows in some ranges."""
    return sum(end - start for start, end in rows)


def vector(rows: Sequence[RowRange]) -> bytes:
    """Return the vector of some rows, whose ranges are in order and do not touch."""
    body = _VECTOR + bitmap64(rows)
    return pack(">I", len(body)) + body + pack(">I", crc32(body))


def puffin(uri: str, rows: Sequence[RowRange]) -> bytes:
    """Return a Puffin file with the vector of dead rows of the data file at `uri`."""
    blob = vector(rows)
    described = {
        "type": "deletion-vector-v1",
        "fields": [_ROW_POSITION_ID],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": VECTOR_OFFSET,
        "length": len(blob),
        "properties": {"referenced-data-file": uri, "cardinality": str(count_rows(rows))},
    }
    footer = json.dumps({"blobs": [described], "properties": {}}, separators=(",", ":")).encode()
    end = pack("<i", len(footer)) + bytes(4) + _PUFFIN
    return _PUFFIN + blob + _PUFFIN + footer + end


def bitmap64(rows: Sequence[RowRange]) -> bytes:
    """Return a 64-bit Roaring bitmap in its portable form."""
    bitmaps: dict[int, list[RowRange]] = {}
    for upper, part in _cut(rows, _BITMAP_BITS):
        bitmaps.setdefault(upper, []).append(part)
    out = pack("<Q", len(bitmaps))
    for upper, parts in bitmaps.items():
        out += pack("<I", upper) + _bitmap32(parts)
    return out


def _bitmap32(rows: Sequence[RowRange]) -> bytes:
    containers: dict[int, list[RowRange]] = {}
    for upper, part in _cut(rows, _CONTAINER_BITS):
        containers.setdefault(upper, []).append(part)
    count = len(containers)
    head = pack("<I", _RUN_COOKIE | (count - 1) << 16)
    head += ((1 << count) - 1).to_bytes((count + 7) // 8, "little")
    bodies = []
    for upper, runs in containers.items():
        head += pack("<HH", upper, count_rows(runs) - 1)
        numbers = [number for start, end in runs for number in (start, end - start - 1)]
        bodies.append(pack(f"<{1 + len(numbers)}H", len(runs), *numbers))
    if count >= _LEAST_WITH_OFFSETS:
        at = len(head) + 4 * count
        for body in bodies:
            head += pack("<I", at)
            at += len(body)
    return head + b"".join(bodies)


def _cut(rows: Sequence[RowRange], bits: int) -> Iterator[tuple[int, RowRange]]:
    """Yield the parts of ranges between multiples of ``2**bits``: which multiple, and the part
    after it.
    """
    size = 1 << bits
    for start, end in rows:
        at = start
        while at < end:
            upper, low = at >> bits, at & (size - 1)
            length = min(end - at, size - low)
            yield upper, (low, low + length)
            at += length
