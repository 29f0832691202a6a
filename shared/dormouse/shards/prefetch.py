"""What a look-up needs of a shard, fetched in few reads, by threads of ours.

Arrow can read ahead by itself, but its threads would then call into Python, and one that is still
at it when the process ends aborts the process. Used by `reading`.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future

import pyarrow.parquet as pq

from dormouse.errors import InvariantError
from dormouse.ports import Objects
from dormouse.shards.index import is_part_of

GAP_BYTES = 64 * 1024
"""Bytes nobody asked for that are read along to save a read: what comes in the time of one."""

Span = tuple[int, int]
"""Where some bytes of an object begin and end."""


class Fetched(io.RawIOBase):
    """An object of which some spans are fetched, as a file that can be read there."""

    def __init__(self, path: str, size_bytes: int, parts: Sequence[tuple[Span, Future[bytes]]]):
        """Stand at the start; each of `parts` is waited for when it is first read."""
        self.path = path
        self._size_bytes, self._parts, self._at = size_bytes, parts, 0

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
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}
        self._at = starts[whence] + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Give the next `size` bytes, which must lie in one of the spans."""
        end = self._at + size
        for (start, stop), part in self._parts:
            if size >= 0 and start <= self._at and end <= stop:
                found = part.result()[self._at - start : end - start]
                self._at += len(found)
                return found
        raise InvariantError(f"bytes {self._at} to {end} of {self.path} were not fetched")


def fetch(
    threads: Executor, objects: Objects, path: str, size_bytes: int, spans: Iterable[Span]
) -> Fetched:
    """Begin to fetch some spans of an object, in as few reads as they lie together."""

    def read(span: Span) -> bytes:
        with objects.open(path, size_bytes) as file:
            file.seek(span[0])
            return file.read(span[1] - span[0])

    parts = [(span, threads.submit(read, span)) for span in joined(spans)]
    return Fetched(path, size_bytes, parts)


def chunks(
    metadata: pq.FileMetaData, row_groups: Iterable[int], columns: Collection[str]
) -> Iterator[Span]:
    """Give where the chunks of some columns lie in some row groups of a file."""
    for number in row_groups:
        group = metadata.row_group(number)
        for i in range(group.num_columns):
            chunk = group.column(i)
            if is_part_of(chunk.path_in_schema, columns):
                start = chunk.data_page_offset
                if chunk.has_dictionary_page and chunk.dictionary_page_offset:
                    start = min(start, chunk.dictionary_page_offset)
                yield start, start + chunk.total_compressed_size


def joined(spans: Iterable[Span], gap_bytes: int = GAP_BYTES) -> list[Span]:
    """Give fewer spans that hold all of `spans`: those up to `gap_bytes` apart become one."""
    result: list[Span] = []
    for start, end in sorted(spans):
        if result and start - result[-1][1] <= gap_bytes:
            result[-1] = result[-1][0], max(end, result[-1][1])
        else:
            result.append((start, end))
    return result
