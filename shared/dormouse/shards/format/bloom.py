"""Parquet's Bloom filters: whether a column of a row group certainly lacks a value.

pyarrow writes the filters, but offers no way to ask one. A filter is a sequence of blocks of eight
32-bit words. The hash of a value, XXH64, selects a block and one bit in each of its words; if one
of these bits is 0, the value was never added. So a look-up needs 32 bytes of each filter.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from dormouse.keys.ranges import KeyPart
from dormouse.schema.schema import FieldType, Primitive

BLOCK_BYTES = 32
FALSE_POSITIVES = 0.01
"""The wanted share of row groups that a filter does not exclude though they lack the value."""
_INT32 = (Primitive.INT, Primitive.DATE)
"""The types that Parquet stores in four bytes; other numbers and times have eight."""
_WORDS = struct.Struct("<8I")
_SALTS = (
    0x47B6137B,
    0x44974D91,
    0x8824AD5B,
    0xA2B7289D,
    0x705495C7,
    0x2DF1424B,
    0x9EFC4947,
    0x5C6BFB31,
)
_64 = 2**64 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


@dataclass(frozen=True, slots=True)
class FilterPlace:
    """Where the filter of one column of a row group is in its shard: header, then blocks."""

    start: int
    length: int

    @property
    def end(self) -> int:
        """The offset after the filter."""
        return self.start + self.length

    @property
    def blocks_bytes(self) -> int:
        """The size of the blocks, which is a power of two."""
        return 1 << (self.length.bit_length() - 1)

    def block_of(self, digest: int) -> int:
        """Return the offset in the shard of the block for a hash."""
        number = ((digest >> 32) * (self.blocks_bytes // BLOCK_BYTES)) >> 32
        return self.end - self.blocks_bytes + BLOCK_BYTES * number


def filter_of(chunk: pq.ColumnChunkMetaData) -> FilterPlace | None:
    """Return the place of a column chunk's filter; None if it has none."""
    described: Any = chunk  # the type stubs lack filters
    if described.bloom_filter_offset is None:
        return None
    return FilterPlace(described.bloom_filter_offset, described.bloom_filter_length)


def can_hold(block: bytes, digest: int) -> bool:
    """Return whether a value with this hash may have been added to a filter, by its block."""
    low = digest & 0xFFFFFFFF
    return all(
        word >> ((low * salt & 0xFFFFFFFF) >> 27) & 1
        for word, salt in zip(_WORDS.unpack(block), _SALTS, strict=True)
    )


def digest_of(value: KeyPart, kind: FieldType) -> int | None:
    """Return the hash by which filters of a column find a value; None if no cell can have it."""
    if isinstance(value, str):
        return xxh64(value.encode())
    if isinstance(value, bytes):
        return xxh64(value)
    width = 32 if kind in _INT32 else 64
    if not -(2 ** (width - 1)) <= value < 2 ** (width - 1):
        return None
    return xxh64(value.to_bytes(width // 8, "little", signed=True))


def xxh64(body: bytes) -> int:
    """Return the XXH64 of some bytes, with seed 0."""
    at, end = 0, len(body)
    if end >= 32:
        lanes = [(_P1 + _P2) & _64, _P2, 0, -_P1 & _64]
        while at + 32 <= end:
            lanes = [
                _round(lane, word)
                for lane, word in zip(lanes, struct.unpack_from("<4Q", body, at), strict=True)
            ]
            at += 32
        result = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            result = ((result ^ _round(0, lane)) * _P1 + _P4) & _64
    else:
        result = _P5
    result = (result + end) & _64
    while at + 8 <= end:
        (word,) = struct.unpack_from("<Q", body, at)
        result = (_rotated(result ^ _round(0, word), 27) * _P1 + _P4) & _64
        at += 8
    if at + 4 <= end:
        (word,) = struct.unpack_from("<I", body, at)
        result = (_rotated(result ^ (word * _P1 & _64), 23) * _P2 + _P3) & _64
        at += 4
    for byte in body[at:]:
        result = _rotated(result ^ (byte * _P5 & _64), 11) * _P1 & _64
    result = (result ^ result >> 33) * _P2 & _64
    result = (result ^ result >> 29) * _P3 & _64
    return result ^ result >> 32


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _64, 31) * _P1 & _64


def _rotated(value: int, by: int) -> int:
    value &= _64
    return (value << by | value >> (64 - by)) & _64
