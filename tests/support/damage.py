"""Shards that are damaged on purpose: where their parts lie, and bytes changed behind the storage.

Objects of a storage never change; here somebody changes them by hand.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from dormouse.shards.crcs import all_sections, chunk_span, index_of
from dormouse.stored import checksums


def flipped(body: bytes, place: int, bit: int = 0) -> bytes:
    """Return `body` with one bit flipped."""
    damaged = bytearray(body)
    damaged[place] ^= 1 << bit
    return bytes(damaged)


def rewrite(file: Path, body: bytes) -> None:
    """Replace the bytes of a stored object."""
    file.chmod(0o644)
    file.write_bytes(body)


def last_row_group(body: bytes) -> range:
    """Return where the column chunks of the last row group of a shard lie."""
    metadata = pq.read_metadata(io.BytesIO(body))
    last = metadata.row_group(metadata.num_row_groups - 1)
    return range(chunk_span(last.column(0))[0], chunk_span(last.column(last.num_columns - 1))[1])


def regions(body: bytes) -> dict[str, list[range]]:
    """Return where the kinds of bytes of a shard lie: each byte but the first four is in one.

    A page header takes the first bytes of a section, or those after another page; which ones is
    known only from Parquet itself, so a section's first 24 bytes count as its header.
    """
    metadata = pq.read_metadata(io.BytesIO(body))
    *chunks, indexes = all_sections(metadata, index_of(metadata, ""), "", len(body))
    return {
        "page headers": [range(c.start, min(c.start + HEADER_BYTES, c.end)) for c in chunks],
        "data": [range(min(c.start + HEADER_BYTES, c.end), c.end) for c in chunks],
        "page indexes": [range(indexes.start, indexes.end)],
        "footer": [range(indexes.end, len(body))],
    }


HEADER_BYTES = 24


def footer_length(body: bytes) -> int:
    """Return how long the Parquet footer says it is."""
    (length,) = struct.unpack("<I", body[-8:-4])
    return int(length)


def _later_format(body: bytes) -> bytes:
    """Return an envelope of a format that is to come, with a checksum that fits."""
    envelope = json.loads(body)
    envelope["format"] += 1
    blank = json.dumps({**envelope, "checksum": checksums.BLANK}, separators=(",", ":"))
    return checksums.with_checksum(blank.encode())


DAMAGE: dict[str, Callable[[bytes, bytes], bytes]] = {
    "a flipped bit": lambda body, _other: flipped(body, len(body) // 2),
    "cut short": lambda body, _other: body[:-1],
    "emptied": lambda _body, _other: b"",
    "no envelope": lambda body, _other: bytes(json.dumps(json.loads(body)["body"]), "utf-8"),
    "that of another": lambda _body, other: other,
    "another format": lambda body, _other: _later_format(body),
}
"""What may happen to an object of `stored_json`: its bytes, another's → what lies there then."""
