"""Two things at once: a commit stores its own delta and reads those of others; who reads a part of
the state reads what is kept of it and what was committed since.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

_Result = TypeVar("_Result")


class Overlap(Protocol):
    """Does two things and waits for both."""

    def __call__(self, first: Callable[[], _Result], second: Callable[[], object], /) -> _Result:
        """Return the result of `first`. Raises what either raises; of two errors, that of `first`.

        Both have ended when it returns or raises.
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
