"""The partition tree: its leaves tile the key space, however it grew."""

import inspect
import math
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import InvalidRequestError, InvariantError, NotFoundError
from dormouse.keys import Key, KeyRange, encode_key
from dormouse.state.partitions import ROOT, Partition, PartitionTree, partition_id_of
from dormouse.state.validation import broken_tree
from tests.support.depth import is_whole
from tests.support.strategies import int64, short_keys, short_ranges
from tests.support.trees import LEFT, RIGHT

trees = st.lists(short_keys, unique=True, max_size=12).map(
    lambda points: PartitionTree.from_split_points(sorted(points))
)


@given(trees, short_keys)
def test_every_key_lies_in_exactly_one_leaf(tree: PartitionTree, key: Key) -> None:
    holding = [leaf.id for leaf in tree.leaves() if leaf.range.contains(encode_key(key))]
    assert holding == [tree.leaf_containing(encode_key(key)).id]
    assert not broken_tree(tree)


@given(trees, short_ranges())
def test_the_leaves_of_a_range_are_those_it_overlaps_in_key_order(
    tree: PartitionTree, wanted: KeyRange
) -> None:
    found = list(tree.leaves_overlapping(wanted))
    assert found == [leaf for leaf in tree.leaves() if leaf.range.overlaps(wanted)]
    assert found == sorted(found, key=lambda leaf: leaf.range.min)


@given(trees)
def test_initial_trees_are_balanced(tree: PartitionTree) -> None:
    depths = [len([*tree.ancestors(leaf.id)]) for leaf in tree.leaves()]
    assert max(depths) - min(depths) <= 1


@pytest.mark.parametrize("points", [[("b",), ("a",)], [("a",), ("a",)], [()]])
def test_split_points_out_of_order_repeated_or_empty_are_refused(points: list[Key]) -> None:
    with pytest.raises(InvalidRequestError, match="split point"):
        PartitionTree.from_split_points(points)


@pytest.mark.parametrize("at", [(), ("a",), ("m",), ("z",)])
def test_a_leaf_is_never_split_at_its_edge_or_outside(at: Key) -> None:
    tree = PartitionTree.from_split_points([("a",), ("m",)])
    leaf = tree.leaf_containing(encode_key(("b",)))
    with pytest.raises(InvariantError):
        tree.split(leaf.id, encode_key(at))


def test_an_unknown_partition_is_not_found() -> None:
    with pytest.raises(NotFoundError, match="no partition 'x'"):
        PartitionTree.of([Partition(ROOT)]).get("x")


@pytest.mark.parametrize(
    "partitions",
    [
        [],
        [Partition(ROOT, KeyRange(("a",)))],
        [Partition(ROOT, children=(LEFT, RIGHT))],
        [
            Partition(ROOT, children=(LEFT, RIGHT)),
            Partition(LEFT, KeyRange((), ("m",)), ROOT),
            Partition(RIGHT, KeyRange(("n",), None), ROOT),
        ],
        [
            Partition(ROOT, children=(LEFT, RIGHT)),
            Partition(LEFT, KeyRange((), ("m",)), None),
            Partition(RIGHT, KeyRange(("m",), None), ROOT),
        ],
        [Partition(ROOT, children=(ROOT, ROOT))],
        [Partition(ROOT), Partition("stray", KeyRange(("a",), ("b",)))],
    ],
)
def test_a_tree_with_a_gap_a_loop_or_a_stray_is_found_broken(partitions: list[Partition]) -> None:
    assert broken_tree(PartitionTree.of(partitions))


@given(points=st.lists(int64, min_size=1, max_size=60, unique=True), data=st.data())
def test_a_tree_grown_in_any_order_holds_together_and_stays_low(
    points: list[int], data: st.DataObject
) -> None:
    tree = PartitionTree.from_split_points([])
    for count, point in enumerate(points, start=2):
        leaf = tree.leaf_containing(encode_key((point,)))
        # Partitions that hold references stay: they make branches longer, but break nothing.
        pinned = data.draw(st.sets(st.sampled_from(sorted(tree.by_id)), max_size=2))
        held = {name for name in pinned if name in tree}
        tree = tree.split_without_balancing(leaf.id, encode_key((point,))).rebalanced(leaf.id, held)
        assert not broken_tree(tree, whole=True)
        assert held <= set(tree.by_id)
        assert sum(1 for _ in tree.leaves()) == count
    assert [leaf.range.min for leaf in tree.leaves()][1:] == [(p,) for p in sorted(points)]


POINTS = 2000 if is_whole() else 700


@pytest.mark.parametrize(
    "order",
    [
        range(POINTS),
        range(POINTS, 0, -1),
        [n for k in range(POINTS // 2) for n in (k, 5000 - k)],
        [n * 7919 % 2003 for n in range(1, POINTS + 1)],
    ],
    ids=["rising", "falling", "from both ends", "scattered"],
)
def test_no_leaf_lies_deep_however_keys_arrive(order: Sequence[int]) -> None:
    tree = PartitionTree.from_split_points([])
    for point in order:
        tree = tree.split(tree.leaf_containing(encode_key((point,))).id, encode_key((point,)))
    assert max(len([*tree.ancestors(leaf.id)]) for leaf in tree.leaves()) <= 2 * math.log2(
        len(order) + 1
    )
    assert tree.get(ROOT).height == max(len([*tree.ancestors(leaf.id)]) for leaf in tree.leaves())
    assert not broken_tree(tree, whole=True)


def test_partitions_that_were_held_while_a_branch_grew_are_joined_when_it_grows_again() -> None:
    tree, held = PartitionTree.from_split_points([]), [ROOT]
    for point in range(200):
        leaf = tree.leaf_containing(encode_key((point,)))
        tree = tree.split_without_balancing(leaf.id, encode_key((point,))).rebalanced(leaf.id, held)
        held.append(leaf.id)
    assert tree.get(ROOT).height == 200
    tree = tree.split(tree.leaf_containing(encode_key((200,))).id, encode_key((200,)))
    assert tree.get(ROOT).height <= 2 * math.log2(201)
    assert not broken_tree(tree, whole=True)


@given(trees, short_keys)
def test_a_partition_is_called_by_its_range_alone(tree: PartitionTree, at: Key) -> None:
    leaf = tree.leaf_containing(encode_key(at))
    if leaf.range.min < at:
        tree = tree.split(leaf.id, encode_key(at))
    assert all(name == partition_id_of(tree.get(name).range) for name in tree.by_id)
    assert all(name == ROOT or len(name) == 20 for name in tree.by_id)


def test_a_tree_of_more_levels_than_python_recurses_is_gone_through() -> None:
    most, levels = sys.getrecursionlimit(), 250
    sys.setrecursionlimit(len(inspect.stack(0)) + levels // 2)
    try:
        go_through(levels)
    finally:
        sys.setrecursionlimit(most)


def go_through(levels: int) -> None:
    tree = PartitionTree.from_split_points([])
    everything = set()
    for point in range(levels):
        leaf = tree.leaf_containing(encode_key((point,)))
        everything.add(leaf.id)
        tree = tree.split_without_balancing(leaf.id, encode_key((point,))).rebalanced(
            leaf.id, everything
        )
    assert tree.get(ROOT).height == levels
    assert not broken_tree(tree, whole=True)
    assert sum(1 for _ in tree.leaves()) == levels + 1
