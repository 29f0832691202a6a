"""Writers in simulated time, and requests that take the time of a region's.

Real threads take turns, and their pauses take no time at all: one thread runs at a time; when it
pauses, the one whose pause ends first goes on. The CPU a thread uses is added to its time, as if
each writer had a machine like this one to itself. Python's cyclic collector, which would look
through the objects of all writers, is off.

Requests are counted as well: they are those of `counting`, made slow.
"""

from __future__ import annotations

import gc
import heapq
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from bench.measure import T
from bench.state.counting import (
    CountingDynamoDB,
    CountingPages,
    CountingStorage,
    Key,
    Requests,
    item_bytes,
    read_units,
)
from dormouse.aws.state_store import FEWEST_HEDGED, LATE
from dormouse.log.blobs import AT_ONCE
from dormouse.ports import Storage
from tests.support.hooked_pages import HookedPages

_Wanted = TypeVar("_Wanted")


class _Thread(threading.local):
    """What a thread keeps: its turn, the time it has not taken yet, and whether others run then."""

    turn: threading.Event | None = None
    owed = 0.0
    is_aside = False


class Simulation:
    """A clock in seconds, and the threads that live by it.

    A thread that a writer starts for itself, such as one that fetches a blob, is not one of them:
    the writer takes the longest of their pauses when it pauses next.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._waiting: list[tuple[float, int, threading.Event]] = []
        self._turns = 0
        self._own = _Thread()
        self._of_helpers: list[float] = []
        self._failure: BaseException | None = None
        self._counted_cpu = 0.0

    def run(self, writers: Sequence[Callable[[], None]]) -> None:
        """Run writers until all have returned; raises what one of them raised."""
        left, done = len(writers), threading.Event()

        def life(writer: Callable[[], None], turn: threading.Event) -> None:
            nonlocal left
            self._own.turn = turn
            self._await(turn)
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
            self._push(0, turn)
            threading.Thread(target=life, args=(writer, turn), daemon=True).start()
        gc.disable()
        self._next()
        done.wait()
        gc.enable()
        if self._failure:
            raise self._failure

    def pause(self, seconds: float) -> None:
        """Let others run until so much later."""
        own = self._own
        if own.turn is None:
            self._of_helpers.append(seconds)
            return
        of_helpers, self._of_helpers = max(self._of_helpers, default=0.0), []
        own.owed += seconds + of_helpers + self._used()
        if own.is_aside:
            return
        own.turn.clear()
        self._push(own.owed, own.turn)
        own.owed = 0.0
        self._next()
        self._await(own.turn)

    def overlap(self, first: Callable[[], T], second: Callable[[], object]) -> T:
        """Do two things at once; an `Overlap` of the store. `second` sees what is there by now."""
        self.pause(0)
        ends = self._here() + self._aside(second)[1]
        try:
            return first()
        finally:
            self.pause(max(0.0, ends - self._here()))

    def fetch(self, get: Callable[[_Wanted], T], wanted: Sequence[_Wanted]) -> Iterator[T]:
        """Request several things at once, and once more what is late; a `Fetch` of the store."""
        self.pause(0)
        began, first = self._here(), [self._aside(partial(get, each)) for each in wanted]
        taken = [seconds for _, seconds in first]
        if FEWEST_HEDGED <= len(wanted) <= AT_ONCE:
            late = LATE * sorted(taken)[(len(taken) + 1) // 2 - 1]
            for n, seconds in enumerate(taken):
                if seconds > late:
                    again = self._aside(partial(get, wanted[n]))[1]
                    taken[n] = min(seconds, late + again)
        for (result, _), seconds in zip(first, taken, strict=True):
            self.pause(max(0.0, began + seconds - self._here()))
            yield result

    @contextmanager
    def uncharged(self) -> Iterator[None]:
        """Let a writer not pay for what is not its own, such as the making of an answer here."""
        began = time.process_time()
        try:
            yield
        finally:
            self._counted_cpu += time.process_time() - began

    def _aside(self, work: Callable[[], T]) -> tuple[T, float]:
        """Do `work` while nobody else runs; return its result, and the seconds that it takes."""
        self._here()
        own = self._own
        before = own.owed, own.is_aside
        own.owed, own.is_aside = 0.0, True
        try:
            result = work()
            self.pause(0)
            return result, own.owed
        finally:
            own.owed, own.is_aside = before

    def _here(self) -> float:
        """Return the time of the thread that runs."""
        self._own.owed += self._used()
        return self.now + self._own.owed

    def _used(self) -> float:
        """Return the CPU seconds that were used and not counted yet, and count them."""
        cpu = time.process_time()
        used, self._counted_cpu = cpu - self._counted_cpu, cpu
        return max(0.0, used)

    def _push(self, seconds: float, turn: threading.Event) -> None:
        self._turns += 1
        heapq.heappush(self._waiting, (self.now + seconds, self._turns, turn))

    def _next(self) -> None:
        self.now, _, turn = heapq.heappop(self._waiting)
        turn.set()

    def _await(self, turn: threading.Event) -> None:
        turn.wait()
        self._counted_cpu = time.process_time()


WRITE_MS, READ_MS, PUT_MS, GET_MS = 5, 3, 25, 15


@dataclass
class Network:
    """What all requests of a contest share; `taken` are units and GETs by key and by prefix."""

    requests: Requests = field(default_factory=Requests)
    clock: Simulation = field(default_factory=Simulation)
    chance: random.Random = field(default_factory=lambda: random.Random(1))  # noqa: S311
    taken: Counter[str] = field(default_factory=Counter)

    def begin(self) -> None:
        self.requests.clear()
        self.taken.clear()

    def drawn(self, mean_ms: float, size_bytes: int = 0) -> float:
        """Return seconds for a request of a mean, and of so many bytes at 80 MB/s.

        One in a hundred takes four times as long.
        """
        seconds = mean_ms / 1000 * self.chance.lognormvariate(-0.02, 0.2)
        slow = 4 if self.chance.random() < 0.01 else 1
        return seconds * slow + size_bytes / 80e6

    def pause(self, mean_ms: float, size_bytes: int = 0) -> None:
        self.clock.pause(self.drawn(mean_ms, size_bytes))


class SlowStorage(CountingStorage):
    def __init__(self, inner: Storage, network: Network) -> None:
        super().__init__(inner, network.requests)
        self._network = network

    def get(self, path: str) -> bytes:
        with self._network.clock.uncharged():
            body = super().get(path)
        self._network.taken[f"s3 {path.rpartition('/')[0]}"] += 1
        self._network.pause(GET_MS, len(body))
        return body

    def put(self, path: str, body: bytes) -> bool:
        self._network.pause(PUT_MS, len(body))
        with self._network.clock.uncharged():
            return super().put(path, body)


class SlowDynamoDB(CountingDynamoDB):
    """Items whose requests take their time, half of it before they happen."""

    def __init__(self, kept: dict[Key, Mapping[str, Any]], network: Network) -> None:
        super().__init__(kept, network.requests)
        self._network = network

    def put_item(self, *, TableName: str, Item: Mapping[str, Any], **_: Any) -> None:  # noqa: N803
        self._network.pause(WRITE_MS / 2)
        with self._network.clock.uncharged():
            super().put_item(TableName=TableName, Item=Item)
        self._network.pause(WRITE_MS / 2)

    def batch_get_item(self, *, RequestItems: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N803
        network = self._network
        network.pause(READ_MS / 2)
        with network.clock.uncharged():
            answer = super().batch_get_item(RequestItems=RequestItems)
            ((table, asked),) = RequestItems.items()
            for key in asked["Keys"]:
                item = self.kept.get((table, key["k"]["S"], key["i"]["S"]))
                units = read_units(item, asked["ConsistentRead"])
                network.taken[f"dynamodb {key['k']['S']}"] += units  # type: ignore[assignment]
        network.pause(READ_MS / 2, sum(map(item_bytes, answer["Responses"][table])))
        return answer


class SlowPages(CountingPages):
    """Pages whose requests take their time, half of it before they happen.

    The pages of a contest have few hash keys, so reads of pages are counted as those of one.
    """

    def __init__(self, inner: HookedPages, network: Network) -> None:
        super().__init__(inner, network.requests)
        self.before, self.after = self._begin, self._end
        self._network = network
        self.attempts, self.answered_at = 0, 0.0

    def _begin(self, operation: str) -> None:
        self._count(operation)
        self._half(operation)
        if operation in ("head", "page"):
            self._network.taken[f"dynamodb {operation}"] += 1
        self.attempts += operation == "append"
        self._answering = self._network.clock.uncharged()
        self._answering.__enter__()

    def _end(self, operation: str) -> None:
        self._answering.__exit__(None, None, None)
        self._half(operation)
        if operation == "append":
            self.answered_at = self._network.clock.now

    def _half(self, operation: str) -> None:
        self._network.pause((READ_MS if operation in ("head", "page") else WRITE_MS) / 2)
