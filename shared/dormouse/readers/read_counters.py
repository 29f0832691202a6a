"""Count what a query reads: for users who ask what it costs, and for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from dormouse.ports.services import StreamedObjects
from dormouse.seekable import WrappedFile


@dataclass(slots=True)
class ReadCounters:
    """What has been read so far.

    `shards` are the shards whose footers or rows were read, `row_groups` counts the row groups
    whose rows were read. `requests` counts ranged reads, `size_bytes` the bytes they returned.
    `scans` counts the ranges that were merged as streams.
    """

    shards: set[str] = field(default_factory=set)
    row_groups: int = 0
    requests: int = 0
    size_bytes: int = 0
    scans: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add_request(self, size_bytes: int) -> None:
        """Count a read."""
        with self.lock:
            self.requests += 1
            self.size_bytes += size_bytes

    def add(self, other: ReadCounters) -> None:
        """Count what another query has read."""
        with self.lock:
            self.shards |= other.shards
            self.row_groups += other.row_groups
            self.requests += other.requests
            self.size_bytes += other.size_bytes
            self.scans += other.scans


class _CountedFile(WrappedFile):
    """A file that counts its reads."""

    def __init__(self, file: BinaryIO, reads: ReadCounters) -> None:
        super().__init__(file)
        self._reads = reads

    def read(self, size: int = -1) -> bytes:
        body = self._file.read(size)
        self._reads.add_request(len(body))
        return body


@dataclass(frozen=True, slots=True)
class CountedObjects:
    """A `ports.StreamedObjects` that counts its reads."""

    objects: StreamedObjects
    reads: ReadCounters

    @property
    def is_remote(self) -> bool:
        """Whether a read waits for a network."""
        return self.objects.is_remote

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        """Open an object. Raises NotFoundError, at the latest when it is read."""
        return cast(BinaryIO, _CountedFile(self.objects.open(path, size_bytes), self.reads))

    def link(self, path: str, local: Path) -> bool:
        """Make `local` a second name of an object's file, if that can be."""
        return self.objects.link(path, local)

    def stream(self, path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes of an object from `start` up to `end`. Raises NotFoundError."""
        read_bytes = 0
        for piece in self.objects.stream(path, size_bytes, start, end):
            read_bytes += len(piece)
            yield piece
        self.reads.add_request(read_bytes)
