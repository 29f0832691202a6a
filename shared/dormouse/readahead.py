"""Readahead: make the next items of a stream on another thread while the current one is used.

Merging and writing both release the interpreter's lock, so one compaction uses two cores.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")

DEPTH = 4
"""How many items are made ahead; an item is usually one batch, which is small."""


def read_ahead(items: Iterable[_Item]) -> Generator[_Item, None, None]:
    """Yield `items` in their order; an error while an item is made is raised when that item is due.

    If it is closed early, making items ends, too: a generator that makes them is closed.
    """
    source = iter(items)
    with ThreadPoolExecutor(1) as thread:
        pending: deque[Future[list[_Item]]] = deque()
        try:
            for _ in range(DEPTH):
                pending.append(thread.submit(_next, source))
            while made := pending.popleft().result():
                pending.append(thread.submit(_next, source))
                yield from made
        finally:
            for future in pending:
                future.cancel()
            thread.submit(_close, source).result()


def _next(source: Iterator[_Item]) -> list[_Item]:
    """Return the next item in a list; an empty list at the end."""
    for item in source:
        return [item]
    return []


def _close(source: Iterator[_Item]) -> None:
    close = getattr(source, "close", None)
    if close is not None:
        close()
