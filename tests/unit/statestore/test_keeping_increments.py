"""Increments in the log: when they are kept, who reads them, and what others may do meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import pytest

from dormouse.errors import CorruptDataError, InvariantError, OutcomeUnknownError, UnavailableError
from dormouse.log import compaction, tail
from dormouse.log.compaction import is_increment_due
from dormouse.log.engine import Options
from dormouse.log.increments import changes_between, decode_increment, encode_increment, rebased
from dormouse.log.pages import Increment, Manifest, Segment, Snapshot
from dormouse.log.tail import with_increment, with_snapshot
from dormouse.state.state import ResetTable, without_expired
from tests.support.depth import in_turn
from tests.support.trees import initialise
from tests.unit.statestore.faults import Crash, Home, Rig, fail, made_once, small_pages
from tests.unit.statestore.histories import ONE_LEAF, addition

BRIEFLY = Options(keep_seconds=2, upload_seconds=1)
BUSY = UnavailableError("refused")
LOST = OutcomeUnknownError("not answered")
PLACES = {
    "objects": ("put", "get", "set_manifest", "head"),
    "items": ("put_item", "batch_get_item", "set_manifest"),
}
"""Where keeping an increment can meet a failure or another process."""


@contextmanager
def often(commits: int = 4) -> Iterator[None]:
    """Let increments be due early, and no snapshot after the first one."""
    few = patch.multiple(compaction, COMMITS_TO_INCREMENT=commits, LEAST_BYTES_TO_SNAPSHOT=10**9)
    with small_pages(2), few:
        yield


@made_once
def begun(home: Home) -> Rig:
    """A table with a snapshot."""
    rig = Rig(home=home, options=BRIEFLY)
    store = rig.store()
    store.commit(initialise(ONE_LEAF), generation=0)
    for n in range(4):
        store.commit(addition(n), generation=0)
    with patch.multiple(compaction, LEAST_BYTES_TO_SNAPSHOT=1):
        store.maintain()
    assert rig.head().manifest.newest
    rig.quiet()
    return rig


def commit(rig: Rig, first: int, count: int) -> None:
    """Commit, with maintenance by one process and then by another."""
    stores = rig.store(), rig.store()
    for n in range(first, first + count):
        rig.clock.advance(seconds=1)
        stores[n % 2].commit(addition(n), generation=0)
        stores[n // 7 % 2].maintain()
    rig.quiet()


def check(rig: Rig) -> None:
    rig.quiet()
    assert without_expired(rig.store().current()) == without_expired(rig.replay())


def test_a_cold_reader_folds_few_commits_however_many_there_are(home: Home) -> None:
    with often(4):
        rig = begun(home)
        commit(rig, 10, 30)
        manifest = rig.head().manifest
        assert len(manifest.snapshots) == 1
        newest = rig.store().current().version
        assert newest - manifest.cuts[-1] <= 4 + 2 * 2
        folded: list[int] = []
        reader = rig.store()
        fold = type(reader.reader).fold
        with patch.object(type(reader.reader), "fold", lambda *a: (folded.append(1), fold(*a))[1]):
            reader.current()
        assert len(folded) == newest - manifest.cuts[-1]
        check(rig)


def test_an_increment_after_a_snapshot_without_expired_transactions_can_be_read(home: Home) -> None:
    with often(4):
        rig = begun(home)
        store = rig.store()
        rig.clock.advance(seconds=25 * 3600)
        for n in range(10, 15):
            store.commit(addition(n), generation=0)
        with patch.object(compaction, "is_snapshot_due", return_value=True):
            store.maintain()  # of its state, which still has the transactions of yesterday
        for n in range(15, 25):
            store.commit(addition(n), generation=0)
            store.maintain()
        manifest = rig.head().manifest
        assert manifest.newest
        assert manifest.newest.version > 5
        assert manifest.increments
        check(rig)


def test_increments_are_few_and_follow_one_another(home: Home) -> None:
    with often(4):
        rig = begun(home)
        commit(rig, 10, 50)
        manifest = rig.head().manifest
        assert manifest.newest
        ends = [manifest.newest.version, *(each.version for each in manifest.increments)]
        assert [each.after for each in manifest.increments] == ends[:-1]
        lengths = [each.version - each.after for each in manifest.increments]
        assert lengths == sorted(set(lengths), reverse=True)  # so their number is a logarithm
        assert lengths
        check(rig)


def test_a_crash_at_any_place_of_keeping_one_leaves_the_state_as_it_was(home: Home) -> None:
    def played(failure: Exception | None, number: int) -> Rig:
        rig = begun(home)
        rig.at = {number: fail(failure)} if failure else {}
        store = rig.store()
        for n in range(10, 16):
            rig.clock.advance(seconds=1)
            for _ in range(3):
                try:
                    store.commit(addition(n), generation=0)
                    store.maintain()
                    break
                except (Crash, OutcomeUnknownError, UnavailableError):
                    store = rig.store()
        return rig

    with often(4):
        for number, place in in_turn(list(enumerate(played(None, -1).calls))):
            if not place.endswith(PLACES[home]):
                continue
            rig = played((Crash(), BUSY, LOST)[number % 3], number)
            check(rig)
            rig.clock.advance(seconds=60)
            for _ in range(2):
                rig.store()._collector.collect()
            manifest = rig.head().manifest
            named = {each.id for each in (*manifest.snapshots, *manifest.increments)}
            assert set(rig.stored("snapshots")) == named
            check(rig)


def test_another_maintainer_at_any_place_of_one_does_no_harm(home: Home) -> None:
    def played(action: Callable[[Rig], None] | None, number: int) -> Rig:
        rig = begun(home)
        rig.at = {number: lambda: action(rig)} if action else {}
        store = rig.store()
        for n in range(10, 16):
            rig.clock.advance(seconds=1)
            store.commit(addition(n), generation=0)
            store.maintain()
        return rig

    def maintain_and_collect(rig: Rig) -> None:
        rig.store().maintain()
        rig.clock.advance(seconds=5)
        rig.store()._collector.collect()

    with often(4):
        for number, place in in_turn(list(enumerate(played(None, -1).calls))):
            if place.endswith(PLACES[home]):
                check(played(maintain_and_collect, number))


def test_a_maintainer_that_others_overtook_begins_with_their_increment(home: Home) -> None:
    with often(4):
        rig = begun(home)
        slow = rig.store()
        slow.current()
        commit(rig, 10, 5)
        slow.current()
        commit(rig, 20, 20)
        cut = slow._tail.cut
        assert cut and cut.version not in rig.head().manifest.cuts[1:]
        with patch.multiple(compaction, COMMITS_TO_INCREMENT=0):
            slow.maintain()
        assert rig.head().manifest.cuts[-1] == slow.current().version
        check(rig)


def test_every_version_can_still_be_read(home: Home) -> None:
    with often(4):
        rig = begun(home)
        commit(rig, 10, 16)
        manifest = rig.head().manifest
        assert manifest.newest
        assert manifest.increments
        for version in range(manifest.newest.version, rig.store().current().version + 1):
            found = rig.store().at(version=version)
            assert without_expired(found) == without_expired(rig.replay(version))
            assert rig.store().at(time_ms=found.time_ms).time_ms == found.time_ms
        records = rig.store().history()
        assert [each.version for each in records[1:]] == [
            *range(records[0].version + 1, rig.store().current().version + 1)
        ]


def test_after_a_reset_the_state_is_kept_whole(home: Home) -> None:
    with often(4):
        rig = begun(home)
        commit(rig, 10, 10)
        store = rig.store()
        store.commit(ResetTable(1, ()), generation=0)
        for n in range(30, 40):
            store.commit(addition(n), generation=1)
            store.maintain()
        newest = rig.head().manifest.newest
        assert newest
        assert rig.store().at(version=newest.version).generation == 1
        check(rig)


def test_a_state_that_contradicts_itself_is_never_made_an_increment(home: Home) -> None:
    with often(4):
        rig = begun(home)
        broken = patch.multiple(compaction, broken_invariants=lambda state: ["a shard is lost"])
        with broken, pytest.raises(InvariantError, match="a shard is lost"):
            commit(rig, 10, 10)
        assert rig.head().manifest.increments == ()


def test_a_lost_increment_and_one_of_another_version_are_named(home: Home) -> None:
    with often(4):
        rig = begun(home)
        commit(rig, 10, 10)
        named = rig.head().manifest.increments[-1]
        body = rig.blob("snapshots", named.id)
        rig.lose_blob("snapshots", named.id)
        with pytest.raises(CorruptDataError, match=named.id) as raised:
            rig.store().current()
        assert "rebuild" in raised.value.hint
        changes = decode_increment("t", body, "it")
        facts = {**changes.facts, "dormouse.version": str(named.version + 1)}
        later = encode_increment(replace(changes, facts=facts))
        rig.put_blob("snapshots", named.id, later)
        with pytest.raises(CorruptDataError, match="is not of version"):
            rig.store().current()


def test_a_state_laid_over_an_earlier_one_is_the_same_state() -> None:
    with often():
        store = begun("objects").store()
        earlier = store.current()
        store.commit(addition(10), generation=0)
        later = rebased(store.current(), earlier)
        assert later == store.current()
        assert len(changes_between("t", earlier, later).rows["shard"]) == 1


# Manifests


def increment(after: int, version: int) -> Increment:
    return Increment(f"{version:032x}", after, version, version, 1)


def test_an_increment_takes_the_place_of_those_after_its_beginning() -> None:
    one, two, three = increment(60, 80), increment(80, 90), increment(80, 95)
    begun = Manifest(3, (Snapshot("a", 60, 10, 1),), (), (one, two))
    assert with_increment(begun, three) == replace(begun, revision=4, increments=(one, three))
    whole = increment(60, 99)
    assert with_increment(begun, whole) == replace(begun, revision=4, increments=(whole,))
    next_ = increment(90, 99)
    assert with_increment(begun, next_) == replace(begun, revision=4, increments=(one, two, next_))


def test_an_increment_that_is_late_or_follows_nothing_is_dropped() -> None:
    begun = Manifest(3, (Snapshot("a", 60, 10, 1),), (), (increment(60, 90),))
    assert with_increment(begun, increment(60, 90)) is None
    assert with_increment(begun, increment(60, 80)) is None
    assert with_increment(begun, increment(70, 99)) is None
    assert with_increment(Manifest(), increment(0, 99)) is None


def test_a_snapshot_takes_the_place_of_increments_unless_they_are_newer() -> None:
    begun = Manifest(3, (Snapshot("a", 60, 10, 1),), (), (increment(60, 90),))
    assert with_snapshot(begun, Snapshot("b", 90, 20, 1), 0) is None
    taken = with_snapshot(begun, Snapshot("b", 91, 20, 1), 0)
    assert taken
    assert taken.increments == ()
    assert tail.without_versions_before(begun, 99).increments == begun.increments


def test_an_increment_is_due_by_the_commits_that_a_reader_folds() -> None:
    snapshot = Snapshot("a", 60, 10, 1)
    for version, is_due in ((60 + 255, False), (60 + 256, True)):
        segments = (Segment("s", 48, version, 1),)
        assert is_increment_due(Manifest(3, (snapshot,), segments)) == is_due
        assert not is_increment_due(Manifest(3, (), segments))
        kept = (increment(60, 500),)
        assert not is_increment_due(Manifest(3, (snapshot,), segments, kept))
