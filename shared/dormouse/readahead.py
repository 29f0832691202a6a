"""Readahead: produce the items of a stream on another thread, a few ahead of the consumer.

Merging and writing both release the interpreter's lock, so a compaction uses two cores.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")

DEPTH = 4
"""How many items are produced ahead of the consumer. An item is a batch of rows, which is
small."""


def read_ahead(items: Iterable[_Item]) -> Generator[_Item, None, None]:
    """Yield `items` in order. An error in producing an item is raised when it is the item's turn.

    Closing this generator early also stops the producer, and closes `items` if it is a generator.
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
