"""The CRC-32 of each section of a shard: of every column chunk, of the Bloom filters, and of the
page indexes.

The CRCs are stored in the footer, which has a checksum of its own, so every byte of a shard can be
verified. A column chunk is the smallest unit that is read: reading some columns of some row groups
verifies exactly these. docs/shard-format.md describes the format.
"""

from __future__ import annotations

import os
import struct
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.errors import CorruptDataError, DamagedShardError, InvariantError
from dormouse.shards.bloom import filter_of
from dormouse.stored import checksums

CRCS_KEY = "dormouse.crc32"
MAGIC = b"PAR1"
TRAILER_BYTES = 8
"""The end of a Parquet file: the length of the footer, in four bytes, and the magic bytes."""
_MARK = b"crc32:"
_WORD = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Section:
    """Some bytes of a shard that are read together: a column chunk, all Bloom filters, or all page
    indexes.

    `crc` is None in a shard that was written without CRCs. `group` and `column` identify a column
    chunk; the others have a `name`.
    """

    start: int
    end: int
    crc: int | None
    group: int | None = None
    column: str = ""
    name: str = "the page indexes"

    def check(self, path: str, body: memoryview) -> None:
        """Check that `body` is this section of the shard at `path`, as it was written.

        Raises:
            DamagedShardError: it is shorter, or its CRC differs.
        """
        self.check_read(path, len(body), crc32(body))

    def check_read(self, path: str, read_bytes: int, crc: int) -> None:
        """Check the length and the CRC-32 of what was read of this section, as `check` does."""
        if read_bytes != self.end - self.start:
            raise DamagedShardError(
                f"{path} is damaged: only {read_bytes:,} of the {self.end - self.start:,} bytes of "
                f"{self} could be read",
                path=path,
            )
        if self.crc is not None and crc != self.crc:
            raise DamagedShardError(
                f"{path} is damaged: the CRC-32 of {self} differs from the stored one", path=path
            )

    def __str__(self) -> str:
        """Return a description for messages."""
        if self.group is None:
            return self.name
        return f"column {self.column!r} in row group {self.group}"


@dataclass(frozen=True, slots=True)
class Crcs:
    """The CRCs in a footer: that of the page indexes, those of all column chunks, row group by row
    group, and that of the Bloom filters, which is None if there are none.
    """

    page_indexes: int
    chunks: bytes
    filters: int | None = None

    def of_chunk(self, number: int) -> int:
        """Return the CRC of the column chunk `number`, counted over the whole file."""
        (word,) = _WORD.unpack_from(self.chunks, number * _WORD.size)
        return int(word)


def placeholder(chunks: int, *, has_filters: bool = False) -> str:
    """Return the text to write where the CRCs of `chunks` column chunks and of what follows them
    will be filled in.
    """
    return (_MARK + b64encode(bytes((chunks + 1 + has_filters) * _WORD.size))).decode()


def read_crcs(metadata: pq.FileMetaData, path: str) -> Crcs | None:
    """Return the CRCs in the footer of the shard at `path`; None if it was written without CRCs.

    Raises:
        DamagedShardError: there are more or fewer CRCs than sections.
    """
    stored = (metadata.metadata or {}).get(CRCS_KEY.encode())
    if stored is None:
        return None
    try:
        words = b64decode(stored.removeprefix(_MARK), validate=True)
    except ValueError:
        words = b""
    chunks = metadata.num_row_groups * metadata.num_columns
    has_filters = _end_of_filters(metadata) is not None
    expected = chunks + 1 + has_filters
    if len(words) != expected * _WORD.size:
        raise DamagedShardError(
            f"{path} is damaged: its footer lacks a CRC for each of its {expected} sections",
            path=path,
        )
    (first,) = _WORD.unpack_from(words)
    (last,) = _WORD.unpack_from(words, len(words) - _WORD.size)
    end = (chunks + 1) * _WORD.size
    return Crcs(first, words[_WORD.size : end], last if has_filters else None)


def chunk_sections(
    metadata: pq.FileMetaData,
    crcs: Crcs | None,
    path: str,
    row_groups: Iterable[int],
    columns: Collection[str] | None = None,
) -> Iterator[Section]:
    """Yield the chunks of some columns, or of all, in some row groups of the shard at `path`.

    Raises:
        DamagedShardError: by the footer, a chunk is outside the data.
    """
    end_of_data = _end_of_data(metadata)
    names = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    wanted = [
        (i, name) for i, name in enumerate(names) if columns is None or belongs_to(name, columns)
    ]
    for number in row_groups:
        group = metadata.row_group(number)
        for i, name in wanted:
            crc = crcs.of_chunk(number * metadata.num_columns + i) if crcs else None
            start, end = chunk_span(group.column(i))
            section = Section(start, end, crc, number, name)
            if not len(MAGIC) <= start <= end <= end_of_data:
                raise DamagedShardError(
                    f"{path} is damaged: by its footer, {section} lies outside of its data",
                    path=path,
                )
            yield section


def page_index_section(
    metadata: pq.FileMetaData, crcs: Crcs | None, path: str, size_bytes: int
) -> Section:
    """Return the section between the last column chunk or Bloom filter and the footer of the shard
    at `path`.

    Raises:
        DamagedShardError: by the footer, the data overlaps the footer.
    """
    footer = size_bytes - TRAILER_BYTES - metadata.serialized_size
    end_of_data = _end_of_filters(metadata) or _end_of_data(metadata)
    if end_of_data > footer:
        raise DamagedShardError(
            f"{path} is damaged: by its footer, its data end at byte {end_of_data:,}, but the "
            f"footer begins at {footer:,}",
            path=path,
        )
    return Section(end_of_data, footer, crcs.page_indexes if crcs else None)


def filter_section(
    metadata: pq.FileMetaData, crcs: Crcs | None, path: str, size_bytes: int
) -> Section | None:
    """Return the section of all Bloom filters of the shard at `path`, which follow the last column
    chunk; None if there are none.

    Raises:
        DamagedShardError: by the footer, they overlap the footer.
    """
    end = _end_of_filters(metadata)
    if end is None:
        return None
    page_index_section(metadata, crcs, path, size_bytes)
    crc = crcs.filters if crcs else None
    return Section(_end_of_data(metadata), end, crc, name="the Bloom filters")


def belongs_to(path_in_schema: str, columns: Collection[str]) -> bool:
    """Return whether a leaf of a Parquet schema belongs to one of `columns`.

    A nested column has a leaf for each of its parts; the path of a leaf begins with the column's
    name.
    """
    return any(f"{path_in_schema}.".startswith(f"{name}.") for name in columns)


def all_sections(
    metadata: pq.FileMetaData, crcs: Crcs | None, path: str, size_bytes: int
) -> Iterator[Section]:
    """Yield all sections of a shard in their order.

    Together with the magic bytes at the start, they contain every byte before the footer.

    Raises:
        DamagedShardError: by the footer, there is a gap between two sections, or they overlap.
    """
    at = len(MAGIC)
    chunks = chunk_sections(metadata, crcs, path, range(metadata.num_row_groups))
    filters = filter_section(metadata, crcs, path, size_bytes)
    indexes = page_index_section(metadata, crcs, path, size_bytes)
    for section in [*chunks, *([filters] if filters else []), indexes]:
        if not section.start == at <= section.end:
            raise DamagedShardError(
                f"{path} is damaged: by its footer, {section} begins at byte {section.start:,}, "
                f"but the section before it ends at {at:,}",
                path=path,
            )
        at = section.end
        yield section


def write_crcs(local: Path) -> None:
    """Compute the CRCs of a local file, and write them and the checksum into its footer.

    The footer has placeholders of the same length, so nothing in the file moves.

    Raises:
        InvariantError: the file does not have the sections that this code expects.
    """
    with local.open("r+b") as file:
        size_bytes = file.seek(-TRAILER_BYTES, os.SEEK_END) + TRAILER_BYTES
        (length,) = struct.unpack("<I", file.read(4))
        start = file.seek(-TRAILER_BYTES - length, os.SEEK_END)
        footer = bytearray(file.read())
        metadata = pq.read_metadata(pa.BufferReader(bytes(footer)))
        words = _measured(file.fileno(), metadata, str(local), size_bytes)
        chunks = metadata.num_row_groups * metadata.num_columns
        has_filters = _end_of_filters(metadata) is not None
        room = placeholder(chunks, has_filters=has_filters).encode()
        place = footer.rfind(room)
        if place < 0:
            raise InvariantError(f"the footer of {local} has no placeholder for its CRCs")
        footer[place : place + len(room)] = _MARK + b64encode(words)
        place, digits = checksums.compute_checksum(bytes(footer))
        footer[place : place + len(digits)] = digits
        file.seek(start)
        file.write(footer)


def _measured(file: int, metadata: pq.FileMetaData, path: str, size_bytes: int) -> bytes:
    try:
        sections = list(all_sections(metadata, None, path, size_bytes))
    except CorruptDataError as error:
        raise InvariantError(
            f"a Parquet file just written has unexpected sections: {error}"
        ) from error
    words = [
        crc32(os.pread(file, section.end - section.start, section.start)) for section in sections
    ]
    return b"".join(_WORD.pack(word) for word in [words[-1], *words[:-1]])


def _end_of_filters(metadata: pq.FileMetaData) -> int | None:
    """Return the offset after the last Bloom filter; None if there is none.

    Each row group that has filters has those of the same columns.
    """
    if not metadata.num_row_groups:
        return None
    last = metadata.row_group(metadata.num_row_groups - 1)
    found = (filter_of(last.column(i)) for i in range(last.num_columns))
    ends = [place.end for place in found if place is not None]
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
