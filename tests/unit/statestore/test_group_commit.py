"""Commits of threads in one delta: none waits without need, and none is lost."""

from __future__ import annotations

import threading

from dormouse.errors import ContendedError
from dormouse.log.engine import Entries, GroupCommit, Options, Outcomes, PendingCommit
from dormouse.state.rules import CommitReport, Committed
from dormouse.state.state import Entry, ReleaseJob
from tests.support.trees import initialise
from tests.unit.statestore.faults import Rig
from tests.unit.statestore.histories import ONE_LEAF, addition


def entry(name: str) -> Entry:
    return Entry(ReleaseJob(name), 0, 0)


class Gate:
    """A commit whose first call waits until it is let through, as one on its way does."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()
        self.batches: list[Entries] = []
        self.failure: Exception | None = None

    def commit(self, entries: Entries) -> Outcomes:
        self.batches.append(entries)
        if len(self.batches) == 1:
            self.entered.set()
            self.open.wait()
        elif self.failure:
            raise self.failure
        return tuple(Committed(int(e.transaction.job)) for e in entries)  # type: ignore[union-attr]


def committing(group: GroupCommit, names: list[str], found: dict[str, object]) -> threading.Thread:
    def commit() -> None:
        try:
            found[names[0]] = group.commit(tuple(entry(name) for name in names))
        except ContendedError as error:
            found[names[0]] = error

    thread = threading.Thread(target=commit)
    thread.start()
    return thread


class Platform(list[PendingCommit]):
    """Those that wait; `full` is set when there are two."""

    def __init__(self) -> None:
        super().__init__()
        self.full = threading.Event()

    def append(self, passenger: PendingCommit) -> None:
        super().append(passenger)
        if len(self) == 2:
            self.full.set()


def run_three(gate: Gate) -> dict[str, object]:
    """Let two threads commit while the commit of a third is on its way."""
    group, found = GroupCommit(gate.commit), dict[str, object]()
    threads = [committing(group, ["1"], found)]
    gate.entered.wait()
    group._waiting = platform = Platform()
    threads += [committing(group, ["2", "3"], found), committing(group, ["4"], found)]
    platform.full.wait()
    gate.open.set()
    for thread in threads:
        thread.join()
    return found


def test_what_comes_while_a_commit_is_on_its_way_goes_together_in_the_next() -> None:
    gate = Gate()
    found = run_three(gate)
    assert [len(batch) for batch in gate.batches] == [1, 3]
    assert found == {"1": (Committed(1),), "2": (Committed(2), Committed(3)), "4": (Committed(4),)}


def test_a_failure_is_raised_to_all_commits_of_the_group_and_the_next_commit_goes_on() -> None:
    gate = Gate()
    gate.failure = ContendedError("lost")
    found = run_three(gate)
    assert found["1"] == (Committed(1),)
    assert found["2"] is found["4"] is gate.failure
    gate.failure = None
    group = GroupCommit(gate.commit)
    assert group.commit((entry("5"),)) == (Committed(5),)


def test_a_lone_thread_commits_at_once() -> None:
    batches: list[Entries] = []

    def commit(entries: Entries) -> Outcomes:
        batches.append(entries)
        return (Committed(1),)

    group = GroupCommit(commit)
    for _ in range(2):
        group.commit((entry("1"),))
    assert [len(batch) for batch in batches] == [1, 1]


def test_a_commit_is_reported_with_what_it_cost() -> None:
    reports: list[CommitReport] = []
    rig = Rig(options=Options(observe=reports.append))
    rig.on("before append", lambda: rig.clock.advance(seconds=1))
    store = rig.store()
    store.commit(initialise(ONE_LEAF), addition(1), ReleaseJob("none"), generation=0)
    (report,) = reports
    assert (report.version, report.transactions, report.rejected) == (1, 3, 1)
    assert report.milliseconds == 1000
    assert report.attempts == 2  # the first finds no page
    assert report.size_bytes == sum(len(body) for body in rig.storage.ever_put.values())
