"""Another writer between a look and a commit, for every pair of kinds of transactions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from dormouse.keys import encode_key
from dormouse.log.engine import StateStore
from dormouse.schema.types import Primitive
from dormouse.state.fold import Verdict, apply
from dormouse.state.partitions import PartitionTree
from dormouse.state.rules import Committed, Outcome
from dormouse.state.state import (
    AddShards,
    AdoptSegments,
    AssignJob,
    DeleteShards,
    Deletion,
    DisputeReason,
    DisputeShards,
    Entry,
    ExtendTree,
    ForgetDeletions,
    HideRows,
    ReleaseJob,
    ReplaceShards,
    ResetTable,
    ResolveDisputes,
    RestoreTable,
    SealSources,
    SourceSegment,
    SplitPartition,
    TableState,
    Transaction,
)
from dormouse.state.validation import broken_invariants
from tests.support.adapters import CountingIds, FakeClock
from tests.support.depth import in_turn
from tests.support.hooked_pages import HookedPages
from tests.support.machine import shard_of, verdict_of
from tests.support.memory_storage import MemoryStorage
from tests.support.stores import objects_store
from tests.support.trees import LEFT, RIGHT, initialise

TREE = tuple(PartitionTree.from_split_points([("m",)]).by_id.values())
A, B, C, D = (shard_of(name, [(name,)], (LEFT, 1)) for name in "abcd")
BEFORE: tuple[Transaction, ...] = (
    initialise(TREE),
    AddShards("one", ("source-one",), (A, B)),
    AddShards("two", ("source-two",), (C,)),
    AssignJob("old", LEFT, ("c",)),
    ReplaceShards("old", LEFT, ("c",), (), (("c", 1),), 1),
    AddShards("five", (), (D,)),
    AssignJob("job", LEFT, ("a", "b")),
    DisputeShards(("d",), DisputeReason.BYTES_DAMAGED, "old"),
    HideRows(Deletion("early", '"done"', ("{}",), ((encode_key(("x",)), None),))),
)
"""A table of two leaves: a and b are inputs of a job, c is garbage, d is disputed; a deletion hides
no row of any shard, unless one comes with keys from x on."""
OUTPUT = shard_of("output", [("a",), ("b",)], (LEFT, 2))
KINDS: dict[str, Transaction] = {
    "initialise": initialise(TREE),
    "add": AddShards("three", ("source-three",), (shard_of("z", [("z",)], (RIGHT, 1)),)),
    "add the same source": AddShards("four", ("source-three",), ()),
    "assign": AssignJob("late", LEFT, ("a",)),
    "release": ReleaseJob("job"),
    "replace": ReplaceShards("job", LEFT, ("a", "b"), (OUTPUT,), (("a", 1), ("b", 1))),
    "split": SplitPartition(LEFT, encode_key(("b",))),
    "extend": ExtendTree(((LEFT, encode_key(("a\0",))), (RIGHT, encode_key(("x",))))),
    "delete": DeleteShards(("c",)),
    "hide": HideRows(Deletion("late", '"done"', ("{}",), ((b"", None),))),
    "forget": ForgetDeletions((1,)),
    "dispute": DisputeShards(("b", "c"), DisputeReason.BYTES_DAMAGED, "job"),
    "resolve": ResolveDisputes((("d", 0),)),
    "seal": SealSources(SourceSegment("segment", 0, 2, 1, 20, 16, 1)),
    "adopt": AdoptSegments((SourceSegment("adopted", 0, 1, 1, 20, 16, 1),)),
    "reset": ResetTable(1, PartitionTree.of(TREE).splits),
    "reset to other row keys": ResetTable(1, (), (Primitive.LONG,)),
    "restore": RestoreTable(1, 2),
}


def commit(store: StateStore, transaction: Transaction) -> tuple[Outcome, ...]:
    if isinstance(transaction, RestoreTable):
        earlier = store.at(version=transaction.version)
        return (store.restore(earlier, generation=transaction.generation),)
    return store.commit(transaction, generation=0)


def test_every_kind_of_transaction_is_interleaved() -> None:
    assert {type(t) for t in KINDS.values()} == set(Transaction.__args__)


@pytest.mark.parametrize("mine", KINDS)
def test_the_writer_learns_what_became_of_its_commit_after_any_other(mine: str) -> None:
    for other in in_turn(list(KINDS), parts=2):
        interleave(mine, other)


def interleave(mine: str, other: str) -> None:
    """Commit `mine` while a rival commits `other` between the look and the append."""
    clock, pages, storage = FakeClock(0), HookedPages(), MemoryStorage()
    ids = CountingIds(clock)
    writer, rival, reader = (objects_store("t", storage, pages, clock, ids) for _ in range(3))
    for transaction in BEFORE:
        (outcome,) = writer.commit(transaction, generation=0)
        assert isinstance(outcome, Committed)
    rivals: list[Outcome] = []

    def let_the_other_go_first(operation: str) -> None:
        if operation == "append":
            pages.before = lambda operation: None
            rivals.extend(commit(rival, KINDS[other]))

    pages.before = let_the_other_go_first
    outcomes = commit(writer, KINDS[mine])

    pair = f"{mine} after {other}"
    history = (*BEFORE, KINDS[other], KINDS[mine])
    state, verdicts = serial(history)
    assert [verdict_of(outcome) for outcome in (*rivals, *outcomes)] == verdicts[-2:], pair
    assert reader.current() == state, pair
    assert not broken_invariants(state), pair


def serial(transactions: Sequence[Transaction]) -> tuple[TableState, list[Verdict]]:
    """Return what the fold alone makes of transactions, each a version of its own."""
    states, state, verdicts = [TableState()], TableState(), []
    for transaction in transactions:
        generation, earlier = 0, None
        if isinstance(transaction, RestoreTable):
            generation, earlier = transaction.generation, states[transaction.version]
        state, verdict = apply(state, Entry(transaction, 0, generation), earlier)
        state = replace(state, version=state.version + 1)
        states.append(state)
        verdicts.append(verdict)
    return state, verdicts
