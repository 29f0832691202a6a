"""A restore is read the same by every reader, however old: with its snapshot, as long as needed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from msgspec import structs

from dormouse.errors import (
    CorruptDataError,
    DormouseError,
    InvalidRequestError,
    OutcomeUnknownError,
)
from dormouse.log.engine import Options, StateStore
from dormouse.state.rules import AlreadyCommitted, Committed, Rejected, Rule
from dormouse.state.state import AddShards, RestoreTable, without_expired
from dormouse.state.versions import OwnerKind, PinOwner
from tests.support.depth import in_turn
from tests.support.trees import initialise
from tests.unit.statestore.faults import Crash, Home, Rig, fail, made_once, small_pages
from tests.unit.statestore.histories import ONE_LEAF, addition, shard_of

OWNER = PinOwner(OwnerKind.RESTORE, "r")
KEPT_VERSION = 3
RESTORED = 5


@made_once
def rig_of(home: Home) -> Rig:
    """A table at version 4, which added a shard each from version 2 on; version 3 is pinned."""
    options = Options(keep_seconds=600, upload_seconds=1)
    rig = Rig(home=home, options=options)
    store = rig.store()
    store.commit(initialise(ONE_LEAF), generation=0)
    for number in range(2, RESTORED):
        rig.clock.advance(seconds=1)
        store.commit(addition(number), generation=0)
        if number == KEPT_VERSION:
            store.pins.add(OWNER, store.current())
    rig.quiet()
    return rig


def restore(rig: Rig, store: StateStore | None = None) -> object:
    store = store or rig.store()
    (pin,) = store.pins.all()
    return store.restore(store.pins.state(pin), generation=1)


def later(number: int) -> AddShards:
    return AddShards(f"later{number}", (), (shard_of(f"l{number}", ("a",), ("z",)),))


def assert_same(rig: Rig) -> None:
    """Check that a warm reader, a cold one, and the log as it was written say the same."""
    rig.quiet()
    assert without_expired(rig.store().current()) == without_expired(rig.replay())


def test_every_reader_sees_the_version_again(home: Home) -> None:
    rig = rig_of(home)
    warm = rig.store()
    assert len(warm.current().shards) == 3
    assert restore(rig) == Committed(RESTORED)
    state = warm.current()
    assert sorted(r.shard for r in state.all_references()) == ["s2", "s3"]
    assert set(state.sources) == {"source2", "source3"}
    assert sorted(state.unreferenced) == ["s4"]
    assert_same(rig)
    assert restore(rig) == AlreadyCommitted()
    assert_same(rig)
    assert len(rig.store().at(version=4).shards) == 3


def test_a_version_with_another_shard_than_the_table_is_rejected(home: Home) -> None:
    """The verdict needs the snapshot as much as an accepted one does."""
    rig = rig_of(home)
    store = rig.store()
    (pin,) = store.pins.all()
    earlier = store.pins.state(pin)
    other = structs.replace(earlier.shards["s3"], size_bytes=7)
    changed = earlier.shards.insert("s3", other)
    outcome = store.restore(replace(earlier, shards=changed), generation=1)
    assert isinstance(outcome, Rejected)
    assert [each.rule for each in outcome.violations] == [Rule.SHARD_MISSING]
    assert len(rig.store().current().shards) == 3


def turn_pages(rig: Rig, start: int = 0, count: int = 30) -> None:
    """Let the log grow, be merged, snapshotted and collected."""
    for number in range(start, start + count):
        rig.clock.advance(seconds=1)
        store = rig.store()
        store.commit(later(number), generation=1)
        store.maintain()


def test_the_snapshot_stays_as_long_as_the_delta_can_be_replayed(home: Home) -> None:
    """In pages, then in segments; when both are out of reach, it is collected."""
    with small_pages(3):
        rig = rig_of.__wrapped__(home)
        restore(rig)
        (restoring,) = rig.ids_in_log()[RESTORED - 1 :]
        rig.store().pins.remove(OWNER)
        for round_ in range(8):
            turn_pages(rig, 4 * round_, 4)
            rig.store()._collector.collect()
            head, store = rig.head(), rig.store()
            oldest = store.history()[0].version
            expected = rig.states()
            for version in (oldest, min(oldest + 1, RESTORED), RESTORED, RESTORED + 1):
                if version >= oldest:
                    found = rig.store().at(version=version)
                    assert without_expired(found) == without_expired(expected[version])
            if oldest < RESTORED:
                assert restoring in rig.stored("snapshots")
        assert any(segment.restores for segment in head.manifest.segments)
        rig.clock.advance(seconds=3600)
        turn_pages(rig, 100, 30)
        rig.clock.advance(seconds=3600)
        rig.store()._collector.collect()
        assert rig.store().history()[0].version > RESTORED
        assert restoring not in rig.stored("snapshots")
        assert_same(rig)


def test_the_snapshot_stays_while_the_delta_is_in_a_page(home: Home) -> None:
    """A quiet table: the low-water mark is past the restore, and no segment has it yet."""
    rig = rig_of(home)
    restore(rig)
    rig.store().pins.remove(OWNER)
    rig.clock.advance(seconds=3600)
    rig.store()._collector.collect()
    (restoring,) = rig.ids_in_log()[RESTORED - 1 :]
    assert rig.head().low_water_mark > restoring
    assert restoring in rig.stored("snapshots")
    assert_same(rig)


def test_a_reader_from_before_goes_on_over_the_restore(home: Home) -> None:
    """It folds the delta from a segment, or begins with a snapshot from after it."""
    with small_pages(3):
        rig = rig_of.__wrapped__(home)
        warm = rig.store()
        warm.current()
        restore(rig)
        rig.store().pins.remove(OWNER)
        turn_pages(rig)
        rig.clock.advance(seconds=3600)
        for _ in range(2):
            rig.store()._collector.collect()
        assert without_expired(warm.current()) == without_expired(rig.replay())


def test_a_lost_snapshot_is_reported_and_never_folded_without(home: Home) -> None:
    rig = rig_of(home)
    restore(rig)
    rig.lose_blob("snapshots", rig.ids_in_log()[RESTORED - 1])
    with pytest.raises(CorruptDataError, match="lacks"):
        rig.store().current()


def test_it_is_no_commit_among_others(home: Home) -> None:
    with pytest.raises(InvalidRequestError, match="restored by `restore`"):
        rig_of(home).store().commit(RestoreTable(1, KEPT_VERSION), generation=0)


@pytest.mark.parametrize("error", [Crash(), OutcomeUnknownError("not answered")], ids=repr)
def test_wherever_it_fails_the_next_attempt_restores_it_once(home: Home, error: Exception) -> None:
    whole = rig_of(home)
    restore(whole)
    for step in in_turn(range(len(whole.calls)), parts=4):
        rig = rig_of(home)
        rig.at = {step: fail(error)}
        with suppress(Crash, DormouseError):
            restore(rig)
        rig.quiet()
        outcome = restore(rig)
        assert isinstance(outcome, Committed | AlreadyCommitted)
        state = rig.store().current()
        assert state.generation == 1
        assert sorted(r.shard for r in state.all_references()) == ["s2", "s3"]
        assert_same(rig)


def test_another_commit_at_any_step_is_before_it_or_refused(home: Home) -> None:
    """What another writer adds in between is undone with the rest, and its shard is garbage."""
    whole = rig_of(home)
    restore(whole)
    for step in in_turn(range(len(whole.calls)), parts=4):
        rig = rig_of(home)
        outcomes: list[object] = []

        def add(rig: Rig = rig, outcomes: list[object] = outcomes) -> None:
            outcomes.extend(rig.store().commit(addition(99), generation=0))

        rig.at = {step: add}
        assert isinstance(restore(rig), Committed)
        state = rig.store().current()
        assert sorted(r.shard for r in state.all_references()) == ["s2", "s3"]
        assert ("s99" in state.unreferenced) == isinstance(outcomes[0], Committed)
        assert_same(rig)
