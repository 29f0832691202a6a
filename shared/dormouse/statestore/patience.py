"""How often a request is tried, and how long the pauses between are; used by `log` and `s3`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from dormouse.errors import UnavailableError

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Patience:
    """A bound on attempts, with full jitter: a random share of a pause that doubles each time.

    `sleep` takes seconds, `random` gives a number from 0 up to 1: they are given by who wires the
    store, so that tests neither wait nor vary.
    """

    sleep: Callable[[float], None]
    random: Callable[[], float]
    attempts: int = 12
    first_pause_seconds: float = 0.025
    longest_pause_seconds: float = 4.0

    def pause(self, failures: int) -> None:
        """Pause after the first, second, ... failure in a row."""
        longest = min(self.longest_pause_seconds, self.first_pause_seconds * 2 ** (failures - 1))
        self.sleep(longest * self.random())

    def insist(self, read: Callable[[], _Result]) -> _Result:
        """Return what `read` gives, calling it again while it raises UnavailableError.

        Raises:
            UnavailableError: the last attempt failed as well.
        """
        for failures in range(1, self.attempts):
            try:
                return read()
            except UnavailableError:
                self.pause(failures)
        return read()


def _at_once(seconds: float) -> None:
    """Stand where the wiring puts a sleep."""


WITHOUT_PAUSES = Patience(sleep=_at_once, random=lambda: 0.0)
"""Tries again at once: for tests, and where pages are in memory."""
