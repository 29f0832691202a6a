"""Planning by what changed finds what planning of all finds, and sweeps look at all in turn."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.stateful import invariant, rule

from dormouse.features.planning import partitions_to_plan, plan_compactions, splits_due
from dormouse.jobs import SWEEP_SECONDS
from dormouse.log.snapshot import decode_snapshot, encode_snapshot
from dormouse.state.fold import apply
from dormouse.state.partitions import NewShard, PartitionTree, Shard
from dormouse.state.state import AddShards, Entry, TableState
from dormouse.tables.properties import Properties
from tests.support.depth import examples
from tests.support.machine import TableMachine
from tests.support.trees import initialise

BATCHES = Properties(compaction_strategy="batch", compaction_files=2)
FEW_ROWS = 3
TURN_MS = SWEEP_SECONDS * 1000


def due(state: TableState, *among: set[str]) -> set[object]:
    """All plans and splits, of all partitions or among some."""
    compactions = plan_compactions(state, BATCHES, *among)
    return {*compactions, *splits_due(state, FEW_ROWS, *among)}


class LookingMachine(TableMachine):
    """Any history, whose base is a snapshot every now and then, as a reader finds it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = TableState()

    @rule()
    def a_planning_writes_a_snapshot(self) -> None:
        self.state = decode_snapshot("t", encode_snapshot("t", self.state), "x")
        self.base = self.state

    @invariant()
    def what_became_due_since_is_found_among_what_changed(self) -> None:
        everything = due(self.state)
        among = set(partitions_to_plan(self.state, at_once=1))
        assert due(self.state, among) <= everything
        if dict(self.base.disputed.items()) == dict(self.state.disputed.items()):
            assert everything - due(self.base) <= due(self.state, among)

    @invariant()
    def sweeps_in_turn_look_at_all(self) -> None:
        sweeps = range(0, len(self.state.references) * TURN_MS, TURN_MS)
        looked_at = [set(partitions_to_plan(self.state, ms, at_once=1)) for ms in sweeps]
        assert set().union(*looked_at) == set(self.state.references)


TestPlanningByChanges = LookingMachine.TestCase
TestPlanningByChanges.settings = settings(
    max_examples=examples(20), stateful_step_count=25, deadline=None
)


def of_leaves(count: int) -> TableState:
    """A table, read from a snapshot, each of whose leaves has one shard."""
    tree = PartitionTree.from_split_points([(f"{n:03d}",) for n in range(1, count)])
    state, _ = apply(TableState(), Entry(initialise(tree), 0, 0))
    shards = tuple(
        NewShard(Shard.of(f"s{n:03d}", 5, 5, (f"{n:03d}",), (f"{n:03d}",)), ((leaf.id, 5),))
        for n, leaf in enumerate(tree.leaves())
    )
    state, _ = apply(state, Entry(AddShards("job", (), shards), 0, 0))
    return decode_snapshot("t", encode_snapshot("t", state), "x")


def test_a_change_has_only_the_partitions_looked_at_that_it_touched() -> None:
    state = of_leaves(100)
    touched = next(state.partitions.leaves()).id
    more = NewShard(Shard.of("more", 5, 5, ("",), ("",)), ((touched, 5),))
    state, verdict = apply(state, Entry(AddShards("more", (), (more,)), 0, 0))
    assert not verdict.violations
    assert set(partitions_to_plan(state, at_once=99)) == {touched}
    assert set(partitions_to_plan(state, at_once=100)) == set(state.references)


def test_a_sweep_looks_at_a_part_only() -> None:
    state = of_leaves(100)
    looked_at = [set(partitions_to_plan(state, n * TURN_MS, at_once=25)) for n in range(4)]
    assert set().union(*looked_at) == set(state.references)
    assert sum(map(len, looked_at)) == 100
    assert max(map(len, looked_at)) < 50
