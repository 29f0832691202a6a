"""The DynamoDB state store: what a reader sees while others write, and what crashes leave."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import given, settings

from dormouse.errors import NotFoundError, OutcomeUnknownError, UnavailableError
from dormouse.model.state import TableState
from dormouse.model.transactions import (
    AddShards,
    AssignJob,
    ForgetShards,
    ReleaseJob,
    ReplaceShards,
    SplitPartition,
)
from dormouse.state_store import Committed
from dormouse.statestore import collection, pages
from dormouse.statestore.engine import Options
from dormouse.statestore.pages import Snapshot
from dormouse.statestore.snapshots import without_forgotten
from tests.support.sealing import sealing_of
from tests.support.trees import LEFT, RIGHT, initialise
from tests.unit.statestore.faults import Crash, fail
from tests.unit.statestore.histories import (
    ONE_LEAF,
    Delta,
    addition,
    fold_all,
    histories,
    merge_of,
    shard_of,
)
from tests.unit.statestore.memory_items import ItemsRig, small_pages, versions

INITIALISE = initialise(ONE_LEAF)
EAGER = Options(keep_seconds=0, upload_seconds=0)
BUSY = UnavailableError("refused")
LOST = OutcomeUnknownError("not answered")
MANY = tuple(f"s{n}" for n in range(1000))
COMPACTION = merge_of("merge", MANY, shard_of("merged", ("a",), ("z",)))


@pytest.fixture
def rig() -> Iterator[ItemsRig]:
    with small_pages(4):
        made = ItemsRig()
        made.store().commit(INITIALISE, addition(0), generation=0)
        made.quiet()
        yield made


def fill_pages(rig: ItemsRig, count: int, first: int = 1) -> None:
    """Commit additions until `count` more versions can be put into the tables."""
    store = rig.store()
    rig.clock.advance(seconds=1)
    for n in range(first, first + count * pages.PAGE_CAPACITY):
        store.commit(addition(n), generation=0)


# What it costs


def test_a_commit_of_a_thousand_inputs_is_one_put_one_append_and_one_read() -> None:
    rig = ItemsRig()
    store = rig.store()
    store.commit(INITIALISE, *(addition(n) for n in range(1000)), generation=0)
    store.commit(AssignJob("merge", "root", MANY), generation=0)
    rig.quiet()
    assert store.commit(COMPACTION, generation=0) == (Committed(3),)
    assert [c for c in rig.calls if c.startswith("before")] == [
        "before put_item",
        "before append",
        "before page",
    ]


def test_nothing_is_put_for_what_did_not_change(rig: ItemsRig) -> None:
    fill_pages(rig, 1)
    rig.store().maintain()
    before = {table: set(items) for table, items in rig.items.kept.items()}
    fill_pages(rig, 1, first=100)
    rig.store().maintain()
    added = {table: set(items) - before[table] for table, items in rig.items.kept.items()}
    assert len(added["shards"]) == pages.PAGE_CAPACITY
    assert added["partitions"] == set()
    assert sum("#R" in key for key, _ in added["references"]) == pages.PAGE_CAPACITY


def test_maintenance_that_is_not_due_is_one_read(rig: ItemsRig) -> None:
    store = rig.store()
    rig.quiet()
    store.maintain()
    assert [c for c in rig.calls if c.startswith("before")] == ["before head"]


# What a reader sees


@settings(max_examples=40, deadline=None)
@given(histories(longest=15))
def test_any_history_put_into_tables_is_the_history_folded(history: list[Delta]) -> None:
    with small_pages(3):
        rig = ItemsRig(options=EAGER)
        writers = [rig.store(), rig.store()]
        for number, delta in enumerate(history):
            rig.clock.ms = delta.time_ms
            writer = writers[number % 2]
            writer.commit(*delta.transactions, generation=delta.generation)
            writer.maintain()
        warm, cold = writers[0].current(), rig.store().current()
        assert warm == fold_all(history)
        assert without_forgotten(cold) == without_forgotten(warm)
        for partition in warm.partitions.by_id:
            expected = (warm.version, warm.references_in(partition))
            assert rig.store().references_of(partition) == expected


@settings(max_examples=40, deadline=None)
@given(histories(longest=20))
def test_a_version_is_what_it_was_for_as_long_as_it_is_kept_whatever_came_and_went(
    history: list[Delta],
) -> None:
    with small_pages(2):
        rig = ItemsRig(options=Options(keep_seconds=60, upload_seconds=20))
        for delta in history:
            rig.clock.advance(seconds=30)
            rig.store().commit(*delta.transactions, generation=delta.generation)
            rig.store().maintain()
            folded = rig.states()
            for state, following in pairwise(folded):
                if following.time_ms > rig.clock.ms - 60_000:
                    kept = rig.store().at(version=state.version)
                    assert without_forgotten(kept) == without_forgotten(state)
        for snapshot in rig.head().root.snapshots:
            kept = rig.store().at(version=snapshot.version)
            assert without_forgotten(kept) == without_forgotten(folded[snapshot.version])


def test_what_precedes_the_first_version_put_is_kept_as_long_as_all_else(rig: ItemsRig) -> None:
    rig.options = Options(keep_seconds=600, upload_seconds=60)
    fill_pages(rig, 3)
    early = rig.states()[2]
    for seconds in (1, 300, 298):
        rig.clock.advance(seconds=seconds)
        rig.store().maintain()
        assert rig.store().at(version=2) == early
    for n in range(100, 400, 100):
        rig.clock.advance(seconds=700)
        fill_pages(rig, 1, first=n)
        rig.store().maintain()
    with pytest.raises(NotFoundError, match="not kept any more"):
        rig.store().at(version=2)
    assert rig.head().first_page > 0


def test_a_busy_table_is_rid_of_old_versions_as_soon_as_many_pages_go_with_them() -> None:
    rig = ItemsRig(options=Options(keep_seconds=60, upload_seconds=60))
    with small_pages(4), patch.object(collection, "PAGES_PER_ROUND", 8):
        rig.store().commit(INITIALISE, generation=0)
        for n in range(100, 400, 10):
            fill_pages(rig, 2, first=n)
            rig.clock.advance(seconds=14)
            rig.store().maintain()
            assert len(rig.head().root.snapshots) <= 12
            assert rig.head().last_page - rig.head().first_page <= 36


def test_a_reader_of_pages_sees_all_inputs_of_a_compaction_or_its_output(rig: ItemsRig) -> None:
    store = rig.store()
    store.commit(*(addition(n) for n in range(1, 1000)), generation=0)
    store.commit(AssignJob("merge", "root", MANY), generation=0)
    store.commit(ReleaseJob("none"), generation=0)
    store.maintain()
    before = rig.root()
    seen: list[set[str]] = []

    def read(root: Snapshot) -> None:
        seen.append({r.shard for r in versions(rig).load(root).all_references()})

    def compact_between_pages() -> None:
        rig.store().commit(COMPACTION, generation=0)
        for _ in range(3):
            rig.store().commit(ReleaseJob("none"), generation=0)
        rig.store().maintain()
        read(before)
        read(rig.root())

    rig.on("after query", compact_between_pages, skip=40)
    read(before)
    assert seen == [set(MANY), {"merged"}, set(MANY)]


def table_with_a_version() -> ItemsRig:
    rig = ItemsRig()
    rig.store().commit(INITIALISE, *(addition(n) for n in range(12)), generation=0)
    rig.store().commit(AssignJob("j", "root", ("s1", "s2")), generation=0)
    fill_pages(rig, 1, first=50)
    rig.store().maintain()
    rig.quiet()
    return rig


def let_others_write(rig: ItemsRig) -> None:
    merged = merge_of("j", ("s1", "s2"), shard_of("m", ("a",), ("z",)))
    rig.store().commit(merged, SplitPartition("root", ("m",)), generation=0)
    rig.store().commit(ForgetShards(("s1",)), generation=0)
    fill_pages(rig, 1, first=90)
    rig.store().maintain()


def test_a_version_read_page_by_page_is_that_version_whatever_is_put_meanwhile() -> None:
    with small_pages(4):
        rig = table_with_a_version()
        root = rig.root()
        expected, places = versions(rig).load(root), len(rig.calls)
        assert places >= 20
        for place in range(places):
            rig = table_with_a_version()
            rig.at = {place: partial(let_others_write, rig)}
            assert versions(rig).load(root) == expected
            assert rig.root().version > root.version


@pytest.mark.parametrize("place", range(12))
def test_a_reader_overtaken_by_the_retirement_of_its_version_begins_anew(
    rig: ItemsRig, place: int
) -> None:
    rig.options = EAGER
    fill_pages(rig, 1)
    rig.store().maintain()
    old, reader = rig.root(), rig.store()

    def overtake(first: int) -> None:
        fill_pages(rig, 2, first=first)
        rig.store().maintain()

    rig.on("after query", partial(overtake, 100), skip=place)
    state = reader.current()
    rig.on("after query", partial(overtake, 200), skip=place)
    version, references = reader.references_of("root")
    with pytest.raises(NotFoundError):
        versions(rig).load(old)
    replayed = rig.replay()
    assert state.reference_count == state.version
    assert len(references) == version
    assert version <= replayed.version
    assert rig.store().current() == replayed


def test_one_partition_is_read_without_the_others(rig: ItemsRig) -> None:
    store = rig.store()
    store.commit(SplitPartition("root", ("m",)), generation=0)
    many = tuple(shard_of(f"n{n}", ("a",), ("b",), LEFT) for n in range(200))
    store.commit(AddShards("k1", (), many), generation=0)
    store.commit(AddShards("k2", (), (shard_of("n200", ("x",), ("y",), RIGHT),)), generation=0)
    store.maintain()
    store.commit(addition(77, ("x",), ("y",)), generation=0)
    state = store.current()
    rig.quiet()
    assert rig.store().references_of(RIGHT) == (state.version, state.references_in(RIGHT))
    queries = rig.calls.count("before query")
    rig.quiet()
    assert rig.store().current() == state
    assert queries < rig.calls.count("before query") / 3


# What old versions leave


def test_what_no_readable_version_needs_is_deleted_and_nothing_else(rig: ItemsRig) -> None:
    fill_pages(rig, 1)
    rig.store().maintain()
    first, expected = rig.root(), versions(rig).load(rig.root())
    inputs = ("s0", "s1", "s2")
    rig.store().commit(AssignJob("j", "root", inputs), generation=0)
    merged = merge_of("j", inputs, shard_of("m", ("a",), ("z",)))
    rig.store().commit(merged, generation=0)
    fill_pages(rig, 1, first=50)
    rig.store().maintain()
    assert versions(rig).load(first) == expected

    rig.clock.advance(seconds=rig.options.keep_seconds)
    rig.store().commit(ForgetShards(inputs), generation=0)
    for n in range(60, 90, 4):
        fill_pages(rig, 1, first=n)
        rig.clock.advance(seconds=rig.options.keep_seconds)
        rig.store().maintain()
    with pytest.raises(NotFoundError):
        versions(rig).load(first)
    names = [range_key for items in rig.items.kept.values() for _, range_key in items]
    assert not [name for name in names if name.startswith(("s1@", "root/s1@"))]
    assert rig.store().current() == rig.replay()
    bodies = sum(hash_key == "t#D0" for hash_key, _ in rig.items.kept["references"])
    assert bodies < rig.store().current().version / 2


def test_what_is_remembered_no_more_is_deleted(rig: ItemsRig) -> None:
    rig.options = EAGER
    for n in range(12):
        fill_pages(rig, 1, first=100 * (n + 1))
        rig.clock.advance(seconds=2 * 24 * 60 * 60)
        if n == 9:
            state = rig.store().current()
            rig.store().commit(sealing_of(state, up_to=state.version * 2 // 3), generation=0)
        rig.store().maintain()
    kept = [hash_key for hash_key, _ in rig.items.kept["references"]]
    assert kept.count("t#T") <= 2
    assert 3 <= kept.count("t#I") <= 5, "sources of before the sealing are in a segment"
    state = rig.store().current()
    assert state.sealed_to and min(state.sources.values()) > state.sealed_to
    assert without_forgotten(rig.store().current()) == without_forgotten(rig.replay())


def test_a_destroyed_table_leaves_no_item_even_of_a_version_half_put(rig: ItemsRig) -> None:
    fill_pages(rig, 2)
    rig.on("after put_while", fail(Crash()), skip=3)
    with pytest.raises(Crash):
        rig.store().maintain()
    late = rig.store()
    rig.on("before put_while", lambda: rig.store().destroy(), skip=1)
    with pytest.raises(NotFoundError):
        late.maintain()
    assert rig.items.count() == 0


# Those who put versions, at once and late


def test_of_two_that_put_one_version_both_put_the_same(rig: ItemsRig) -> None:
    fill_pages(rig, 1)
    for place in range(8):

        def other_is_quicker() -> None:
            rig.store().maintain()

        rig.on("before put_while", other_is_quicker, skip=place)
        rig.store().maintain()
        assert rig.store().current() == rig.replay()
        fill_pages(rig, 1, first=100 * (place + 1))
    rig.store().maintain()
    assert rig.root().version == (rig.store().current().version // 4) * 4


def test_one_that_slept_while_its_version_came_and_went_puts_nothing(rig: ItemsRig) -> None:
    rig.options = EAGER
    fill_pages(rig, 1)

    def all_goes_on() -> None:
        rig.store().maintain()
        inputs = ("s0", "s1", "s2")
        rig.store().commit(AssignJob("j", "root", inputs), generation=0)
        rig.store().commit(ReplaceShards("j", "root", inputs, ()), generation=0)
        rig.store().commit(ForgetShards(inputs), generation=0)
        fill_pages(rig, 2, first=100)
        rig.store().maintain()

    sleeper = rig.store()
    rig.on("before put_while", all_goes_on, skip=1)
    sleeper.maintain()
    assert rig.store().current() == rig.replay()
    assert "s1" not in rig.store().current().shards


def test_a_store_opened_again_reads_what_is_stored(rig: ItemsRig) -> None:
    fill_pages(rig, 1)
    store = rig.store()
    store.maintain()
    state = store.current()
    rig.quiet()
    store.reopen()
    assert store.current() == state
    assert rig.calls.count("before query") > 1 + state.version - rig.root().version


def test_a_version_whose_items_were_tampered_with_is_refused(rig: ItemsRig) -> None:
    fill_pages(rig, 1)
    rig.store().maintain()
    root: Snapshot = rig.root()
    lost = next(key for key in rig.items.kept["shards"])
    del rig.items.kept["shards"][lost]
    with pytest.raises(Exception, match="not whole"):
        versions(rig).load(root)
    assert isinstance(rig.replay(), TableState)
