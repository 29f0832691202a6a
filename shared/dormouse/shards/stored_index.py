"""The index that the footer of a shard has for look-ups: where each column chunk is, its CRC-32,
and between which keys the rows of a row group lie.

Parquet describes a column chunk in about 105 bytes, here it takes about 12. The entry is among the
last bytes of the file, so that one short read brings it without the description of all row groups.
It has a CRC-32 of its own, because a look-up reads the footer in part and cannot verify its
checksum. docs/shard-format.md describes the format.
"""

from __future__ import annotations

import struct
from array import array
from base64 import b64decode, b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, log2

import msgspec

from dormouse.errors import CorruptDataError
from dormouse.keys import Key, KeyRange, decode_key, encode_key
from dormouse.shards.thrift import read_varint
from dormouse.stored.checksums import crc32

# Between which keys the rows of each row group of a shard lie.
#
# Rows are sorted, so one bound between two row groups says where the one ends and the next begins.


def separator(before: Key, key: Key) -> Key:
    """Return the shortest key that is greater than `before` and not greater than `key`; `key` if
    both are the same. Requires: before <= key.

    For example, between ("house", 5) and ("household", 2) it is ("househ"), and between ("a", 5)
    and ("a", 9) it is ("a", 9).
    """
    for i, (part, other) in enumerate(zip(before, key, strict=True)):
        if part == other:
            continue
        if isinstance(part, int) or isinstance(other, int):
            return key[: i + 1]
        pairs = zip(part, other, strict=False)
        same = next((n for n, (a, b) in enumerate(pairs) if a != b), len(part))
        return (*key[:i], other[: same + 1])
    return key


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """Between which keys the rows of each row group lie, in their stored form.

    The keys of row group n are from bound n on, and below bound n + 1; row groups in `ties` may
    also have rows of the key that is bound n + 1, with which the next row group begins.
    """

    bounds: Sequence[bytes]
    ties: frozenset[int]

    @staticmethod
    def of(ends: Sequence[tuple[Key, Key]]) -> KeyBounds:
        """Return the bounds of row groups with these first and last keys, which ascend."""
        first, last = ends[0][0], ends[-1][1]
        pairs = list(zip(ends, ends[1:], strict=False))
        between = [encode_key(separator(a[1], b[0])) for a, b in pairs]
        ties = frozenset(i for i, (a, b) in enumerate(pairs) if a[1] == b[0])
        # no part of a key begins with a zero byte: it is greater than the last key, and less than
        # all others that are
        return KeyBounds([encode_key(first), *between, encode_key(last) + b"\0"], ties)

    def first_key(self, number: int) -> Key:
        """Return a key that no row of a row group is below, and no row before it above."""
        return decode_key(self.bounds[number])

    def overlapping(self, wanted: KeyRange) -> range:
        """Return the row groups that may hold keys in `wanted`, which are contiguous."""
        if wanted.is_empty():
            return range(0)
        groups = len(self.bounds) - 1
        low = wanted.low
        first = bisect_left(self.bounds, low)
        begins_before = first > groups or self.bounds[first] > low or first - 1 in self.ties
        first = max(0, first - begins_before)
        if wanted.high is None:
            return range(min(first, groups), groups)
        stop = bisect_left(self.bounds, wanted.high, hi=groups)
        return range(first, max(first, stop))

    def within(self, wanted: KeyRange) -> range:
        """Return the row groups that certainly hold no key outside of `wanted`."""
        if wanted.is_empty():
            return range(0)
        groups = len(self.bounds) - 1
        first = bisect_left(self.bounds, wanted.low, hi=groups)
        if wanted.high is None:
            return range(first, groups)
        high = wanted.high
        stop = bisect_right(self.bounds, high) - 1
        while stop > first and stop - 1 in self.ties and self.bounds[stop] == high:
            stop -= 1
        return range(first, max(first, stop))


INDEX_KEY = "dormouse.index"
VERSION = 1
MAGIC = b"PAR1"
_VALUE = b"\x18"
"""The head of a value in a footer, after its key: the next field, a string."""
_WORD = struct.Struct("<I")
_COMPRESSED, _WITH_DICTIONARY, _COUNTED = 1, 2, 4
_STEPS = 8
"""Sizes in memory are stored as powers of the eighth root of two: in one byte, rounded up."""


class IndexedColumn(msgspec.Struct, frozen=True, array_like=True):
    """A column of the schema: the id of its field, its name when the shard was written, and how
    many Parquet columns it has, of which a nested one may have several.
    """

    field_id: int
    name: str
    leaves: int


class _Stored(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The form in MessagePack. `forms` has a byte for each Parquet column, `memory` for each chunk;
    `rows`, `sizes` and `crcs` have little-endian words of four bytes.
    """

    table_id: str
    shard_id: str
    columns: tuple[IndexedColumn, ...]
    forms: bytes
    rows: bytes
    sizes: bytes
    memory: bytes
    crcs: bytes
    bounds: tuple[bytes, ...]
    ties: tuple[int, ...]


_DECODER = msgspec.msgpack.Decoder(_Stored)


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """What the index of a shard says. `starts` are the offsets of all column chunks, row group by
    row group, and of what follows the last. `columns` has the columns and the place of the first
    chunk of each in a row group, by the id of the field.
    """

    table_id: str
    shard_id: str
    columns: Mapping[int, tuple[IndexedColumn, int]]
    forms: bytes
    rows: Sequence[int]
    starts: Sequence[int]
    memory: bytes
    crcs: bytes
    keys: KeyBounds

    def crc(self, number: int) -> int:
        """Return the CRC of the chunk `number`, counted over the whole file; after the chunks,
        those of the page indexes and of the Bloom filters follow.
        """
        (word,) = _WORD.unpack_from(self.crcs, number * _WORD.size)
        return int(word)

    @property
    def chunks(self) -> int:
        """The number of column chunks."""
        return len(self.memory)

    @property
    def has_filters(self) -> bool:
        """Return whether the shard has Bloom filters."""
        return len(self.crcs) == (self.chunks + 2) * _WORD.size

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, about."""
        return 2048 + 13 * self.chunks + 16 * len(self.rows) + sum(map(len, self.keys.bounds))

    @property
    def leaves(self) -> int:
        """The number of Parquet columns."""
        return len(self.forms)

    def is_compressed(self, leaf: int) -> bool:
        """Return whether the chunks of a Parquet column are compressed, by zstd."""
        return bool(self.forms[leaf] & _COMPRESSED)

    def has_dictionary(self, leaf: int) -> bool:
        """Return whether a chunk of a Parquet column may begin with a dictionary."""
        return bool(self.forms[leaf] & _WITH_DICTIONARY)

    def counts_dictionary(self, leaf: int) -> bool:
        """Return whether the chunks of a Parquet column with dictionaries count in memory as what
        their values take, however often each occurs. Shards written earlier do not say so.
        """
        return bool(self.forms[leaf] & _COUNTED)

    def memory_bytes(self, chunk: int) -> int:
        """Return about how much memory the values of a chunk take."""
        return int(2 ** (self.memory[chunk] / _STEPS))


@dataclass(frozen=True, slots=True)
class Facts:
    """What the index says of the chunks of a file that was written: how those of each Parquet
    column are stored; of each chunk, row group by row group, the size in the file and in memory;
    and the CRCs of all chunks, and of what follows them.
    """

    forms: bytes
    sizes: Sequence[int]
    memory: Sequence[int]
    crcs: Sequence[int]

    @staticmethod
    def blank(leaves: int, groups: int, *, has_filters: bool) -> Facts:
        """Return zeros, where the facts are not known yet."""
        chunks = [0] * leaves * groups
        return Facts(bytes(leaves), chunks, chunks, [*chunks, *[0] * (1 + has_filters)])


def form_of(*, is_compressed: bool, has_dictionary: bool, is_counted: bool) -> int:
    """Return how the chunks of a Parquet column are stored, for `Facts.forms`; `is_counted` says
    that their size in memory is that of all values.
    """
    return _COMPRESSED * is_compressed | _WITH_DICTIONARY * has_dictionary | _COUNTED * is_counted


def encode_index(
    table_id: str,
    shard_id: str,
    columns: Sequence[IndexedColumn],
    rows: Sequence[int],
    facts: Facts,
    keys: KeyBounds,
) -> str:
    """Return the value of the entry in the footer. Its length does not depend on the facts."""
    stored = _Stored(
        table_id=table_id,
        shard_id=shard_id,
        columns=tuple(columns),
        forms=facts.forms,
        rows=_words(rows),
        sizes=_words(facts.sizes),
        memory=bytes(min(255, ceil(_STEPS * log2(max(1, size)))) for size in facts.memory),
        crcs=_words(facts.crcs),
        bounds=tuple(keys.bounds),
        ties=tuple(sorted(keys.ties)),
    )
    return _sealed(stored)


def fill_in(blank: str, facts: Facts) -> str:
    """Return an encoded index with the facts that were not known when it was made."""
    stored = _opened(blank.encode())
    found = _loaded(stored)
    return encode_index(
        found.table_id, found.shard_id, stored.columns, found.rows, facts, found.keys
    )


def rename_table(value: bytes, table_id: str) -> bytes:
    """Return an encoded index as that of the same shard in another table."""
    return _sealed(msgspec.structs.replace(_opened(value), table_id=table_id)).encode()


def decode_index(value: bytes) -> StoredIndex:
    """Return what `encode_index` was given.

    Raises:
        CorruptDataError: it is damaged, or of another version.
    """
    return _loaded(_opened(value))


def find_entry(tail: bytes, key: str = INDEX_KEY) -> bytes | None:
    """Return the value of the index in the last bytes of a shard, or of another entry of the
    footer; None if it begins before them.
    """
    head = bytes([len(key)]) + key.encode() + _VALUE
    place = tail.rfind(head)
    if place < 0:
        return None
    try:
        length, start = read_varint(tail, place + len(head))
    except IndexError as error:
        raise CorruptDataError("its index is cut short") from error
    return tail[start : start + length]


def _words(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def _numbers(words: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(words) // _WORD.size}I", words)


def _sealed(stored: _Stored) -> str:
    body = bytes([VERSION]) + msgspec.msgpack.encode(stored)
    return b64encode(body + _WORD.pack(crc32(body))).decode()


def _opened(value: bytes) -> _Stored:
    try:
        body = b64decode(value, validate=True)
        (crc,) = _WORD.unpack_from(body, len(body) - _WORD.size)
        body = body[: -_WORD.size]
        if crc32(body) != crc:
            raise CorruptDataError("the CRC-32 of its index is not that of its bytes")
        if body[0] != VERSION:
            raise CorruptDataError(
                f"its index is of the unknown version {body[0]}",
                hint="it was written by a later version of Dormouse: use that one",
            )
        return _DECODER.decode(body[1:])
    except (ValueError, IndexError, struct.error) as error:
        raise CorruptDataError(f"its index is damaged: {error}") from error


def _loaded(stored: _Stored) -> StoredIndex:
    leaves, columns = 0, {}
    for column in stored.columns:
        columns[column.field_id] = column, leaves
        leaves += column.leaves
    rows, sizes = _numbers(stored.rows), _numbers(stored.sizes)
    chunks = len(rows) * leaves
    lengths = len(stored.forms), len(sizes), len(stored.memory), len(stored.bounds)
    if lengths != (leaves, chunks, chunks, len(rows) + 1) or len(stored.crcs) // 4 - chunks not in (
        1,
        2,
    ):
        raise CorruptDataError("its index lacks what belongs to some of its column chunks")
    return StoredIndex(
        table_id=stored.table_id,
        shard_id=stored.shard_id,
        columns=columns,
        forms=stored.forms,
        rows=rows,
        starts=array("Q", accumulate(sizes, initial=len(MAGIC))),
        memory=stored.memory,
        crcs=stored.crcs,
        keys=KeyBounds(stored.bounds, frozenset(stored.ties)),
    )
