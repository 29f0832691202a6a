"""Compactions, splits and the deletion of garbage on request."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.features.administration import administer
from dormouse.messages.requests import CollectGarbage, CompactTable, SplitPartitions
from dormouse.messages.stages import CompactionJob, GarbageCandidates, PartitionSplits
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.trees import LEFT, RIGHT
from tests.support.world import World, letters


@made_once
def filled(world: World, *files: str, **properties: object) -> Table:
    table = world.create("letters", splits=[("m",)], **properties)
    for number, text in enumerate(files):
        world.drop(f"letters/{number}.parquet", letters(text, at=100 * number))
    world.settle()
    return table


def shards_by_leaf(world: World, table: Table) -> list[int]:
    state = world.state(table)
    return [len(state.references_in(leaf.id)) for leaf in state.partitions.leaves()]


@pytest.mark.parametrize("online", [True, False])
def test_all_shards_of_each_leaf_are_merged_although_the_strategy_finds_nothing_due(
    world: World, online: bool
) -> None:
    table = filled(world, "abyz", "cx", compaction_files=100)
    world.set_online(table, online)
    world.settle()
    before = world.rows(table)
    assert shards_by_leaf(world, table) == [2, 2]
    world.administer(CompactTable("c", "letters", all=True))
    assert [type(m.message) for m in world.queue] == [CompactionJob] * 2
    world.settle()
    assert shards_by_leaf(world, table) == [1, 1]
    assert world.rows(table) == before
    world.administer(CompactTable("d", "letters", all=True))
    assert not world.queue


def test_no_more_compactions_start_than_the_table_may_have_at_a_time(world: World) -> None:
    table = filled(world, "abyz", "cx", compaction_files=100, compaction_jobs_limit=1)
    for request_id in "cd":
        world.administer(CompactTable(request_id, "letters", all=True))
        assert len(world.queue) <= 1
        world.settle()
    assert shards_by_leaf(world, table) == [1, 1]


def test_only_due_compactions_start_unless_all_are_requested(world: World) -> None:
    table = filled(world, "ab")
    world.set_online(table, False)
    for number in range(4):
        world.drop(f"letters/more{number}.parquet", letters("ab", at=number))
    world.drop("letters/right.parquet", letters("z"))
    world.settle()
    assert shards_by_leaf(world, table) == [5, 1]
    world.administer(CompactTable("c", "letters"))
    world.settle()
    assert shards_by_leaf(world, table) == [1, 1]


def test_the_sweep_sends_a_requested_compaction_whose_message_was_lost(world: World) -> None:
    table = filled(world, "ab", "ab", compaction_files=100)
    world.administer(CompactTable("c", "letters", all=True))
    world.queue.clear()
    world.clock.advance(seconds=table.properties.job_retry_seconds)
    world.sweep()
    world.settle()
    assert shards_by_leaf(world, table) == [1, 0]


def test_leaves_over_the_threshold_are_split_although_the_table_is_offline(world: World) -> None:
    table = filled(world)
    world.set_online(table, False)
    world.drop("letters/1.parquet", letters("abcdxyz"))
    world.settle()
    world.tables.change(table.id, lambda t: t.with_settings({"split_threshold_rows": 4}, {}))
    world.administer(SplitPartitions("s", "letters"))
    assert [type(m.message) for m in world.queue] == [PartitionSplits]
    world.settle()
    assert [r["letter"] for r in world.rows(table)] == list("abcdxyz")
    assert shards_by_leaf(world, table) == [1, 1, 1]


def test_a_forced_split_halves_a_leaf_of_few_rows_once(world: World) -> None:
    table = filled(world, "abcdxyz")
    request = SplitPartitions("s", "letters", LEFT, forced=True)
    for _ in range(2):
        world.administer(request)
        world.tracker.kept.clear()  # as if cut off before it was recorded
    world.settle()
    leaves = [leaf.range.min for leaf in world.state(table).partitions.leaves()]
    assert leaves == [(), ("c",), ("m",)]


def test_a_forced_split_splits_all_leaves_but_those_of_a_single_key(world: World) -> None:
    table = filled(world, "abzz")
    world.administer(SplitPartitions("s", "letters", forced=True))
    world.settle()
    assert shards_by_leaf(world, table) == [1, 1, 1]


@pytest.mark.parametrize(
    ("partition", "forced", "error", "said"),
    [
        ("000", False, NotFoundError, "no partition '000'"),
        ("root", True, InvalidRequestError, "split already"),
        (
            LEFT,
            False,
            InvalidRequestError,
            "has 2 rows, and is split from 1,000,000,000 on; a forc",
        ),
        (RIGHT, True, InvalidRequestError, "has 0 rows, and is split from 2 on"),
    ],
)
def test_an_impossible_split_is_refused_with_the_reason(
    world: World, partition: str, forced: bool, error: type[Exception], said: str
) -> None:
    filled(world, "ab")
    with pytest.raises(error):
        administer(world.services, SplitPartitions("s", "letters", partition, forced))
    record = world.job_record("s")
    assert record is not None
    assert (record.state, said in record.reason) == ("refused", True)


def test_garbage_is_deleted_on_request_but_not_before_its_delay(world: World) -> None:
    table = filled(world, "ab", "ab", compaction_files=100)
    world.administer(CompactTable("c", "letters", all=True))
    world.deliver_all_but("gc-candidates")
    assert len(world.shard_objects(table)) == 3
    world.administer(CollectGarbage("g", "letters"))
    assert not world.queue
    world.clock.advance(seconds=table.properties.gc_delay_seconds)
    world.administer(CollectGarbage("h", "letters"))
    assert [type(m.message) for m in world.queue] == [GarbageCandidates]
    world.settle()
    assert len(world.shard_objects(table)) == 1
    assert world.names(table) == "aabb"


@pytest.mark.parametrize("kind", [CompactTable, SplitPartitions, CollectGarbage])
def test_no_work_starts_for_a_table_in_deletion(
    world: World, kind: type[CompactTable | SplitPartitions | CollectGarbage]
) -> None:
    table = filled(world, "ab")
    world.tables.change(table.id, lambda t: replace(t, deleting=True))
    with pytest.raises(NotFoundError, match="being deleted"):
        administer(world.services, kind("r", "letters"))


def test_a_request_for_an_unknown_table_names_the_nearest_one(world: World) -> None:
    world.create("letters")
    with pytest.raises(NotFoundError) as refused:
        administer(world.services, CompactTable("r", "leters"))
    assert refused.value.hint == "did you mean letters?"
