"""Rows taken by jobs add up to the shard's rows; otherwise the shard is disputed, with its jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.features.garbage import collectable
from dormouse.keys import Key, KeyRange, encode_key
from dormouse.state.fold import apply
from dormouse.state.partitions import ROOT, PartitionTree
from dormouse.state.rules import Rule
from dormouse.state.state import (
    AddShards,
    AssignJob,
    DeleteShards,
    Dispute,
    DisputeReason,
    DisputeShards,
    Entry,
    ReplaceShards,
    ResetTable,
    ResolveDisputes,
    RowsTaken,
    SplitPartition,
    TableState,
    Transaction,
)
from dormouse.state.validation import broken_invariants
from tests.support.machine import shard_of
from tests.support.trees import initialise, part

TREE = tuple(PartitionTree.from_split_points([]).by_id.values())
LEFT, RIGHT = part("", "i"), part("i")
LETTERS: list[Key] = [(letter,) for letter in "abcdefghijklmnop"]
S = shard_of("s", LETTERS)
SPLIT = (initialise(TREE), AddShards("add", (), (S,)), SplitPartition(ROOT, encode_key(("i",))))
"""A shard of 16 rows, 8 in each of two leaves."""


def folded(*transactions: Transaction, start: TableState | None = None) -> TableState:
    state = start or TableState()
    for transaction in transactions:
        state, verdict = apply(state, Entry(transaction, state.time_ms + 1, state.generation))
        assert not verdict.violations, verdict
        assert not broken_invariants(state, whole=True)
    return state


def merge(job: str, leaf: str, rows: int, removed: int = 0) -> tuple[Transaction, ...]:
    """A job which says that it took so many rows of the shard, and wrote them but those removed."""
    first = LETTERS[0] if leaf == LEFT else LETTERS[8]
    kept = rows - removed
    outputs = (shard_of(f"{job}-0", [first] * kept, (leaf, kept)),) if kept else ()
    taken = (("s", rows),)
    return AssignJob(job, leaf, ("s",)), ReplaceShards(job, leaf, ("s",), outputs, taken, removed)


def test_rows_taken_are_stored_until_the_last_job_and_no_longer() -> None:
    state = folded(*SPLIT, *merge("left", LEFT, 8))
    assert state.taken["s"] == (RowsTaken("left", LEFT, 8, KeyRange((), ("i",))),)
    state = folded(*merge("right", RIGHT, 8), start=state)
    assert not len(state.taken)
    assert not len(state.disputed)
    assert list(state.unreferenced) == ["s"]


def test_one_row_of_sixteen_lost_after_a_split_disputes_the_shard_with_both_jobs() -> None:
    state = folded(*SPLIT, *merge("left", LEFT, 8), *merge("right", RIGHT, 7))
    assert state.disputed["s"].reason is DisputeReason.ROWS_LOST
    assert state.jobs_in_dispute("s") == ["left", "right"]
    assert state.taken["s"] == (
        RowsTaken("left", LEFT, 8, KeyRange((), ("i",))),
        RowsTaken("right", RIGHT, 7, KeyRange(("i",))),
    )
    assert not len(state.jobs), "the job itself is accepted"
    assert collectable(state, ["s"], 10**12, 0) == ([], [])
    _, verdict = apply(state, Entry(DeleteShards(("s",)), 99, 0))
    assert [(v.rule, v.subject) for v in verdict.violations] == [(Rule.SHARD_DISPUTED, "s")]


def test_a_row_taken_twice_disputes_the_shard_too() -> None:
    state = folded(*SPLIT, *merge("left", LEFT, 9), *merge("right", RIGHT, 8))
    assert "s" in state.disputed


def test_rows_that_rules_or_a_purge_removed_are_not_lost() -> None:
    state = folded(*SPLIT, *merge("left", LEFT, 8, removed=3), *merge("right", RIGHT, 8, removed=8))
    assert not len(state.disputed)


def test_a_shard_of_one_reference_is_judged_at_once() -> None:
    begun = (initialise(TREE), AddShards("add", (), (S,)))
    job = AssignJob("j", ROOT, ("s",))
    output = shard_of("j-0", LETTERS[1:])
    lossy = ReplaceShards("j", ROOT, ("s",), (output,), (("s", 15),))
    assert "s" in folded(*begun, job, lossy).disputed


def test_what_was_not_counted_is_no_evidence_against_anybody() -> None:
    uncounted = AssignJob("gone", LEFT, ("s",)), ReplaceShards("gone", LEFT, ("s",), ())
    state = folded(*SPLIT, *uncounted, *merge("right", RIGHT, 8))
    assert (len(state.taken), len(state.disputed)) == (0, 0)


@pytest.mark.parametrize(
    ("taken", "removed", "rule"),
    [
        ((), 0, Rule.ROWS_NOT_COUNTED),
        ((("s", 8), ("s", 8)), 0, Rule.ROWS_NOT_COUNTED),
        ((("s", 8), ("t", 0)), 0, Rule.ROWS_NOT_COUNTED),
        ((("s", 17),), 9, Rule.ROWS_NOT_COUNTED),
        ((("s", -1),), -9, Rule.OUT_OF_BOUNDS),
        ((("s", 8),), 1, Rule.ROWS_NOT_CONSERVED),
        ((("s", 7),), 0, Rule.ROWS_NOT_CONSERVED),
        ((("s", 7),), -1, Rule.OUT_OF_BOUNDS),
    ],
)
def test_a_job_that_contradicts_itself_is_rejected(
    taken: tuple[tuple[str, int], ...], removed: int, rule: Rule
) -> None:
    state = folded(*SPLIT, AssignJob("j", LEFT, ("s",)))
    output = shard_of("j-0", LETTERS[:8], (LEFT, 8))
    done = ReplaceShards("j", LEFT, ("s",), (output,), taken, removed)
    after, verdict = apply(state, Entry(done, 9, 0))
    assert after is state
    assert rule in {violation.rule for violation in verdict.violations}


def test_a_dispute_over_bytes_keeps_its_first_time_and_names_every_job_that_found_it() -> None:
    damaged = DisputeReason.BYTES_DAMAGED
    state = folded(*SPLIT, DisputeShards(("s",), damaged, "one"))
    since_ms = state.time_ms
    state = folded(DisputeShards(("s",), damaged, "two"), start=state)
    assert state.disputed["s"] == Dispute(damaged, since_ms, ("one", "two"))


def test_a_dispute_over_lost_rows_replaces_one_over_bytes_but_not_the_other_way_round() -> None:
    damaged = DisputeShards(("s",), DisputeReason.BYTES_DAMAGED, "one")
    state = folded(*SPLIT, damaged)
    seen = ResolveDisputes((("s", state.disputed["s"].since_ms),))
    state = folded(*merge("left", LEFT, 8), *merge("right", RIGHT, 7), start=state)
    assert state.disputed["s"].reason is DisputeReason.ROWS_LOST
    after, verdict = apply(state, Entry(seen, 99, 0))
    assert after is state
    assert [v.rule for v in verdict.violations] == [Rule.DISPUTE_MISSING]


def test_a_shard_whose_dispute_is_resolved_waits_for_collection_from_then_on() -> None:
    state = folded(*SPLIT, *merge("left", LEFT, 8), *merge("right", RIGHT, 7))
    resolution = ResolveDisputes((("s", state.disputed["s"].since_ms),))
    state, _ = apply(state, Entry(resolution, 10_000, 0))
    assert state.unreferenced["s"] == 10_000
    assert (len(state.taken), len(state.disputed)) == (0, 0)
    assert not broken_invariants(state, whole=True)


def test_the_same_damage_can_be_disputed_again_by_another_job_after_it_was_resolved() -> None:
    damaged = DisputeReason.BYTES_DAMAGED
    state = folded(*SPLIT, DisputeShards(("s",), damaged, "one"))
    state = folded(ResolveDisputes((("s", state.disputed["s"].since_ms),)), start=state)
    assert not len(state.disputed)
    assert "s" in folded(DisputeShards(("s",), damaged, "two"), start=state).disputed


def test_a_reset_drops_row_counts_and_disputes() -> None:
    state = folded(*SPLIT, *merge("left", LEFT, 7))
    state = folded(DisputeShards(("s",), DisputeReason.BYTES_DAMAGED, "one"), start=state)
    reset = folded(ResetTable(1, PartitionTree.of(TREE).splits), start=state)
    assert (len(reset.taken), len(reset.disputed)) == (0, 0)


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        ({"taken": (RowsTaken("j", LEFT, 8),), "shard": "x"}, "which is unknown"),
        ({"taken": (RowsTaken("j", LEFT, 17),), "shard": "s"}, "than it has"),
        (
            {"taken": (RowsTaken("j", LEFT, 1), RowsTaken("k", LEFT, 1)), "shard": "s"},
            "taken twice",
        ),
        ({"disputed": Dispute(DisputeReason.ROWS_LOST, 1), "shard": "x"}, "disputed but unknown"),
    ],
)
def test_a_state_whose_takings_or_disputes_cannot_be_is_broken(
    broken: dict[str, object], found: str
) -> None:
    state = folded(*SPLIT)
    (name, value), (_, shard) = broken.items()
    wrong = replace(state, **{name: getattr(state, name).insert(shard, value)})  # type: ignore[arg-type]
    assert any(found in sentence for sentence in broken_invariants(wrong))
    assert any(found in sentence for sentence in broken_invariants(wrong, whole=True))


def test_takings_of_a_shard_without_references_are_kept_for_a_dispute_only() -> None:
    state = folded(*SPLIT, *merge("left", LEFT, 8), *merge("right", RIGHT, 7))
    wrong = replace(state, disputed=state.disputed.discard("s"))
    assert any("were taken" in sentence for sentence in broken_invariants(wrong, whole=True))


@given(st.lists(st.integers(0, 16), min_size=2, max_size=2))
def test_a_shard_is_disputed_exactly_if_the_sum_is_not_its_rows(rows: list[int]) -> None:
    left, right = (
        merge(f"j-{leaf}", leaf, count) for leaf, count in zip((LEFT, RIGHT), rows, strict=True)
    )
    state = folded(*SPLIT, *left, *right)
    assert ("s" in state.disputed) == (sum(rows) != 16)
    assert ("s" in state.taken) == ("s" in state.disputed)
