"""What is done at once: a commit stores its delta and reads those of others, many together; who
reads a part of the state reads what is kept of it and what was committed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

_Result = TypeVar("_Result")
_Wanted = TypeVar("_Wanted")

AT_ONCE = 32
"""So many requests are under way together."""


class Overlap(Protocol):
    """Does two things and waits for both."""

    def __call__(self, first: Callable[[], _Result], second: Callable[[], object], /) -> _Result:
        """Return the result of `first`. Raises what either raises; of two errors, that of `first`.

        Both have ended when it returns or raises.
        """


class Fetch(Protocol):
    """Requests several things at once."""

    def __call__(
        self, get: Callable[[_Wanted], _Result], wanted: Sequence[_Wanted], /
    ) -> Iterator[_Result]:
        """Yield what `get` returns for each, in order, each as soon as those before it are there.

        Raises what `get` raises. `get` may be called twice for one, and only reads.
        """


def in_turn(first: Callable[[], _Result], second: Callable[[], object]) -> _Result:
    """Do one after the other: for tests, and where requests take no time."""
    result = first()
    second()
    return result


def side_by_side(first: Callable[[], _Result], second: Callable[[], object]) -> _Result:
    """Do `second` on a thread of its own meanwhile."""
    with ThreadPoolExecutor(1) as thread:
        beside = thread.submit(second)
        result = first()
    beside.result()
    return result


def fetched(get: Callable[[_Wanted], _Result], wanted: Sequence[_Wanted]) -> Iterator[_Result]:
    """Request each once; a `Fetch`."""
    if len(wanted) < 2:
        yield from map(get, wanted)
        return
    with ThreadPoolExecutor(min(len(wanted), AT_ONCE)) as pool:
        yield from pool.map(get, wanted)
