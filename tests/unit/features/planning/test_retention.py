"""Retention: shards nothing else would touch are rewritten once in each age."""

from __future__ import annotations

from dormouse.features.planning import LEAST_INTERVAL_MS, CompactionPlan, plan_age_off
from dormouse.state.fold import apply
from dormouse.state.partitions import ROOT, NewShard, PartitionTree, Shard
from dormouse.state.state import (
    AddShards,
    AssignJob,
    DisputeReason,
    DisputeShards,
    Entry,
    TableState,
)
from dormouse.stored.paths import id_prefix, make_shard_id
from dormouse.tables.properties import Properties
from tests.support.trees import initialise

DAY_MS = 24 * 60 * 60 * 1000
NOW_MS = 1_700_000_000_000


def shard_begun(ms: int) -> str:
    return make_shard_id(f"{id_prefix(ms)}{'0' * 20}", 0)


def table_with(*begun_ms: int) -> TableState:
    """A table of one leaf, with shards whose runs were begun then."""
    root = tuple(PartitionTree.from_split_points([]).by_id.values())
    state, _ = apply(TableState(), Entry(initialise(root), 0, 0))
    shards = [
        NewShard(Shard.of(shard_begun(ms), 5, 5, ("a",), ("z",)), ((ROOT, 5),)) for ms in begun_ms
    ]
    return after(state, AddShards("job", (), tuple(shards)))


def after(state: TableState, *transactions: AddShards | AssignJob | DisputeShards) -> TableState:
    for transaction in transactions:
        state, verdict = apply(state, Entry(transaction, 0, 0))
        assert not verdict.violations
    return state


def rewritten(
    state: TableState, now_ms: int, age_ms: int = DAY_MS, *planned: CompactionPlan, **other: int
) -> list[tuple[str, ...]]:
    properties = Properties(**other)  # type: ignore[arg-type]
    plans = plan_age_off(state, properties, age_ms, now_ms, planned)
    assert {plan.partition for plan in plans} <= {ROOT}
    return [plan.inputs for plan in plans]


def test_a_shard_is_due_an_orphan_age_after_its_run_began_and_not_before() -> None:
    state = table_with(NOW_MS)
    assert rewritten(state, NOW_MS + DAY_MS - 1) == []
    assert rewritten(state, NOW_MS + DAY_MS) == [(shard_begun(NOW_MS),)]


def test_what_was_just_rewritten_is_not_due_however_short_the_age() -> None:
    state = table_with(NOW_MS)
    assert rewritten(state, NOW_MS + LEAST_INTERVAL_MS - 1, 1) == []
    assert len(rewritten(state, NOW_MS + LEAST_INTERVAL_MS, 1)) == 1


def test_due_shards_go_oldest_first_in_batches_of_what_a_compaction_takes() -> None:
    times = [NOW_MS + n for n in range(5)]
    batches = rewritten(table_with(*times[::-1]), NOW_MS + 2 * DAY_MS, DAY_MS, compaction_files=2)
    ordered = [shard_begun(ms) for ms in times]
    assert batches == [tuple(ordered[:2]), tuple(ordered[2:4]), tuple(ordered[4:])]


def test_a_disputed_shard_is_not_rewritten() -> None:
    first, second = (shard_begun(NOW_MS + n) for n in range(2))
    damaged = DisputeShards((first,), DisputeReason.BYTES_DAMAGED, "job")
    state = after(table_with(NOW_MS, NOW_MS + 1), damaged)
    assert rewritten(state, NOW_MS + 2 * DAY_MS) == [(second,)]


def test_shards_of_running_or_planned_compactions_are_left_to_those() -> None:
    first, second, third = (shard_begun(NOW_MS + n) for n in range(3))
    state = after(table_with(NOW_MS, NOW_MS + 1, NOW_MS + 2), AssignJob("job1", ROOT, (first,)))
    plan = CompactionPlan(ROOT, (second,))
    assert rewritten(state, NOW_MS + 2 * DAY_MS, DAY_MS, plan) == [(third,)]
    one_at_a_time = {"compaction_jobs_per_partition": 2}
    assert rewritten(state, NOW_MS + 2 * DAY_MS, DAY_MS, plan, **one_at_a_time) == []
