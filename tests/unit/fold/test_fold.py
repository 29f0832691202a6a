"""The fold: in any order of events, every row is referenced exactly once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from dormouse.keys import encode_key
from dormouse.log.log import fold_delta
from dormouse.schema.types import Primitive
from dormouse.state.fold import Verdict, apply
from dormouse.state.partitions import ROOT, PartitionTree
from dormouse.state.rules import Rule
from dormouse.state.state import (
    DAY_MS,
    AddShards,
    AssignJob,
    DeleteShards,
    Entry,
    ExtendTree,
    ReleaseJob,
    ReplaceShards,
    ResetTable,
    SplitPartition,
    TableState,
    Transaction,
    transaction_id,
)
from tests.support.depth import examples
from tests.support.machine import TableMachine, shard_of
from tests.support.trees import LEFT, RIGHT, TEXT, initialise, part
from tests.unit.statestore.histories import Delta, histories

TestAnyHistory = TableMachine.TestCase
TestAnyHistory.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)


SPLIT_AT_M = PartitionTree.from_split_points([("m",)])


def test_a_job_of_a_split_partition_takes_a_shard_from_all_leaves_and_gives_it_back() -> None:
    placed = shard_of("s", [("a",), ("b",), ("n",)], (LEFT, 2), (RIGHT, 1))
    before = state_after(AddShards("add", (), (placed,)))
    for change, left in [
        (AssignJob("job", ROOT, ("s",)), {ROOT: (3, True, "job")}),
        (ReleaseJob("job"), {LEFT: (1, False, None), RIGHT: (2, False, None)}),
    ]:
        before, verdict = apply(before, Entry(change, 0, 0))
        assert verdict == Verdict()
        held = {r.partition: (r.rows, r.exact, r.job) for r in before.all_references()}
        assert (held, before.rows, len(before.unreferenced)) == (left, 3, 0)


def test_rows_that_a_job_took_do_not_come_back_with_a_job_of_the_partition_above() -> None:
    gone = AssignJob("left", LEFT, ("an",)), ReplaceShards("left", LEFT, ("an",), ())
    taken = state_after(ADDED, *gone)
    _, verdict = apply(taken, Entry(AssignJob("job", ROOT, ("an",)), 0, 0))
    assert [(v.rule, v.subject) for v in verdict.violations] == [(Rule.ROWS_TAKEN, "an")]


def state_after(*transactions: Transaction, time_ms: int = 0) -> TableState:
    """Apply transactions which must all be accepted, to a table split at "m"."""
    state = TableState()
    for transaction in (initialise(SPLIT_AT_M), *transactions):
        state, verdict = apply(state, Entry(transaction, time_ms, 0))
        assert verdict == Verdict(), verdict
    return state


AN = shard_of("an", [("a",), ("n",)])
B = shard_of("b", [("b",), ("c",)])
ADDED = AddShards("add", ("source",), (AN, B))
ASSIGNED = AssignJob("job", LEFT, ("an", "b"))


@pytest.mark.parametrize(
    ("transaction", "rule_broken", "subject"),
    [
        (initialise(SPLIT_AT_M), Rule.ALREADY_INITIALISED, "partitions"),
        (AddShards("x", ("source",), ()), Rule.SOURCE_INGESTED, "source"),
        (AddShards("x", (), (B,)), Rule.SHARD_EXISTS, "b"),
        (AddShards("x", (), (shard_of("c", [("c",)]),) * 2), Rule.SHARD_EXISTS, "c"),
        (AddShards("x", (), (shard_of("c", [("c",)], ("9", 1)),)), Rule.PARTITION_MISSING, "9"),
        (AddShards("x", (), (shard_of("c", [("c",)], (RIGHT, 1)),)), Rule.OUTSIDE_PARTITION, "c"),
        (
            AddShards("x", (), (shard_of("c", [("c",), ("z",)], (LEFT, 1), (ROOT, 1)),)),
            Rule.ROWS_COUNTED_TWICE,
            "c",
        ),
        (AddShards("x", (), (shard_of("c", [("c",)], (LEFT, 7)),)), Rule.ROWS_MISCOUNTED, "c"),
        (AssignJob("job", RIGHT, ("an",)), Rule.JOB_EXISTS, "job"),
        (AssignJob("other", RIGHT, ("b",)), Rule.REFERENCE_MISSING, "b"),
        (AssignJob("other", LEFT, ("b",)), Rule.REFERENCE_ASSIGNED, "b"),
        (AssignJob("other", ROOT, ("an",)), Rule.REFERENCE_ASSIGNED, "an"),
        (AssignJob("other", ROOT, ("x",)), Rule.REFERENCE_MISSING, "x"),
        (AssignJob("other", "9", ("an",)), Rule.REFERENCE_MISSING, "an"),
        (AssignJob("other", RIGHT, ()), Rule.NO_INPUTS, "other"),
        (AssignJob("other", RIGHT, ("an", "an")), Rule.NO_INPUTS, "other"),
        (ReleaseJob("other"), Rule.JOB_MISSING, "other"),
        (ReplaceShards("other", LEFT, ("b",), ()), Rule.JOB_MISSING, "other"),
        (ReplaceShards("job", LEFT, ("b",), ()), Rule.REFERENCE_NOT_ASSIGNED, "job"),
        (ReplaceShards("job", RIGHT, ("an",), ()), Rule.REFERENCE_NOT_ASSIGNED, "an"),
        (
            ReplaceShards(
                "job",
                LEFT,
                ("an", "b"),
                (shard_of("z", [("z",)], (RIGHT, 1)),),
                (("an", 1), ("b", 2)),
                2,
            ),
            Rule.OUTSIDE_PARTITION,
            "z",
        ),
        (
            ReplaceShards("job", LEFT, ("an", "b"), (AN,), (("an", 1), ("b", 2)), 1),
            Rule.SHARD_EXISTS,
            "an",
        ),
        (SplitPartition("9", encode_key(("c",))), Rule.PARTITION_MISSING, "9"),
        (SplitPartition(ROOT, encode_key(("c",))), Rule.PARTITION_SPLIT, ROOT),
        (SplitPartition(LEFT, encode_key(("m",))), Rule.SPLIT_OUTSIDE_PARTITION, LEFT),
        (ExtendTree(()), Rule.NO_SPLITS, "splits"),
        (
            ExtendTree(((LEFT, encode_key(("c",))), (LEFT, encode_key(("d",))))),
            Rule.PARTITION_SPLIT,
            LEFT,
        ),
        (
            ExtendTree(((LEFT, encode_key(("c",))), (part("", "c"), encode_key(("d",))))),
            Rule.SPLIT_OUTSIDE_PARTITION,
            part("", "c"),
        ),
        (ExtendTree(((part("", "b"), encode_key(("a",))),)), Rule.PARTITION_MISSING, part("", "b")),
        (DeleteShards(("b",)), Rule.SHARD_REFERENCED, "b"),
        (DeleteShards(("x",)), Rule.SHARD_MISSING, "x"),
        (ResetTable(0, SPLIT_AT_M.splits), Rule.STALE_GENERATION, "generation 0"),
    ],
)
def test_a_broken_rule_is_named_with_what_broke_it(
    transaction: Transaction, rule_broken: Rule, subject: str
) -> None:
    before = state_after(ADDED, ASSIGNED)
    two_days_ms = 2 * DAY_MS  # the very same transaction would be recognised on the first day
    after, verdict = apply(before, Entry(transaction, two_days_ms, 0))
    assert (rule_broken, subject) in [(v.rule, v.subject) for v in verdict.violations]
    assert after is before


def test_a_state_knows_the_transaction_that_began_its_generation() -> None:
    reset = ResetTable(1, SPLIT_AT_M.splits)
    after, _ = apply(state_after(ADDED), Entry(reset, 5, 0))
    assert dict(after.transactions.items()) == {transaction_id(reset): 5}


@settings(max_examples=examples(40), deadline=None)
@given(deltas=histories())
def test_the_maps_of_a_state_count_their_entries(deltas: list[Delta]) -> None:
    state = TableState()
    for delta in deltas:
        state, _ = fold_delta(state, delta.entries)
        for name in ("references", "reference_counts", "shards", "sources", "unreferenced"):
            entries = getattr(state, name)
            assert len(entries) == len(dict(entries.items())), name


def test_an_entry_queued_before_a_reset_is_refused_after_it() -> None:
    reset, _ = apply(state_after(ADDED), Entry(ResetTable(1, SPLIT_AT_M.splits), 0, 0))
    after, verdict = apply(reset, Entry(AddShards("late", ("s2",), ()), 0, 0))
    assert [v.rule for v in verdict.violations] == [Rule.STALE_GENERATION]
    assert after is reset
    assert not len(reset.shards)


def test_a_generation_keeps_the_types_of_its_row_keys_and_another_can_have_others() -> None:
    stayed, _ = apply(state_after(ADDED), Entry(ResetTable(1, ()), 0, 0))
    assert stayed.key_types == TEXT
    other, _ = apply(stayed, Entry(ResetTable(2, (), (Primitive.LONG,)), 0, 1))
    assert other.key_types == (Primitive.LONG,)
    split, number = (
        Entry(SplitPartition(ROOT, encode_key(("m",))), 0, 2),
        SplitPartition(ROOT, encode_key((5,))),
    )
    assert [v.rule for v in apply(other, split)[1].violations] == [Rule.KEY_UNFIT]
    assert not apply(other, Entry(number, 0, 2))[1].violations


def test_an_entry_with_keys_of_an_earlier_generation_is_refused_as_stale() -> None:
    transaction = ResetTable(1, (), (Primitive.LONG,))
    reset, _ = apply(state_after(ADDED), Entry(transaction, 0, 0))
    for late in (
        SplitPartition(LEFT, encode_key(("c",))),
        AddShards("x", (), (shard_of("x", [("a",)]),)),
    ):
        _, verdict = apply(reset, Entry(late, 0, 0))
        assert [v.rule for v in verdict.violations] == [Rule.STALE_GENERATION]


def test_a_reset_after_a_reset_is_judged_by_the_current_key_types() -> None:
    reset, _ = apply(state_after(ADDED), Entry(ResetTable(1, SPLIT_AT_M.splits), 0, 0))
    next_one, verdict = apply(reset, Entry(ResetTable(2, SPLIT_AT_M.splits), 0, 0))
    assert (next_one.generation, verdict.violations) == (2, ())
    for splits, rule in (
        (SPLIT_AT_M.splits * 2, Rule.SPLITS_NOT_ASCENDING),
        ((encode_key((5,)),), Rule.KEY_UNFIT),
    ):
        broken = apply(reset, Entry(ResetTable(2, splits), 0, 0))[1].violations
        assert [v.rule for v in broken] == [rule]


def test_a_shard_over_two_leaves_is_referenced_in_both_and_its_rows_are_shared() -> None:
    state = state_after(ADDED)
    found = {(r.partition, r.shard, r.rows, r.exact) for r in state.all_references()}
    assert found == {(LEFT, "an", 1, False), (RIGHT, "an", 1, False), (LEFT, "b", 2, True)}


def test_a_split_shares_rows_as_the_splitter_counted_them() -> None:
    wide = AddShards("wide", (), (shard_of("w", [("n",)] * 9 + [("x",)], (RIGHT, 10)),))
    state = state_after(wide, SplitPartition(RIGHT, encode_key(("x",)), (("w", 9),)))
    halves = part("m", "x"), part("x")
    assert [[r.rows for r in state.references_in(half)] for half in halves] == [[9], [1]]


def test_a_split_leaves_the_inputs_of_a_running_job_alone_until_it_is_taken_back() -> None:
    state = state_after(ADDED, ASSIGNED, SplitPartition(LEFT, encode_key(("b",))))
    assert [r.shard for r in state.references_in(LEFT)] == ["an", "b"]
    released, _ = apply(state, Entry(ReleaseJob("job"), 0, 0))
    assert not released.references_in(LEFT)
    assert [r.shard for r in released.references_in(part("b", "m"))] == ["an", "b"]


def test_the_output_of_a_job_begun_before_a_split_lands_on_the_halves() -> None:
    output = shard_of("out", [("a",), ("b",), ("c",)], (LEFT, 3))
    state = state_after(
        ADDED,
        ASSIGNED,
        SplitPartition(LEFT, encode_key(("b",))),
        ReplaceShards("job", LEFT, ("an", "b"), (output,), (("an", 1), ("b", 2))),
    )
    assert [r.shard for r in state.references_in(part("", "b"))] == ["out"]
    assert [r.shard for r in state.references_in(part("b", "m"))] == ["out"]
    assert list(state.unreferenced) == ["b"], "an still has its reference in the other leaf"


def test_a_job_may_leave_no_rows_at_all() -> None:
    state = state_after(ADDED, ASSIGNED, ReplaceShards("job", LEFT, ("an", "b"), ()))
    assert not state.references_in(LEFT)
    assert not len(state.jobs)


def test_time_never_runs_backwards_whatever_a_writers_clock_says() -> None:
    state = state_after(ADDED, time_ms=1000)
    added = AddShards("x", ("s2",), ())
    later, _ = apply(state, Entry(added, 5, 0))
    assert (later.time_ms, later.transactions[transaction_id(added)]) == (1000, 1000)


def test_a_source_has_the_version_that_it_comes_with() -> None:
    state = replace(state_after(ADDED), version=7)
    later, _ = apply(state, Entry(AddShards("x", ("s2",), ()), 5, 0))
    assert later.sources["s2"] == 8


def test_a_tree_extended_by_several_splits_moves_references_all_the_way_down() -> None:
    state = state_after(
        ADDED, ExtendTree(((LEFT, encode_key(("c",))), (part("", "c"), encode_key(("b",)))))
    )
    found = {(r.partition, r.shard) for r in state.all_references()}
    assert found == {
        (part("", "b"), "an"),
        (part("b", "c"), "an"),
        (part("c", "m"), "an"),
        (part("b", "c"), "b"),
        (part("c", "m"), "b"),
        (RIGHT, "an"),
    }


def test_an_assigned_reference_names_its_job_and_a_replaced_input_when_it_became_garbage() -> None:
    state = state_after(ADDED, ASSIGNED, time_ms=5)
    free = [(r.partition, r.shard) for r in state.all_references() if r.job is None]
    assert free == [(RIGHT, "an")]
    assert {state.reference(LEFT, shard).job for shard in ("an", "b")} == {"job"}  # type: ignore[union-attr]
    done, _ = apply(state, Entry(ReplaceShards("job", LEFT, ("an", "b"), ()), 9, 0))
    assert dict(done.unreferenced.items()) == {"b": 9}
