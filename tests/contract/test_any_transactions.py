"""No transaction ends a table: both stores refuse nonsense before it is written, and read on after
nonsense that another release, a bug or a hand put into the log.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dormouse.errors import InvalidRequestError
from dormouse.keys import Key, encode_key
from dormouse.log.blobs import encode_delta, identity_of
from dormouse.log.engine import StateStore
from dormouse.log.log import fold_delta
from dormouse.log.pages import place_after
from dormouse.schema.types import Primitive
from dormouse.state.partitions import ROOT, NewShard, PartitionTree, Shard
from dormouse.state.rules import Committed, Rejected, Rule
from dormouse.state.state import (
    AddShards,
    AssignJob,
    DeleteShards,
    Entry,
    ReplaceShards,
    ResetTable,
    SplitPartition,
    TableState,
    Transaction,
)
from dormouse.state.validation import broken_invariants
from tests.support import arbitrary
from tests.support.adapters import CountingIds, FakeClock
from tests.support.depth import examples
from tests.support.hooked_pages import HookedPages
from tests.support.machine import shard_of
from tests.support.memory_dynamodb import MemoryDynamoDB
from tests.support.memory_storage import MemoryStorage
from tests.support.stores import items_store, objects_store
from tests.support.trees import LEFT, RIGHT, TEXT, initialise
from tests.unit.statestore.faults import small_pages

HOMES = ["objects", "items"]
BEGUN: tuple[Transaction, ...] = (
    initialise(PartitionTree.from_split_points([("m",)])),
    AddShards("add", ("source1",), (shard_of("s1", [("a",), ("z",)]), shard_of("s2", [("b",)]))),
    AssignJob("j1", LEFT, ("s1", "s2")),
)


class Home:
    """Where the state of one table is kept; each process opens a store of its own."""

    def __init__(self, kept_in: str) -> None:
        self.kept_in = kept_in
        self.clock, self.pages, self.storage = FakeClock(0), HookedPages(), MemoryStorage()
        self.ids, self.dynamodb = CountingIds(self.clock), MemoryDynamoDB()

    def store(self) -> StateStore:
        """Open the state as a process does that knows nothing yet."""
        if self.kept_in == "items":
            return items_store("t", self.dynamodb.items(), self.pages, self.clock, self.ids)
        return objects_store("t", self.storage, self.pages, self.clock, self.ids)

    def begun(self) -> StateStore:
        """Open the state of a table that has something to lose."""
        store = self.store()
        store.commit(*BEGUN, generation=0)
        return store

    def put_by_hand(self, *entries: Entry) -> None:
        """Put entries into the log past everything that looks at them before."""
        store = self.store()
        reader, delta_id = store.reader, self.ids.new()
        reader.deltas.put(delta_id, encode_delta(entries, identity_of("t", delta_id)))
        page, _ = place_after(store._tail.last_seen().version)
        assert reader.log.append(delta_id, page).version is not None


def assert_whole(home: Home, *stores: StateStore) -> TableState:
    """Check that all see one sound state, and a process that starts cold sees it too."""
    state = home.store().current()
    for store in stores:
        assert store.current() == state
    assert not broken_invariants(state, whole=True)
    stores[0].maintain()
    assert home.store().current() == state
    return state


@pytest.mark.parametrize("kept_in", HOMES)
@settings(max_examples=examples(60), deadline=None)
@given(drawn=st.lists(arbitrary.transactions, min_size=1, max_size=6), together=st.booleans())
def test_whatever_is_committed_is_refused_or_judged_and_the_table_reads_on(
    kept_in: str, drawn: list[Transaction], together: bool
) -> None:
    with small_pages(3):
        home = Home(kept_in)
        store, other = home.begun(), home.store()
        for some in [tuple(drawn)] if together else [(one,) for one in drawn]:
            before = other.current()
            try:
                outcomes = store.commit(*some, generation=before.generation)
            except InvalidRequestError:
                assert other.current() == before, "nothing was written"
            else:
                assert len(outcomes) == len(some)
        state = assert_whole(home, store, other)
        if state.key_types == TEXT:  # else it was reset to others
            written = AddShards("later", (), (shard_of("later", [("c",)]),))
            (outcome,) = store.commit(written, generation=state.generation)
            assert not isinstance(outcome, Rejected)


@pytest.mark.parametrize("kept_in", HOMES)
@settings(max_examples=examples(60), deadline=None)
@given(
    drawn=st.lists(arbitrary.transactions, min_size=1, max_size=4),
    time_ms=st.sampled_from([0, 5, 2**63 - 1, -1]),
    generation=st.sampled_from([0, 0, 0, 1, -1, 2**63 - 1]),
)
def test_whatever_is_in_the_log_all_the_same_folds_to_a_verdict_for_every_reader(
    kept_in: str, drawn: list[Transaction], time_ms: int, generation: int
) -> None:
    entries = []
    for one in drawn:
        with suppress(OverflowError, UnicodeEncodeError):
            entry = Entry(one, time_ms, generation)
            encode_delta([entry], "t")  # what cannot be written is not read
            entries.append(entry)
    assume(entries)
    with small_pages(3):
        home = Home(kept_in)
        warm = home.begun()
        expected, _ = fold_delta(warm.current(), entries)
        home.put_by_hand(*entries)
        assert assert_whole(home, warm, home.store()) == expected


@pytest.mark.parametrize("kept_in", HOMES)
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (DeleteShards(("s1", "s1")), "s1: it is named more than once"),
        (ReplaceShards("j1", LEFT, ("s1", "s1"), ()), "each once"),
        (SplitPartition(RIGHT, encode_key((7,))), "its part 1 is not of type string"),
        (
            SplitPartition(RIGHT, encode_key(("secret" * 1000,))),
            "it takes 6,000 bytes, more than 4,096",
        ),
    ],
)
def test_what_can_never_hold_is_refused_before_it_is_written_and_says_why(
    kept_in: str, wrong: Transaction, said: str
) -> None:
    home = Home(kept_in)
    store = home.begun()
    for process in (store, home.store()):
        before = process.current()
        with pytest.raises(InvalidRequestError, match=said) as refused:
            process.commit(AddShards("fine", (), ()), wrong, generation=0)
        assert "secret" not in refused.value.explanation
        assert process.current() == before


@pytest.mark.parametrize("kept_in", HOMES)
def test_keys_are_judged_by_their_types_before_the_first_tree_is_written(kept_in: str) -> None:
    first = initialise(PartitionTree.from_split_points([("m",)]))
    keys: list[Key] = [("p",), (1,)]
    for key in keys:
        store = Home(kept_in).store()
        if key == ("p",):
            store.commit(first, SplitPartition(RIGHT, encode_key(key)), generation=0)
            assert len(store.current().partitions) == 5
        else:
            with pytest.raises(InvalidRequestError):
                store.commit(first, SplitPartition(RIGHT, encode_key(key)), generation=0)
            assert store.current() == TableState()


@pytest.mark.parametrize("key", [b"\x00", b"\x02m", b"\x03m", b"\xff", encode_key(("\ud800",))])
def test_what_is_no_key_is_refused_before_there_is_a_first_tree(key: bytes) -> None:
    store = Home(HOMES[0]).store()
    with pytest.raises(InvalidRequestError):
        store.commit(SplitPartition(RIGHT, key), generation=0)


@pytest.mark.parametrize("kept_in", HOMES)
def test_no_generation_is_the_last(kept_in: str) -> None:
    store = Home(kept_in).begun()
    splits = store.current().partitions.splits
    (far,) = store.commit(ResetTable(2**63 - 1, splits), generation=0)
    assert isinstance(far, Rejected)
    (reset,) = store.commit(ResetTable(1, splits), generation=0)
    assert isinstance(reset, Committed)


@pytest.mark.parametrize("kept_in", HOMES)
def test_keys_of_a_later_generation_are_judged_by_a_store_that_read_only_the_earlier_one(
    kept_in: str,
) -> None:
    with small_pages(3):
        home = Home(kept_in)
        warm, other = home.begun(), home.store()
        numbers = ResetTable(1, (), (Primitive.LONG,))
        (reset,) = other.commit(numbers, generation=0)
        split, late = (
            SplitPartition(ROOT, encode_key((5,))),
            SplitPartition(RIGHT, encode_key(("x",))),
        )
        (done,) = warm.commit(split, generation=1)
        assert isinstance(reset, Committed) and isinstance(done, Committed)
        (rejected,) = warm.commit(late, generation=0)
        assert isinstance(rejected, Rejected)
        assert [v.rule for v in rejected.violations] == [Rule.STALE_GENERATION]
        for unfit in (SplitPartition(ROOT, encode_key(("x",))), SplitPartition(ROOT, b"\x04")):
            with pytest.raises(InvalidRequestError):
                warm.commit(unfit, generation=1)
        with pytest.raises(InvalidRequestError):
            warm.commit(SplitPartition(RIGHT, b"\x04"), generation=0)
        for _ in range(8):  # so that who comes next reads snapshots and segments
            warm.commit(AddShards("none", (), ()), generation=1)
            warm.maintain()
        state = assert_whole(home, warm, other)
    assert (state.key_types, state.generation) == ((Primitive.LONG,), 1)
    assert len(state.partitions) == 3


@pytest.mark.parametrize("kept_in", HOMES)
def test_a_job_assigned_again_in_another_partition_took_of_both_for_every_reader(
    kept_in: str,
) -> None:
    with small_pages(2):
        home = Home(kept_in)
        warm = home.store()
        tree = PartitionTree.from_split_points([("d",), ("m",)])
        leaves = [leaf.id for leaf in tree.leaves()]
        whole = NewShard(Shard.of("s", 9, 1, ("a",), ("z",)), tuple((leaf, 3) for leaf in leaves))
        warm.commit(initialise(tree), AddShards("add", (), (whole,)), generation=0)
        for leaf, letter in zip(leaves, "afq", strict=True):
            merged = NewShard(Shard.of(letter, 3, 1, (letter,), (letter,)), ((leaf, 3),))
            done = ReplaceShards("j", leaf, ("s",), (merged,), (("s", 3),))
            home.store().commit(AssignJob("j", leaf, ("s",)), done, generation=0)
            for _ in range(4):  # so that who comes next reads what was kept of it
                warm.commit(AddShards("none", (), ()), generation=0)
                warm.maintain()
            state = assert_whole(home, warm)
        assert state.reference_counts["s"] == 0
        assert not len(state.disputed) and not len(state.taken)
