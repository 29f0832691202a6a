"""Let 1 to 32 writers commit to one table at once, in simulated time.

`log` is the S3 store, `items` the DynamoDB store. The store is the real one; requests take the
simulated times of a region's DynamoDB and S3, and are counted: they are those of `tables`, made
slow. Each writer is a process of its own, as functions are: it fetches the others' deltas to learn
its verdict.

Real threads take turns, and their pauses take no time at all: one thread runs at a time; when it
pauses, the one whose pause ends first goes on. The CPU a thread uses is added to its time, as if
each writer had a machine like this one to itself. Python's cyclic collector, which would look
through the objects of all writers, is off.
"""

from __future__ import annotations

import gc
import heapq
import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any, TypeVar, cast

from bench.figures import emit
from bench.measure import T
from bench.state.tables import (
    CountingDynamoDB,
    CountingPages,
    CountingStorage,
    Requests,
    Table,
    item_bytes,
    table_of,
)
from bench.state.workload import TABLE, Ids, Mix
from dormouse.aws.state_store import FEWEST_HEDGED, LATE
from dormouse.log.blobs import AT_ONCE
from dormouse.log.engine import Options, StateStore
from dormouse.state.rules import Committed
from dormouse.system import RetryPolicy
from tests.support.hooked_pages import HookedPages
from tests.support.stores import items_store, objects_store

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


PAUSES_MS = {"get": (0, 15), "put": (25, 0), "read": (1.5, 1.5), "write": (2.5, 2.5)}
"""How long requests take before they happen, and after that."""


@dataclass
class Network(Requests):
    """What all requests of a contest share, which take their time."""

    clock: Simulation = field(default_factory=Simulation)
    chance: random.Random = field(default_factory=lambda: random.Random(1))  # noqa: S311

    def drawn(self, mean_ms: float, size_bytes: int = 0) -> float:
        """Return seconds for a request of a mean, and of so many bytes at 80 MB/s.

        One in a hundred takes four times as long.
        """
        seconds = mean_ms / 1000 * self.chance.lognormvariate(-0.02, 0.2)
        slow = 4 if self.chance.random() < 0.01 else 1
        return seconds * slow + size_bytes / 80e6

    def do(self, kind: str, work: Callable[[], T], size_bytes: int = 0) -> T:
        before, after = PAUSES_MS[kind]
        if before:
            self.clock.pause(self.drawn(before, size_bytes))
        with self.clock.uncharged():
            answer: Any = work()
            received = len(answer) if isinstance(answer, bytes) else 0
            if kind == "read":
                received = sum(map(item_bytes, *answer["Responses"].values()))
        if after:
            self.clock.pause(self.drawn(after, received))
        return cast(T, answer)


class SlowPages(CountingPages):
    """Pages whose requests take their time, half of it before they happen.

    The pages of a contest have few hash keys, so reads of pages are counted as those of one.
    """

    def __init__(self, inner: HookedPages, network: Network) -> None:
        super().__init__(inner, network)
        self.before, self.after = self._begin, self._end
        self._network = network
        self.attempts, self.answered_at = 0, 0.0

    def _begin(self, operation: str) -> None:
        self._count(operation)
        self._half(operation)
        self.attempts += operation == "append"
        self._answering = self._network.clock.uncharged()
        self._answering.__enter__()

    def _end(self, operation: str) -> None:
        self._answering.__exit__(None, None, None)
        self._half(operation)
        if operation == "append":
            self.answered_at = self._network.clock.now

    def _half(self, operation: str) -> None:
        kind = "read" if operation in ("head", "page") else "write"
        self._network.clock.pause(self._network.drawn(PAUSES_MS[kind][0]))


THINK_MS = 10
WRITERS = (1, 4, 16, 32)
ARRIVALS_A_SECOND = (50, 200)
ATTEMPTS = 60


class LogWriter:
    """A process that commits ingests to the log, and learns its verdicts."""

    def __init__(self, table: Table, contest: Contest, seed: int) -> None:
        self.pages = SlowPages(table.pages, contest.network)
        self._clock = contest.network.clock
        self._ids, self._seed = Ids(table.clock, seed), seed
        network, clock = contest.network, contest.network.clock
        tools = self.pages, table.clock, self._ids
        given: Any = {
            "retry_policy": RetryPolicy(clock.pause, network.chance.random, ATTEMPTS),
            "options": Options(overlap=clock.overlap),
        }
        self._store: StateStore
        if table.kept_in == "dynamodb":
            items = CountingDynamoDB(table.items, network).store
            self._store = items_store(TABLE, items, *tools, **given)
        else:
            storage = CountingStorage(table.storage, network)
            self._store = objects_store(TABLE, storage, *tools, **given, fetch=clock.fetch)

    def warm(self) -> None:
        self._mix = Mix(self._store.current(), self._ids, self._seed)

    def commit(self) -> float:
        """Commit; return when the commit was in the log."""
        with self._clock.uncharged():
            ingest = self._mix.ingest()
        (outcome,) = self._store.commit(ingest, generation=0)
        assert isinstance(outcome, Committed), outcome
        return self.pages.answered_at


@dataclass
class Contest:
    """Some writers on one table, in a clock of their own.

    `times` are the seconds of each commit until it was in the log, and until its verdict.
    """

    commits: int
    times: list[tuple[float, float]] = field(default_factory=list)
    network: Network = field(default_factory=Network)
    attempts: int = 0
    began: float = math.inf
    ended: float = 0.0

    def run(self, writers: Sequence[LogWriter], arrivals_a_second: float) -> None:
        """Make all commits: one after the other with some time to think, or as they arrive."""
        arrivals = deque(self._arrivals(arrivals_a_second))
        clock, network = self.network.clock, self.network
        warm = 0

        def life(writer: LogWriter) -> None:
            nonlocal warm
            writer.warm()
            warm += 1
            while warm < len(writers):
                clock.pause(0.01)
            if self.began > clock.now:
                self.began = clock.now
                network.clear()  # what they read to become warm is not counted
            while arrivals:
                due = arrivals.popleft()
                think = network.drawn(THINK_MS)
                clock.pause(think if due is None else max(0.0, self.began + due - clock.now))
                began = clock.now if due is None else self.began + due
                in_log_at = writer.commit()
                clock.pause(0)  # what it fetched and computed last is part of the commit
                self.times.append((in_log_at - began, clock.now - began))
            self.ended = clock.now

        clock.run([partial(life, writer) for writer in writers])
        self.attempts = sum(writer.pages.attempts for writer in writers)

    def _arrivals(self, a_second: float) -> list[float | None]:
        if not a_second:
            return [None] * self.commits
        due, at = list[float | None](), 0.0
        for _ in range(self.commits):
            at += self.network.chance.expovariate(a_second)
            due.append(at)
        return due

    def show(self, of: str, at: int) -> None:
        done, seconds = len(self.times), self.ended - self.began
        requests, busiest = self.network, dict.fromkeys(("dynamodb", "s3"), 0.0)
        for key, taken in requests.taken.items():
            kind = key.partition(" ")[0]
            busiest[kind] = max(busiest[kind], taken / seconds)
        times = zip(*self.times, strict=True)
        in_log, known = (quantiles([1000 * t for t in some], n=100) for some in times)
        emit(
            "contention",
            of,
            at,
            commits_per_second=done / seconds,
            retries_per_commit=self.attempts / done - 1,
            in_log_p50_ms=in_log[49],
            in_log_p99_ms=in_log[98],
            in_log_p99_to_p50=in_log[98] / in_log[49],
            p50_ms=known[49],
            p99_ms=known[98],
            p99_to_p50=known[98] / known[49],
            put_per_commit=requests.counts["put"] / done,
            get_per_commit=requests.counts["get"] / done,
            dynamo_writes_per_commit=requests.counts["dynamo_writes"] / done,
            rru_per_commit=requests.counts["rru"] / done,
            busiest_key_read_units_a_second=busiest["dynamodb"],
            busiest_prefix_gets_a_second=busiest["s3"],
            dollars_per_million=requests.dollars() / done * 1e6,
        )


def measure(snapshot: str, commits: int) -> None:
    body = Path(snapshot).read_bytes()

    def contest(of: str, writers: int, count: int, a_second: int = 0, kept_in: str = "s3") -> None:
        run, table = Contest(count), table_of(body, kept_in)
        run.run([LogWriter(table, run, seed) for seed in range(writers)], a_second)
        run.show(of, a_second or writers)

    for writers in WRITERS:
        # Each of 32 writers folds all commits; in the first hundreds it knows few partitions yet.
        many = commits * writers // 32 + min(commits, 100 + 30 * writers)
        contest("log", writers, many)
        contest("items", writers, many, kept_in="dynamodb")
    for a_second in ARRIVALS_A_SECOND:
        contest("log, arrivals a second", max(WRITERS), commits, a_second)
