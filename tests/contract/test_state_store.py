"""What a state store promises, whatever it keeps its order and its objects in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from dormouse.errors import ContendedError, InvalidRequestError, NotBegunError, NotFoundError
from dormouse.keys import encode_key
from dormouse.log import compaction as consolidation
from dormouse.log.engine import StateStore
from dormouse.log.pages import first_version
from dormouse.state.partitions import NewShard, PartitionTree, Shard
from dormouse.state.rules import AlreadyCommitted, Committed, Outcome, Rejected, Rule, Violation
from dormouse.state.state import (
    DAY_MS,
    AddShards,
    AssignJob,
    DeleteShards,
    ReplaceShards,
    ResetTable,
    ResolveDisputes,
    RowsTaken,
    SplitPartition,
    TableState,
    transaction_id,
)
from dormouse.state.versions import iso_time
from tests.contract.state_stores import DELTAS, SNAPSHOTS, STORES, Instance, instance_of
from tests.support.depth import is_whole
from tests.support.trees import LEFT, RIGHT, initialise
from tests.unit.statestore.faults import small_pages
from tests.unit.statestore.histories import ONE_LEAF, addition, merge_of, shard_of

INITIALISE = initialise(ONE_LEAF)


@pytest.fixture(params=STORES)
def instance(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Instance]:
    with instance_of(request.param, tmp_path, monkeypatch) as made:
        yield made


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
        assert "source1" in state.sources


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
    before = instance.kept()
    assert store.commit(generation=0) == ()
    assert instance.kept() == before


def test_a_repeated_commit_is_recognised_whichever_process_repeats_it(
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
    instance.store("t").commit(SplitPartition("root", encode_key(("m",))), generation=0)
    merged = merge_of("j", ("s1", "s2"), shard_of("m", ("a",), ("z",)))
    instance.store("t").commit(merged, generation=0)
    state = store.current()
    assert {(r.partition, r.shard) for r in state.all_references()} == {(LEFT, "m"), (RIGHT, "m")}
    assert state == instance.store("t").current()


def test_what_jobs_took_and_the_dispute_that_follows_are_known_to_every_process(
    instance: Instance, store: StateStore
) -> None:
    """A job takes 4 rows of 10, another one 5: one is lost."""
    store.commit(addition(1), SplitPartition("root", encode_key(("m",))), generation=0)
    for job, leaf, rows, low in (("z-job", LEFT, 4, ("a",)), ("a-job", RIGHT, 5, ("z",))):
        output = NewShard(Shard.of(f"{job}-0", rows, 100, low, low), ((leaf, rows),))
        done = ReplaceShards(job, leaf, ("s1",), (output,), (("s1", rows),))
        outcomes = store.commit(AssignJob(job, leaf, ("s1",)), done, generation=0)
        assert all(isinstance(outcome, Committed) for outcome in outcomes)
        store.maintain()
        span = store.current().partitions.get(leaf).range
        assert instance.store("t").current().taken["s1"][-1] == RowsTaken(job, leaf, rows, span)
    state = instance.store("t").current()
    assert state == store.current()
    assert state.jobs_in_dispute("s1") == ["a-job", "z-job"]
    assert [taking.job for taking in state.taken["s1"]] == ["z-job", "a-job"]
    (kept,) = store.commit(DeleteShards(("s1",)), generation=0)
    assert kept == Rejected((Violation(Rule.SHARD_DISPUTED, "s1"),))
    resolution = ResolveDisputes((("s1", state.disputed["s1"].since_ms),))
    (outcome,) = instance.store("t").commit(resolution, generation=0)
    assert isinstance(outcome, Committed)
    state = store.current()
    assert (len(state.taken), len(state.disputed)) == (0, 0)
    (outcome,) = store.commit(DeleteShards(("s1",)), generation=0)
    assert isinstance(outcome, Committed)


def test_a_transaction_of_an_earlier_generation_is_refused_after_a_reset(store: StateStore) -> None:
    store.commit(addition(1), generation=0)
    assert store.commit(ResetTable(1, ()), generation=0) == (Committed(3),)
    (late,) = store.commit(addition(2), generation=0)
    assert isinstance(late, Rejected)
    assert store.commit(addition(1), generation=1) == (Committed(5),)


@small_pages(4)
def test_versions_go_on_over_the_ends_of_pages(instance: Instance, store: StateStore) -> None:
    versions = [store.commit(addition(n), generation=0) for n in range(2, 14)]
    assert versions == [(Committed(n),) for n in range(2, 14)]
    for reader in (store, instance.store("t")):
        state = reader.current()
        assert (state.version, state.reference_count) == (13, 12)


@small_pages(4)
def test_a_log_begins_with_a_state_of_a_version_that_no_earlier_log_had(
    instance: Instance, store: StateStore
) -> None:
    store.commit(addition(2), generation=0)
    state = replace(store.current(), version=first_version(instance.clock.now_ms()))
    assert state.version > instance.clock.now_ms()
    begun = instance.store("u")
    begun.begin(state)
    with pytest.raises(ContendedError):
        instance.store("u").begin(state)
    with pytest.raises(ContendedError):
        store.begin(state)
    assert begun.current().shards == state.shards
    for number in range(3, 12):
        (outcome,) = instance.store("u").commit(addition(number), generation=0)
        assert outcome == Committed(state.version + number - 2)
        begun.maintain()
    for reader in (begun, instance.store("u")):
        assert (reader.current().version, reader.current().reference_count) == (
            state.version + 9,
            10,
        )
        assert reader.at(version=state.version).reference_count == 1
        assert [each.version for each in reader.history()] == [
            *range(state.version, state.version + 10)
        ]
        for version in (1, 2, state.version - 1, state.version + 10):
            with pytest.raises(NotFoundError):
                reader.at(version=version)
    begun.destroy()
    with pytest.raises(NotFoundError):
        instance.store("u").begin(state)
    assert store.current().version == 2


def at_once(*works: Callable[[], object]) -> None:
    """Do all works, each in a thread of its own."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_many_writers_at_once_lose_nothing_and_each_version_is_of_one(
    instance: Instance, store: StateStore
) -> None:
    writers, commits = (6, 10) if instance.is_remote else (16, 50 if is_whole() else 20)
    outcomes: list[Outcome] = []

    def write(writer: int) -> None:
        own = instance.store("t")
        for n in range(commits):
            outcomes.extend(own.commit(addition(1000 * (writer + 1) + n), generation=0))
            if n % 25 == 0:
                own.maintain()

    at_once(*(partial(write, writer) for writer in range(writers)))
    assert sorted(o.version for o in outcomes if isinstance(o, Committed)) == [
        *range(2, writers * commits + 2)
    ]
    assert instance.store("t").current().reference_count == writers * commits


def test_threads_of_one_process_commit_together_and_each_learns_its_own_outcome(
    instance: Instance, store: StateStore
) -> None:
    writers, commits = 8, 5
    outcomes: list[Outcome] = []

    def write(writer: int) -> None:
        for n in range(commits):
            outcomes.extend(store.commit(addition(1000 * (writer + 1) + n), generation=0))
            outcomes.extend(store.commit(addition(1000 * (writer + 1) + n), generation=0))

    at_once(*(partial(write, writer) for writer in range(writers)))
    committed = [outcome for outcome in outcomes if isinstance(outcome, Committed)]
    assert len(committed) == outcomes.count(AlreadyCommitted()) == writers * commits
    state = instance.store("t").current()
    assert {o.version for o in committed} <= {*range(2, state.version + 1)}
    assert state.reference_count == writers * commits


# The past


@small_pages(4)
def test_every_version_can_be_read_again(instance: Instance, store: StateStore) -> None:
    seen = {1: store.current()}
    for n in range(2, 14):
        instance.clock.advance(seconds=1)
        store.commit(addition(n), generation=0)
        seen[n] = store.current()
    store.maintain()
    for version in seen:
        assert instance.store("t").at(version=version) == seen[version]
        assert store.at(time_ms=seen[version].time_ms) == seen[version]
    assert store.at(time_ms=seen[2].time_ms + 999) == seen[2]
    assert store.at(time_ms=instance.clock.ms + DAY_MS) == seen[13]


def test_before_the_first_version_there_is_no_state(store: StateStore) -> None:
    first = store.current()
    assert store.at(time_ms=first.time_ms) == first
    for asked in ({"version": 0}, {"time_ms": 0}, {"time_ms": first.time_ms - 1}):
        with pytest.raises(NotBegunError) as error:
            store.at(**asked)
        assert f"its first is version 1, of {iso_time(first.time_ms)}" in str(error.value)


def test_a_version_that_is_yet_to_come_cannot_be_read(store: StateStore) -> None:
    with pytest.raises(NotFoundError, match="the newest is 1"):
        store.at(version=2)
    with pytest.raises(InvalidRequestError):
        store.at()
    with pytest.raises(InvalidRequestError):
        store.at(version=1, time_ms=1)


# Maintenance


@small_pages(8)
@patch.object(consolidation, "LEAST_BYTES_TO_SNAPSHOT", 1)
def test_after_maintenance_a_cold_reader_sees_the_same(
    instance: Instance, store: StateStore
) -> None:
    store.commit(*(addition(n) for n in range(20)), generation=0)
    store.commit(AssignJob("j", "root", ("s1", "s2")), generation=0)
    store.commit(SplitPartition("root", encode_key(("m",))), generation=0)
    for n in range(20, 32):
        store.commit(addition(n), generation=0)
    deltas = instance.count(*DELTAS)
    for each in (store, instance.store("t"), store):
        each.maintain()
    assert instance.count(*SNAPSHOTS) == 1
    assert instance.count(*DELTAS) == deltas
    store.commit(addition(99), generation=0)
    assert instance.store("t").current() == store.current()


@small_pages(4)
@patch.object(consolidation, "LEAST_BYTES_TO_SNAPSHOT", 1)
def test_a_snapshot_drops_expired_transactions_and_keeps_every_source(
    instance: Instance, store: StateStore
) -> None:
    for n in range(12):
        store.commit(addition(n), generation=0)
    store.maintain()
    instance.clock.ms += 16 * DAY_MS
    for n in range(12, 22):
        store.commit(addition(n), generation=0)
    with patch.object(consolidation, "is_snapshot_due", return_value=True):
        store.maintain()
    state = instance.store("t").current()
    assert set(state.sources) == {f"source{n}" for n in range(22)}
    assert set(state.transactions) == {transaction_id(addition(n)) for n in range(12, 22)}
    assert state.reference_count == 22


@small_pages(4)
def test_a_destroyed_table_is_gone_for_good(instance: Instance, store: StateStore) -> None:
    cold, tree = instance.store("t"), PartitionTree.from_split_points([("m",)])
    for n in range(12):
        store.commit(addition(n), generation=0)
    store.maintain()
    for each in (store, instance.store("t")):
        each.destroy()
    assert instance.kept() == []
    for writer in (store, cold, instance.store("t")):
        with pytest.raises(NotFoundError, match="destroyed"):
            writer.current()
        with pytest.raises(NotFoundError, match="destroyed"):
            writer.maintain()
        with pytest.raises(NotFoundError, match="destroyed"):
            writer.commit(initialise(tree), generation=0)
    store.destroy()
    assert instance.kept() == []


def test_a_table_without_state_can_be_destroyed(instance: Instance) -> None:
    instance.store("t").destroy()
    with pytest.raises(NotFoundError):
        instance.store("t").commit(INITIALISE, generation=0)


@small_pages(4)
def test_whether_a_version_is_the_newest_is_known_over_the_ends_of_pages_and_after_maintenance(
    instance: Instance, store: StateStore
) -> None:
    for number in range(9):
        version = store.current().version
        other = instance.store("t")
        assert store.is_newest(version) and other.is_newest(version)
        store.commit(addition(number), generation=0)
        store.maintain()
        assert not store.is_newest(version) and not other.is_newest(version)
    store.destroy()
    with pytest.raises(NotFoundError):
        instance.store("t").is_newest(version)
