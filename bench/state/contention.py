"""Let 1 to 32 writers commit to one table at once, in simulated time.

`log` is the S3 store, `items` the DynamoDB store. The store is the real one; requests take the
simulated times of a region's DynamoDB and S3, and a writer's own CPU is added. Each writer is a
process of its own, as functions are: it fetches the others' deltas to learn its verdict.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.figures import emit
from bench.state.simulation import Network, SlowDynamoDB, SlowPages, SlowStorage
from bench.state.tables import Table, table_of
from bench.state.workload import TABLE, Ids, Mix
from dormouse.aws.state_store import S3StateStore
from dormouse.items.blobs import ItemStateStore
from dormouse.log.engine import LogStateStore, Options
from dormouse.retry_policy import RetryPolicy
from dormouse.state.store import Committed

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
        self._store = self._store_of(table, contest.network)

    def _store_of(self, table: Table, network: Network) -> LogStateStore:
        clock = network.clock
        tools = self.pages, table.clock, self._ids
        retry_policy = RetryPolicy(clock.pause, network.chance.random, ATTEMPTS)
        options = Options(overlap=clock.overlap, fetch=clock.fetch)
        if table.kept_in == "dynamodb":
            items = SlowDynamoDB(table.items, network).store
            return ItemStateStore(TABLE, items, *tools, retry_policy=retry_policy, options=options)
        storage = SlowStorage(table.storage, network)
        return S3StateStore(TABLE, storage, *tools, retry_policy=retry_policy, options=options)

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
                network.begin()  # what they read to become warm is not counted
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
        requests, busiest = self.network.requests, dict.fromkeys(("dynamodb", "s3"), 0.0)
        for key, taken in self.network.taken.items():
            kind = key.partition(" ")[0]
            busiest[kind] = max(busiest[kind], taken / seconds)
        in_log, known = ([1000 * each for each in times] for times in zip(*self.times, strict=True))
        emit(
            "contention",
            of,
            at,
            commits_per_second=done / seconds,
            retries_per_commit=self.attempts / done - 1,
            in_log_p50_ms=quantile(in_log, 0.5),
            in_log_p99_ms=quantile(in_log, 0.99),
            in_log_p99_to_p50=quantile(in_log, 0.99) / quantile(in_log, 0.5),
            p50_ms=quantile(known, 0.5),
            p99_ms=quantile(known, 0.99),
            p99_to_p50=quantile(known, 0.99) / quantile(known, 0.5),
            put_per_commit=requests.counts["put"] / done,
            get_per_commit=requests.counts["get"] / done,
            dynamo_writes_per_commit=requests.counts["dynamo_writes"] / done,
            rru_per_commit=requests.counts["rru"] / done,
            busiest_key_read_units_a_second=busiest["dynamodb"],
            busiest_prefix_gets_a_second=busiest["s3"],
            dollars_per_million=requests.dollars() / done * 1e6,
        )


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def contest(
    snapshot: bytes, writers: int, commits: int, a_second: float = 0, kept_in: str = "s3"
) -> Contest:
    run, table = Contest(commits), table_of(snapshot, kept_in)
    run.run([LogWriter(table, run, seed) for seed in range(writers)], a_second)
    return run


def measure(snapshot: str, commits: int) -> None:
    body = Path(snapshot).read_bytes()
    for writers in WRITERS:
        # Each of 32 writers folds all commits; in the first hundreds it knows few partitions yet.
        many = commits * writers // 32 + min(commits, 100 + 30 * writers)
        contest(body, writers, many).show("log", writers)
        contest(body, writers, many, kept_in="dynamodb").show("items", writers)
    for a_second in ARRIVALS_A_SECOND:
        arrived = contest(body, max(WRITERS), commits, a_second)
        arrived.show("log, arrivals a second", a_second)
