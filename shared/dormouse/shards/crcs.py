"""The CRC-32 of each section of a shard: of every dictionary, of the pages of every block, of the
Bloom filters, and of the page indexes.

The CRCs are in the index that the footer has (`stored_index`), so every byte of a shard can be
verified. The pages of a column in a block are the smallest unit that is read: reading some columns
of some blocks verifies exactly these. Each CRC begins with that of the section before, so sections
that follow each other are verified by the last one's. docs/shard-format.md describes the format.
"""

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import pyarrow.parquet as pq

from dormouse.errors import CorruptDataError, DamagedShardError, InvariantError, damaged_shard
from dormouse.keys import KeyPart
from dormouse.schema.types import DecimalType, FieldType, Primitive
from dormouse.shards.stored_index import (
    INDEX_KEY,
    MAGIC,
    Facts,
    StoredIndex,
    decode_index,
    fill_in,
    has_dictionary,
)
from dormouse.shards.thrift import pages_of
from dormouse.stored import checksums
from dormouse.stored.checksums import crc32

# Parquet's Bloom filters: whether a column of a row group certainly lacks a value.
#
# pyarrow writes the filters, but offers no way to ask one. A filter is a sequence of blocks of
# eight 32-bit words. The hash of a value, XXH64, selects a block and one bit in each of its words;
# if one of these bits is 0, the value was never added. So a look-up needs 32 bytes of each filter.

BLOCK_BYTES = 32
FALSE_POSITIVES = 0.01
"""The wanted share of row groups that a filter does not exclude though they lack the value."""
_INT32 = (Primitive.INT, Primitive.DATE)
"""The types that Parquet stores in four bytes; other numbers and times have eight."""
_WORDS = struct.Struct("<8I")
_SALTS = (
    *(0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D),
    *(0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31),
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
    try:
        if isinstance(kind, DecimalType):  # of as many bytes as all numbers of the type need
            most = 10**kind.precision
            return xxh64(value.to_bytes(most.bit_length() // 8 + 1, "big", signed=True))
        return xxh64(value.to_bytes(4 if kind in _INT32 else 8, "little", signed=True))
    except OverflowError:
        return None


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


TRAILER_BYTES = 8
"""The end of a Parquet file: the length of the footer, in four bytes, and the magic bytes."""
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8}
"""The size in memory of a value, in bytes, by Parquet's physical type;
other types have no fixed size."""

Decoded = Mapping[int, Sequence[int]]
"""What the values of some Parquet columns take decoded, by the place of the column, because two may
have one path: in each block."""


class Section(msgspec.Struct, frozen=True):
    """Some bytes of a shard that are read together: of a column chunk its dictionary, the pages of
    some blocks, or both where they follow each other; all Bloom filters; or all page indexes.

    `crc` is None where it is not checked; it begins with the CRC `before`. `group` and `column`
    identify the column chunk; the others have a `name`. It is a struct because most reads make
    hundreds: a dataclass that cannot be changed takes several times as long to make.
    """

    start: int
    end: int
    crc: int | None
    group: int | None = None
    column: str = ""
    name: str = "the page indexes"
    before: int = 0

    def moved(self, by: int) -> "Section":
        """Return it in an object in which it lies so many bytes earlier."""
        return msgspec.structs.replace(self, start=self.start - by, end=self.end - by)

    def check(self, path: str, body: memoryview) -> None:
        """Check that `body` is this section of the shard at `path`, as it was written.
        Raises DamagedShardError: it is shorter, or its CRC differs.
        """
        self.check_read(path, len(body), crc32(body, self.before))

    def check_read(self, path: str, read_bytes: int, crc: int) -> None:
        """Check the length and the CRC-32 of what was read of this section, as `check` does."""
        if read_bytes != self.end - self.start:
            raise damaged_shard(
                path,
                f"only {read_bytes:,} of the {self.end - self.start:,} bytes of "
                f"{self} could be read",
            )
        if self.crc is not None and crc != self.crc:
            raise damaged_shard(path, f"the CRC-32 of {self} differs from the stored one")

    def __str__(self) -> str:
        if self.group is None:
            return self.name
        return f"column {self.column!r} in row group {self.group}"


def index_of(metadata: pq.FileMetaData, path: str) -> StoredIndex:
    """Return the index in a footer. Raises DamagedShardError: none, or one of other parts."""
    index = decode_entry((metadata.metadata or {}).get(INDEX_KEY.encode()), path)
    shape = metadata.num_row_groups, metadata.num_columns
    has_filters = _end_of_filters(metadata) is not None
    if (index.layout.row_groups, index.leaves) != shape or index.has_filters != has_filters:
        raise damaged_shard(path, "its index lists other parts than its footer")
    return index


def decode_entry(value: bytes | None, path: str) -> StoredIndex:
    """Return a shard's index, by its entry in the footer. Raises DamagedShardError."""
    if value is None:
        raise DamagedShardError(
            f"{path} has no index",
            path=path,
            hint="it is no shard, or was written by an earlier version of Dormouse: ingest its "
            "rows again",
        )
    try:
        return decode_index(value)
    except CorruptDataError as error:
        raise damaged_shard(path, str(error), hint=error.hint) from error


def _chunk_sections(metadata: pq.FileMetaData, index: StoredIndex, path: str) -> Iterator[Section]:
    """Yield all column chunks of the shard at `path`, in their order.
    Raises DamagedShardError: the footer has a column chunk elsewhere than the index.
    """
    layout, starts = index.layout, index.starts
    for number in range(layout.row_groups):
        group = metadata.row_group(number)
        for leaf in range(index.leaves):
            chunk = group.column(leaf)
            first = layout.chunk(number, leaf)
            after = first + layout.has_dictionary(leaf) + len(layout.blocks_of(number))
            name = chunk.path_in_schema
            if chunk_span(chunk) != (starts[first], starts[after]):
                raise damaged_shard(
                    path,
                    f"by its footer, column {name!r} in row group {number} lies "
                    "elsewhere than by its index",
                )
            yield chunk_section(index, first, after, number, name)


def chunk_section(index: StoredIndex, first: int, after: int, group: int, column: str) -> Section:
    """Return some sections that follow each other in a column chunk as one."""
    return Section(
        index.starts[first],
        index.starts[after],
        index.crc(after - 1),
        group,
        column,
        before=index.crc(first - 1) if first else 0,
    )


def sections_behind(
    metadata: pq.FileMetaData,
    index: StoredIndex | None,
    path: str,
    size_bytes: int,
    terms_bytes: int = 0,
) -> tuple[Section, Section | None]:
    """Return the page indexes of the shard at `path`, which the footer follows, and all its Bloom
    filters, if it has any: between the last column chunk, or the term index, and the page indexes.
    Without its `index`, the term index has `terms_bytes`.
    Raises DamagedShardError: by the footer, the data overlaps the footer.
    """
    footer = size_bytes - TRAILER_BYTES - metadata.serialized_size
    start = _end_of_data(metadata) + (index.terms_bytes if index else terms_bytes)
    end_of_filters = _end_of_filters(metadata)
    end = end_of_filters or start
    if end > footer:
        raise damaged_shard(
            path,
            f"by its footer, its data end at byte {end:,}, but the footer begins at {footer:,}",
        )
    first = index.layout.sections if index else 0
    indexes = Section(end, footer, index.crc(first) if index else None)
    if end_of_filters is None:
        return indexes, None
    crc = index.crc(first + 1) if index else None
    return indexes, Section(start, end, crc, name="the Bloom filters")


def term_section(index: StoredIndex) -> Section | None:
    """Return the section of the term index of a shard; None if there is none."""
    if index.terms is None:
        return None
    start, end = index.starts[-1], index.starts[-1] + index.terms.size_bytes
    return Section(start, end, index.terms.crc, name="the term index")


def all_sections(
    metadata: pq.FileMetaData, index: StoredIndex, path: str, size_bytes: int
) -> Iterator[Section]:
    """Yield all sections of a shard in their order.

    Together with the magic bytes at the start, they contain every byte before the footer.
    Raises DamagedShardError: by the footer, there is a gap between two sections, or they overlap.
    """
    yield from _chunk_sections(metadata, index, path)
    indexes, filters = sections_behind(metadata, index, path, size_bytes)
    at = index.starts[-1]
    for section in filter(None, [term_section(index), filters, indexes]):
        if not section.start == at <= section.end:
            raise damaged_shard(
                path,
                f"by its footer, {section} begins at byte {section.start:,}, "
                f"but the section before it ends at {at:,}",
            )
        at = section.end
        yield section


def write_facts(
    local: Path, metadata: pq.FileMetaData, blank: str, paging: "Paging", decoded: Decoded
) -> None:
    """Fill in the index of a local file, and write the checksum into its footer.

    `metadata` is what the writer of the file has of it: to parse the footer would take a kilobyte
    for each column chunk once more. The footer has the index `blank`, of the same length, so
    nothing in the file moves. `paging` is how the file was to be divided into pages; `decoded` is
    what columns with dictionaries take.
    Raises InvariantError: the file does not have the sections that this code expects.
    """
    with local.open("r+b") as file:
        start = seek_footer(file)
        footer = bytearray(file.read())
        facts = facts_of(file.fileno(), metadata, start, paging, decoded)
        index = fill_in(blank, facts).encode()
        place = footer.rfind(blank.encode())
        if place < 0 or len(index) != len(blank):
            raise InvariantError(f"the footer of {local} has no room for its index")
        footer[place : place + len(index)] = index
        place, digits = checksums.compute_checksum(bytes(footer))
        footer[place : place + len(digits)] = digits
        file.seek(start)
        file.write(footer)


def seek_footer(file: BinaryIO) -> int:
    """Go to the Parquet footer of a local file; return its offset."""
    file.seek(-TRAILER_BYTES, os.SEEK_END)
    (length,) = struct.unpack("<I", file.read(4))
    return file.seek(-TRAILER_BYTES - length, os.SEEK_END)


@dataclass(frozen=True, slots=True)
class Paging:
    """How a file is divided: the rows of each page, but for the last of a row group; how the
    Parquet columns are stored, and which are not nested; the rows of the blocks of each row group,
    which are whole pages, but for the last; and the size of the term index.
    """

    page_rows: int
    forms: bytes
    flat: Sequence[bool]
    row_groups: Sequence[Sequence[int]]
    terms_bytes: int = 0


class _Pages(NamedTuple):
    """The pages of a column in a block: their size in the file, and in memory."""

    stored_bytes: int
    memory_bytes: int


def facts_of(
    file: int, metadata: pq.FileMetaData, footer: int, paging: Paging, decoded: Decoded
) -> Facts:
    """Return what the index is to say of a file that was written, whose footer begins at `footer`.
    Raises InvariantError: the file does not have the sections that this code expects.
    """
    sizes, memory = [], []
    crcs, at, block, crc = [], len(MAGIC), 0, 0
    for number, blocks in enumerate(paging.row_groups):
        group, columns = metadata.row_group(number), []
        for leaf, form in enumerate(paging.forms):
            chunk = group.column(leaf)  # only one at a time: each takes half a kilobyte
            start, end = chunk_span(chunk)
            dictionary_bytes = chunk.data_page_offset - start
            if start != at or (dictionary_bytes and not has_dictionary(form)):
                raise InvariantError(f"column {leaf} of row group {number} is stored unexpectedly")
            body = memoryview(os.pread(file, end - start, start))
            pages = _pages_of_blocks(chunk, body[dictionary_bytes:], paging, leaf, blocks)
            stored = [dictionary_bytes] if has_dictionary(form) else []
            stored += [each.stored_bytes for each in pages]
            for stored_bytes in stored:
                crc = crc32(body[at - start : at - start + stored_bytes], crc)
                crcs.append(crc)
                at += stored_bytes
            sizes += stored
            counts = decoded[leaf][block : block + len(blocks)] if leaf in decoded else ()
            columns.append(counts or [each.memory_bytes for each in pages])
        memory += [column[place] for place in range(len(blocks)) for column in columns]
        block += len(blocks)
    for section in _sections_behind(metadata, at, footer, paging.terms_bytes):
        crcs.append(crc32(os.pread(file, section.end - section.start, section.start)))
    return Facts(paging.forms, sizes, memory, crcs)


def _pages_of_blocks(
    chunk: pq.ColumnChunkMetaData,
    body: memoryview,
    paging: Paging,
    leaf: int,
    blocks: Sequence[int],
) -> list[_Pages]:
    """Return the pages of each block of a column chunk, which are `body`.
    Raises InvariantError: a block does not begin where a page does.
    """
    width = _WIDTHS.get(chunk.physical_type, 0)
    if len(blocks) == 1:
        size_bytes = max(chunk.total_uncompressed_size, width * chunk.num_values)
        return [_Pages(len(body), size_bytes)]
    pages = pages_of(body)
    # of a nested column, a page has values and not rows; but none has more rows than it may have
    page_rows = paging.page_rows
    uneven = paging.flat[leaf] and any(p.end_row - p.first_row != page_rows for p in pages[:-1])
    if uneven or len(pages) != -(-sum(blocks) // page_rows):
        raise InvariantError(f"the pages of column {leaf} do not have {page_rows:,} rows")
    of_blocks, first = [], 0
    for rows in blocks:
        last = first - (-rows // page_rows)
        some = pages[first:last]
        values = some[-1].end_row - some[0].first_row
        plain_bytes = sum(page.plain_bytes for page in some)
        of_blocks.append(_Pages(some[-1].end - some[0].start, max(plain_bytes, width * values)))
        first = last
    return of_blocks


def _sections_behind(
    metadata: pq.FileMetaData, end: int, footer: int, terms_bytes: int
) -> list[Section]:
    """Return what follows the row groups of a file that was written, as the index counts it, but
    for the term index.
    Raises InvariantError: there is a gap.
    """
    size_bytes = footer + metadata.serialized_size + TRAILER_BYTES  # as far as `metadata` knows
    indexes, filters = sections_behind(metadata, None, "a file", size_bytes, terms_bytes)
    end += terms_bytes
    if (filters or indexes).start != end or (filters and filters.end != indexes.start):
        raise InvariantError(f"a file just written has unexpected sections after byte {end:,}")
    return [indexes, filters] if filters else [indexes]


def _end_of_filters(metadata: pq.FileMetaData) -> int | None:
    """Return the offset after the last Bloom filter; None if there is none.

    Each row group that has filters has those of the same columns.
    """
    if not metadata.num_row_groups:
        return None
    last = metadata.row_group(metadata.num_row_groups - 1)
    places = (filter_of(last.column(i)) for i in range(last.num_columns))
    ends = [place.end for place in places if place is not None]
    return max(ends, default=None)


def chunk_span(chunk: pq.ColumnChunkMetaData) -> tuple[int, int]:
    """Return the offset of the first byte of a column chunk, and the offset after its last."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    return start, start + chunk.total_compressed_size


def _end_of_data(metadata: pq.FileMetaData) -> int:
    if not metadata.num_row_groups:
        return len(MAGIC)
    last = metadata.row_group(metadata.num_row_groups - 1)
    return chunk_span(last.column(last.num_columns - 1))[1]
