"""Many writers in simulated time: real threads that take turns, whose pauses take no time at all.

One thread runs at a time; when it pauses, the one whose pause ends first goes on. The CPU a thread
uses is added to its time, as if each writer had a machine like this one to itself.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections.abc import Callable, Sequence

FETCHES_AT_ONCE = 16


class Simulation:
    """A clock in seconds, and the threads that live by it.

    A thread that a writer starts for itself, such as one that fetches a delta, is not one of them:
    its pauses are added up, as those of 16 threads at once, and taken by the writer when it pauses
    next.
    """

    def __init__(self) -> None:
        """Begin at 0."""
        self.now = 0.0
        self._waiting: list[tuple[float, int, threading.Event]] = []
        self._turns = 0
        self._own = threading.local()
        self._owed: list[float] = []
        self._failure: BaseException | None = None
        self._cpu = 0.0

    def run(self, writers: Sequence[Callable[[], None]]) -> None:
        """Run writers until all have returned; raises what one of them raised."""
        left = len(writers)
        done = threading.Event()

        def life(writer: Callable[[], None], turn: threading.Event) -> None:
            nonlocal left
            self._own.turn = turn
            turn.wait()
            self._cpu = time.process_time()
            try:
                writer()
            except BaseException as error:  # noqa: BLE001  # raised again by `run`
                self._failure = self._failure or error
            left -= 1
            if left and not self._failure:
                self._next()
            else:
                done.set()

        for writer in writers:
            turn = threading.Event()
            heapq.heappush(self._waiting, (0.0, self._counted(), turn))
            threading.Thread(target=life, args=(writer, turn), daemon=True).start()
        self._next()
        done.wait()
        if self._failure:
            raise self._failure

    def pause(self, seconds: float) -> None:
        """Let others run until so much later."""
        turn = getattr(self._own, "turn", None)
        if turn is None:
            self._owed.append(seconds)
            return
        used = time.process_time() - self._cpu
        owed, self._owed = _at_once(self._owed), []
        turn.clear()
        heapq.heappush(self._waiting, (self.now + seconds + owed + used, self._counted(), turn))
        self._next()
        turn.wait()
        self._cpu = time.process_time()

    def _next(self) -> None:
        self.now, _, turn = heapq.heappop(self._waiting)
        turn.set()

    def _counted(self) -> int:
        self._turns += 1
        return self._turns


def _at_once(pauses: list[float]) -> float:
    """Return how long pauses take together if so many run side by side."""
    lanes = [0.0] * FETCHES_AT_ONCE
    for pause in pauses:
        heapq.heapreplace(lanes, lanes[0] + pause)
    return max(lanes)


class Latencies:
    """How long requests take: about their mean, and one in a hundred four times as long."""

    def __init__(self, seed: int) -> None:
        """Draw from `seed`."""
        self._chance = random.Random(seed)  # noqa: S311

    def draw(self, mean_ms: float, size_bytes: int = 0) -> float:
        """Return seconds for a request of a mean, and of so many bytes at 80 MB/s."""
        drawn = mean_ms * self._chance.lognormvariate(-0.02, 0.2)
        slow = 4 if self._chance.random() < 0.01 else 1
        return drawn * slow / 1000 + size_bytes / 80e6

    def random(self) -> float:
        """Return a number from 0 up to 1."""
        return self._chance.random()


class WriteUnits:
    """What one key of DynamoDB takes: 1,000 write units a second, and no more."""

    def __init__(self, clock: Simulation, a_second: float = 1000.0) -> None:
        """Begin with the units of one second."""
        self._clock, self._a_second = clock, a_second
        self._left: dict[object, tuple[float, float]] = {}

    def take(self, key: object, units: float) -> bool:
        """Take units from a key; False if it has not as many left, and is throttled."""
        left, since = self._left.get(key, (self._a_second, self._clock.now))
        left = min(self._a_second, left + (self._clock.now - since) * self._a_second)
        allowed = left >= units
        self._left[key] = (left - units if allowed else left, self._clock.now)
        return allowed
