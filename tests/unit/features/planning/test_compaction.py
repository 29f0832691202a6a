"""Compaction strategies: the original's decisions, to the row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.features import planning
from dormouse.features.planning import (
    CompactionPlan,
    plan_compactions,
    plan_full_compactions,
    within_limit,
)
from dormouse.state.fold import apply
from dormouse.state.partitions import ROOT, NewShard, PartitionTree, Shard
from dormouse.state.state import (
    AddShards,
    AssignJob,
    DisputeReason,
    DisputeShards,
    Entry,
    ReplaceShards,
    TableState,
)
from dormouse.tables.properties import Properties
from tests.support.trees import initialise


def table_with(*rows: int) -> TableState:
    """A table of one leaf with shards s00, s01, … of these row counts."""
    return table_of({f"s{i:02d}": n for i, n in enumerate(rows)})


def table_of(rows: dict[str, int]) -> TableState:
    """A table of one leaf with shards of these row counts, by id."""
    shards = [new_shard(shard, n) for shard, n in rows.items()]
    root = tuple(PartitionTree.from_split_points([]).by_id.values())
    state, _ = apply(TableState(), Entry(initialise(root), 0, 0))
    state, verdict = apply(state, Entry(AddShards("job", (), tuple(shards)), 0, 0))
    assert not verdict.violations
    return state


def new_shard(shard: str, rows: int) -> NewShard:
    size_bytes = rows * planning.SMALL_BYTES // 2
    return NewShard(Shard.of(shard, rows, size_bytes, ("a",), ("z",)), ((ROOT, rows),))


def planned(state: TableState, **properties: object) -> list[list[int]]:
    """The row counts of the inputs of each plan."""
    plans = plan_compactions(state, Properties(**properties))  # type: ignore[arg-type]
    return [[state.shards[s].rows for s in plan.inputs] for plan in plans]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], []),
        ([9], []),
        ([9, 9, 9], []),
        ([9, 9, 9, 9], [[9, 9, 9, 9]]),
        ([9, 9, 9, 9, 10], [[9, 9, 9, 9, 10]]),
        ([1, 2, 200], []),
        ([9, 9, 9, 9, 1000], [[9, 9, 9, 9]]),
        ([2, 2, 2, 2, 2, 100, 400], [[2, 2, 2, 2, 2]]),
    ],
)
def test_size_ratio_merges_shards_of_like_size_and_leaves_the_large_alone(
    rows: list[int], expected: list[list[int]]
) -> None:
    assert planned(table_with(*rows)) == expected


@pytest.mark.parametrize("strategy", ["batch", "size_ratio"])
def test_a_disputed_shard_is_planned_by_nobody_nor_are_the_others_of_its_run(strategy: str) -> None:
    state = table_of({"r-0": 9, "r-1": 9, "s": 9, "t": 9, "u": 9, "v": 9})
    damaged = DisputeShards(("r-1",), DisputeReason.BYTES_DAMAGED, "job")
    disputed, verdict = apply(state, Entry(damaged, 0, 0))
    assert not verdict.violations
    properties = Properties(compaction_strategy=strategy, compaction_files=4)
    for plans in (plan_compactions(disputed, properties), plan_full_compactions(disputed)):
        assert [sorted(plan.inputs) for plan in plans] == [["s", "t", "u", "v"]]


def test_size_ratio_cuts_many_shards_into_windows_each_judged_for_itself() -> None:
    assert planned(table_with(*[9] * 10), compaction_files=5) == [[9] * 5, [9] * 5]
    assert planned(table_with(1, 1, 1, 1, 90, 90, 90, 90), compaction_files=4) == [
        [1, 1, 1, 1],
        [90, 90, 90, 90],
    ]


def test_size_ratio_merges_more_shards_at_once_while_all_of_them_are_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = table_with(*[1] * 20, 90, 90, 90, 90, 90)
    monkeypatch.setattr(planning, "SMALL_BYTES", 16 * planning.SMALL_BYTES // 2)
    assert planned(state, compaction_files=4) == [[1] * 16, [1] * 4, [90] * 4]
    assert planned(state, compaction_files=20) == [[1] * 20, [90] * 5]


def test_batch_strategy_merges_every_n_shards_smallest_first_and_leaves_the_rest() -> None:
    state = table_with(5, 3, 4, 1, 2)
    assert planned(state, compaction_strategy="batch", compaction_files=2) == [[1, 2], [3, 4]]


def test_shards_of_a_running_job_are_not_planned_again() -> None:
    state = table_with(9, 9, 9, 9)
    state, _ = apply(state, Entry(AssignJob("running", ROOT, ("s00",)), 0, 0))
    assert planned(state) == []


def test_no_more_jobs_run_in_a_partition_than_it_may_have() -> None:
    state = table_with(*[9] * 12)
    assert len(planned(state, compaction_files=4, compaction_jobs_per_partition=2)) == 2
    state, _ = apply(state, Entry(AssignJob("running", ROOT, ("s00",)), 0, 0))
    assert len(planned(state, compaction_files=4, compaction_jobs_per_partition=2)) == 1


@given(
    st.lists(st.integers(1, 50), max_size=30),
    st.integers(2, 12),
    st.sampled_from(["batch", "size_ratio"]),
)
def test_no_shard_is_in_two_plans_and_none_is_merged_alone(
    rows: list[int], size: int, strategy: str
) -> None:
    properties = Properties(compaction_strategy=strategy, compaction_files=size)
    plans = plan_compactions(table_with(*rows), properties) if rows else []
    inputs = [shard for plan in plans for shard in plan.inputs]
    assert len(inputs) == len(set(inputs))
    assert all(2 <= len(plan.inputs) <= size for plan in plans)


def test_the_shards_of_one_run_count_as_one_and_are_taken_together_or_not_at_all() -> None:
    cut = {f"j-{n}": 30 for n in range(12)}
    assert plan_compactions(table_of(cut), Properties()) == []
    small = {f"r{n}-0": 30 for n in range(4)}
    (plan,) = plan_compactions(table_of(cut | small), Properties())
    assert set(plan.inputs) == set(small)
    large = {f"r{n}-0": 360 for n in range(3)}
    (plan,) = plan_compactions(table_of(cut | large), Properties())
    assert set(plan.inputs) == set(cut) | set(large)


@pytest.mark.parametrize("strategy", ["batch", "size_ratio"])
def test_a_run_some_of_whose_shards_a_job_holds_is_left_alone(strategy: str) -> None:
    state = table_of({"j-0": 9, "j-1": 9, "r-0": 18, "s-0": 18, "t-0": 18})
    properties = Properties(compaction_strategy=strategy, compaction_files=4)
    (plan,) = plan_compactions(state, properties)
    assert len(plan.inputs) == 5
    state, _ = apply(state, Entry(AssignJob("running", ROOT, ("j-1",)), 0, 0))
    assert plan_compactions(state, properties) == []


def test_a_full_compaction_takes_every_run_of_a_leaf_and_none_is_merged_alone() -> None:
    assert not plan_full_compactions(table_with(9))
    assert not plan_full_compactions(table_of({"run-0": 5, "run-1": 5}))
    (plan,) = plan_full_compactions(table_of({"run-0": 5, "run-1": 5, "one-0": 1000}))
    assert plan.inputs == ("run-0", "run-1", "one-0")


def test_a_full_compaction_leaves_alone_what_a_job_holds() -> None:
    state = table_with(1, 2, 3)
    state, _ = apply(state, Entry(AssignJob("job", ROOT, ("s00", "s01")), 0, 0))
    assert not plan_full_compactions(state)


def test_a_job_has_a_bounded_number_of_shards() -> None:
    runs = {f"{run}-{n}": 1 for run in "abcde" for n in range(planning.MAX_INPUTS // 4)}
    (plan,) = plan_compactions(table_of(runs), Properties())
    assert len(plan.inputs) == planning.MAX_INPUTS
    single = {f"{run}-{n}": 1 for run in "ab" for n in range(planning.MAX_INPUTS)}
    assert plan_compactions(table_of(single), Properties(compaction_strategy="batch")) == []


@given(
    runs=st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=6), max_size=20),
    size=st.integers(2, 12),
    strategy=st.sampled_from(["batch", "size_ratio"]),
    target=st.integers(1, 60),
)
def test_without_new_rows_compaction_comes_to_an_end_however_outputs_are_cut(
    runs: list[list[int]], size: int, strategy: str, target: int
) -> None:
    properties = Properties(compaction_strategy=strategy, compaction_files=size)
    state = table_of(
        {f"r{i}-{n}": rows for i, run in enumerate(runs) for n, rows in enumerate(run)}
    )
    total = sum(map(sum, runs))
    for round_ in range(len(runs) + 1):
        plans = plan_compactions(state, properties)
        if not plans:
            break
        for i, plan in enumerate(plans):
            job = f"job{round_}x{i}"
            rows = sum(state.shards[shard].rows for shard in plan.inputs)
            cuts = [target] * (rows // target) + [rows % target] * (rows % target > 0)
            taken = tuple((shard, state.shards[shard].rows) for shard in plan.inputs)
            outputs = tuple(new_shard(f"{job}-{n}", cut) for n, cut in enumerate(cuts))
            for transaction in (
                AssignJob(job, ROOT, plan.inputs),
                ReplaceShards(job, ROOT, plan.inputs, outputs, taken),
            ):
                state, verdict = apply(state, Entry(transaction, 0, 0))
                assert not verdict.violations
    assert plan_compactions(state, properties) == []
    assert state.rows == total


def test_running_jobs_leave_less_room_for_a_table_and_the_widest_plans_come_first() -> None:
    narrow, wide = CompactionPlan("a", ("1", "2")), CompactionPlan("b", ("3", "4", "5"))
    assert within_limit([narrow, wide], running=1, limit=3) == [narrow, wide]
    assert within_limit([narrow, wide], running=2, limit=3) == [wide]
    assert within_limit([narrow, wide], running=4, limit=3) == []
