"""The clock, ids and randomness of a real process, used where services are wired."""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable

from dormouse.ports import Clock
from dormouse.retry_policy import RetryPolicy

_RANDOM_BITS = 80


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""
        return time.time_ns() // 1_000_000


class TimeOrderedIds:
    """Ids of 48 bits of time in milliseconds and 80 bits that begin at random; safe for threads.

    Ids of one process ascend, even within a millisecond and when its clock is set back: then the
    last id is counted up. Those of several processes are in the order of their clocks.
    """

    def __init__(
        self, clock: Clock | None = None, randbits: Callable[[int], int] = secrets.randbits
    ) -> None:
        """Use the machine's clock unless another is given; `randbits` takes a number of bits."""
        self._clock: Clock = clock or SystemClock()
        self._randbits = randbits
        self._lock = threading.Lock()
        self._last = 0

    def new(self) -> str:
        """Return 32 hex digits that were never returned before."""
        with self._lock:
            now_ms = self._clock.now_ms()
            if now_ms > self._last >> _RANDOM_BITS:
                # One bit stays zero, so that counting up can never run into the time.
                self._last = now_ms << _RANDOM_BITS | self._randbits(_RANDOM_BITS - 1)
            else:
                self._last += 1
            return f"{self._last:032x}"


def retry_policy() -> RetryPolicy:
    """Return the retry policy of a real process, which sleeps between its attempts."""
    return RetryPolicy(sleep=time.sleep, random=random.random)
