"""A broken state is found by a check of the changes and by a check of the whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dormouse.keys import KeyRange
from dormouse.state.partitions import (
    Job,
    OverlayMap,
    Partition,
    PartitionReferences,
    PartitionTree,
    Reference,
    Shard,
)
from dormouse.state.state import TableState
from dormouse.state.validation import broken_invariants
from tests.support.trees import LEFT, RIGHT, TEXT

TREE = PartitionTree.from_split_points([("m",)])
SHARD = Shard.of("s", 2, 200, ("a",), ("b",))
SOUND = TableState(
    key_types=TEXT,
    partitions=TREE,
    shards=OverlayMap.of({"s": SHARD}),
    references=OverlayMap.of({LEFT: PartitionReferences().insert(Reference(LEFT, "s", 2))}),
    rows=2,
    reference_count=1,
    reference_counts=OverlayMap.of({"s": 1}),
)


def rebased(state: TableState) -> TableState:
    """The same state as it would be if it was stored and read: nothing has changed since."""
    return replace(
        state,
        partitions=PartitionTree(OverlayMap(state.partitions.by_id)),
        shards=OverlayMap(state.shards),
        references=OverlayMap(state.references),
        reference_counts=OverlayMap(state.reference_counts),
        unreferenced=OverlayMap(state.unreferenced),
    )


def with_partition(state: TableState, partition: Partition) -> TableState:
    by_id = state.partitions.by_id.insert(partition.id, partition)
    return replace(state, partitions=PartitionTree(by_id))


def with_reference(state: TableState, reference: Reference) -> TableState:
    held = state.references.get(reference.partition, PartitionReferences()).insert(reference)
    return replace(state, references=state.references.insert(reference.partition, held))


BREAKS: list[tuple[str, Callable[[TableState], TableState]]] = [
    ("do not tile it", lambda s: with_partition(s, replace(TREE.get(LEFT), range=KeyRange()))),
    ("does not know its parent", lambda s: with_partition(s, replace(TREE.get(LEFT), parent=None))),
    ("lacks a child", lambda s: with_partition(s, replace(TREE.get(LEFT), children=("x", "y")))),
    ("cannot be reached", lambda s: with_partition(s, Partition("9", KeyRange(), LEFT))),
    (
        "lacks a child",
        lambda s: replace(s, partitions=PartitionTree(s.partitions.by_id.remove(RIGHT))),
    ),
    ("outside the shard's keys", lambda s: with_reference(s, Reference(RIGHT, "s", 2))),
    ("has no shard", lambda s: with_reference(s, Reference(LEFT, "x", 2))),
    ("is unknown", lambda s: with_reference(s, Reference("9", "s", 2))),
    ("has no shard", lambda s: replace(s, shards=s.shards.remove("s"))),
    ("job j, which is unknown", lambda s: with_reference(s, Reference(LEFT, "s", 2, job="j"))),
    ("is free on a split partition", lambda s: with_reference(s, Reference("root", "s", 2))),
    (
        "lost its input",
        lambda s: replace(
            with_reference(s, Reference(LEFT, "s", 2)),
            jobs=s.jobs.insert("j", Job("j", LEFT, "s", 0)),
        ),
    ),
    ("are counted", lambda s: replace(s, reference_counts=s.reference_counts.insert("s", 2))),
    ("for collection", lambda s: replace(s, unreferenced=s.unreferenced.insert("s", 0))),
    ("for collection", lambda s: replace(s, unreferenced=s.unreferenced.insert("x", 0))),
    ("are counted", lambda s: replace(s, references=s.references.remove(LEFT))),
    (
        "miscounted",
        lambda s: replace(
            s, references=s.references.insert(LEFT, replace(s.references[LEFT], rows=3))
        ),
    ),
]


@pytest.mark.parametrize(("said", "break_it"), BREAKS)
def test_what_is_broken_is_said(said: str, break_it: Callable[[TableState], TableState]) -> None:
    assert not broken_invariants(SOUND, whole=True)
    assert said in "; ".join(broken_invariants(break_it(SOUND), whole=True))


@pytest.mark.parametrize(("said", "break_it"), BREAKS)
def test_what_breaks_by_a_change_is_noticed_where_it_changed(
    said: str, break_it: Callable[[TableState], TableState]
) -> None:
    assert not broken_invariants(rebased(SOUND))
    assert broken_invariants(break_it(rebased(SOUND))), said


def test_rows_that_are_referenced_on_two_levels_are_noticed() -> None:
    for sound in (SOUND, rebased(SOUND)):
        above = with_reference(sound, Reference("root", "s", 2, job="j"))
        again = with_reference(above, Reference(LEFT, "s", 2))
        assert any("referenced twice" in said for said in broken_invariants(again))


def test_totals_that_do_not_add_up_are_noticed_by_a_whole_check() -> None:
    (said,) = broken_invariants(replace(SOUND, rows=3), whole=True)
    assert "3 are counted" in said
