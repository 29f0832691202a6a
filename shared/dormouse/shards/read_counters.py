"""Count what a query reads: for users who ask what it costs, and for tests."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar, cast

from dormouse.ports import Objects, StreamedObjects
from dormouse.storage import WrappedFile


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

    def add(self, shards: Iterable[str] = (), row_groups: int = 0, scans: int = 0) -> None:
        """Count what was not read by a request of its own."""
        with self.lock:
            self.shards.update(shards)
            self.row_groups += row_groups
            self.scans += scans


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


# Tasks of queries, in threads that all queries of the process share: so many queries and scans as
# there may be, so many reads are in flight, and so many shards are decoded.
#
# A read of a local disk takes less time than to hand it to another thread and back. So only reads
# that wait for a network are in threads of their own. No task waits for another of its pool.

_T = TypeVar("_T")

READ_THREADS = 8
"""How many shards a query looks up at once."""
READS_AT_ONCE = 64
"""How many storage reads are in flight at once, at most: the inputs of a compaction are opened, and
the row groups of a look-up are fetched, in the time of one read.
"""
DECODE_THREADS = max(2, os.cpu_count() or 1)
"""How many shards are decoded at once."""


class Start(Protocol):
    """Starts a task."""

    def __call__(self, task: Callable[[], _T], /) -> Callable[[], _T]:
        """Return a function that waits for the task, and returns or raises what it did."""


@contextmanager
def in_threads(tasks: int, most: int) -> Iterator[Start]:
    """Let the block start up to `tasks` tasks, of which at most `most` run at once, in threads that
    the process has for this number. Tasks that are not done when the block ends are not begun.

    A single one runs in the thread that asks for its result, when it does so: to hand it to another
    thread takes longer than to read a row group from a local disk.
    """
    if tasks < 2:
        yield _at_the_first_call
        return
    threads, started = _threads(most, os.getpid()), list[Future[Any]]()

    def submit(task: Callable[[], _T], /) -> Callable[[], _T]:
        future = threads.submit(task)
        started.append(future)
        return future.result

    try:
        yield submit
    finally:
        for future in started:
            future.cancel()
        wait(started)


@cache
def _threads(most: int, process: int) -> ThreadPoolExecutor:
    """Return threads of a process: a fork has its own."""
    return ThreadPoolExecutor(most, f"dormouse-{process}")


def reading_threads(objects: Objects, reads: int) -> AbstractContextManager[Start]:
    """Let the block start up to `reads` reads of `objects`, which are in flight at once if they
    wait for a network; otherwise, each runs when its result is asked for.
    """
    return in_threads(reads if objects.is_remote else 1, READS_AT_ONCE)


def _at_the_first_call(task: Callable[[], _T], /) -> Callable[[], _T]:
    return cache(task)
