"""Parts of a shard, fetched in few reads and proven by their CRCs; by threads of ours.

Arrow can read ahead by itself, but its threads would then call into Python, and one that is still
at it when the process ends aborts the process. Used by `reading`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future
from math import inf

from dormouse.errors import InvariantError
from dormouse.ports import Objects
from dormouse.shards.crcs import Section
from dormouse.shards.footer import raise_damaged

MAX_GAP_BYTES = 64 * 1024
"""Bytes nobody asked for that are read along to save a read: what comes in the time of one."""

ByteSpan = tuple[int, int]
"""Where some bytes of an object begin and end."""


class FetchedFile(io.RawIOBase):
    """An object of which some spans are fetched, as a file that can be read there."""

    def __init__(self, path: str, size_bytes: int, parts: Sequence[tuple[ByteSpan, Future[bytes]]]):
        """Stand at the start; each of `parts` is waited for when it is first read."""
        self.path = path
        self._size_bytes, self._parts, self._at = size_bytes, parts, 0

    def readable(self) -> bool:
        """Return True: it can be read."""
        return True

    def seekable(self) -> bool:
        """Return True: it can be read anywhere."""
        return True

    def tell(self) -> int:
        """Return the place of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the place of the next read, as every file does."""
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}
        self._at = starts[whence] + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, which must lie in one of the spans."""
        end = self._at + size
        for (start, stop), part in self._parts:
            if size >= 0 and start <= self._at and end <= stop:
                found = part.result()[self._at - start : end - start]
                self._at += len(found)
                return found
        raise InvariantError(f"bytes {self._at} to {end} of {self.path} were not fetched")


def fetch_sections(
    threads: Executor, objects: Objects, path: str, size_bytes: int, parts: Iterable[Section]
) -> FetchedFile:
    """Begin to fetch some parts of a shard, in as few reads as they lie together."""

    def read(some: Sequence[Section]) -> bytes:
        return read_sections(objects, path, size_bytes, some)

    found = [(byte_span(some), threads.submit(read, some)) for some in coalesce(parts)]
    return FetchedFile(path, size_bytes, found)


def read_sections(objects: Objects, path: str, size_bytes: int, parts: Sequence[Section]) -> bytes:
    """Read the span of some parts of a shard at once, and check each of them.

    Raises:
        NotFoundError: the shard is gone.
        DamagedShardError: it is damaged.
    """
    start, end = byte_span(parts)
    with raise_damaged(path), objects.open(path, size_bytes) as file:
        file.seek(start)
        body = file.read(end - start)
    view = memoryview(body)
    for part in parts:
        part.check(path, view[part.start - start : part.end - start])
    return body


def byte_span(parts: Sequence[Section]) -> ByteSpan:
    """Return where the bytes of some parts, of which there is one, begin and end."""
    return min(part.start for part in parts), max(part.end for part in parts)


def coalesce(parts: Iterable[Section], most_bytes: float = inf) -> list[list[Section]]:
    """Return parts in groups that are read at once: those that lie near each other become one, up
    to `most_bytes`; a part is never divided.
    """
    result: list[list[Section]] = []
    start = end = 0
    for part in sorted(parts, key=lambda part: part.start):
        if result and part.start - end <= MAX_GAP_BYTES and part.end - start <= most_bytes:
            result[-1].append(part)
            end = max(end, part.end)
        else:
            result.append([part])
            start, end = part.start, part.end
    return result
