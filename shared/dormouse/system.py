"""Time, ids, retries, folders: what they are to the library, and those of a real process."""

import os
import random
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar
from weakref import finalize

from dormouse.errors import ServiceRefusedError, UnavailableError

# How often a request is retried, and how long the pauses (backoff) between attempts are: one policy
# for all that retries by itself, the log and the blobs of the state store, S3, SQS and the
# dead-letter queues.


_Result = TypeVar("_Result")
_Part = TypeVar("_Part")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """A bound on attempts, and exponential backoff with full jitter.

    The pause after the n-th failure in a row is a random share of
    ``first_pause_seconds * 2**(n - 1)``, but of no more than ``longest_pause_seconds``: with the
    defaults, of 25, 50, 100 ms and so on, up to 4 s. `sleep` takes seconds, `random` returns a
    number from 0 up to 1: tests pass in others, so that they neither wait nor vary.
    """

    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = random.random
    attempts: int = 12
    first_pause_seconds: float = 0.025
    longest_pause_seconds: float = 4.0

    def pause(self, failures: int) -> None:
        """Pause after the first, second, ... failure in a row."""
        longest = min(self.longest_pause_seconds, self.first_pause_seconds * 2 ** (failures - 1))
        self.sleep(longest * self.random())

    def retry(self, request: Callable[[], _Result]) -> _Result:
        """Return what `request` returns; call it again while it raises UnavailableError.
        Raises UnavailableError: the last attempt failed as well, or it is refused for good.
        """
        for failures in range(1, self.attempts):
            try:
                return request()
            except ServiceRefusedError:
                raise
            except UnavailableError:
                self.pause(failures)
        return request()

    def finish(
        self, parts: Sequence[_Part], request: Callable[[Sequence[_Part]], list[_Part]]
    ) -> None:
        """Call `request` with all parts, then with the parts that it returned as not done yet.

        This is how a batch request to DynamoDB goes on: it may leave any part of the batch undone.
        An attempt that does some of the parts is progress, so only attempts that do none count
        towards the bound and are followed by a pause.
        Raises UnavailableError: as many attempts in a row as the policy allows did nothing.
        """
        failures = 0
        while parts:
            rest = request(parts)
            if rest and len(rest) == len(parts):
                failures += 1
                if failures == self.attempts:
                    raise UnavailableError(
                        f"{len(rest)} parts of a batch request were left undone "
                        f"{failures} times in a row"
                    )
                self.pause(failures)
            else:
                failures = 0
            parts = rest


RETRIES = RetryPolicy()
"""The policy of a real process."""
_RANDOM_BITS = 80


class Clock(Protocol):
    """The current time."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""


class Ids(Protocol):
    """A generator of unique ids."""

    def new(self) -> str:
        """Return 32 hex digits, unique; the first 12 are the milliseconds since 1970."""


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


class OwnFolder:
    """A temporary folder, `name`, which its process removes: after a ``with`` block, when nothing
    refers to it, or as it exits. A fork that exits leaves it to its parent.
    """

    def __init__(self, *, dir: str | Path | None = None, prefix: str | None = None) -> None:
        self.name = tempfile.mkdtemp(dir=dir, prefix=prefix)
        self.cleanup = finalize(self, _remove, self.name, os.getpid())

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
