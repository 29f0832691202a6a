"""Let 1 to 32 writers commit to one table at once, in simulated time, beside a full rewrite.

`log` is the S3 store, `items` the DynamoDB store; what AWS lets pass a second is simulated, too.

Called by `state_bench`. The store is the real one; requests take the simulated times of a region's
DynamoDB and S3, and a writer's own CPU is added. Each writer is a process of its own, as functions
are: it fetches the others' deltas to learn its verdict.
"""

from __future__ import annotations

import argparse
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.common.figures import emit
from bench.state.commits import Table, table_of
from bench.state.memory import TABLE, cpu_seconds
from bench.state.slow_requests import (
    GET_MS,
    PUT_MS,
    READ_MS,
    WRITE_MS,
    Network,
    SlowDynamoDB,
    SlowPages,
    SlowStorage,
)
from bench.state.workload import Ids, Mix
from dormouse.aws.blobs import DynamoDBStateStore
from dormouse.aws.state_store import S3StateStore
from dormouse.errors import UnavailableError
from dormouse.log.engine import LogStateStore, Options
from dormouse.log.snapshot import decode_snapshot, encode_snapshot
from dormouse.retry_policy import RetryPolicy
from dormouse.state.store import Committed

THINK_MS = 10
WRITERS = (1, 4, 16, 32)
ARRIVALS_A_SECOND = (50, 200)
ATTEMPTS = 60


@dataclass
class Times:
    """What one run took, in seconds: each commit, until it was in the log and until its verdict."""

    commits: list[float] = field(default_factory=list)
    acknowledged: list[float] = field(default_factory=list)
    attempts: int = 0
    began: float = math.inf
    ended: float = 0.0


class LogWriter:
    """A process that commits ingests to the log, and learns its verdicts."""

    def __init__(self, table: Table, contest: Contest, seed: int, *, is_strict: bool) -> None:
        """Begin cold."""
        network = contest.network
        self.pages = SlowPages(table.pages, network)
        self._ids, self._seed, self._clock = Ids(table.clock, seed), seed, network.clock
        self._store = self._store_of(table, network, is_strict)

    def _store_of(self, table: Table, network: Network, is_strict: bool) -> LogStateStore:
        clock = network.clock
        tools = self.pages, table.clock, self._ids
        retry_policy = RetryPolicy(clock.pause, network.latencies.random, ATTEMPTS)
        options = Options(is_strict=is_strict, overlap=clock.overlap, fetch=clock.fetch)
        if table.kept_in == "dynamodb":
            tables = SlowDynamoDB(table.items, network).tables
            return DynamoDBStateStore(
                TABLE, tables, *tools, retry_policy=retry_policy, options=options
            )
        storage = SlowStorage(table.storage, network)
        return S3StateStore(TABLE, storage, *tools, retry_policy=retry_policy, options=options)

    def warm(self) -> None:
        """Load the state."""
        self._mix = Mix(self._store.current(), self._ids, self._seed)

    def commit(self) -> tuple[float, int]:
        """Commit; return when the commit was in the log, and how often it was tried."""
        before = self.pages.attempts
        with self._clock.uncharged():
            ingest = self._mix.ingest()
        (outcome,) = self._store.commit(ingest, generation=0)
        assert isinstance(outcome, Committed), outcome
        return self.pages.answered_at, self.pages.attempts - before


class RewriteWriter:
    """A process that writes the whole state again, and makes it the newest if none came before."""

    def __init__(self, rewrite: Rewrite, contest: Contest) -> None:
        """Begin with the first version in memory."""
        self._rewrite, self._contest, self._seen = rewrite, contest, 0

    def warm(self) -> None:
        """Do nothing: it begins warm."""

    def commit(self) -> tuple[float, int]:
        """Write until nobody was quicker; return when it was done, and how often it was tried."""
        network, rewrite = self._contest.network, self._rewrite
        clock, draw, counts = network.clock, network.latencies.draw, network.requests.counts
        for attempt in range(1, ATTEMPTS * ATTEMPTS):
            clock.pause(draw(READ_MS))
            based_on = rewrite.version
            if based_on != self._seen:
                clock.pause(draw(GET_MS, rewrite.size_bytes) + rewrite.load_cpu_seconds)
                counts["get"] += 1
            clock.pause(rewrite.write_cpu_seconds + draw(PUT_MS, rewrite.size_bytes))
            counts.update(put=1, wru=1, rru=1)
            clock.pause(draw(WRITE_MS) / 2)
            won = rewrite.version == based_on
            if won:
                rewrite.version = self._seen = based_on + 1
            clock.pause(draw(WRITE_MS) / 2)
            if won:
                return clock.now, attempt
            self._seen = based_on
            longest = min(4.0, 0.025 * 2**attempt)
            clock.pause(longest * network.latencies.random())
        raise UnavailableError("all attempts lost")


@dataclass
class Rewrite:
    """A state that is written whole: how big it is and what CPU it takes."""

    size_bytes: int
    load_cpu_seconds: float
    write_cpu_seconds: float
    version: int = 0


@dataclass
class Contest:
    """Some writers on one table, in a clock of their own."""

    commits: int
    times: Times = field(default_factory=Times)
    network: Network = field(default_factory=Network)

    def run(self, writers: Sequence[LogWriter | RewriteWriter], arrivals_a_second: float) -> None:
        """Make all commits: one after the other with some time to think, or as they arrive."""
        arrivals = deque(self._arrivals(arrivals_a_second))
        clock, latencies, times = self.network.clock, self.network.latencies, self.times
        warm = 0

        def life(writer: LogWriter | RewriteWriter) -> None:
            nonlocal warm
            writer.warm()
            warm += 1
            while warm < len(writers):
                clock.pause(0.01)
            if times.began > clock.now:
                times.began = clock.now
                self.network.begin()  # what they read to become warm is not counted
            begin = times.began
            while arrivals:
                due = arrivals.popleft()
                think = latencies.draw(THINK_MS)
                clock.pause(think if due is None else max(0.0, begin + due - clock.now))
                began = clock.now if due is None else begin + due
                acknowledged, attempts = writer.commit()
                clock.pause(0)  # what it fetched and computed last is part of the commit
                times.commits.append(clock.now - began)
                times.acknowledged.append(acknowledged - began)
                times.attempts += attempts
            times.ended = clock.now

        clock.run([partial(life, writer) for writer in writers])

    def _arrivals(self, a_second: float) -> list[float | None]:
        if not a_second:
            return [None] * self.commits
        due, at = list[float | None](), 0.0
        for _ in range(self.commits):
            at -= math.log(1 - self.network.latencies.random()) / a_second
            due.append(at)
        return due

    def show(self, of: str, at: int) -> None:
        """Print what the run showed."""
        done, times = len(self.times.commits), self.times
        requests, limits = self.network.requests, self.network.limits
        seconds = times.ended - times.began
        p50, p99 = quantile(times.commits, 0.5), quantile(times.commits, 0.99)
        emit(
            "contention",
            of,
            at,
            commits_per_second=done / seconds,
            retries_per_commit=times.attempts / done - 1,
            in_log_p50_ms=quantile(times.acknowledged, 0.5) * 1000,
            in_log_p99_ms=quantile(times.acknowledged, 0.99) * 1000,
            in_log_p99_to_p50=quantile(times.acknowledged, 0.99)
            / quantile(times.acknowledged, 0.5),
            p50_ms=p50 * 1000,
            p99_ms=p99 * 1000,
            p99_to_p50=p99 / p50,
            put_per_commit=requests.counts["put"] / done,
            get_per_commit=requests.counts["get"] / done,
            dynamo_writes_per_commit=requests.counts["dynamo_writes"] / done,
            rru_per_commit=requests.counts["rru"] / done,
            throttled_per_commit=limits.refused() / done,
            busiest_key_read_units_a_second=limits.reads.busiest() / seconds,
            busiest_prefix_gets_a_second=limits.gets.busiest() / seconds,
            dollars_per_million=requests.dollars() / done * 1e6,
        )


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def contest_of_log(
    snapshot: bytes,
    writers: int,
    commits: int,
    a_second: float = 0,
    *,
    is_strict: bool = False,
    kept_in: str = "s3",
) -> Contest:
    """Run writers that append to the log."""
    contest, table = Contest(commits), table_of(snapshot, kept_in)
    contest.run(
        [LogWriter(table, contest, seed, is_strict=is_strict) for seed in range(writers)], a_second
    )
    return contest


def contest_of_rewrite(rewrite: Rewrite, writers: int, commits: int) -> Contest:
    """Run writers that rewrite the state."""
    contest = Contest(commits)
    contest.run([RewriteWriter(rewrite, contest) for _ in range(writers)], 0)
    return contest


def rewrite_of(snapshot: bytes) -> Rewrite:
    """Measure what the full rewrite of a state takes here."""
    state, load = cpu_seconds(lambda: decode_snapshot(TABLE, snapshot, "bench"))
    body, write = cpu_seconds(lambda: encode_snapshot(TABLE, state))
    return Rewrite(len(body), load, write)


def main() -> None:
    """Run all contests on one table."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("snapshot", type=Path)
    asked.add_argument("--commits", type=int, default=400)
    given = asked.parse_args()
    snapshot = given.snapshot.read_bytes()
    for writers in WRITERS:
        commits = min(given.commits, 100 + 30 * writers)
        # Each of 32 writers folds all commits; in the first hundreds it knows few partitions yet.
        many = given.commits * writers // 32 + commits
        contest_of_log(snapshot, writers, many).show("log", writers)
        contest_of_log(snapshot, writers, many, kept_in="dynamodb").show("items", writers)
        strict = contest_of_log(snapshot, writers, commits // 2, is_strict=True)
        strict.show("log, strict", writers)
        rewrite = rewrite_of(snapshot)
        contest_of_rewrite(rewrite, writers, commits).show("full rewrite", writers)
    for a_second in ARRIVALS_A_SECOND:
        contest = contest_of_log(snapshot, max(WRITERS), given.commits, a_second)
        contest.show("log, arrivals a second", a_second)


if __name__ == "__main__":
    main()
