"""The index that the footer of a shard has for look-ups: the blocks of its row groups, where the
pages of each are, their CRC-32, and between which keys the rows of a block lie.

A row group is as large as scans and merges like it; a look-up reads one block of it, a few thousand
rows, whose pages follow each other in each column chunk. The pages of a column in a block take
about 12 bytes here. The entry is among the last bytes of the file, so that one short read brings it
without Parquet's description of the row groups. It has a CRC-32 of its own, because a look-up reads
the footer in part and cannot verify its checksum. docs/shard-format.md describes the format.
"""

import json
import logging
import os
import struct
from array import array
from base64 import b64decode, b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Self, TypeVar

import msgspec

from dormouse.errors import CorruptDataError, InvalidRequestError, NotFoundError
from dormouse.keys import Key, KeyRange, decode_key, encode_key
from dormouse.ports import Objects
from dormouse.schema.schema import Field, parse_field
from dormouse.schema.types import Primitive, leaf_columns
from dormouse.shards.thrift import read_varint
from dormouse.stored.checksums import crc32
from dormouse.stored.paths import has_index_object, index_path, is_index_object, shard_path

# Between which keys the rows of each block of a shard lie.
#
# Rows are sorted, so one bound between two blocks says where the one ends and the next begins.


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
    """Between which keys the rows of each block lie, in their stored form.

    The keys of block n are from bound n on, and below bound n + 1; blocks in `ties` may
    also have rows of the key that is bound n + 1, with which the next block begins.
    """

    bounds: Sequence[bytes]
    ties: frozenset[int]

    @staticmethod
    def of(ends: Sequence[tuple[Key, Key]]) -> "KeyBounds":
        """Return the bounds of blocks with these first and last keys, which ascend."""
        first, last = ends[0][0], ends[-1][1]
        pairs = list(zip(ends, ends[1:], strict=False))
        between = [encode_key(separator(a[1], b[0])) for a, b in pairs]
        ties = frozenset(i for i, (a, b) in enumerate(pairs) if a[1] == b[0])
        # a zero byte is no part of a key: it is greater than the last key, and less than all others
        # that are
        return KeyBounds([encode_key(first), *between, encode_key(last) + b"\0"], ties)

    def first_key(self, number: int) -> Key:
        """Return a key that no row of a block is below, and no row before it above."""
        return decode_key(self.bounds[number])

    def span(self, number: int, parts: int) -> tuple[bytes, bytes]:
        """Return stored keys from the first of which on, and below the second of which, the first
        `parts` of all keys of a block are.
        """
        is_last = number == len(self.bounds) - 2
        end = decode_key(self.bounds[-1][:-1]) if is_last else self.first_key(number + 1)
        goes_on = is_last or number in self.ties or len(end) > parts
        return encode_key(self.first_key(number)[:parts]), encode_key(
            end[:parts]
        ) + b"\xff" * goes_on

    def spans(self, parts: int) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield the `span` of each block, and its number."""
        for number in range(len(self.bounds) - 1):
            yield *self.span(number, parts), number

    def overlapping(self, span: KeyRange) -> range:
        """Return the blocks that may hold keys in `span`, which are contiguous."""
        if span.is_empty():
            return range(0)
        blocks = len(self.bounds) - 1
        low = span.low
        first = bisect_left(self.bounds, low)
        begins_before = first > blocks or self.bounds[first] > low or first - 1 in self.ties
        first = max(0, first - begins_before)
        if span.high is None:
            return range(min(first, blocks), blocks)
        stop = bisect_left(self.bounds, span.high, hi=blocks)
        return range(first, max(first, stop))

    def within(self, span: KeyRange) -> range:
        """Return the blocks that certainly hold no key outside of `span`."""
        if span.is_empty():
            return range(0)
        blocks = len(self.bounds) - 1
        first = bisect_left(self.bounds, span.low, hi=blocks)
        if span.high is None:
            return range(first, blocks)
        high = span.high
        stop = bisect_right(self.bounds, high) - 1
        while stop > first and stop - 1 in self.ties and self.bounds[stop] == high:
            stop -= 1
        return range(first, max(first, stop))


INDEX_KEY = "dormouse.index"
VERSION = 3
MAGIC = b"PAR1"
PAGE_ROWS = 4096
"""The rows of a page."""
_VALUE = b"\x18"
"""The head of a value in a footer, after its key: the next field, a string."""
_WORD = struct.Struct("<I")
_COMPRESSED, _WITH_DICTIONARY = 1, 2
_POWERS = [2 ** (code / 8) for code in range(256)]
_MEMORY = [int(power) for power in _POWERS]
"""Sizes in memory are stored as powers of the eighth root of two: in one byte, rounded up."""


class IndexedColumn(msgspec.Struct, frozen=True, array_like=True):
    """A column as the schema had it when the shard was written: the id of its field, its name, and
    its `form`: of a type without parameters twice the place in `Primitive`, and one more if it may
    be null; of others the rest of the field in JSON.
    """

    field_id: int
    name: str
    form: int | str

    @classmethod
    def of(cls, field: Field) -> Self:
        """Return the column of a field."""
        if isinstance(field.type, Primitive):
            return cls(field.id, field.name, 2 * _PRIMITIVES.index(field.type) + field.nullable)
        body = field.to_json()
        form = {part: body[part] for part in _OF_FORM if part in body}
        return cls(field.id, field.name, json.dumps(form, separators=(",", ":")))

    @property
    def field(self) -> Field:
        """The field, as it was then. Raises CorruptDataError: no form of this version is so."""
        return _field_of(self)

    @property
    def leaves(self) -> int:
        """How many Parquet columns it has, of which a nested one may have several."""
        return 1 if isinstance(self.form, int) else leaf_columns(self.field.type)


_PRIMITIVES = tuple(Primitive)
_OF_FORM = ("type", "nullable", "nestedIds")


@lru_cache(maxsize=4096)
def _field_of(column: IndexedColumn) -> Field:
    try:
        if isinstance(column.form, int):
            place, nullable = divmod(column.form, 2)
            return Field(column.name, _PRIMITIVES[place], bool(nullable), column.field_id)
        form = json.loads(column.form)
        return parse_field({**form, "id": column.field_id, "name": column.name}, "a column")
    except (ValueError, TypeError, IndexError, InvalidRequestError) as error:
        raise CorruptDataError(f"its index has a column of an unknown form: {error}") from error


class TermIndexPlace(msgspec.Struct, frozen=True, array_like=True):
    """The term index of a shard, which follows its row groups: the field ids of the columns, each
    with its tokenizer; its size and CRC-32; how many chunks it has, and their sizes, compressed.
    """

    columns: tuple[tuple[int, str], ...]
    size_bytes: int
    crc: int
    chunks: int
    sizes: bytes


class _Stored(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The form in MessagePack. `forms` has a byte for each Parquet column, `memory` for each column
    of each block. `rows` has a little-endian word of four bytes for each block, `blocks` for each
    row group, `sizes` and `crcs` for each section.
    """

    table_id: str
    shard_id: str
    columns: tuple[IndexedColumn, ...]
    forms: bytes
    blocks: bytes
    rows: bytes
    sizes: bytes
    memory: bytes
    crcs: bytes
    bounds: tuple[bytes, ...]
    ties: tuple[int, ...]
    terms: TermIndexPlace | None = None


_DECODER = msgspec.msgpack.Decoder(_Stored)


@dataclass(frozen=True, slots=True)
class Layout:
    """In which order the sections of a shard follow each other, which is that of the file: row
    group by row group, of each Parquet column its dictionary, if it may have one, and the pages of
    each block.

    `firsts` are the first block of each row group, and the number of all blocks; `dictionaries` is
    for each Parquet column the number of those before it that may have a dictionary, and for all.
    """

    firsts: Sequence[int]
    dictionaries: Sequence[int]

    @staticmethod
    def of(blocks: Sequence[int], forms: bytes) -> "Layout":
        """Return that of row groups of so many blocks, whose columns are stored in these forms."""
        before = accumulate(map(has_dictionary, forms), initial=0)
        return Layout([*accumulate(blocks, initial=0)], [*before])

    @property
    def row_groups(self) -> int:
        """The number of row groups."""
        return len(self.firsts) - 1

    @property
    def sections(self) -> int:
        """The number of sections."""
        return self.chunk(self.row_groups, 0)

    def row_group_of(self, block: int) -> int:
        """Return the row group of a block."""
        return bisect_right(self.firsts, block) - 1

    def blocks_of(self, row_group: int) -> range:
        """Return the blocks of a row group."""
        return range(self.firsts[row_group], self.firsts[row_group + 1])

    def chunk(self, row_group: int, leaf: int) -> int:
        """Return the number of a chunk's first section; of none, that after all."""
        first, dictionaries = self.firsts[row_group], self.dictionaries
        before = first * (len(dictionaries) - 1) + row_group * dictionaries[-1]
        if not leaf:
            return before
        blocks = self.firsts[row_group + 1] - first
        return before + leaf * blocks + dictionaries[leaf]

    def has_dictionary(self, leaf: int) -> bool:
        """Return whether a chunk of a Parquet column may begin with a dictionary."""
        return self.dictionaries[leaf + 1] > self.dictionaries[leaf]

    def pages(self, row_group: int, block: int, leaf: int) -> int:
        """Return the number of the section with the pages of a column in a block."""
        place = block - self.firsts[row_group]
        return self.chunk(row_group, leaf) + self.has_dictionary(leaf) + place


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """What the index of a shard says. `rows` are those of each block. `starts` are the offsets of
    all sections, in the order of the `layout`, and of what follows the last. `columns` has the
    columns and the place of the first Parquet column of each, by the id of the field.
    """

    table_id: str
    shard_id: str
    columns: Mapping[int, tuple[IndexedColumn, int]]
    forms: bytes
    layout: Layout
    rows: Sequence[int]
    starts: Sequence[int]
    memory: bytes
    crcs: bytes
    keys: KeyBounds
    terms: TermIndexPlace | None = None

    @property
    def terms_bytes(self) -> int:
        """The size of the term index, which follows the row groups."""
        return self.terms.size_bytes if self.terms else 0

    def crc(self, section: int) -> int:
        """Return the CRC of all sections of the layout up to one; after those, that of the page
        indexes and that of the Bloom filters follow.
        """
        (word,) = _WORD.unpack_from(self.crcs, section * _WORD.size)
        return int(word)

    @property
    def has_filters(self) -> bool:
        """Return whether the shard has Bloom filters."""
        return len(self.crcs) == (self.layout.sections + 2) * _WORD.size

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, about."""
        words = 13 * len(self.starts) + 16 * len(self.rows)
        return 2048 + words + sum(map(len, self.keys.bounds))

    @property
    def leaves(self) -> int:
        """The number of Parquet columns."""
        return len(self.forms)

    def is_compressed(self, leaf: int) -> bool:
        """Return whether the chunks of a Parquet column are compressed, by zstd."""
        return bool(self.forms[leaf] & _COMPRESSED)

    def memory_bytes(self, block: int, leaf: int) -> int:
        """Return about how much memory the values of a Parquet column in a block take."""
        return _MEMORY[self.memory[block * len(self.forms) + leaf]]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the index says of the sections of a file that was written: how the chunks of each
    Parquet column are stored; the size of each section; what each column takes in memory, block by
    block; and the CRC of all sections up to each, and those of what follows them.
    """

    forms: bytes
    sizes: Sequence[int]
    memory: Sequence[int]
    crcs: Sequence[int]

    @staticmethod
    def blank(forms: bytes, blocks: Sequence[int], *, has_filters: bool) -> "Facts":
        """Return zeros, where the facts are not known yet."""
        sections = [0] * Layout.of(blocks, forms).sections
        memory = [0] * len(forms) * sum(blocks)
        return Facts(forms, sections, memory, [*sections, *[0] * (1 + has_filters)])


def form_of(*, is_compressed: bool, has_dictionary: bool) -> int:
    """Return how the chunks of a Parquet column are stored, for `Facts.forms`."""
    return _COMPRESSED * is_compressed | _WITH_DICTIONARY * has_dictionary


def has_dictionary(form: int) -> bool:
    """Return whether chunks of this form may begin with a dictionary."""
    return bool(form & _WITH_DICTIONARY)


def encode_index(
    table_id: str,
    shard_id: str,
    columns: Sequence[IndexedColumn],
    blocks: Sequence[int],
    rows: Sequence[int],
    facts: Facts,
    keys: KeyBounds,
    terms: TermIndexPlace | None = None,
) -> str:
    """Return the value of the entry in the footer: of row groups of so many `blocks` each, which
    have so many `rows`. Its length does not depend on sizes, memory and CRCs.
    """
    stored = _Stored(
        table_id=table_id,
        shard_id=shard_id,
        columns=tuple(columns),
        blocks=words(blocks),
        rows=words(rows),
        bounds=tuple(keys.bounds),
        ties=tuple(sorted(keys.ties)),
        terms=terms,
        **_parts_of(facts),
    )
    return _sealed(stored)


def _parts_of(facts: Facts) -> dict[str, bytes]:
    """Return the fields of `_Stored` that have facts."""
    memory = bytes(min(255, bisect_left(_POWERS, size)) for size in facts.memory)
    sizes, crcs = words(facts.sizes), words(facts.crcs)
    return {"forms": facts.forms, "sizes": sizes, "memory": memory, "crcs": crcs}


def fill_in(blank: str, facts: Facts) -> str:
    """Return an encoded index with the facts that were not known when it was made."""
    return _sealed(msgspec.structs.replace(_opened(blank.encode()), **_parts_of(facts)))


def rename_table(value: bytes, table_id: str) -> bytes:
    """Return an encoded index as that of the same shard in another table."""
    return _sealed(msgspec.structs.replace(_opened(value), table_id=table_id)).encode()


def decode_index(value: bytes) -> StoredIndex:
    """Return what `encode_index` was given. Raises CorruptDataError: it is none, or damaged."""
    stored = _opened(value)
    leaves, columns = 0, {}
    for column in stored.columns:
        columns[column.field_id] = column, leaves
        leaves += column.leaves
    rows, sizes = _numbers(stored.rows), _numbers(stored.sizes)
    layout = Layout.of(_numbers(stored.blocks), stored.forms)
    counts = len(stored.forms), layout.firsts[-1], len(stored.memory), len(stored.bounds)
    expected = leaves, len(rows), len(rows) * leaves, len(rows) + 1
    behind = len(stored.crcs) // _WORD.size - len(sizes)
    if counts != expected or layout.sections != len(sizes) or behind not in (1, 2):
        raise CorruptDataError("its index lacks what belongs to some of its blocks")
    return StoredIndex(
        table_id=stored.table_id,
        shard_id=stored.shard_id,
        columns=columns,
        forms=stored.forms,
        layout=layout,
        rows=rows,
        starts=array("Q", accumulate(sizes, initial=len(MAGIC))),
        memory=stored.memory,
        crcs=stored.crcs,
        keys=KeyBounds(stored.bounds, frozenset(stored.ties)),
        terms=stored.terms,
    )


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


def words(values: Sequence[int]) -> bytes:
    """Return numbers as little-endian words of four bytes."""
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


# Index objects: what is behind the rows of a shard, as an object of its own.
#
# The shard has the same bytes: term index, Bloom filters, page indexes, footer. Look-ups, merges
# read the index object first, so that of a shard in a class of dear requests they read rows alone.
# What must know the shard itself, as checks, purges and rebuilds, reads it there.
#
# It is put when the shard is an object, and before the shard is committed; by whom, does not
# matter. It is deleted with the shard. A crash may leave a shard without it, and then the shard is
# read.


logger = logging.getLogger(__name__)
_T = TypeVar("_T")


def read_by_index_object(read: Callable[[str], _T], table_id: str, shard_id: str) -> _T:
    """Return what `read` finds at a path: that of the index object of a shard, or if it has none,
    or a bad one, of the shard.
    Raises what `read` does of the shard.
    """
    if has_index_object(shard_id):
        path = index_path(table_id, shard_id)
        try:
            return read(path)
        except NotFoundError:
            logger.warning("There is no %s; the end of the shard is read.", path)
        except CorruptDataError as error:
            logger.warning("%s is damaged, and the end of the shard is read: %s", path, error)
    return read(shard_path(table_id, shard_id))


def read_end(objects: Objects, path: str, length: int) -> bytes:
    """Return the last `length` bytes of an object of unknown size, or all of it, by one read."""
    with objects.open(path, 0) as file:
        try:
            file.seek(-length, os.SEEK_END)
        except (OSError, ValueError):  # of this machine, and shorter
            file.seek(0)
        return file.read(length)


def shift_at(path: str, first: int) -> int:
    """Return by how much the offsets of what is behind the rows of a shard, from `first` on, are
    less in the object at a path: that of its index object, or its own.
    """
    return first if is_index_object(path) else 0
