"""The CRC-32 of each section of a shard: of every column chunk, of the Bloom filters, and of the
page indexes.

The CRCs are in the index that the footer has (`stored_index`), so every byte of a shard can be
verified. A column chunk is the smallest unit that is read: reading some columns of some row groups
verifies exactly these. docs/shard-format.md describes the format.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec
import pyarrow.parquet as pq

from dormouse.errors import CorruptDataError, DamagedShardError, InvariantError
from dormouse.shards.format.bloom import filter_of
from dormouse.shards.format.stored_index import (
    INDEX_KEY,
    MAGIC,
    Facts,
    StoredIndex,
    decode_index,
    fill_in,
    form_of,
)
from dormouse.stored import checksums
from dormouse.stored.crc32 import crc32

TRAILER_BYTES = 8
"""The end of a Parquet file: the length of the footer, in four bytes, and the magic bytes."""
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8}
"""The size in memory of a value, in bytes, by Parquet's physical type;
other types have no fixed size.
"""
_OFFSET_BYTES = 4

Decoded = Mapping[int, Sequence[int]]
"""What the values of some Parquet columns take decoded, by the place of the column, because two may
have one path: in each row group.
"""


class Section(msgspec.Struct, frozen=True):
    """Some bytes of a shard that are read together: a column chunk, all Bloom filters, or all page
    indexes.

    `crc` is None as long as it is not known, while a shard is written. `group` and `column`
    identify a column chunk; the others have a `name`. It is a struct because most reads make
    hundreds: a dataclass that cannot be changed takes several times as long to make.
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


def index_of(metadata: pq.FileMetaData, path: str) -> StoredIndex:
    """Return the index in the footer of the shard at `path`.

    Raises:
        DamagedShardError: it has none, or one of other parts.
    """
    found = decode_entry((metadata.metadata or {}).get(INDEX_KEY.encode()), path)
    shape = metadata.num_row_groups, metadata.num_columns
    has_filters = _end_of_filters(metadata) is not None
    if (len(found.rows), found.leaves) != shape or found.has_filters != has_filters:
        raise DamagedShardError(
            f"{path} is damaged: its index lists other parts than its footer", path=path
        )
    return found


def decode_entry(value: bytes | None, path: str) -> StoredIndex:
    """Return the index of the shard at `path`, by its entry in the footer.

    Raises:
        DamagedShardError: there is none, or it is damaged.
    """
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
        raise DamagedShardError(
            f"{path} is damaged: {error}", path=path, hint=error.hint
        ) from error


def chunk_sections(
    metadata: pq.FileMetaData,
    index: StoredIndex | None,
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
            crc = index.crc(number * metadata.num_columns + i) if index else None
            start, end = chunk_span(group.column(i))
            section = Section(start, end, crc, number, name)
            if not len(MAGIC) <= start <= end <= end_of_data:
                raise DamagedShardError(
                    f"{path} is damaged: by its footer, {section} lies outside of its data",
                    path=path,
                )
            yield section


def page_index_section(
    metadata: pq.FileMetaData, index: StoredIndex | None, path: str, size_bytes: int
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
    return Section(end_of_data, footer, index.crc(index.chunks) if index else None)


def filter_section(
    metadata: pq.FileMetaData, index: StoredIndex | None, path: str, size_bytes: int
) -> Section | None:
    """Return the section of all Bloom filters of the shard at `path`, which follow the last column
    chunk; None if there are none.

    Raises:
        DamagedShardError: by the footer, they overlap the footer.
    """
    end = _end_of_filters(metadata)
    if end is None:
        return None
    page_index_section(metadata, index, path, size_bytes)
    crc = index.crc(index.chunks + 1) if index else None
    return Section(_end_of_data(metadata), end, crc, name="the Bloom filters")


def belongs_to(path_in_schema: str, columns: Collection[str]) -> bool:
    """Return whether a leaf of a Parquet schema belongs to one of `columns`.

    A nested column has a leaf for each of its parts; the path of a leaf begins with the column's
    name.
    """
    return any(f"{path_in_schema}.".startswith(f"{name}.") for name in columns)


def all_sections(
    metadata: pq.FileMetaData, index: StoredIndex | None, path: str, size_bytes: int
) -> Iterator[Section]:
    """Yield all sections of a shard in their order.

    Together with the magic bytes at the start, they contain every byte before the footer.

    Raises:
        DamagedShardError: by the footer, there is a gap between two sections, or they overlap.
    """
    at = len(MAGIC)
    chunks = chunk_sections(metadata, index, path, range(metadata.num_row_groups))
    filters = filter_section(metadata, index, path, size_bytes)
    indexes = page_index_section(metadata, index, path, size_bytes)
    for section in [*chunks, *([filters] if filters else []), indexes]:
        if not section.start == at <= section.end:
            raise DamagedShardError(
                f"{path} is damaged: by its footer, {section} begins at byte {section.start:,}, "
                f"but the section before it ends at {at:,}",
                path=path,
            )
        at = section.end
        yield section


def write_facts(local: Path, metadata: pq.FileMetaData, blank: str, decoded: Decoded) -> None:
    """Fill in the index of a local file, and write the checksum into its footer.

    `metadata` is what the writer of the file has of it: to parse the footer would take a kilobyte
    for each column chunk once more. The footer has the index `blank`, of the same length, so
    nothing in the file moves. `decoded` is what columns with dictionaries take.

    Raises:
        InvariantError: the file does not have the sections that this code expects.
    """
    with local.open("r+b") as file:
        file.seek(-TRAILER_BYTES, os.SEEK_END)
        (length,) = struct.unpack("<I", file.read(4))
        start = file.seek(-TRAILER_BYTES - length, os.SEEK_END)
        footer = bytearray(file.read())
        index = fill_in(blank, facts_of(local, metadata, start, decoded)).encode()
        place = footer.rfind(blank.encode())
        if place < 0 or len(index) != len(blank):
            raise InvariantError(f"the footer of {local} has no room for its index")
        footer[place : place + len(index)] = index
        place, digits = checksums.compute_checksum(bytes(footer))
        footer[place : place + len(digits)] = digits
        file.seek(start)
        file.write(footer)


def facts_of(local: Path, metadata: pq.FileMetaData, footer: int, decoded: Decoded) -> Facts:
    """Return what the index is to say of a local file that was written, whose footer begins at the
    offset `footer`. `decoded` is what columns with dictionaries take.

    Raises:
        InvariantError: the file does not have the sections that this code expects.
    """
    size_bytes = footer + metadata.serialized_size + TRAILER_BYTES  # as far as `metadata` knows
    try:
        sections = list(all_sections(metadata, None, str(local), size_bytes))
    except CorruptDataError as error:
        raise InvariantError(
            f"a Parquet file just written has unexpected sections: {error}"
        ) from error
    with local.open("rb") as file:
        words = [
            crc32(os.pread(file.fileno(), section.end - section.start, section.start))
            for section in sections
        ]
    count = metadata.num_row_groups * metadata.num_columns
    forms, memory = bytearray(metadata.num_columns), []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place in range(metadata.num_columns):
            chunk = group.column(place)  # only one at a time: each takes half a kilobyte
            forms[place] |= form_of(
                is_compressed=chunk.compression != "UNCOMPRESSED",
                has_dictionary=chunk.has_dictionary_page,
                is_counted=place in decoded,
            )
            counted = decoded[place][number] if place in decoded else 0
            memory.append(max(memory_bytes(chunk), counted))
    return Facts(
        forms=bytes(forms),
        sizes=[section.end - section.start for section in sections[:count]],
        memory=memory,
        crcs=[*words[:count], words[-1], *words[count:-1]],
    )


def memory_bytes(chunk: pq.ColumnChunkMetaData) -> int:
    """Return the approximate size of a column chunk when decoded;
    encodings may store it in far less.
    """
    width = _WIDTHS.get(chunk.physical_type, 0)
    statistics = chunk.statistics if chunk.has_dictionary_page else None
    if not width and statistics is not None and statistics.has_min_max:
        ends = cast(bytes, statistics.min_raw), cast(bytes, statistics.max_raw)
        width = _OFFSET_BYTES + sum(map(len, ends)) // 2
    return max(chunk.total_uncompressed_size, width * chunk.num_values)


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
