"""What a look-up needs of a shard, fetched in few reads by the thread that asks for it.

Arrow can read ahead by itself, but its threads would then call into Python, and one that is still
at it when the process ends aborts the process. Used by `reading`.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import BinaryIO

import pyarrow.parquet as pq

LARGEST_GAP_BYTES = 16 * 1024
"""Bytes nobody asked for that are read along to save a read."""

Span = tuple[int, int]


class Prefetched(io.RawIOBase):
    """A file of which some spans are in memory; the rest is read when it is asked for."""

    def __init__(self, file: BinaryIO, spans: Iterable[Span]) -> None:
        """Fetch `spans` of `file`, from and up to, in as few reads as they lie together."""
        self._file, self._at = file, 0
        self._parts = [(start, _read(file, start, end - start)) for start, end in _joined(spans)]

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that it can be read anywhere."""
        return True

    def tell(self) -> int:
        """Give the place of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the place of the next read, as every file does."""
        if whence == io.SEEK_END:
            offset, whence = self._file.seek(0, io.SEEK_END) + offset, io.SEEK_SET
        self._at = offset if whence == io.SEEK_SET else self._at + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Give the next `size` bytes, from memory if they are there."""
        for start, part in self._parts:
            if size >= 0 and start <= self._at and self._at + size <= start + len(part):
                found = part[self._at - start : self._at - start + size]
                break
        else:
            found = _read(self._file, self._at, size)
        self._at += len(found)
        return found


def chunks(
    metadata: pq.FileMetaData, row_groups: Sequence[int], columns: Collection[str]
) -> Iterator[Span]:
    """Give where the chunks of some columns lie in some row groups of a file."""
    for number in row_groups:
        group = metadata.row_group(number)
        for i in range(group.num_columns):
            chunk = group.column(i)
            # a nested column has a chunk for each leaf, whose path begins with the column's name
            if any(f"{chunk.path_in_schema}.".startswith(f"{name}.") for name in columns):
                start = chunk.data_page_offset
                if chunk.has_dictionary_page and chunk.dictionary_page_offset:
                    start = min(start, chunk.dictionary_page_offset)
                yield start, start + chunk.total_compressed_size


def _joined(spans: Iterable[Span]) -> list[Span]:
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start - joined[-1][1] <= LARGEST_GAP_BYTES:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _read(file: BinaryIO, start: int, size: int) -> bytes:
    file.seek(start)
    return file.read(size)
