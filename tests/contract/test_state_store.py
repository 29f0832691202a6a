"""What a state store promises, whatever it keeps its order and its objects in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from dormouse.errors import NotFoundError
from dormouse.model.partitions import PartitionTree
from dormouse.model.rules import Rule, Violation
from dormouse.model.state import DAY_MS, TableState
from dormouse.model.transactions import (
    AddShards,
    AssignJob,
    ClearTable,
    InitialisePartitions,
    ReplaceShards,
    SplitPartition,
)
from dormouse.ports import Storage
from dormouse.statestore.pages import MemoryPages
from dormouse.statestore.protocol import AlreadyCommitted, Committed, Rejected, StateStore
from dormouse.statestore.s3 import S3StateStore
from dormouse.storage import FolderStorage, MemoryStorage
from tests.contract.state_pages import dynamodb_pages
from tests.support.adapters import FakeClock
from tests.unit.statestore.histories import ONE_LEAF, addition, shard_of

INITIALISE = InitialisePartitions(ONE_LEAF)


class UniqueIds:
    """Ids for many threads: counting is one step of the interpreter."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def new(self) -> str:
        return f"{next(self._numbers):032x}"


@dataclass
class Instance:
    """Makes stores of tables, each with a cold cache, as another process would have."""

    store: Callable[[str], StateStore]
    clock: FakeClock
    storage: Storage
    is_remote: bool = False


@pytest.fixture(params=["memory", "folder", "dynamodb"])
def instance(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Instance]:
    clock, ids = FakeClock(), UniqueIds()
    storage = FolderStorage(tmp_path) if request.param == "folder" else MemoryStorage()
    if request.param == "dynamodb":
        with dynamodb_pages(monkeypatch) as remote:
            make = lambda table: S3StateStore(table, storage, remote, clock, ids)  # noqa: E731
            yield Instance(make, clock, storage, is_remote=True)
        return
    pages = MemoryPages()
    yield Instance(lambda table: S3StateStore(table, storage, pages, clock, ids), clock, storage)


@pytest.fixture
def store(instance: Instance) -> StateStore:
    made = instance.store("t")
    assert made.commit(INITIALISE, generation=0) == (Committed(1),)
    return made


def test_a_table_nobody_wrote_to_is_empty(instance: Instance) -> None:
    assert instance.store("t").current() == TableState()


def test_a_commit_is_seen_by_every_read_that_begins_after_it(
    instance: Instance, store: StateStore
) -> None:
    warm = instance.store("t")
    warm.current()
    assert store.commit(addition(1), generation=0) == (Committed(2),)
    for reader in (warm, instance.store("t"), store):
        state = reader.current()
        assert state.version == 2
        assert [r.shard for r in state.all_references()] == ["s1"]
        assert state.has_ingested("source1", instance.clock.now_ms())


def test_tables_do_not_see_each_other(instance: Instance, store: StateStore) -> None:
    assert instance.store("u").commit(INITIALISE, generation=0) == (Committed(1),)
    store.commit(addition(1), generation=0)
    assert instance.store("u").current().version == 1


def test_each_transaction_of_a_commit_has_its_own_outcome(store: StateStore) -> None:
    same_source = addition(1)
    outcomes = store.commit(addition(1), addition(2), same_source, addition(3), generation=0)
    assert outcomes == (Committed(2), Committed(2), AlreadyCommitted(), Committed(2))
    assert store.current().reference_count == 3


def test_committing_nothing_writes_nothing(instance: Instance, store: StateStore) -> None:
    before = list(instance.storage.list(""))
    assert store.commit(generation=0) == ()
    assert list(instance.storage.list("")) == before


def test_a_repeated_commit_is_told_that_it_landed_whoever_repeats_it(
    instance: Instance, store: StateStore
) -> None:
    store.commit(addition(1), generation=0)
    for writer in (store, instance.store("t")):
        assert writer.commit(addition(1), generation=0) == (AlreadyCommitted(),)
    assert instance.store("t").current().reference_count == 1


def test_a_commit_that_breaks_a_rule_changes_nothing_and_says_why(
    instance: Instance, store: StateStore
) -> None:
    store.commit(addition(1), generation=0)
    again = AddShards("other job", ("source1",), ())
    expected = Rejected((Violation(Rule.SOURCE_INGESTED, "source1"),))
    assert instance.store("t").commit(again, generation=0) == (expected,)
    assert store.current().reference_count == 1


def test_of_two_jobs_on_one_input_the_first_has_it(instance: Instance, store: StateStore) -> None:
    store.commit(addition(1), generation=0)
    other = instance.store("t")
    other.current()
    assert store.commit(AssignJob("a", "root", ("s1",)), generation=0) == (Committed(3),)
    lost = other.commit(AssignJob("b", "root", ("s1",)), generation=0)
    assert lost == (Rejected((Violation(Rule.REFERENCE_ASSIGNED, "s1"),)),)


def test_a_job_and_a_split_run_their_course_across_processes(
    instance: Instance, store: StateStore
) -> None:
    store.commit(addition(1), addition(2), generation=0)
    instance.store("t").commit(AssignJob("j", "root", ("s1", "s2")), generation=0)
    instance.store("t").commit(SplitPartition("root", ("m",)), generation=0)
    merged = ReplaceShards("j", "root", ("s1", "s2"), (shard_of("m", ("a",), ("z",)),))
    instance.store("t").commit(merged, generation=0)
    state = store.current()
    assert {(r.partition, r.shard) for r in state.all_references()} == {("0", "m"), ("1", "m")}
    assert state == instance.store("t").current()


def test_what_was_meant_for_a_table_before_it_was_cleared_is_refused(store: StateStore) -> None:
    store.commit(addition(1), generation=0)
    assert store.commit(ClearTable(1, ONE_LEAF), generation=0) == (Committed(3),)
    (late,) = store.commit(addition(2), generation=0)
    assert isinstance(late, Rejected)
    assert store.commit(addition(1), generation=1) == (Committed(5),)


def test_versions_go_on_over_the_ends_of_pages(instance: Instance, store: StateStore) -> None:
    versions = [store.commit(addition(n), generation=0) for n in range(2, 102)]
    assert versions == [(Committed(n),) for n in range(2, 102)]
    for reader in (store, instance.store("t")):
        state = reader.current()
        assert (state.version, state.reference_count) == (101, 100)


def test_many_writers_at_once_lose_nothing(instance: Instance, store: StateStore) -> None:
    writers, commits = (6, 10) if instance.is_remote else (16, 20)
    outcomes: list[object] = []

    def write(writer: int) -> None:
        own = instance.store("t") if writer % 2 else store  # some share a process, some do not
        for n in range(commits):
            outcomes.extend(own.commit(addition(1000 * (writer + 1) + n), generation=0))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(o.version for o in outcomes if isinstance(o, Committed)) == [
        *range(2, writers * commits + 2)
    ]
    assert instance.store("t").current().reference_count == writers * commits


def test_a_snapshot_holds_what_all_deltas_hold(instance: Instance, store: StateStore) -> None:
    store.commit(*(addition(n) for n in range(20)), generation=0)
    store.commit(AssignJob("j", "root", ("s1", "s2")), generation=0)
    store.commit(SplitPartition("root", ("m",)), generation=0)
    for n in range(20, 70):
        store.commit(addition(n), generation=0)
    deltas = len(list(instance.storage.list("t/state/deltas/")))
    for each in (store, instance.store("t"), store):
        each.maintain()
    assert len(list(instance.storage.list("t/state/snapshots/"))) == 1
    assert len(list(instance.storage.list("t/state/deltas/"))) == deltas
    store.commit(addition(99), generation=0)
    assert instance.store("t").current() == store.current()


def test_a_snapshot_forgets_what_no_rule_heeds_any_more(
    instance: Instance, store: StateStore
) -> None:
    for n in range(60):
        store.commit(addition(n), generation=0)
    instance.clock.ms += 16 * DAY_MS
    store.commit(addition(60), generation=0)
    store.maintain()
    state = instance.store("t").current()
    assert set(state.sources) == {"source60"}
    assert set(state.transactions) == {"add:job60"}
    assert state.reference_count == 61


def test_a_destroyed_table_is_gone_for_good(instance: Instance, store: StateStore) -> None:
    cold, tree = instance.store("t"), PartitionTree.from_split_points([("m",)])
    for n in range(60):
        store.commit(addition(n), generation=0)
    store.maintain()
    for each in (store, instance.store("t")):
        each.destroy()
    assert list(instance.storage.list("")) == []
    for writer in (store, cold, instance.store("t")):
        with pytest.raises(NotFoundError, match="destroyed"):
            writer.current()
        with pytest.raises(NotFoundError, match="destroyed"):
            writer.maintain()
        with pytest.raises(NotFoundError, match="destroyed"):
            writer.commit(InitialisePartitions(tuple(tree.by_id.values())), generation=0)
    store.destroy()
    assert list(instance.storage.list("")) == []


def test_a_table_without_state_can_be_destroyed(instance: Instance) -> None:
    instance.store("t").destroy()
    with pytest.raises(NotFoundError):
        instance.store("t").commit(INITIALISE, generation=0)
