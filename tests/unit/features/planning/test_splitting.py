"""Where leaves are split: near the middle, on a real key, with rows on both sides."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dormouse.features.planning import even_split_points, plan_split, splits_due
from dormouse.keys import Key, KeyHistogram, KeyRange
from dormouse.state.fold import apply
from dormouse.state.partitions import ROOT, PartitionTree
from dormouse.state.state import AddShards, Entry, TableState
from tests.support.machine import shard_of
from tests.support.strategies import short_keys
from tests.support.trees import initialise


def histogram(keys: list[Key]) -> KeyHistogram:
    """Return the histogram of a shard small enough that every key is a sample."""
    ordered = sorted(keys)
    return KeyHistogram(
        tuple((key, ordered.index(key)) for key in sorted(set(keys))), len(keys), ordered[-1]
    )


def test_the_split_halves_the_rows() -> None:
    plan = plan_split(KeyRange(), {"s": histogram([("a",), ("b",), ("c",), ("d",)])})
    assert plan is not None
    assert (plan.at, plan.rows_left, plan.total_rows) == (("c",), (("s", 2),), 4)


def test_a_key_most_rows_share_is_split_off_at_the_next_distinct_key() -> None:
    plan = plan_split(KeyRange(), {"s": histogram([("m",)] * 98 + [("n",), ("o",)])})
    assert plan is not None
    assert plan.at == ("n",)
    plan = plan_split(KeyRange(), {"s": histogram([("a",)] + [("m",)] * 99)})
    assert plan is not None
    assert plan.at == ("m",)


def test_rows_of_a_single_key_are_never_split() -> None:
    assert (
        plan_split(KeyRange(), {"s": histogram([("m",)] * 100), "t": histogram([("m",)])}) is None
    )
    assert plan_split(KeyRange(), {}) is None


def test_only_the_rows_within_the_partition_count() -> None:
    keys = histogram([(c,) for c in "abcdefgh"])
    plan = plan_split(KeyRange(("e",), None), {"s": keys})
    assert plan is not None
    assert (plan.at, plan.rows_left, plan.total_rows) == (("g",), (("s", 2),), 4)


@given(st.lists(st.lists(short_keys, min_size=1, max_size=20), min_size=1, max_size=4))
def test_any_rows_with_two_keys_are_split(shards: list[list[Key]]) -> None:
    rows = sorted(key for keys in shards for key in keys)
    plan = plan_split(KeyRange(), {f"s{i}": histogram(keys) for i, keys in enumerate(shards)})
    if len(set(rows)) == 1:
        assert plan is None
        return
    assert plan is not None
    assert 0 < sum(key < plan.at for key in rows) < len(rows)
    for (_, rows_left), keys in zip(plan.rows_left, shards, strict=True):  # guessed between samples
        ends = [rank for key, rank in histogram(keys).samples if key >= plan.at]
        begins = [rank for key, rank in histogram(keys).samples if key < plan.at]
        assert max(begins, default=0) <= rows_left <= min(ends, default=len(keys))


@given(st.lists(short_keys, min_size=1, max_size=40).filter(lambda keys: len(set(keys)) > 1))
def test_the_rows_of_one_shard_are_split_as_evenly_as_they_can_be(rows: list[Key]) -> None:
    plan = plan_split(KeyRange(), {"s": histogram(rows)})
    assert plan is not None
    left = sum(key < plan.at for key in rows)
    best = min(abs(2 * sum(k < at for k in rows) - len(rows)) for at in set(rows) - {min(rows)})
    assert abs(2 * left - len(rows)) == best
    assert plan.rows_left == (("s", left),)


def test_sorted_keys_are_cut_into_equal_parts() -> None:
    keys = [(n,) for n in range(100)]
    assert even_split_points(keys, 4) == [(25,), (50,), (75,)]
    assert even_split_points(keys, 1) == []
    assert even_split_points([], 4) == []


def test_a_key_too_frequent_for_its_part_is_cut_off_at_its_nearer_end() -> None:
    assert even_split_points([("a",)] * 90 + [("b",)] * 10, 2) == [("b",)]
    assert even_split_points([("a",)] * 10 + [("b",)] * 90, 2) == [("b",)]
    assert even_split_points([("a",)] * 10 + [("b",)] * 50 + [("c",)] * 40, 2) == [("c",)]
    assert even_split_points([("a",)] * 9, 3) == []


@given(st.lists(short_keys, max_size=60), st.integers(1, 12))
def test_points_of_sorted_keys_ascend_and_leave_rows_on_every_side(
    keys: list[Key], partitions: int
) -> None:
    points = even_split_points(sorted(keys), partitions)
    assert len(points) < partitions
    assert points == sorted(set(points))
    bounds = [min(keys, default=()), *points]
    assert all(low in keys for low in bounds) or not keys
    assert all(low < high for low, high in zip(bounds, points, strict=False))


def test_no_split_is_planned_for_a_leaf_of_one_key() -> None:
    def with_shards(*keys: list[Key]) -> TableState:
        state, _ = apply(TableState(), Entry(initialise(PartitionTree.from_split_points([])), 0, 0))
        shards = tuple(shard_of(f"s{n}", held) for n, held in enumerate(keys))
        state, verdict = apply(state, Entry(AddShards("add", (), shards), 0, 0))
        assert not verdict.violations
        return state

    same: list[Key] = [("a",)] * 3
    assert splits_due(with_shards(same, same), 6) == []
    assert splits_due(with_shards(same, [("b",)] * 3), 6) == [ROOT]
    assert splits_due(with_shards(same, [("b",)] * 3), 7) == []
