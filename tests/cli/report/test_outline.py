from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.keys import encode_key
from dormouse.state.partitions import (
    ROOT,
    OverlayMap,
    PartitionReferences,
    PartitionTree,
    Reference,
    Shard,
)
from dormouse.state.state import TableState
from dormouse_cli.report.contents import outline


def state_of(rows_by_leaf: list[list[int]], on_the_root: int = 0) -> TableState:
    """Return a table with a shard of so many rows for each number of each leaf."""
    tree = PartitionTree.from_split_points([(n,) for n in range(1, len(rows_by_leaf))])
    held = {
        leaf.id: [
            Reference(leaf.id, f"{leaf.id}-{number}", rows) for number, rows in enumerate(counts)
        ]
        for leaf, counts in zip(tree.leaves(), rows_by_leaf, strict=True)
    }
    if on_the_root:
        held.setdefault(ROOT, []).append(Reference(ROOT, "before-the-split", on_the_root))
    references = [reference for found in held.values() for reference in found]
    shards = {r.shard: Shard.of(r.shard, r.rows, r.rows * 10, (0,), (9,)) for r in references}
    return replace(
        TableState(),
        partitions=tree,
        shards=OverlayMap.of(shards),
        references=OverlayMap.of(
            {
                partition: PartitionReferences(
                    OverlayMap.of({r.shard: r for r in found}), sum(r.rows for r in found)
                )
                for partition, found in held.items()
            }
        ),
        rows=sum(r.rows for r in references),
        reference_count=len(references),
    )


@given(
    st.lists(st.lists(st.integers(0, 1000), max_size=4), min_size=1, max_size=60),
    st.integers(1, 20),
    st.integers(0, 100),
)
def test_an_outline_of_any_tree_is_small_and_leaves_nothing_out(
    rows_by_leaf: list[list[int]], most: int, on_the_root: int
) -> None:
    state = state_of(rows_by_leaf, on_the_root)
    blocks = outline(state, most)
    bottom = [block for block in blocks if block.is_bottom]
    assert 1 <= len(bottom) <= most
    assert len(blocks) == 2 * len(bottom) - 1
    assert blocks[0].id == ROOT
    assert blocks[0].rows == state.rows
    assert blocks[0].size_bytes == 10 * state.rows
    assert blocks[0].references == state.reference_count
    assert sum(block.leaves for block in bottom) == len(rows_by_leaf)
    below = state.rows - (on_the_root if len(bottom) > 1 else 0)
    assert sum(block.rows for block in bottom) == below
    if most >= len(rows_by_leaf):
        assert [b.id for b in bottom] == [leaf.id for leaf in state.partitions.leaves()]


def test_what_has_most_rows_is_drawn_finest() -> None:
    blocks = outline(state_of([[1], [1], [1], [1], [1], [1], [50], [60]]), 4)
    assert [block.rows for block in blocks if block.is_bottom] == [4, 2, 50, 60]
    assert [block.leaves for block in blocks if block.is_bottom] == [4, 2, 1, 1]


@contextmanager
def recursing_at_most(calls: int) -> Iterator[None]:
    """Let Python recurse only so much deeper: deeper trees take long to grow."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(context=0)) + calls)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def test_a_tree_much_deeper_than_python_recurses_is_drawn() -> None:
    tree, held = PartitionTree.from_split_points([]), set[str]()
    for depth in range(1, 250):
        leaf = tree.leaf_containing(encode_key((depth,))).id
        held.add(leaf)  # so that no other takes its place, and the tree grows as deep as it can
        tree = tree.split_without_balancing(leaf, encode_key((depth,))).rebalanced(leaf, held)
    with recursing_at_most(150):
        blocks = outline(replace(TableState(), partitions=tree), 10_000)
    assert sum(block.is_bottom for block in blocks) == 250


@pytest.mark.parametrize("most", [1, 2])
def test_a_table_without_rows_or_without_a_state_can_be_drawn(most: int) -> None:
    (root,) = outline(state_of([[]]), most)
    assert (root.rows, root.references_per_leaf, root.is_bottom) == (0, 0, True)
    assert outline(TableState(), most) == []
