"""Every entry folds to a verdict, whatever it contains, and leaves a sound table."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dormouse.keys import encode_key
from dormouse.schema.types import DecimalType, KeyType, Primitive
from dormouse.state.fold import apply
from dormouse.state.partitions import ROOT, NewShard, Partition, PartitionTree, Shard
from dormouse.state.rules import Rule
from dormouse.state.state import (
    AddShards,
    AssignJob,
    DeleteShards,
    Entry,
    ExtendTree,
    InitialisePartitions,
    ReleaseJob,
    ReplaceShards,
    ResetTable,
    SplitPartition,
    TableState,
    Transaction,
    transaction_id,
)
from dormouse.state.validation import broken_invariants, entry_violations
from tests.support import arbitrary
from tests.support.depth import examples
from tests.support.machine import shard_of
from tests.support.trees import LEFT, RIGHT, TEXT, initialise, part

TREE = PartitionTree.from_split_points([("m",)])
S1 = shard_of("s1", [("a",), ("z",)])
S2 = shard_of("s2", [("b",)])
BEGUN: tuple[Transaction, ...] = (
    initialise(TREE),
    AddShards("add", ("source1",), (S1, S2)),
    AssignJob("j1", LEFT, ("s1", "s2")),
)


def folded(*transactions: Transaction) -> TableState:
    state = TableState()
    for transaction in transactions:
        state, verdict = apply(state, Entry(transaction, 0, state.generation))
        assert not verdict.violations, verdict
    return state


@settings(max_examples=examples(400))
@given(
    begun=st.booleans(),
    drawn=st.lists(arbitrary.transactions, min_size=1, max_size=6),
    times=st.sampled_from([0, 5, 2**63, -1]),
    generation=st.sampled_from([0, 0, 0, 1, -1, 2**70]),
)
def test_whatever_an_entry_says_it_gets_a_verdict_and_the_table_stays_sound(
    begun: bool, drawn: list[Transaction], times: int, generation: int
) -> None:
    state = folded(*BEGUN) if begun else TableState()
    for transaction in drawn:
        before = state
        state, verdict = apply(state, Entry(transaction, times, generation))
        again, second = apply(before, Entry(transaction, times, generation))
        assert (again, second) == (state, verdict)
        if verdict.violations or verdict.repeated:
            assert state is before
        assert not broken_invariants(state, whole=True)
        str(verdict.violations)


def keyed(low: object, high: object) -> AddShards:
    shard = Shard.of("new", 1, 1, (low,), (high,))  # type: ignore[arg-type]  # what it is about
    return AddShards("new", (), (NewShard(shard, ((ROOT, 1),)),))


def unreadable(low: str, high: bytes) -> NewShard:
    """A shard whose greatest key is no key, or whose least is."""
    ends = (encode_key((low,)), high) if low else (b"\x02a\x00\x00", high)
    return NewShard(Shard("new", 1, 1, *ends), ((ROOT, 1),))


@pytest.mark.parametrize(
    ("transaction", "rule"),
    [
        (DeleteShards(("s1", "s1")), Rule.NAMED_TWICE),
        (ReplaceShards("j1", LEFT, ("s1", "s1"), ()), Rule.NO_INPUTS),
        (AddShards("x", ("s", "s"), ()), Rule.NAMED_TWICE),
        (SplitPartition(RIGHT, encode_key((7,))), Rule.KEY_UNFIT),
        (SplitPartition(RIGHT, encode_key((b"x",))), Rule.KEY_UNFIT),
        (SplitPartition(RIGHT, encode_key(())), Rule.KEY_UNFIT),
        (SplitPartition(RIGHT, encode_key(("x", "y"))), Rule.KEY_UNFIT),
        (SplitPartition(RIGHT, encode_key(("x" * 4097,))), Rule.KEY_UNFIT),
        (SplitPartition(RIGHT, encode_key(("x",)), (("s1", -1),)), Rule.OUT_OF_BOUNDS),
        (ExtendTree(((RIGHT, encode_key(("x",))), (part("x"), encode_key((9,))))), Rule.KEY_UNFIT),
        (keyed(1, 2), Rule.KEY_UNFIT),
        (keyed("a", 2), Rule.KEY_UNFIT),
        (keyed("a", "\ud800"), Rule.KEY_UNFIT),
        (ReleaseJob(""), Rule.ID_UNFIT),
        (ReleaseJob("j" * 129), Rule.ID_UNFIT),
        (ReleaseJob("a/b"), Rule.ID_UNFIT),
        (AssignJob("j9", LEFT, ("s1",), purge_id="\ud800"), Rule.ID_UNFIT),
        (AssignJob("j9", LEFT, ("s1",), request_key="a/b"), Rule.ID_UNFIT),
        (SplitPartition(RIGHT, b"\x02no end"), Rule.KEY_UNFIT),
        (SplitPartition(RIGHT, b"\xff"), Rule.KEY_UNFIT),
        (AddShards("x", (), (unreadable("a", b"\x03short"),)), Rule.KEY_UNFIT),
        (AddShards("x", (), (unreadable("", b"\x02a\x00"),)), Rule.KEY_UNFIT),
        (ResetTable(1, TREE.splits * 2), Rule.SPLITS_NOT_ASCENDING),
        (ResetTable(1, (b"", *TREE.splits)), Rule.SPLITS_NOT_ASCENDING),
        (ResetTable(1, TREE.splits[::-1] + (encode_key(("a",)),)), Rule.SPLITS_NOT_ASCENDING),
        (ResetTable(1, (b"\x02no end",)), Rule.KEY_UNFIT),
        (ResetTable(2**63, ()), Rule.OUT_OF_BOUNDS),
        (ResetTable(1, TREE.splits, (Primitive.LONG,)), Rule.KEY_UNFIT),
        (ResetTable(1, (), (Primitive.DOUBLE,)), Rule.KEY_TYPES_UNFIT),
        (initialise([Partition(ROOT)]), Rule.ALREADY_INITIALISED),
    ],
)
def test_what_once_ended_a_table_is_a_violation(transaction: Transaction, rule: Rule) -> None:
    before = folded(*BEGUN)
    after, verdict = apply(before, Entry(transaction, 0, 0))
    assert after is before
    assert rule in {violation.rule for violation in verdict.violations}


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        (Primitive.INT, 2**31 - 1),
        (Primitive.LONG, 2**63 - 1),
        (DecimalType(4, 2), 9999),
        (DecimalType(38, 0), 10**38 - 1),
    ],
    ids=str,
)
def test_whole_numbers_are_judged_by_the_size_of_their_type(kind: KeyType, most: int) -> None:
    state = folded(InitialisePartitions((), (kind,)))
    for key, is_fit in ((most, True), (most + 1, False), (-most, True)):
        split = Entry(SplitPartition(ROOT, encode_key((key,))), 0, 0)
        _, verdict = apply(state, split)
        assert bool(verdict.violations) != is_fit
        assert not is_fit or not entry_violations(split, ()), "nor if the types are not known"


def test_both_ends_of_a_shard_lie_where_it_is_placed_and_gaps_are_allowed() -> None:
    state = folded(initialise(PartitionTree.from_split_points([("f",), ("m",)])))
    low, middle, high = part("", "f"), part("f", "m"), part("m")
    for placed, is_fit in (
        ((low, high), True),
        ((low, middle, high), True),
        ((low, middle), False),
        ((middle, high), False),
        ((middle,), False),
    ):
        shard = Shard.of("x", len(placed), 1, ("a",), ("z",))
        added = AddShards("x", (), (NewShard(shard, tuple((leaf, 1) for leaf in placed)),))
        _, verdict = apply(state, Entry(added, 0, 0))
        expected = [] if is_fit else [Rule.OUTSIDE_PARTITION]
        assert [violation.rule for violation in verdict.violations] == expected


def test_the_same_first_tree_again_is_committed_already_and_another_is_rejected() -> None:
    state = folded(initialise(TREE))
    assert apply(state, Entry(initialise(TREE), 1, 0))[1].repeated
    for other in (initialise([Partition(ROOT)]), initialise(TREE, TEXT * 2)):
        _, verdict = apply(state, Entry(other, 1, 0))
        assert [v.rule for v in verdict.violations] == [Rule.ALREADY_INITIALISED]


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (AddShards("j", ("s",), (S2,)), AddShards("j", ("s",), (S1,))),
        (SplitPartition(RIGHT, encode_key(("p",))), SplitPartition(RIGHT, encode_key(("q",)))),
        (AssignJob("j", LEFT, ("s1",)), AssignJob("j", LEFT, ("s2",))),
    ],
)
def test_a_change_of_the_same_name_and_another_content_is_judged_for_itself(
    first: Transaction, other: Transaction
) -> None:
    begun = [] if isinstance(first, AddShards) else [AddShards("add", (), (S1, S2))]
    state = folded(initialise(TREE), *begun, first)
    assert transaction_id(first) != transaction_id(other)
    assert apply(state, Entry(first, 1, 0))[1].repeated
    _, verdict = apply(state, Entry(other, 1, 0))
    assert verdict.violations
    assert not verdict.repeated


def test_a_job_that_was_taken_back_is_not_assigned_again_under_its_id() -> None:
    state = folded(*BEGUN, ReleaseJob("j1"))
    _, verdict = apply(state, Entry(AssignJob("j1", LEFT, ("s1",)), 1, 0))
    assert [v.rule for v in verdict.violations] == [Rule.JOB_RELEASED]


def test_a_generation_with_other_row_keys_is_another_one() -> None:
    stays, other = ResetTable(1, ()), ResetTable(1, (), (Primitive.LONG,))
    assert transaction_id(stays) != transaction_id(other)
