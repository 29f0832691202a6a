"""The download of a file that is read while its bytes arrive."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Condition
from typing import TypeAlias

Arrived: TypeAlias = Callable[[int, int], object]
"""Is called with the start and the end of bytes that are in the local file from now on.

Before the first call the local file has its full size. An error of it ends the download.
"""


class StoppedError(Exception):
    """Nobody needs the file any more, so its download ends."""


class Arrivals:
    """Which bytes of a local file have arrived; safe for many threads.

    Those that download call `add`, which is an `Arrived`; those that read call `wait`.
    """

    def __init__(self, size_bytes: int) -> None:
        """Begin without a byte."""
        self._size_bytes = size_bytes
        self._spans: list[tuple[int, int]] = []
        self._is_stopped, self._is_done = False, False
        self._error: BaseException | None = None
        self._changed = Condition()

    def add(self, start: int, end: int) -> None:
        """Note that the bytes from `start` up to `end` have arrived.

        Raises:
            StoppedError: nobody needs the file any more.
        """
        with self._changed:
            if self._is_stopped:
                raise StoppedError
            self._spans = _with_span(self._spans, start, end)
            self._changed.notify_all()

    def end(self, download: Future[None]) -> None:
        """Note that the download is done: all bytes have arrived, or no more will."""
        with self._changed:
            self._error = StoppedError() if download.cancelled() else download.exception()
            self._is_done = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Let the download end with its next bytes."""
        with self._changed:
            self._is_stopped = True

    def is_incomplete(self) -> bool:
        """Return whether bytes are missing, as soon as the file is there with its full size.

        Raises:
            Exception: what the download raised.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._spans or self._is_done)
            self._raise_error()
            return not self._is_done

    def wait(self, start: int, end: int) -> int:
        """Return up to where all bytes from `start` on are there, `end` at most, as soon as the
        first of them is there.

        Raises:
            Exception: what the download raised.
        """
        end = min(end, self._size_bytes)
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_done or start >= end or self._until(start) > start
            )
            self._raise_error()
            return end if self._is_done else min(end, self._until(start))

    def wait_for_all(self) -> None:
        """Return when the download is done. Raises what it raised."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_done)
            self._raise_error()

    def _until(self, start: int) -> int:
        """Return up to where all bytes from `start` on have arrived."""
        return max([start, *(high for low, high in self._spans if low <= start)])

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error


def _with_span(spans: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """Return spans, none of which touches another, with one more span of bytes among them."""
    apart = [(low, high) for low, high in spans if high < start or end < low]
    touching = [(low, high) for low, high in spans if not (high < start or end < low)]
    low = min([start, *(low for low, _ in touching)])
    high = max([end, *(high for _, high in touching)])
    return [*apart, (low, high)]
