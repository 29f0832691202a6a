"""Tasks of one query, in threads that end with it.

A read of a local disk takes less time than to hand it to another thread and back. So only reads
that wait for a network are in threads of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Protocol, TypeVar

from dormouse.ports.services import Objects

_T = TypeVar("_T")

READ_THREADS = 8
"""How many shards a query looks up at once."""
READS_AT_ONCE = 64
"""How many storage reads are in flight at once, at most: the inputs of a compaction are opened, and
the row groups of a look-up are fetched, in the time of one read.
"""
DECODE_THREADS = 2
"""How many shards a look-up decodes at once."""


class Start(Protocol):
    """Starts a task."""

    def __call__(self, task: Callable[[], _T], /) -> Callable[[], _T]:
        """Return a function that waits for the task, and returns or raises what it did."""


@contextmanager
def in_threads(tasks: int, most: int = READ_THREADS) -> Iterator[Start]:
    """Let the block start up to `tasks` tasks, of which `most` run at once.

    A single one runs in the thread that asks for its result, when it does so: to start a thread
    takes longer than to read a row group from a local disk.
    """
    if tasks < 2:
        yield _at_the_first_call
        return
    with ThreadPoolExecutor(min(tasks, most)) as threads:

        def submit(task: Callable[[], _T], /) -> Callable[[], _T]:
            return threads.submit(task).result

        yield submit


def reading_threads(objects: Objects, reads: int) -> AbstractContextManager[Start]:
    """Let the block start up to `reads` reads of `objects`, which are in flight at once if they
    wait for a network; otherwise, each runs when its result is asked for.
    """
    return in_threads(reads if objects.is_remote else 1, READS_AT_ONCE)


def _at_the_first_call(task: Callable[[], _T], /) -> Callable[[], _T]:
    return cache(task)
