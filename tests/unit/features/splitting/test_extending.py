"""Leaves split before an import: enough of them, about even, and none without rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dormouse.features.splitting import plan_extension
from dormouse.keys import KeyHistogram, KeyRange, encode_key
from dormouse.state.fold import apply
from dormouse.state.partitions import PartitionTree, partition_id_of
from dormouse.state.state import Entry, ExtendTree, TableState
from tests.support.trees import NUMBER

ONE_LEAF = PartitionTree.from_split_points([])


def known(keys: range, rows_each: int = 1) -> KeyHistogram:
    samples = tuple(((key,), i * rows_each) for i, key in enumerate(keys))
    return KeyHistogram(samples, len(keys) * rows_each, (keys[-1],))


def extended(tree: PartitionTree, rows: KeyHistogram, least: int) -> PartitionTree:
    splits = plan_extension(tree, rows, least)
    if not splits:
        return tree
    state, verdict = apply(
        TableState(partitions=tree, key_types=NUMBER), Entry(ExtendTree(splits), 0, 0)
    )
    assert not verdict.violations
    return state.partitions


@given(least=st.integers(1, 64), count=st.integers(1, 3000), rows_each=st.integers(1, 50))
def test_there_are_enough_leaves_or_too_few_rows_for_them(
    least: int, count: int, rows_each: int
) -> None:
    rows = known(range(count), rows_each)
    leaves = list(extended(ONE_LEAF, rows, least).leaves())
    held = [rows.rows_in(leaf.range) for leaf in leaves]
    assert len(leaves) <= least
    assert all(held)
    if len(leaves) < least:
        assert max(held) < 1000 or rows_each >= 1000 or count == 1


def test_the_fullest_leaf_is_split_first_and_at_its_median() -> None:
    tree = PartitionTree.from_split_points([(8000,)])
    splits = plan_extension(tree, known(range(10_000)), 4)
    assert splits == (
        (partition_id_of(KeyRange((), (8000,))), encode_key((4000,))),
        (partition_id_of(KeyRange((), (4000,))), encode_key((2000,))),
    )


def test_a_leaf_that_gets_less_than_a_tenth_of_the_average_is_left_alone() -> None:
    tree = PartitionTree.from_split_points([(110,)])
    rows = known(range(10_110), 10)
    splits = plan_extension(tree, rows, 1000)
    assert splits
    assert all(key >= encode_key((110,)) for _, key in splits)


def test_enough_leaves_are_left_as_they_are() -> None:
    tree = PartitionTree.from_split_points([(1,), (2,)])
    assert plan_extension(tree, known(range(5000)), 3) == ()


def test_rows_of_one_key_are_not_parted_and_nothing_is_fine() -> None:
    assert plan_extension(ONE_LEAF, known(range(1), 50_000), 8) == ()
    assert plan_extension(ONE_LEAF, KeyHistogram(), 8) == ()
    assert KeyHistogram().within(KeyRange()) == KeyHistogram()
