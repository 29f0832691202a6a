"""The partition tree: its leaves tile the key space, however it grew."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import InvalidRequestError, InvariantError, NotFoundError
from dormouse.model.invariants import broken_tree
from dormouse.model.keys import Key, KeyRange
from dormouse.model.partitions import ROOT, Partition, PartitionTree, child_ids
from tests.support.strategies import short_keys, short_ranges

trees = st.lists(short_keys, unique=True, max_size=12).map(
    lambda points: PartitionTree.from_split_points(sorted(points))
)


@given(trees, short_keys)
def test_every_key_lies_in_exactly_one_leaf(tree: PartitionTree, key: Key) -> None:
    holding = [leaf.id for leaf in tree.leaves() if leaf.range.contains(key)]
    assert holding == [tree.leaf_containing(key).id]
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
    depths = [tree.depth(leaf.id) for leaf in tree.leaves()]
    assert max(depths) - min(depths) <= 1


@pytest.mark.parametrize("points", [[("b",), ("a",)], [("a",), ("a",)], [()]])
def test_split_points_out_of_order_repeated_or_empty_are_refused(points: list[Key]) -> None:
    with pytest.raises(InvalidRequestError, match="split point"):
        PartitionTree.from_split_points(points)


@pytest.mark.parametrize("at", [(), ("a",), ("m",), ("z",)])
def test_a_leaf_is_never_split_at_its_edge_or_outside(at: Key) -> None:
    tree = PartitionTree.from_split_points([("a",), ("m",)])
    leaf = tree.leaf_containing(("b",))
    with pytest.raises(InvariantError):
        tree.split(leaf.id, at, *child_ids(leaf.id))


def test_an_unknown_partition_is_not_found() -> None:
    with pytest.raises(NotFoundError, match="no partition 'x'"):
        PartitionTree.of([Partition(ROOT)]).get("x")


@pytest.mark.parametrize(
    "partitions",
    [
        [],
        [Partition(ROOT, KeyRange(("a",)))],
        [Partition(ROOT, children=("0", "1"))],
        [
            Partition(ROOT, children=("0", "1")),
            Partition("0", KeyRange((), ("m",)), ROOT),
            Partition("1", KeyRange(("n",), None), ROOT),
        ],
        [
            Partition(ROOT, children=("0", "1")),
            Partition("0", KeyRange((), ("m",)), None),
            Partition("1", KeyRange(("m",), None), ROOT),
        ],
        [Partition(ROOT, children=(ROOT, ROOT))],
        [Partition(ROOT), Partition("stray", KeyRange(("a",), ("b",)))],
    ],
)
def test_a_tree_with_a_gap_a_loop_or_a_stray_is_found_broken(partitions: list[Partition]) -> None:
    assert broken_tree(PartitionTree.of(partitions))


@given(points=st.lists(short_keys, unique=True).map(sorted), data=st.data())
def test_what_is_around_some_leaves_is_a_tree_that_places_them_alike(
    points: list[Key], data: st.DataObject
) -> None:
    tree = PartitionTree.from_split_points(points)
    leaves = data.draw(st.lists(st.sampled_from([leaf.id for leaf in tree.leaves()])))
    around = tree.around(leaves)
    for leaf in leaves:
        assert around.get(leaf) == tree.get(leaf)
        assert around.split_keys_above(leaf) == tree.split_keys_above(leaf)
