"""The CRC-32 of each part of a shard: of every column chunk, and of the page indexes.

They are kept in the footer, which has a checksum of its own, so all bytes of a shard can be held
against what was written. A column chunk is the smallest part that is read: reading some columns of
some row groups proves just these. The form is described in docs/shard-format.md.
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
from dormouse.stored import checksums

CRCS_KEY = "dormouse.crc32"
MAGIC = b"PAR1"
TRAILER_BYTES = 8
"""What ends a Parquet file: the length of the footer before it, in four bytes, and the magic."""
_MARK = b"crc32:"
_WORD = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Section:
    """Some bytes of a shard that are read together: a column chunk, or all page indexes.

    `crc` is None in a shard that was written without. `group` and `column` name a column chunk.
    """

    start: int
    end: int
    crc: int | None
    group: int | None = None
    column: str = ""

    def check(self, path: str, body: memoryview) -> None:
        """Check that `body` is this part of the shard at `path`, as it was written.

        Raises:
            DamagedShardError: it is not.
        """
        if len(body) != self.end - self.start:
            raise DamagedShardError(
                f"{path} is damaged: of the {self.end - self.start:,} bytes of {self} there are "
                f"only {len(body):,}",
                path=path,
            )
        if self.crc is not None and crc32(body) != self.crc:
            raise DamagedShardError(
                f"{path} is damaged: {self} is not as it was written, by its CRC-32", path=path
            )

    def __str__(self) -> str:
        """Say which it is, for people."""
        if self.group is None:
            return "the page indexes"
        return f"column {self.column!r} in row group {self.group}"


@dataclass(frozen=True, slots=True)
class Crcs:
    """What a footer says: the words of all column chunks, row group by row group."""

    page_indexes: int
    chunks: bytes

    def of_chunk(self, number: int) -> int:
        """Return the CRC of the column chunk of that number in the whole file."""
        (word,) = _WORD.unpack_from(self.chunks, number * _WORD.size)
        return int(word)


def placeholder(chunks: int) -> str:
    """Return what is written where the CRCs of so many column chunks are filled in later."""
    return (_MARK + b64encode(bytes((chunks + 1) * _WORD.size))).decode()


def read_crcs(metadata: pq.FileMetaData, path: str) -> Crcs | None:
    """Return the CRCs in the footer of the shard at `path`; None if it was written without.

    Raises:
        DamagedShardError: they are not those of as many parts as the shard has.
    """
    stored = (metadata.metadata or {}).get(CRCS_KEY.encode())
    if stored is None:
        return None
    try:
        words = b64decode(stored.removeprefix(_MARK), validate=True)
    except ValueError:
        words = b""
    expected = metadata.num_row_groups * metadata.num_columns + 1
    if len(words) != expected * _WORD.size:
        raise DamagedShardError(
            f"{path} is damaged: its footer has other CRCs than those of its {expected} parts",
            path=path,
        )
    (first,) = _WORD.unpack_from(words)
    return Crcs(first, words[_WORD.size :])


def chunk_sections(
    metadata: pq.FileMetaData,
    crcs: Crcs | None,
    path: str,
    row_groups: Iterable[int],
    columns: Collection[str] | None = None,
) -> Iterator[Section]:
    """Yield the chunks of some columns, or of all, in some row groups of the shard at `path`.

    Raises:
        DamagedShardError: the footer says that one lies where no column chunk can.
    """
    end_of_data = _end_of_data(metadata)
    for number in row_groups:
        group = metadata.row_group(number)
        for i in range(group.num_columns):
            chunk = group.column(i)
            name = chunk.path_in_schema
            if columns is None or belongs_to(name, columns):
                crc = crcs.of_chunk(number * metadata.num_columns + i) if crcs else None
                start, end = _span(chunk)
                part = Section(start, end, crc, number, name)
                if not len(MAGIC) <= start <= end <= end_of_data:
                    raise DamagedShardError(
                        f"{path} is damaged: by its footer, {part} lies outside of its data",
                        path=path,
                    )
                yield part


def page_index_section(
    metadata: pq.FileMetaData, crcs: Crcs | None, path: str, size_bytes: int
) -> Section:
    """Return the part between the last column chunk and the footer of the shard at `path`.

    Raises:
        DamagedShardError: the footer says that the data go on beyond its own beginning.
    """
    footer = size_bytes - TRAILER_BYTES - metadata.serialized_size
    end_of_data = _end_of_data(metadata)
    if end_of_data > footer:
        raise DamagedShardError(
            f"{path} is damaged: by its footer, its data end at byte {end_of_data:,}, but the "
            f"footer begins at {footer:,}",
            path=path,
        )
    return Section(end_of_data, footer, crcs.page_indexes if crcs else None)


def belongs_to(path_in_schema: str, columns: Collection[str]) -> bool:
    """Return whether a leaf of a Parquet schema belongs to any of some columns.

    A nested column has a leaf for each part, whose path begins with the column's name.
    """
    return any(f"{path_in_schema}.".startswith(f"{name}.") for name in columns)


def all_sections(
    metadata: pq.FileMetaData, crcs: Crcs | None, path: str, size_bytes: int
) -> Iterator[Section]:
    """Yield all parts of a shard in their order: no byte before the footer is in none, but the
    magic at the start.

    Raises:
        DamagedShardError: by its footer, there is a gap between two, or they overlap.
    """
    at = len(MAGIC)
    chunks = chunk_sections(metadata, crcs, path, range(metadata.num_row_groups))
    for part in [*chunks, page_index_section(metadata, crcs, path, size_bytes)]:
        if not part.start == at <= part.end:
            raise DamagedShardError(
                f"{path} is damaged: by its footer, {part} begins at byte {part.start:,} and not "
                f"at {at:,}, where what is before it ends",
                path=path,
            )
        at = part.end
        yield part


def write_crcs(local: Path) -> None:
    """Put the CRCs and the checksum into the footer of a file that has room for them.

    Raises:
        InvariantError: the parts of the file are not what this code expects.
    """
    with local.open("r+b") as file:
        size_bytes = file.seek(-TRAILER_BYTES, os.SEEK_END) + TRAILER_BYTES
        (length,) = struct.unpack("<I", file.read(4))
        start = file.seek(-TRAILER_BYTES - length, os.SEEK_END)
        footer = bytearray(file.read())
        metadata = pq.read_metadata(pa.BufferReader(bytes(footer)))
        words = _measured(file.fileno(), metadata, str(local), size_bytes)
        room = placeholder(metadata.num_row_groups * metadata.num_columns).encode()
        place = footer.rfind(room)
        if place < 0:
            raise InvariantError(f"there is no room for the CRCs of {local}")
        footer[place : place + len(room)] = _MARK + b64encode(words)
        place, digits = checksums.compute_checksum(bytes(footer))
        footer[place : place + len(digits)] = digits
        file.seek(start)
        file.write(footer)


def _measured(file: int, metadata: pq.FileMetaData, path: str, size_bytes: int) -> bytes:
    try:
        parts = list(all_sections(metadata, None, path, size_bytes))
    except CorruptDataError as error:
        raise InvariantError(f"a file just written is not as expected: {error}") from error
    words = [crc32(os.pread(file, part.end - part.start, part.start)) for part in parts]
    return b"".join(_WORD.pack(word) for word in [words[-1], *words[:-1]])


def _span(chunk: pq.ColumnChunkMetaData) -> tuple[int, int]:
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    return start, start + chunk.total_compressed_size


def _end_of_data(metadata: pq.FileMetaData) -> int:
    if not metadata.num_row_groups:
        return len(MAGIC)
    last = metadata.row_group(metadata.num_row_groups - 1)
    return _span(last.column(last.num_columns - 1))[1]
