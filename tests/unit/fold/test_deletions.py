"""Which shards a deletion may hide rows of, and when it can be forgotten."""

from __future__ import annotations

import pytest
from msgspec import structs

from dormouse.keys import KeyRange, encode_key
from dormouse.log.key_index import Concern, KnownPart
from dormouse.log.log import fold_delta
from dormouse.state.fold import restored
from dormouse.state.rules import MAX_DELETIONS, Rule
from dormouse.state.state import (
    DAY_MS,
    AddShards,
    AssignJob,
    Deletion,
    Entry,
    ForgetDeletions,
    HideRows,
    ReplaceShards,
    TableState,
    Transaction,
)
from dormouse.state.validation import broken_invariants
from tests.contract.test_interleavings import TREE
from tests.support.machine import shard_of
from tests.support.trees import LEFT, initialise


def hide(name: str, low: str = "a", high: str = "z") -> HideRows:
    ends = ((encode_key((low,)), encode_key((high,))),)
    return HideRows(Deletion(name, '"done"', (), ends))


def state_of(*transactions: Transaction) -> TableState:
    state = TableState()
    for transaction in (initialise(TREE), *transactions):
        state, (verdict,) = fold_delta(state, [Entry(transaction, 1, 0)])
        assert not verdict.violations, verdict.violations
    return state


def broken(state: TableState, transaction: Transaction) -> set[Rule]:
    _, (verdict,) = fold_delta(state, [Entry(transaction, 2, 0)])
    return {violation.rule for violation in verdict.violations}


def add(name: str, key: str) -> AddShards:
    return AddShards(name, (), (shard_of(name, [(key,)], (LEFT, 1)),))


def test_it_may_hide_rows_of_the_shards_before_it_whose_keys_it_names() -> None:
    state = state_of(add("s", "b"), hide("d", "b", "c"), add("t", "b"), add("u", "d"))
    (deletion,) = state.deletions
    assert [deletion.may_hide(state.shards[name]) for name in "stu"] == [True, False, False]
    assert state.deletions_in([KeyRange(("b",), ("bb",))]) == (deletion,)
    assert state.deletions_in([KeyRange(("c",))]) == ()


def test_what_a_job_writes_lacks_what_was_deleted_when_it_was_assigned_and_no_more() -> None:
    end = ReplaceShards("j", LEFT, ("s",), (shard_of("o", [("b",)], (LEFT, 1)),), (("s", 1),))
    early = state_of(add("s", "b"), hide("d"), AssignJob("j", LEFT, ("s",)), hide("e"), end)
    before, since = early.deletions
    output = early.shards["o"]
    assert (before.may_hide(output), since.may_hide(output)) == (False, True)


def test_it_is_forgotten_when_no_shard_in_the_table_may_have_its_rows() -> None:
    state = state_of(add("s", "b"), hide("d"), AssignJob("j", LEFT, ("s",)))
    assert broken(state, ForgetDeletions((2,))) == {Rule.DELETION_NEEDED}
    assert broken(state, ForgetDeletions((7,))) == {Rule.DELETION_MISSING}
    state, _ = fold_delta(
        state, [Entry(ReplaceShards("j", LEFT, ("s",), (), (("s", 1),), 1), 2, 0)]
    )
    state, (verdict,) = fold_delta(state, [Entry(ForgetDeletions((2,)), 2, 0)])
    assert not verdict.violations
    assert (state.deletions, state.last_number) == ((), 2)
    state, _ = fold_delta(state, [Entry(hide("e"), 3, 0)])
    assert [each.number for each in state.deletions] == [3], "numbers are never used again"


@pytest.mark.parametrize(
    "deletion",
    [
        Deletion("d", "", (), ((b"", None),)),
        Deletion("d", '"done"', (), ()),
        Deletion("d", '"done"', (), ((encode_key(("b",)), encode_key(("a",))),)),
        Deletion("d", '"done"', (), ((b"", None), (encode_key(("a",)), None))),
        Deletion("d", '"done"', (), ((b"", None),), number=-1),
        Deletion("d", "x" * 70_000, (), ((b"", None),)),
    ],
)
def test_one_without_condition_or_ranges_in_order_is_refused(deletion: Deletion) -> None:
    assert broken(state_of(), HideRows(deletion)) == {Rule.DELETION_UNFIT}


def test_an_end_that_is_no_key_of_the_table_is_refused() -> None:
    ends = ((encode_key((5,)), None),)
    assert Rule.KEY_UNFIT in broken(state_of(), HideRows(Deletion("d", '"done"', (), ends)))


def test_one_is_there_once_and_not_too_many_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_DELETIONS > 2
    monkeypatch.setattr("dormouse.state.rules.MAX_DELETIONS", 2)
    state = state_of(add("s", "b"), hide("d"))
    later_ms = 31 * DAY_MS  # when it is not remembered any more
    _, (again, late) = fold_delta(
        state, [Entry(hide("d", "b"), time_ms, 0) for time_ms in (2 * DAY_MS, later_ms)]
    )
    assert again.repeated, "a repeat may say something else"
    assert {each.rule for each in late.violations} == {Rule.DELETION_EXISTS}
    full = state_of(add("s", "b"), hide("d"), hide("e"))
    assert broken(full, hide("f")) == {Rule.TOO_MANY_DELETIONS}


def test_a_restored_version_has_its_deletions_and_numbers_go_on() -> None:
    earlier = state_of(add("s", "b"), hide("d"))
    state, _ = fold_delta(earlier, [Entry(hide("e"), 2, 0)])
    state, _ = fold_delta(state, [Entry(add("t", "b"), 2, 0)])
    back = restored(state, earlier, 1)
    assert ([each.id for each in back.deletions], back.last_number) == (["d"], 4)
    assert not broken_invariants(back, whole=True)


def test_commits_that_add_or_delete_rows_are_numbered_by_their_time_and_always_upwards() -> None:
    state = state_of(add("s", "b"), add("t", "c"))
    later = [
        Entry(add("u", "d"), 1_000, 0),
        Entry(hide("d"), 1_000, 0),
        Entry(add("v", "e"), 900, 0),
    ]
    state, _ = fold_delta(state, later)
    numbers = {name: state.shards[name].sequence for name in "stuv"}
    assert numbers == {"s": 1, "t": 2, "u": 1_000, "v": 1_002}
    assert state.deletions[0].number == 1_001


def test_shards_of_a_rebuild_or_copy_keep_their_numbers_and_later_ones_are_greater() -> None:
    old, early = shard_of("s", [("b",)], (LEFT, 1)), shard_of("t", [("c",)], (LEFT, 1))
    numbered = structs.replace(old, shard=structs.replace(old.shard, sequence=40))
    ahead = structs.replace(early, shard=structs.replace(early.shard, sequence=10_000))
    given = HideRows(structs.replace(hide("d").deletion, number=30))
    state, _ = fold_delta(
        state_of(), [Entry(AddShards("j", (), (numbered, ahead)), 50, 0), Entry(given, 60, 0)]
    )
    assert [state.shards[name].sequence for name in "st"] == [40, 10_000]
    assert (state.deletions[0].number, state.last_number) == (30, 10_001)
    assert not broken_invariants(state, whole=True)
    again = HideRows(structs.replace(hide("e").deletion, number=30))
    assert broken(state, again) == {Rule.DELETION_UNFIT}


def test_who_knows_a_part_of_a_state_learns_of_the_deletions_there_alone() -> None:
    part = KnownPart((KeyRange(("b",), ("c",)),), frozenset(), (), ())
    entries = [Entry(hide("d", low, high), 1, 0) for low, high in (("a", "b"), ("bb", "z"))]
    assert [Concern(part).is_raised_by([entry]) for entry in entries] == [False, True]


@pytest.mark.parametrize(
    ("before", "partition", "inputs", "takes_all"),
    [
        ((), LEFT, "st", True),
        ((), LEFT, "t", False),
        ((AssignJob("other", "root", ("s",)),), LEFT, "t", False),
        ((), "root", "st", False),
        ((AssignJob("other", "root", ("s",)),), "root", "t", False),
    ],
)
def test_a_job_takes_all_of_a_leaf_if_nothing_is_left_there_and_above(
    before: tuple[Transaction, ...], partition: str, inputs: str, *, takes_all: bool
) -> None:
    state = state_of(
        add("s", "b"), add("t", "b"), *before, AssignJob("job", partition, tuple(inputs))
    )
    assert state.jobs["job"].takes_all == takes_all
