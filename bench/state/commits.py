"""Count what commits, warm reads and cold loads of a table cost: bytes, requests, dollars.

Called by `state_bench` with references and a snapshot of so many. A writer commits the mix of
`workload`; a maintainer of its own runs after each page of commits, as the plan stage does.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from bench.common.figures import emit
from bench.state.counting import (
    PAGE_ITEM_BYTES,
    CountingPages,
    CountingStorage,
    Requests,
    head_item_bytes,
)
from bench.state.counting_items import CountingDynamoDB, Key
from bench.state.memory import KEYS, TABLE, cpu_seconds, key
from bench.state.workload import Clock, Ids, Mix
from dormouse.aws.blobs import DynamoDBStateStore
from dormouse.aws.state_store import S3StateStore
from dormouse.keys import KeyRange
from dormouse.log.compaction import COMMITS_TO_INCREMENT, LEAST_BYTES_TO_SNAPSHOT
from dormouse.log.engine import LogStateStore
from dormouse.log.pages import LOWEST_ID, PAGE_CAPACITY, Head, Manifest, Snapshot
from dormouse.log.snapshot import encode_snapshot
from dormouse.log.tail import index_place_of
from dormouse.state.state import PartOfState
from dormouse.state.store import Committed
from dormouse.storage import FolderStorage
from tests.support.memory_pages import MemoryPages
from tests.support.memory_storage import MemoryStorage

LATE = 0.7
"""A cold load is measured before an increment is due in so late a part of the period between two
snapshots: then there is much to read besides the snapshot."""
DELTAS_WAITED_FOR = (1, 10, 100)
TRANSACTIONS_OF_A_BATCH = 10
PLANS = 20
"""So many processes plan a look-up of one key."""


@dataclass
class Table:
    """One table in memory, and how often each of its stores asked for what."""

    storage: MemoryStorage | FolderStorage
    pages: MemoryPages
    clock: Clock
    items: dict[Key, Mapping[str, Any]]
    kept_in: str

    def store(self, requests: Requests, seed: int) -> LogStateStore:
        """Return a store of this table that counts in `requests`, cold."""
        pages, ids = CountingPages(self.pages, requests), Ids(self.clock, seed)
        if self.kept_in == "dynamodb":
            tables = CountingDynamoDB(self.items, requests).tables
            return DynamoDBStateStore(TABLE, tables, pages, self.clock, ids)
        storage = CountingStorage(self.storage, requests)
        return S3StateStore(TABLE, storage, pages, self.clock, ids)

    def kept(self) -> int:
        """Count the objects or items of its blobs."""
        return len(self.items) or len(list(self.storage.list("")))


def table_of(snapshot: bytes, kept_in: str = "s3") -> Table:
    """Return a table whose state is a snapshot of version 0, kept in `s3` or in `dynamodb`."""
    storage, pages, clock = MemoryStorage(), MemoryPages(), Clock()
    table = Table(storage, pages, clock, {}, kept_in)
    first = Snapshot(f"{0:032x}", 0, 0, len(snapshot), index_place_of(snapshot))
    table.store(Requests(), 0).reader.snapshots.put(first.id, snapshot)
    pages.open_page(TABLE, 0, LOWEST_ID)
    pages.set_manifest(TABLE, Manifest(1, (first,)))
    return table


class Run:
    """A writer and a maintainer on one table, counted apart."""

    def __init__(
        self, references: int, snapshot: bytes, interval_ms: int, kept_in: str = "s3"
    ) -> None:
        """Warm both up; nothing is counted yet. A commit comes every `interval_ms`."""
        self.interval_ms = interval_ms
        self.references, self.table = references, table_of(snapshot, kept_in)
        self.first_snapshot_bytes = len(snapshot)
        self.by_writer, self.by_maintainer = Requests(), Requests()
        self.writer = self.table.store(self.by_writer, 1)
        self.maintainer = self.table.store(self.by_maintainer, 2)
        state = self.writer.current()
        self.maintainer.current()
        self.mix = Mix(state, Ids(self.table.clock, 3), 4)
        self.deltas = self.mix.deltas()
        self.commits = 0
        self.transactions = 0
        self.rejected = 0
        self.maintainer_seconds = 0.0
        self.by_writer.clear()
        self.by_maintainer.clear()

    def commit(self, count: int) -> None:
        """Make so many commits of the mix."""
        for _ in range(count):
            self.table.clock.ms += self.interval_ms
            transactions = next(self.deltas)
            outcomes = self.writer.commit(*transactions, generation=0)
            self.rejected += sum(not isinstance(outcome, Committed) for outcome in outcomes)
            self.commits += 1
            self.transactions += len(transactions)

    def head(self) -> Head:
        """Return the head, uncounted."""
        head = self.table.pages.head(TABLE)
        assert head is not None
        return head

    def newest_snapshot(self) -> str:
        """Return the id of the newest snapshot."""
        newest = self.head().manifest.newest
        assert newest is not None
        return newest.id

    def commits_to_fold(self) -> int:
        """Count the commits that a cold reader folds."""
        return self.writer.current().version - self.head().manifest.cuts[-1]

    def share_of_period(self) -> float:
        """Return how much there is, from 0 to 1, of what makes the next snapshot due."""
        manifest = self.head().manifest
        assert manifest.newest is not None
        since = sum(s.size_bytes for s in manifest.segments if s.version > manifest.newest.version)
        share = manifest.newest.size_bytes // self.writer.policy.snapshot_share
        return since / max(LEAST_BYTES_TO_SNAPSHOT, share)


def measure(run: Run, least_commits: int, name: str | None) -> None:
    """Print all figures of a size, over whole periods from snapshot to snapshot."""
    period, began, head_bytes = 0, 0, 0
    is_measured, step, share_before = False, 0.05, 0.0
    most_folded = -1
    while run.commits < least_commits or run.commits > began:
        run.commit(PAGE_CAPACITY - 1)  # a full page takes a reader fewer requests
        share = run.share_of_period()
        step, share_before = max(step, share - share_before), share
        if share + step > 1 and not is_measured and not name:  # the next segment makes it due
            measure_cold_load(run, "before_a_snapshot")
            measure_cold_plans(run, "before_a_snapshot")
            is_measured = True
        folded = run.commits_to_fold()
        is_last = folded + PAGE_CAPACITY > COMMITS_TO_INCREMENT
        if share > LATE and is_last and folded > most_folded and not name:
            measure_cold_load(run, "before_an_increment")
            measure_cold_plans(run, "before_an_increment")
            most_folded = folded
        run.commit(1)
        before = run.newest_snapshot()
        _, seconds = cpu_seconds(run.maintainer.maintain)
        run.maintainer_seconds += seconds
        head_bytes = max(head_bytes, head_item_bytes(run.head()))
        if run.newest_snapshot() != before:
            period, began = run.commits - began, run.commits
    show_commits(run, name or "log", period, head_bytes)
    if name:
        return
    show_rewrite(run)
    measure_cold_load(run, "after_a_snapshot")
    measure_cold_plans(run, "after_a_snapshot")
    measure_warm_reads(run)
    measure_batches(run)


def show_commits(run: Run, name: str, period: int, head_bytes: int) -> None:
    """Print what a commit cost on average."""
    n, writer, maintainer = run.commits, run.by_writer, run.by_maintainer
    written = writer.written + maintainer.written
    body = written["deltas"]
    emit(
        "commits",
        name,
        run.references,
        bytes_per_commit=written.total() / n,
        delta_bytes_per_commit=body / n,
        segment_bytes_per_commit=written["segments"] / n,
        snapshot_bytes_per_commit=written["snapshots"] / n,
        write_amplification=written.total() / body,
        put_per_commit=(writer.counts["put"] + maintainer.counts["put"]) / n,
        get_by_writer_per_commit=writer.counts["get"] / n,
        get_by_maintainer_per_commit=maintainer.counts["get"] / n,
        list_per_commit=maintainer.counts["list"] / n,
        dynamo_writes_per_commit=(
            writer.counts["dynamo_writes"] + maintainer.counts["dynamo_writes"]
        )
        / n,
        wru_per_commit=(writer.counts["wru"] + maintainer.counts["wru"]) / n,
        wru_of_deletes_per_commit=maintainer.counts["wru_of_deletes"] / n,
        rru_per_commit=(writer.counts["rru"] + maintainer.counts["rru"]) / n,
        dollars_per_million=(writer.dollars() + maintainer.dollars()) / n * 1e6,
        commits=n,
        rejected=run.rejected,
        blobs_kept=run.table.kept(),
        commits_between_snapshots=period,
        page_bytes=PAGE_ITEM_BYTES,
        head_bytes=head_bytes,
        maintainer_cpu_ms_per_commit=run.maintainer_seconds / n * 1000,
    )


def measure_cold_load(run: Run, when: str) -> None:
    """Print what a process that begins reads, and the CPU it takes."""
    requests = Requests()
    store = run.table.store(requests, 5)
    _, seconds = cpu_seconds(store.current)
    newest = run.head().manifest.newest
    assert newest is not None
    emit(
        "cold_load",
        when,
        run.references,
        get=requests.counts["get"],
        bytes_read=requests.read.total(),
        rru=requests.counts["rru"],
        cpu_seconds=seconds,
        bytes_to_snapshot=requests.read.total() / newest.size_bytes,
    )


def measure_cold_plans(run: Run, when: str) -> None:
    """Print what processes that begin read to plan a look-up of one key, each of another key.

    `whole` is the share of those that had to load the state, because a commit after all that is
    kept by keys may concern the key; the other figures are of those that had not.
    """
    random, found = Random(7), []
    for _ in range(PLANS):
        requests = Requests()
        store = run.table.store(requests, 5)
        wanted = [KeyRange.exactly(key(random.randrange(KEYS)))]
        part, seconds = cpu_seconds(lambda store=store, wanted=wanted: store.part(lambda: wanted))
        if isinstance(part, PartOfState):
            asked = requests.counts["get"] + requests.counts["dynamo_reads"]
            found.append((asked, requests.read.total(), requests.counts["rru"], seconds))
    if not found:
        return
    asked, read, rru, seconds = (sorted(figures) for figures in zip(*found, strict=True))
    emit(
        "cold_plan",
        when,
        run.references,
        requests=asked[-1],
        bytes_read=read[-1],
        rru=rru[-1],
        cpu_seconds=seconds[len(seconds) // 2],
        whole=1 - len(found) / PLANS,
    )


def measure_warm_reads(run: Run) -> None:
    """Print what a warm reader asks: with nothing new, and with so many new deltas."""
    requests = Requests()
    reader = run.table.store(requests, 6)
    reader.current()
    for count in (0, *DELTAS_WAITED_FOR):
        run.commit(count)
        requests.clear()
        reader.current()
        emit(
            "warm_read",
            f"at_{run.references}",
            count,
            page_reads=requests.counts["dynamo_reads"],
            rru=requests.counts["rru"],
            get=requests.counts["get"],
        )


def measure_batches(run: Run) -> None:
    """Print what an ingest costs when ten are committed in one delta."""
    run.by_writer.clear()
    for _ in range(PAGE_CAPACITY):
        ingests = [run.mix.ingest() for _ in range(TRANSACTIONS_OF_A_BATCH)]
        outcomes = run.writer.commit(*ingests, generation=0)
        run.rejected += sum(not isinstance(outcome, Committed) for outcome in outcomes)
    ingests_made = PAGE_CAPACITY * TRANSACTIONS_OF_A_BATCH
    emit(
        "commits",
        "ten in a delta",
        run.references,
        bytes_per_commit=run.by_writer.written.total() / ingests_made,
        put_per_commit=run.by_writer.counts["put"] / ingests_made,
        dollars_per_million=run.by_writer.dollars() / ingests_made * 1e6,
        rejected=run.rejected,
    )


def show_rewrite(run: Run) -> None:
    """Print what a commit would cost that writes the whole state.

    Its size is that of the first snapshot: later ones remember the sources of the run besides.
    """
    size_bytes = run.first_snapshot_bytes
    _, seconds = cpu_seconds(lambda: encode_snapshot(TABLE, run.writer.current()))
    requests = Requests()
    requests.counts.update(put=1, wru=1, rru=1)
    emit(
        "commits",
        "full rewrite",
        run.references,
        bytes_per_commit=size_bytes,
        put_per_commit=1,
        dollars_per_million=requests.dollars() * 1e6,
        cpu_seconds=seconds,
    )
    per_commit = (run.by_writer.written + run.by_maintainer.written).total() / run.commits
    emit("commits", "log", run.references, times_less_than_rewrite=size_bytes / per_commit)


def main() -> None:
    """Measure one size."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("references", type=int)
    asked.add_argument("snapshot", type=Path)
    asked.add_argument("--least-commits", type=int, default=1020)
    asked.add_argument("--interval-ms", type=int, default=1000, help="from commit to commit")
    asked.add_argument("--store", choices=("s3", "dynamodb"), default="s3")
    asked.add_argument("--only-commits", metavar="NAME", help="print no other figures")
    given = asked.parse_args()
    run = Run(given.references, given.snapshot.read_bytes(), given.interval_ms, given.store)
    measure(run, given.least_commits, given.only_commits)


if __name__ == "__main__":
    main()
