"""Planning large tables: cut off anywhere it is gone on with, and it never asks for too much."""

from __future__ import annotations

from functools import partial
from itertools import islice
from pathlib import Path

import pytest

from dormouse.errors import UnavailableError
from dormouse.features import planning
from dormouse.features import planning as assigning
from dormouse.features.seal_sources import seal_sources
from dormouse.messages.stages import CompactionJob, OutboundMessage, PartitionSplits, TableChanged
from dormouse.tables.table import Table
from tests.support.depth import in_turn
from tests.support.world import Crash, World, letters

LEAVES = "bcdefgh"
CHANGED = "table-changes"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(assigning, "JOBS_PER_COMMIT", 3)
    monkeypatch.setattr(planning, "SPLITS_PER_MESSAGE", 3)
    return World(tmp_path)


def table_with_two_shards_a_leaf(world: World, **properties: object) -> Table:
    """Return a table in each of whose eight leaves a compaction is due."""
    properties = {"compaction_strategy": "batch", "compaction_files": 2, **properties}
    table = world.create(splits=[(c,) for c in LEAVES], **properties)
    for number in range(2):
        world.drop(f"letters/{number}.parquet", letters("abcdefgh", at=number))
    while world.queue:
        world.deliver(world.queue.popleft())  # the ingests; what follows is up to the test
    return table


def plan(world: World, table: Table, *, swept: bool = False) -> list[OutboundMessage]:
    return world.deliver(OutboundMessage(CHANGED, TableChanged(table.id, swept)))


def jobs_in(messages: list[OutboundMessage]) -> list[str]:
    return [m.message.job_id for m in messages if isinstance(m.message, CompactionJob)]


def test_a_planning_sends_a_job_for_each_leaf_once(world: World) -> None:
    table = table_with_two_shards_a_leaf(world)
    jobs = jobs_in(plan(world, table))
    assert set(jobs) == set(world.state(table).jobs)
    assert len(jobs) == len(set(jobs)) == 8
    assert plan(world, table) == []


def test_jobs_are_given_to_be_sent_before_more_are_assigned(world: World) -> None:
    table = table_with_two_shards_a_leaf(world)
    messages = planning.plan_table(world.services, TableChanged(table.id))
    first = list(islice(messages, 3))
    assert set(jobs_in(first)) == set(world.state(table).jobs)


@pytest.mark.parametrize("sent_before", in_turn(range(8), parts=4))
def test_what_a_planning_cut_off_left_is_planned_by_the_next_or_sent_by_the_sweep(
    world: World, sent_before: int
) -> None:
    table = table_with_two_shards_a_leaf(world, job_retry_seconds=600)
    messages = planning.plan_table(world.services, TableChanged(table.id))
    world.queue += islice(messages, sent_before)  # then the process dies
    world.queue += plan(world, table)
    world.settle()
    unsent = len(world.state(table).jobs)
    assert unsent < 3, "no more than a commit's"
    world.clock.advance(seconds=600)
    world.sweep()
    world.settle()
    assert not len(world.state(table).jobs)
    assert len(world.state(table).shards) == 8
    assert len(world.rows(table)) == 16


def test_a_planning_that_fails_midway_gives_what_it_had_assigned(world: World) -> None:
    table = table_with_two_shards_a_leaf(world)
    messages = planning.plan_table(world.services, TableChanged(table.id))
    given = list(islice(messages, 3))
    world.before_next_commit(throttled)
    with pytest.raises(UnavailableError):
        next(messages)
    assert set(jobs_in([*given, *plan(world, table)])) == set(world.state(table).jobs)


def throttled() -> None:
    raise UnavailableError("throttled")


def test_two_plannings_at_once_assign_each_shard_once_and_send_each_job_once(world: World) -> None:
    table = table_with_two_shards_a_leaf(world)
    other: list[OutboundMessage] = []
    world.before_next_commit(lambda: other.extend(plan(world, table)))
    jobs = jobs_in([*plan(world, table), *other])
    assert sorted(jobs) == sorted(world.state(table).jobs)
    assert len(jobs) == 8


def test_with_as_many_jobs_as_may_run_planning_waits_for_some_to_end(world: World) -> None:
    table = table_with_two_shards_a_leaf(world, compaction_jobs_limit=5)
    first = plan(world, table)
    assert len(jobs_in(first)) == 5
    assert plan(world, table) == []
    world.deliver(first[0])
    more = plan(world, table)
    assert len(jobs_in(more)) == 1
    world.queue += [*first, *more]
    world.settle(twice=True)
    world.sweep()
    world.settle()
    assert len(world.state(table).shards) == 8


def test_while_nothing_is_compacted_ingest_goes_on_and_plannings_ask_for_no_more_than_the_limit(
    world: World,
) -> None:
    table = table_with_two_shards_a_leaf(world, compaction_jobs_limit=20)
    jobs: list[str] = []
    for number in range(2, 12):
        world.drop(f"letters/{number}.parquet", letters("abcdefgh", at=number))
        while world.queue:
            world.deliver(world.queue.popleft())  # whose plannings are lost, but this
        jobs += jobs_in(plan(world, table))
    assert len(jobs) == len(set(jobs)) == 20
    assert len(world.rows(table)) == 12 * 8


def test_jobs_of_a_long_queue_are_sent_again_more_and_more_rarely(world: World) -> None:
    table = table_with_two_shards_a_leaf(world, job_retry_seconds=600)
    plan(world, table)  # whose messages wait behind others
    sent_again = []
    for _ in range(16):  # eighty minutes of sweeps
        world.clock.advance(seconds=300)
        world.queue.clear()
        world.sweep()
        sent_again.append(len(jobs_in(list(world.queue))))
    assert [5 * (n + 1) for n, jobs in enumerate(sent_again) if jobs] == [10, 20, 40, 80]
    assert set(sent_again) == {0, 8}
    record = world.tracker.get(table.id, "sent-again")
    assert record is not None and record.subject == "8 jobs sent again"


def test_splits_of_many_leaves_travel_together_and_are_one_commit_a_message(world: World) -> None:
    table = world.create(splits=[(c,) for c in LEAVES], split_threshold_rows=1000)
    world.drop("letters/1.parquet", letters("aAbbbBcCdDeEfFgGhH".lower()))
    rows = [{"letter": c + n, "at": 0} for c in "abcdefgh" for n in "0123"]
    world.drop("letters/2.parquet", rows)
    world.settle()
    small = world.tables.by_id[table.id]
    world.tables.by_id[table.id] = small.with_settings({"split_threshold_rows": 5}, {})
    due = plan(world, table)
    asked = [m.message.partitions for m in due if isinstance(m.message, PartitionSplits)]
    assert [len(partitions) for partitions in asked] == [3, 3, 2]
    before = world.state(table).version
    changed = [world.deliver(outgoing) for outgoing in due if outgoing.queue == "partition-splits"]
    assert world.state(table).version == before + 3
    assert changed == [[OutboundMessage(CHANGED, TableChanged(table.id))]] * 3
    assert len(list(world.state(table).partitions.leaves())) == 16
    again = [world.deliver(outgoing) for outgoing in due if outgoing.queue == "partition-splits"]
    assert again == [[], [], []], "a repeated message finds nothing to do, and causes nothing"


def test_a_leaf_whose_footers_are_lost_does_not_keep_its_neighbours_from_being_split(
    world: World,
) -> None:
    table, left, right = table_with_a_lost_shard(world)
    message = OutboundMessage("partition-splits", PartitionSplits(table.id, 0, (left, right)))
    with pytest.raises(ExceptionGroup, match="could not be split"):
        world.deliver(message)
    after = world.state(table).partitions
    assert after.get(left).is_leaf and not after.get(right).is_leaf
    record = world.tracker.get(table.id, f"split-{left}")
    assert record is not None and record.state == "failed"


def table_with_a_lost_shard(world: World) -> tuple[Table, str, str]:
    """Return a table of two leaves that are to be split; the first cannot be."""
    table = world.create(
        splits=[("m",)], split_threshold_rows=4, ingest_file_strategy="one_file_per_leaf"
    )
    world.drop("letters/1.parquet", letters("abcdmnop"))
    world.deliver(world.queue.popleft())
    world.queue.clear()
    state = world.state(table)
    left, right = (leaf.id for leaf in state.partitions.leaves())
    (lost,) = state.references_in(left)
    (world.folder / "data" / f"{table.id}/data/{lost.shard}.parquet").unlink()
    return table, left, right


def split_at_every_planning(world: World, table: Table, seconds: int) -> list[int]:
    """Plan once each ten seconds and do what that asks for; return when a split failed."""
    failed_at = []
    for second in range(0, seconds, 10):
        for outgoing in plan(world, table):
            try:
                world.deliver(outgoing)
            except ExceptionGroup:
                failed_at.append(second)
        world.clock.advance(seconds=10)
    return failed_at


def test_a_leaf_that_cannot_be_split_is_retried_with_backoff_however_often_it_is_requested(
    world: World,
) -> None:
    table, left, right = table_with_a_lost_shard(world)
    failed_at = split_at_every_planning(world, table, 2 * 60 * 60)
    assert failed_at == [0, 30, 90, 210, 450, 930, 1890, 3810]
    assert not world.state(table).partitions.get(right).is_leaf
    forced = OutboundMessage("partition-splits", PartitionSplits(table.id, 0, (left,), forced=True))
    with pytest.raises(ExceptionGroup):  # a request that names it is answered
        world.deliver(forced)


def test_a_crash_before_the_commit_of_splits_leaves_them_to_the_redelivery(world: World) -> None:
    table = world.create(split_threshold_rows=4)
    world.drop("letters/1.parquet", letters("abcd"))
    world.deliver(world.queue.popleft())
    message = OutboundMessage("partition-splits", PartitionSplits(table.id, 0, ("root",)))
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        world.deliver(message)
    world.queue.append(message)
    world.settle()
    assert len(list(world.state(table).partitions.leaves())) == 2


def test_what_another_planning_assigned_is_not_written_again(world: World) -> None:
    table = table_with_two_shards_a_leaf(world)
    slow = planning.plan_table(world.services, TableChanged(table.id))
    first = next(slow)  # it has planned all, and assigned a few
    others = plan(world, table)
    version = world.state(table).version
    assert len(jobs_in([first, *others, *slow])) == 8
    assert world.state(table).version == version


def test_a_planning_seals_the_sources_that_have_gathered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the state would grow with every file."""
    monkeypatch.setattr(planning, "seal_sources", partial(seal_sources, least=2))
    table = table_with_two_shards_a_leaf(world)
    plan(world, table)
    state = world.state(table)
    assert (len(state.sources), [s.count for s in state.source_segments]) == (0, [2])
