"""Count what commits, warm reads and cold loads of a table cost: bytes, requests, dollars; measure
states of many references: memory, load, use, remembered sources.

A writer commits the mix of `workload`; a maintainer of its own runs after each page of commits, as
the plan stage does. A state is loaded by another process than the one that makes it. Memory is what
is resident beyond what the process had before.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

from bench.figures import emit
from bench.measure import kept, timed
from bench.state.tables import (
    PAGE_ITEM_BYTES,
    Requests,
    Table,
    cold_plans,
    head_bytes_of,
    show_plans,
    table_of,
    worst_table,
)
from bench.state.workload import KEYS, TABLE, Ids, Mix, built, clock, digest, key
from dormouse.features.planning import partitions_to_plan, plan_compactions, splits_due
from dormouse.keys import KeyRange
from dormouse.log.pages import PAGE_CAPACITY, Head
from dormouse.log.snapshot import decode_snapshot, encode_snapshot
from dormouse.state.fold import Verdict, apply
from dormouse.state.partitions import OverlayMap
from dormouse.state.rules import Committed
from dormouse.state.state import Entry, ReleaseJob, TableState, Transaction
from dormouse.tables.properties import Properties

LOG = "log"
"""The store in S3 with a commit a second, of which most is measured."""
DELTAS_WAITED_FOR = (1, 10, 100)
TRANSACTIONS_OF_A_BATCH = 10


class Run:
    def __init__(
        self, references: int, snapshot: bytes, interval_ms: int, kept_in: str = "s3"
    ) -> None:
        """Warm both up; nothing is counted yet. A commit comes every `interval_ms`."""
        self.interval_ms = interval_ms
        self.references, self.table = references, table_of(snapshot, kept_in)
        self.by_writer, self.by_maintainer = Requests(), Requests()
        self.writer = self.table.store(self.by_writer, 1)
        self.maintainer = self.table.store(self.by_maintainer, 2)
        state = self.writer.current()
        self.maintainer.current()
        self.mix = Mix(state, Ids(self.table.clock, 3), 4)
        self.deltas = self.mix.deltas()
        self.commits = 0
        self.rejected = 0
        self.by_writer.clear()
        self.by_maintainer.clear()

    def commit(self, count: int) -> None:
        for _ in range(count):
            self.table.clock.ms += self.interval_ms
            self.commit_delta(*next(self.deltas))
            self.commits += 1

    def commit_delta(self, *transactions: Transaction) -> None:
        outcomes = self.writer.commit(*transactions, generation=0)
        self.rejected += sum(not isinstance(outcome, Committed) for outcome in outcomes)

    def newest_snapshot(self) -> str:
        head: Head | None = self.table.pages.head(TABLE)
        assert head is not None
        assert head.manifest.newest is not None
        return head.manifest.newest.id


def measure(
    references: int,
    snapshot: str,
    least_commits: int = 1020,
    interval_ms: int = 1000,
    kept_in: str = "s3",
    name: str = LOG,
) -> None:
    """Print what commits cost over whole periods from snapshot to snapshot, and warm reads."""
    run = Run(references, Path(snapshot).read_bytes(), interval_ms, kept_in)
    began = head_bytes = 0
    while run.commits < least_commits or run.commits > began:
        run.commit(PAGE_CAPACITY)
        before = run.newest_snapshot()
        run.maintainer.maintain()
        head_bytes = max(head_bytes, head_bytes_of(run.table.pages))
        if run.newest_snapshot() != before:
            began = run.commits
    show_commits(run, name, head_bytes)
    if name == LOG:
        measure_warm_reads(run)
        measure_batches(run)


def show_commits(run: Run, name: str, head_bytes: int) -> None:
    n, writer, maintainer = run.commits, run.by_writer, run.by_maintainer
    written, counts = writer.written + maintainer.written, writer.counts + maintainer.counts
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
        put_per_commit=counts["put"] / n,
        get_by_writer_per_commit=writer.counts["get"] / n,
        get_by_maintainer_per_commit=maintainer.counts["get"] / n,
        list_per_commit=maintainer.counts["list"] / n,
        dynamo_writes_per_commit=counts["dynamo_writes"] / n,
        wru_per_commit=counts["wru"] / n,
        rru_per_commit=counts["rru"] / n,
        dollars_per_million=(writer.dollars() + maintainer.dollars()) / n * 1e6,
        rejected=run.rejected,
        page_bytes=PAGE_ITEM_BYTES,
        head_bytes=head_bytes,
    )


def measure_warm_reads(run: Run) -> None:
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
            get=requests.counts["get"],
        )


def measure_batches(run: Run) -> None:
    """Print what an ingest costs when ten are committed in one delta."""
    run.by_writer.clear()
    for _ in range(PAGE_CAPACITY):
        run.commit_delta(*(run.mix.ingest() for _ in range(TRANSACTIONS_OF_A_BATCH)))
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


def make_worst(references: int, snapshot: str, commits: int, kept_in: str, path: str) -> None:
    """Count what a process that begins asks for, right after a snapshot and at the worst point; the
    table at its worst is written to a path.
    """
    body = Path(snapshot).read_bytes()
    table = table_of(body, kept_in)
    show_cold(table, f"{kept_in}, best", references, len(body))
    table = worst_table(body, kept_in, commits)
    show_cold(table, f"{kept_in}, worst", references, len(body))
    table.save(path)


def show_cold(table: Table, of: str, references: int, snapshot_bytes: int) -> None:
    """Print what loads of the state and plans of one key ask for, in processes that begin."""
    requests = Requests()
    table.store(requests, 5).current()
    emit(
        "cold_load",
        of,
        references,
        get=requests.counts["get"],
        rru=requests.counts["rru"],
        bytes_read=requests.read.total(),
        bytes_to_snapshot=requests.read.total() / snapshot_bytes,
    )
    show_plans(of, references, cold_plans(table))


def load(references: int, path: str, what: str) -> None:
    """Load the state of such a table, or the snapshot alone; print what that took."""
    import_module("dormouse.log.snapshot")  # a load would import it
    table = Table.load(path)
    store = table.store(Requests(), 5)
    decode_snapshot(TABLE, encode_snapshot(TABLE, TableState()), "empty")  # what is loaded lazily
    newest = store.reader.manifest().newest
    assert newest is not None
    read = store.current if what == "worst" else partial(store.reader.snapshot, newest)
    _, figures = kept(read)
    emit(f"load_{what}", table.kept_in, references, **figures)


ROUNDS = 100
SMALL = 1000
"""The references of the table whose sources are measured."""


def show(references: int, figure: str, value: float) -> None:
    emit("memory", "state", references, **{figure: value})


def make_state(references: int, snapshot: str) -> None:
    """Write a snapshot of so many references to a path."""
    body = encode_snapshot(TABLE, built(references), has_key_index=True)
    show(references, "snapshot_bytes", len(body))
    Path(snapshot).write_bytes(body)


def measure_state(references: int, snapshot: str) -> None:
    decode_snapshot(TABLE, encode_snapshot(TABLE, TableState()), "empty")  # what is loaded lazily
    before = len(gc.get_objects())
    state, taken = kept(lambda: decode_snapshot(TABLE, Path(snapshot).read_bytes(), snapshot))
    show(references, "load_new_container_objects", len(gc.get_objects()) - before)
    show(references, "load_cpu_seconds", taken["cpu_seconds"])
    show(references, "state_rss_bytes", taken["state_rss_bytes"])
    measure_use(references, state)


def measure_use(references: int, state: TableState) -> None:
    chosen = random.Random(1)
    leaves = [leaf.id for leaf in state.partitions.leaves()]
    asked = [chosen.randrange(len(leaves)) for _ in range(ROUNDS)]
    ranges = [KeyRange.exactly(key(chosen.randrange(KEYS))) for _ in range(ROUNDS)]

    def each(figure: str, do: Callable[[int], object]) -> None:
        _, seconds = timed(lambda: [do(i) for i in range(ROUNDS)])
        show(references, f"{figure}_cpu_microseconds", seconds / ROUNDS * 1e6)

    each("references_of_a_partition", lambda i: state.references_in(leaves[asked[i]]))
    each("plan_of_a_point_query", lambda i: list(state.partitions_to_read(ranges[i])))
    different = sorted(set(asked))
    changes, few = (commits_to(state, some) for some in (different, different[:10]))
    after, seconds = timed(lambda: folded(state, changes))
    show(references, "ingest_assign_and_compact_cpu_microseconds", seconds / len(different) * 1e6)
    _, seconds = timed(lambda: plan_compactions(after, Properties()))
    show(references, "plan_compactions_cpu_seconds", seconds)
    changed = folded(state, few)
    _, seconds = timed(lambda: planned_by_changes(changed))
    show(references, "plan_of_ten_changed_partitions_cpu_seconds", seconds)


def planned_by_changes(state: TableState) -> None:
    """Plan what changed since the snapshot, as the plan stage does after a commit."""
    among = frozenset(partitions_to_plan(state))
    splits_due(state, 10**6, among)
    plan_compactions(state, Properties(), among)


def commits_to(state: TableState, leaves: Sequence[int]) -> list[Transaction]:
    """Return an ingest and a compaction of all shards in each of some leaves."""
    mix, commits = Mix(state, Ids(clock(), 1), 1), list[Transaction]()
    for leaf in leaves:
        commits += [mix.ingest([leaf]), given_back := mix.assign(leaf), ReleaseJob(given_back.job)]
        commits += [job := mix.assign(leaf), mix.compact(leaf, job)]
    return commits


def folded(state: TableState, commits: Sequence[Transaction]) -> TableState:
    for transaction in commits:
        state, verdict = apply(state, Entry(transaction, state.time_ms, 0))
        assert verdict == Verdict(), verdict
    return state


def make_sources(count: int, snapshot: str) -> None:
    """Write a snapshot that remembers so many sources to a path."""
    state = replace(built(SMALL), sources=OverlayMap())
    plain = encode_snapshot(TABLE, state)
    sources = OverlayMap.of({digest(f"source {i}"): i * 1000 for i in range(count)})
    full = encode_snapshot(TABLE, replace(state, sources=sources))
    emit("sources", "snapshot", count, bytes_per_source=(len(full) - len(plain)) / count)
    Path(snapshot).write_bytes(full)


def measure_sources(count: int, snapshot: str) -> None:
    """Print the memory that loaded sources stay in, and the CPU of loading and looking one up."""
    plain = encode_snapshot(TABLE, replace(built(SMALL), sources=OverlayMap()))
    small = decode_snapshot(TABLE, plain, "plain")
    body = Path(snapshot).read_bytes()
    state, taken = kept(partial(decode_snapshot, TABLE, body, "full"))
    numbers = range(0, 2 * count, max(1, count // 500))
    asked = [digest(f"source {i}") for i in numbers]
    present, looking = timed(lambda: sum(each in state.sources for each in asked))
    assert present == sum(i < count for i in numbers)
    emit(
        "sources",
        "memory",
        count,
        bytes_per_source=taken["state_rss_bytes"] / count,
        load_cpu_seconds=taken["cpu_seconds"],
        look_up_microseconds=looking / len(asked) * 1e6,
    )
    del small
