"""Writers in simulated time, and requests that take the time of a region's.

Real threads take turns, and their pauses take no time at all: one thread runs at a time; when it
pauses, the one whose pause ends first goes on. The CPU a thread uses is added to its time, as if
each writer had a machine like this one to itself.

Python's cyclic collector looks through the objects of all writers, which lie in one process here.
So the writer in whose turn it runs does not pay for it alone: each pays the same part.

Requests are counted as well: they are those of `counting`, made slow, and throttled as AWS does.
"""

from __future__ import annotations

import gc
import heapq
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bench.state.counting import (
    PAGE_ITEM_BYTES,
    CountingDynamoDB,
    CountingPages,
    CountingStorage,
    Key,
    Requests,
    item_bytes,
    read_units,
)
from dormouse.aws.state_store import FEWEST_HEDGED, LATE
from dormouse.errors import UnavailableError
from dormouse.log.blobs import AT_ONCE
from dormouse.log.pages import Head, Page
from tests.support.hooked_pages import HookedPages
from tests.support.memory_storage import MemoryStorage

_Result = TypeVar("_Result")
_Wanted = TypeVar("_Wanted")


class Simulation:
    """A clock in seconds, and the threads that live by it.

    A thread that a writer starts for itself, such as one that fetches a delta, is not one of them:
    its pauses are added up, as those of so many threads at once as the store has, and taken by the
    writer when it pauses next.
    """

    def __init__(self) -> None:
        """Begin at 0."""
        self.now = 0.0
        self._waiting: list[tuple[float, int, threading.Event]] = []
        self._turns = 0
        self._own = threading.local()
        self._owed: list[float] = []
        self._failure: BaseException | None = None
        self._began_turn = 0.0
        self._free = list[float]()
        self._collector = _CollectorTime()
        self._writers = 1

    def run(self, writers: Sequence[Callable[[], None]]) -> None:
        """Run writers until all have returned; raises what one of them raised."""
        left = self._writers = len(writers)
        done = threading.Event()

        def life(writer: Callable[[], None], turn: threading.Event) -> None:
            nonlocal left
            self._own.turn, self._own.settled = turn, 0.0
            turn.wait()
            self._begin_turn()
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
        with self._collector:
            self._next()
            done.wait()
        if self._failure:
            raise self._failure

    def pause(self, seconds: float) -> None:
        """Let others run until so much later."""
        turn = getattr(self._own, "turn", None)
        if turn is None:
            if hasattr(self._own, "taken"):
                self._own.taken += seconds
            else:
                self._owed.append(seconds)
            return
        used = self._used() + self._share_of_collector()
        owed, self._owed = _at_once(self._owed), []
        turn.clear()
        self._push(seconds + owed + used, turn)
        self._next()
        turn.wait()
        self._begin_turn()

    def overlap(self, first: Callable[[], _Result], second: Callable[[], object]) -> _Result:
        """Do `second` on a simulated thread of its own meanwhile; an `Overlap` of the store."""
        self.pause(0)
        beside = _Beside(self, second)
        self._push(0, beside.turn)
        threading.Thread(target=beside.live, daemon=True).start()
        try:
            return first()
        finally:
            self.pause(0)
            if not beside.is_done:
                turn = beside.awaited_by = self._own.turn
                turn.clear()
                self._next()
                turn.wait()
                self._begin_turn()
            if beside.failure:
                raise beside.failure

    def fetch(
        self, get: Callable[[_Wanted], _Result], wanted: Sequence[_Wanted]
    ) -> Iterator[_Result]:
        """Request several things at once, and once more what is late; a `Fetch` of the store.

        Threads do it, as in `log.blobs`, so the writer pays for them: before it has the
        first answer, though they would run while it waits.
        """
        if not wanted:
            return
        self.pause(0)
        began = self.now

        def timed(each: _Wanted) -> tuple[_Result, float]:
            self._own.taken = 0.0
            return get(each), self._own.taken

        with ThreadPoolExecutor(min(len(wanted), AT_ONCE)) as pool:
            first = list(pool.map(timed, wanted))
            taken = [seconds for _, seconds in first]
            if FEWEST_HEDGED <= len(wanted) <= AT_ONCE:
                late = LATE * sorted(taken)[(len(taken) + 1) // 2 - 1]
                again = [n for n, seconds in enumerate(taken) if seconds > late]
                second = pool.map(timed, [wanted[n] for n in again])
                for n, (_, seconds) in zip(again, second, strict=True):
                    taken[n] = min(taken[n], late + seconds)
        for (result, _), seconds in zip(first, taken, strict=True):
            left = began + seconds - self.now - self._used()
            if left > 0:
                self.pause(left)
            yield result

    def live_beside(self, beside: _Beside) -> None:
        """Be the thread of `overlap`."""
        self._own.turn = beside.turn
        beside.turn.wait()
        self._begin_turn()
        try:
            beside.work()
        except BaseException as error:  # noqa: BLE001  # raised again by `overlap`
            beside.failure = error
        self.pause(0)
        beside.is_done = True
        if beside.awaited_by:
            self._push(0, beside.awaited_by)
        self._next()

    @contextmanager
    def uncharged(self) -> Iterator[None]:
        """Let a writer not pay for what is not its own, such as the making of an answer here."""
        began, collected = time.thread_time(), self._collector.seconds
        try:
            yield
        finally:
            here = time.thread_time() - began
            self._free.append(max(0.0, here - (self._collector.seconds - collected)))

    def _begin_turn(self) -> None:
        self._began_turn, self._free = self._cpu(), []

    def _used(self) -> float:
        """Return the CPU seconds that the writer has used in its turn."""
        return self._cpu() - self._began_turn - sum(self._free)

    def _cpu(self) -> float:
        """Return the CPU seconds of this process but for the collector's."""
        return time.process_time() - self._collector.seconds

    def _share_of_collector(self) -> float:
        """Return what a writer has not paid yet of the collector's time; 0 for a thread beside."""
        total = self._collector.seconds
        since = total - getattr(self._own, "settled", total)
        self._own.settled = total
        return since / self._writers

    def _push(self, seconds: float, turn: threading.Event) -> None:
        heapq.heappush(self._waiting, (self.now + seconds, self._counted(), turn))

    def _next(self) -> None:
        self.now, _, turn = heapq.heappop(self._waiting)
        turn.set()

    def _counted(self) -> int:
        self._turns += 1
        return self._turns


class _CollectorTime:
    """The CPU seconds that Python's cyclic collector has taken since this was entered."""

    def __init__(self) -> None:
        self.seconds = self._began = 0.0

    def __enter__(self) -> None:
        gc.callbacks.append(self._note)

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, _: dict[str, int]) -> None:
        now = time.process_time()
        if phase == "start":
            self._began = now
        else:
            self.seconds += now - self._began


class _Beside:
    """What a simulated thread does beside another, and how it ended."""

    def __init__(self, simulation: Simulation, work: Callable[[], object]) -> None:
        self.work, self._simulation = work, simulation
        self.turn = threading.Event()
        self.awaited_by: threading.Event | None = None
        self.failure: BaseException | None = None
        self.is_done = False

    def live(self) -> None:
        self._simulation.live_beside(self)


def _at_once(pauses: list[float]) -> float:
    """Return how long pauses take together if so many run side by side."""
    lanes = [0.0] * AT_ONCE
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


class Units:
    """What keys take a second, and no more: write or read units of DynamoDB, GETs of S3."""

    def __init__(self, clock: Simulation, a_second: float) -> None:
        """Begin with the units of one second for each key."""
        self._clock, self._a_second = clock, a_second
        self._left: dict[object, tuple[float, float]] = {}
        self.taken: Counter[object] = Counter()
        self.refused = 0

    def take(self, key: object, units: float) -> bool:
        """Take units from a key; False if it has not as many left, and is throttled."""
        if self._there(key) < units:
            self.refused += 1
            return False
        self._take(key, units)
        return True

    def wait_for(self, key: object, units: float) -> float:
        """Take units from a key; return after how many seconds it has them."""
        self._take(key, units)
        missing = -self._there(key)
        self.refused += missing > 0
        return max(0.0, missing / self._a_second)

    def _take(self, key: object, units: float) -> None:
        self._left[key] = (self._there(key) - units, self._clock.now)
        self.taken[key] += units  # type: ignore[assignment]  # halves, too

    def _there(self, key: object) -> float:
        left, since = self._left.get(key, (self._a_second, self._clock.now))
        return min(self._a_second, left + (self._clock.now - since) * self._a_second)

    def busiest(self) -> float:
        """Return what was taken of the key of which most was taken."""
        return max(self.taken.values(), default=0)


class Limits:
    """What AWS lets pass: by hash key of DynamoDB, and by prefix of S3."""

    def __init__(self, clock: Simulation) -> None:
        """Begin with the units of a second."""
        self.writes, self.reads = Units(clock, 1000), Units(clock, 3000)
        self.gets = Units(clock, 5500)

    def refused(self) -> int:
        """Count the requests that were throttled."""
        return sum(each.refused for each in (self.writes, self.reads, self.gets))


WRITE_MS, READ_MS, PUT_MS, GET_MS = 5, 3, 25, 15
LAG_SECONDS, LAGGING_SHARE = 0.03, 1 / 3
"""One of DynamoDB's three replicas may not know yet what was put so short a time before."""


@dataclass
class Network:
    """What all requests of a contest share."""

    requests: Requests = field(default_factory=Requests)
    clock: Simulation = field(default_factory=Simulation)
    latencies: Latencies = field(default_factory=lambda: Latencies(1))

    def __post_init__(self) -> None:
        """Begin with all units."""
        self.limits = Limits(self.clock)
        self.put_at: dict[object, float] = {}

    def begin(self) -> None:
        """Count from zero again."""
        self.requests.clear()
        self.limits = Limits(self.clock)

    def pause(self, mean_ms: float, size_bytes: int = 0) -> None:
        """Take the time of a request."""
        self.clock.pause(self.latencies.draw(mean_ms, size_bytes))

    def lags(self, key: object) -> bool:
        """Return whether the replica that is asked does not know an item yet."""
        is_new = self.clock.now - self.put_at.get(key, -1) < LAG_SECONDS
        return is_new and self.latencies.random() < LAGGING_SHARE


class SlowStorage(CountingStorage):
    """Storage whose requests take their time."""

    def __init__(self, inner: MemoryStorage, network: Network) -> None:
        """Take the times from `network`."""
        super().__init__(inner, network.requests)
        self._network = network

    def get(self, path: str) -> bytes:
        """Return an object after a while, once its prefix takes one more request."""
        network = self._network
        with network.clock.uncharged():
            body = super().get(path)
            throttled_seconds = network.limits.gets.wait_for(path.rpartition("/")[0], 1)
            seconds = throttled_seconds + network.latencies.draw(GET_MS, len(body))
        network.clock.pause(seconds)
        return body

    def put(self, path: str, body: bytes) -> bool:
        """Store an object after a while."""
        self._network.pause(PUT_MS, len(body))
        with self._network.clock.uncharged():
            return super().put(path, body)


class SlowDynamoDB(CountingDynamoDB):
    """Items whose requests take their time, half of it before they happen."""

    def __init__(self, kept: dict[Key, Mapping[str, Any]], network: Network) -> None:
        """Take the times from `network`."""
        super().__init__(kept, network.requests)
        self._network = network

    def put_item(self, *, TableName: str, Item: Mapping[str, Any], **_: Any) -> None:  # noqa: N803
        """Put an item unless its hash key is throttled."""
        self._network.pause(WRITE_MS / 2)
        with self._network.clock.uncharged():
            units = -(-item_bytes(Item) // 1024)
            if not self._network.limits.writes.take(Item["k"]["S"], units):
                raise UnavailableError("throttled")
            super().put_item(TableName=TableName, Item=Item)
            key = TableName, Item["k"]["S"], Item["i"]["S"]
            self._network.put_at[key] = self._network.clock.now
        self._network.pause(WRITE_MS / 2)

    def batch_get_item(self, *, RequestItems: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N803
        """Return the items of the hash keys that are not throttled."""
        network = self._network
        network.pause(READ_MS / 2)
        with network.clock.uncharged():
            answer, size_bytes = self._answer(RequestItems)
        network.pause(READ_MS / 2, size_bytes)
        return answer

    def _answer(self, wanted: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """Return what a read finds, and its bytes."""
        network = self._network
        ((table, asked),) = wanted.items()
        units = Counter[str]()
        for key in asked["Keys"]:
            item = self.kept.get((table, key["k"]["S"], key["i"]["S"]))
            units[key["k"]["S"]] += read_units(item, asked["ConsistentRead"])  # type: ignore[assignment]
        taken = {key for key, count in units.items() if network.limits.reads.take(key, count)}
        keys = [key for key in asked["Keys"] if key["k"]["S"] in taken]
        left = [key for key in asked["Keys"] if key["k"]["S"] not in taken]
        answer = super().batch_get_item(RequestItems={table: {**asked, "Keys": keys}})
        found = answer["Responses"][table]
        answer["UnprocessedKeys"] = {table: {"Keys": left}} if left else {}
        return answer, sum(map(item_bytes, found))

    def lags(self, key: Key) -> bool:
        """Return whether an item is not there yet for a read that is not consistent."""
        return self._network.lags(key)


class SlowPages(CountingPages):
    """Pages whose requests take their time, half of it before they happen, and are throttled."""

    def __init__(self, inner: HookedPages, network: Network) -> None:
        """Take the times from `network`."""
        super().__init__(inner, network.requests)
        self.before, self.after = self._begin, self._end
        self._network = network
        self.attempts, self.answered_at = 0, 0.0

    def head(self, table_id: str) -> Head | None:
        """Return the head unless its hash key is throttled."""
        self._take_read("head")
        return super().head(table_id)

    def page(self, table_id: str, number: int) -> Page | None:
        """Return a page unless its hash key is throttled."""
        self._take_read(number // 64)
        return super().page(table_id, number)

    def append(self, table_id: str, number: int, delta_id: str) -> Page | None:
        """Append unless the page's hash key is throttled."""
        self.attempts += 1
        if not self._network.limits.writes.take(number // 64, 1):
            self._network.pause(WRITE_MS)
            raise UnavailableError("throttled")
        page = super().append(table_id, number, delta_id)
        self.answered_at = self._network.clock.now
        return page

    def _take_read(self, key: object) -> None:
        if not self._network.limits.reads.take(key, -(-PAGE_ITEM_BYTES // 4096)):
            self._network.pause(READ_MS)
            raise UnavailableError("throttled")

    def _begin(self, operation: str) -> None:
        self._count(operation)
        self._half(operation)
        self._answering = self._network.clock.uncharged()
        self._answering.__enter__()

    def _end(self, operation: str) -> None:
        self._answering.__exit__(None, None, None)
        self._half(operation)

    def _half(self, operation: str) -> None:
        self._network.pause((READ_MS if operation in ("head", "page") else WRITE_MS) / 2)
