"""Storage and pages whose requests take the simulated time of a region's; used by contests.

They count as well: they are the counting ones, made slow.
"""

from __future__ import annotations

from bench.state.counting import CountingPages, CountingStorage, Requests
from bench.state.simulation import Latencies, Simulation, WriteUnits
from dormouse.errors import UnavailableError
from dormouse.statestore.log.pages import Page
from tests.support.memory_pages import MemoryPages
from tests.support.memory_storage import MemoryStorage

WRITE_MS, READ_MS, PUT_MS, GET_MS = 5, 3, 25, 15


class SlowStorage(CountingStorage):
    """Storage whose requests take their time."""

    def __init__(
        self, inner: MemoryStorage, requests: Requests, clock: Simulation, latencies: Latencies
    ) -> None:
        """Take the times from `latencies`."""
        super().__init__(inner, requests)
        self._simulation, self._latencies = clock, latencies

    def get(self, path: str) -> bytes:
        """Return an object after a while."""
        body = super().get(path)
        self._simulation.pause(self._latencies.draw(GET_MS, len(body)))
        return body

    def put(self, path: str, body: bytes) -> bool:
        """Store an object after a while."""
        self._simulation.pause(self._latencies.draw(PUT_MS, len(body)))
        return super().put(path, body)


class SlowPages(CountingPages):
    """Pages whose requests take their time, half of it before they happen, and are throttled."""

    def __init__(
        self, inner: MemoryPages, requests: Requests, clock: Simulation, latencies: Latencies,
        units: WriteUnits,
    ) -> None:  # fmt: skip
        """Take the times from `latencies`."""
        super().__init__(inner, requests)
        self.before, self.after = self._begin, self._end
        self._clock, self._latencies, self._units = clock, latencies, units
        self.attempts, self.answered_at = 0, 0.0

    def append(
        self, table_id: str, number: int, delta_id: str, position: int | None = None
    ) -> Page | None:
        """Append unless the page's hash key is throttled."""
        self.attempts += 1
        if not self._units.take(number // 64, 1):
            self._clock.pause(self._latencies.draw(WRITE_MS))
            raise UnavailableError("throttled")
        page = super().append(table_id, number, delta_id, position)
        self.answered_at = self._clock.now
        return page

    def _begin(self, operation: str) -> None:
        self._count(operation)
        self._clock.pause(self._half(operation))

    def _end(self, operation: str) -> None:
        self._clock.pause(self._half(operation))

    def _half(self, operation: str) -> float:
        mean_ms = READ_MS if operation in ("head", "page") else WRITE_MS
        return self._latencies.draw(mean_ms) / 2
