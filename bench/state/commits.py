"""Count what commits, warm reads and cold loads of a table cost: bytes, requests, dollars.

A writer commits the mix of `workload`; a maintainer of its own runs after each page of commits, as
the plan stage does.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.figures import emit
from bench.measure import kept, timed
from bench.state.counting import PAGE_ITEM_BYTES, Requests, head_bytes_of
from bench.state.tables import Table, cold_plans, show_plans, table_of, worst_table
from bench.state.workload import TABLE, Ids, Mix
from dormouse.log.compaction import COMMITS_TO_INCREMENT, LEAST_BYTES_TO_SNAPSHOT
from dormouse.log.pages import PAGE_CAPACITY, Head
from dormouse.log.snapshot import decode_snapshot, encode_snapshot
from dormouse.state.state import TableState
from dormouse.state.store import Committed
from dormouse.storage import FolderStorage

LATE = 0.7
"""A cold load is measured before an increment is due in so late a part of the period between two
snapshots: then there is much to read besides the snapshot."""
DELTAS_WAITED_FOR = (1, 10, 100)
TRANSACTIONS_OF_A_BATCH = 10


class Run:
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
        self.by_writer.clear()
        self.by_maintainer.clear()

    def commit(self, count: int) -> None:
        for _ in range(count):
            self.table.clock.ms += self.interval_ms
            transactions = next(self.deltas)
            outcomes = self.writer.commit(*transactions, generation=0)
            self.rejected += sum(not isinstance(outcome, Committed) for outcome in outcomes)
            self.commits += 1
            self.transactions += len(transactions)

    def head(self) -> Head:
        head: Head | None = self.table.pages.head(TABLE)
        assert head is not None
        return head

    def newest_snapshot(self) -> str:
        newest = self.head().manifest.newest
        assert newest is not None
        return newest.id

    def commits_to_fold(self) -> int:
        return self.writer.current().version - self.head().manifest.cuts[-1]

    def share_of_period(self) -> float:
        """Return how much there is, from 0 to 1, of what makes the next snapshot due."""
        manifest = self.head().manifest
        assert manifest.newest is not None
        since = sum(s.size_bytes for s in manifest.segments if s.version > manifest.newest.version)
        share = manifest.newest.size_bytes // self.writer.policy.snapshot_share
        return since / max(LEAST_BYTES_TO_SNAPSHOT, share)


def measure_run(run: Run, least_commits: int, name: str) -> None:
    """Print all figures of a size, over whole periods from snapshot to snapshot."""
    began = head_bytes = 0
    is_measured, step, share_before = False, 0.05, 0.0
    most_folded = -1
    while run.commits < least_commits or run.commits > began:
        run.commit(PAGE_CAPACITY - 1)  # a full page takes a reader fewer requests
        share = run.share_of_period()
        step, share_before = max(step, share - share_before), share
        if share + step > 1 and not is_measured and not name:  # the next segment makes it due
            measure_cold_load(run, "before_a_snapshot")
            show_plans("cold_plan", "before_a_snapshot", run.references, cold_plans(run.table))
            is_measured = True
        folded = run.commits_to_fold()
        is_last = folded + PAGE_CAPACITY > COMMITS_TO_INCREMENT
        if share > LATE and is_last and folded > most_folded and not name:
            measure_cold_load(run, "before_an_increment")
            show_plans("cold_plan", "before_an_increment", run.references, cold_plans(run.table))
            most_folded = folded
        run.commit(1)
        before = run.newest_snapshot()
        run.maintainer.maintain()
        head_bytes = max(head_bytes, head_bytes_of(run.table.pages))
        if run.newest_snapshot() != before:
            began = run.commits
    show_commits(run, name or "log", head_bytes)
    if name:
        return
    show_rewrite(run)
    measure_cold_load(run, "after_a_snapshot")
    show_plans("cold_plan", "after_a_snapshot", run.references, cold_plans(run.table))
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


def measure_cold_load(run: Run, when: str) -> None:
    requests = Requests()
    store = run.table.store(requests, 5)
    _, seconds = timed(store.current)
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
    requests = Requests()
    requests.counts.update(put=1, wru=1, rru=1)
    emit(
        "commits",
        "full rewrite",
        run.references,
        bytes_per_commit=size_bytes,
        put_per_commit=1,
        dollars_per_million=requests.dollars() * 1e6,
    )
    per_commit = (run.by_writer.written + run.by_maintainer.written).total() / run.commits
    emit("commits", "log", run.references, times_less_than_rewrite=size_bytes / per_commit)


def measure(
    references: int,
    snapshot: str,
    least_commits: int = 1020,
    interval_ms: int = 1000,
    kept_in: str = "s3",
    name: str = "",
) -> None:
    run = Run(references, Path(snapshot).read_bytes(), interval_ms, kept_in)
    measure_run(run, least_commits, name)


def measure_loads(references: int, snapshot: str, commits: int) -> None:
    """Measure cold loads of a table at its worst, and of its snapshot alone, from both stores.

    Each load is in a process of its own: memory is what is resident beyond what that had before.
    """
    body, folder = Path(snapshot).read_bytes(), Path(snapshot).parent
    for kept_in in ("s3", "dynamodb"):
        with TemporaryDirectory(dir=folder) as place:
            table = in_files(worst_table(body, kept_in, commits), Path(place))
            alone, worst = (_in_new_process(references, table, what) for what in ("alone", "worst"))
        emit("load_worst", kept_in, references, cpu_to_snapshot=worst / alone)


def in_files(table: Table, folder: Path) -> Table:
    """Return a table with its objects as files, so that no process has them in memory."""
    storage = FolderStorage(folder)
    for stored in table.storage.list(""):
        path = folder / stored.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(table.storage.get(stored.path))
    return replace(table, storage=storage)


def load(references: int, table: Table, what: str) -> float:
    """Load the state, or the snapshot alone; print what that took, and return the CPU seconds."""
    import_module("dormouse.log.segments")  # a load would import it
    store = table.store(Requests(), 5)
    decode_snapshot(TABLE, encode_snapshot(TABLE, TableState()), "empty")  # what is loaded lazily
    newest = store.reader.manifest().newest
    assert newest is not None
    read = store.current if what == "worst" else partial(store.reader.snapshot, newest)
    _, figures = kept(read)
    emit(f"load_{what}", table.kept_in, references, **figures)
    return figures["cpu_seconds"]


def _in_new_process(references: int, table: Table, what: str) -> float:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(load, references, table, what).result()
