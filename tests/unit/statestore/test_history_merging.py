"""Segments that only earlier versions need become one, and every version is read as before."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import product
from unittest.mock import patch

import pytest

from dormouse.errors import CorruptDataError, NotFoundError, OutcomeUnknownError
from dormouse.log import pages
from dormouse.log.engine import Options
from dormouse.state.state import without_expired
from tests.support.depth import in_turn
from tests.support.trees import initialise
from tests.unit.statestore.faults import Crash, Home, Rig, fail, made_once, small_pages
from tests.unit.statestore.histories import ONE_LEAF, addition

KEPT = Options(keep_seconds=3600, upload_seconds=1)


@made_once
def made(home: Home, *, merged: bool = True, restored: bool = False, additions: int = 24) -> Rig:
    """A table of some additions, whose every version is kept; after the ninth one is restored."""
    rig = Rig(home=home, options=KEPT)
    store = rig.store()
    store.commit(initialise(ONE_LEAF), generation=0)
    most = pages.MOST_SEGMENTS if merged else 10**6
    generation = 0
    with patch.object(pages, "MOST_SEGMENTS", most):
        for number in range(1, additions + 1):
            rig.clock.advance(seconds=1)
            store.commit(addition(number), generation=generation)
            store.maintain()
            if restored and number == 9:
                store.restore(store.at(version=4), generation=1)
                generation = 1
    rig.quiet()
    return rig


def check_versions(rig: Rig) -> None:
    for version, state in enumerate(rig.states()[1:], start=1):
        found = rig.store().at(version=version)
        assert without_expired(found) == without_expired(state)
    whole = rig.store().history()
    assert [record.version for record in whole] == [*range(1, len(rig.ids_in_log()) + 1)]


@pytest.mark.parametrize("restored", [False, True])
def test_versions_changes_and_restores_are_what_they_were_before_history_was_merged(
    home: Home, restored: bool
) -> None:
    with small_pages(2):
        merged = made(home, restored=restored)
        apart = made(home, merged=False, restored=restored)
        assert len(merged.head().manifest.segments) < len(apart.head().manifest.segments)
        check_versions(merged)
        assert merged.store().history() == apart.store().history()
        assert merged.store().current() == apart.store().current()


def test_what_history_was_merged_of_is_collected_and_its_snapshots_of_restores_are_not(
    home: Home,
) -> None:
    with small_pages(2):
        rig = made(home, restored=True, additions=40)  # fewer leave the restore in a segment of now
        rig.clock.advance(seconds=10)
        assert rig.store()._collector.collect()
        manifest = rig.head().manifest
        assert rig.stored("segments") == sorted(segment.id for segment in manifest.segments)
        assert [restored for segment in manifest.segments for restored in segment.restores]
        check_versions(rig)


def test_a_maintainer_that_dies_or_meets_another_while_it_merges_history_loses_nothing() -> None:
    def another(rig: Rig) -> None:
        rig.store().maintain()
        rig.clock.advance(seconds=60)
        rig.store()._collector.collect()

    actions: list[Callable[[Rig], None]] = [
        lambda _: None,
        lambda _: fail(Crash())(),
        lambda _: fail(OutcomeUnknownError("not answered"))(),
        another,
    ]
    with small_pages(2):
        before = made("objects", merged=False, additions=15)
        manifest = before.head().manifest
        places = len(merging(before, -1, actions[0]).calls)
        assert places > 4
        for number, action in in_turn(list(product(range(places), actions[1:]))):
            rig = merging(before, number, action)
            rig.quiet()
            rig.store().maintain()
            check_versions(rig)
            assert len(rig.head().manifest.segments) < len(manifest.segments)


def merging(before: Rig, number: int, action: Callable[[Rig], None]) -> Rig:
    """Merge history of a copy of a table, and do something at one place of that."""
    rig = before.copy()
    rig.at = {number: lambda: action(rig)}
    with suppress(Crash, OutcomeUnknownError):
        rig.store()._compaction.merge_history(rig.head().manifest)
    return rig


def test_a_reader_that_holds_the_head_of_before_reads_the_merged_segment(home: Home) -> None:
    with small_pages(2):
        rig = made(home, merged=False)

        def merged_and_collected() -> None:
            maintainer = rig.store()
            before = len(rig.head().manifest.segments)
            while maintainer._compaction.merge_history(rig.head().manifest):
                pass
            assert len(rig.head().manifest.segments) < before
            rig.clock.advance(seconds=60)
            assert maintainer._collector.collect()

        rig.on("after head", merged_and_collected)
        found = rig.store().at(version=3)
        assert without_expired(found) == without_expired(rig.replay(3))


def test_a_segment_that_is_damaged_or_lost_is_not_merged_but_named(home: Home) -> None:
    with small_pages(2):
        rig = made(home, merged=False)
        manifest = rig.head().manifest
        (first, *_) = pages.history_to_merge(manifest)
        body = rig.blob("segments", first.id)
        rig.lose_blob("segments", first.id)
        with pytest.raises(CorruptDataError, match=first.id):
            rig.store()._compaction.merge_history(manifest)
        rig.put_blob("segments", first.id, body[:40] + bytes([body[40] ^ 1]) + body[41:])
        with pytest.raises(CorruptDataError, match=first.id):
            rig.store()._compaction.merge_history(manifest)
        assert rig.head().manifest == manifest


def test_a_table_that_was_destroyed_meanwhile_is_not_written_to(home: Home) -> None:
    with small_pages(2):
        rig = made(home, merged=False)
        manifest = rig.head().manifest
        rig.on("before set_manifest", lambda: rig.pages.close("t") and None)
        with pytest.raises(NotFoundError):
            rig.store()._compaction.merge_history(manifest)
