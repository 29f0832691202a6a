"""Fetch sections of a shard in few ranged reads, by threads of our own, and verify their CRCs.

Arrow has readahead of its own, but its threads would call into Python, and a thread that does so
while the process exits aborts the process. Used by `reading`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from operator import attrgetter

from dormouse.errors import InvariantError
from dormouse.ports.services import Objects, StreamedObjects
from dormouse.readers.threads import Start
from dormouse.seekable import SeekableFile
from dormouse.shards.format.crcs import Section
from dormouse.shards.format.footer import raise_damaged
from dormouse.stored.crc32 import crc32

MAX_GAP_BYTES = 64 * 1024
"""Sections with at most this gap between them are read together: reading the gap takes
no longer than another request.
"""

ByteSpan = tuple[int, int]
"""The first byte of some bytes of an object, and the byte after the last."""


class FetchedFile(SeekableFile):
    """An object of which some spans are fetched, as a file that can be read within these spans."""

    def __init__(
        self, path: str, size_bytes: int, spans: Sequence[tuple[ByteSpan, Callable[[], bytes]]]
    ) -> None:
        """Start at offset 0; each span has a function that waits until it is fetched."""
        super().__init__(size_bytes)
        self.path = path
        self._spans = spans

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, which must be within one of the spans."""
        found = bytes(self.view(self._at, self._at + size))
        self._at += len(found)
        return found

    def view(self, start: int, end: int) -> memoryview:
        """Return the bytes between two offsets, which must be within one of the spans."""
        for (first, stop), body in self._spans:
            if first <= start <= end <= stop:
                return memoryview(body())[start - first : end - first]
        raise InvariantError(f"bytes {start} to {end} of {self.path} were not fetched")


def fetch_sections(
    start: Start,
    objects: Objects,
    path: str,
    size_bytes: int,
    wanted: Iterable[Sequence[Section]],
) -> FetchedFile:
    """Start to fetch sections of a shard, each group of `coalesce` in one ranged read."""
    read = partial(read_sections, objects, path, size_bytes)
    return FetchedFile(
        path, size_bytes, [(byte_span(group), start(partial(read, group))) for group in wanted]
    )


def read_sections(
    objects: Objects, path: str, size_bytes: int, sections: Sequence[Section]
) -> bytes:
    """Read some sections of a shard in one ranged read, and verify each of them.

    Raises:
        NotFoundError: the shard is gone.
        DamagedShardError: it is damaged.
    """
    start, end = byte_span(sections)
    with raise_damaged(path), objects.open(path, size_bytes) as file:
        file.seek(start)
        body = file.read(end - start)
    view = memoryview(body)
    for section in sections:
        section.check(path, view[section.start - start : section.end - start])
    return body


def stream_sections(
    objects: StreamedObjects, path: str, size_bytes: int, sections: Sequence[Section]
) -> Iterator[tuple[Section, int, memoryview]]:
    """Yield the bytes of some sections as they arrive by one ranged read: section, offset, bytes.

    A section is verified when all its bytes were yielded, so none may be used before the last.
    Bytes between sections are left out.

    Raises:
        NotFoundError: the shard is gone.
        DamagedShardError: it is damaged.
    """
    left = deque(sorted(sections, key=attrgetter("start", "end")))
    at, end = byte_span(sections)
    read_bytes = crc = 0
    with raise_damaged(path):
        for piece in objects.stream(path, size_bytes, at, end):
            arrived = memoryview(piece)
            stop = at + len(arrived)
            while left and left[0].start < stop:
                section = left[0]
                low = section.start if section.start > at else at  # max takes several times as long
                high = section.end if section.end < stop else stop
                part = arrived[low - at : high - at]
                read_bytes, crc = read_bytes + len(part), crc32(part, crc)
                yield section, low, part
                if stop < section.end:
                    break
                section.check_read(path, read_bytes, crc)
                left.popleft()
                read_bytes = crc = 0
            at = stop
    for section in left:  # empty ones at the very end, or what the response lacked
        section.check_read(path, read_bytes, crc)
        read_bytes = crc = 0


def byte_span(sections: Sequence[Section]) -> ByteSpan:
    """Return the span from the first to the last byte of `sections`.
    Requires: at least one section.
    """
    return min(section.start for section in sections), max(section.end for section in sections)


def coalesce(sections: Iterable[Section], most_bytes: float = inf) -> list[list[Section]]:
    """Return sections in groups that are read together: neighbours with
    small gaps, up to `most_bytes`.

    A section is never divided, so a group of one section may be larger.

    For example, with gaps of at most 64 KiB: the sections [4, 100 K), [100 K, 150 K) and [900 K, 1
    M) are read in two requests, [4, 150 K) and [900 K, 1 M).
    """
    result: list[list[Section]] = []
    start = end = 0
    for section in sorted(sections, key=attrgetter("start")):
        if result and section.start - end <= MAX_GAP_BYTES and section.end - start <= most_bytes:
            result[-1].append(section)
            end = max(end, section.end)
        else:
            result.append([section])
            start, end = section.start, section.end
    return result
