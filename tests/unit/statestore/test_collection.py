"""Garbage collection of a state: nothing goes that log, manifest or a commit under way may need."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from dormouse.errors import OutcomeUnknownError
from dormouse.log import compaction
from dormouse.log.blobs import encode_delta, identity_of
from dormouse.log.engine import Options
from dormouse.log.pages import id_at
from dormouse.state.state import Entry, without_expired
from tests.support.trees import initialise
from tests.unit.statestore.faults import Home, Rig, fail, small_pages
from tests.unit.statestore.histories import ONE_LEAF, addition

LOST = OutcomeUnknownError("not answered")


@pytest.fixture
def rig(home: Home) -> Rig:
    """A table of some commits, all of them long ago."""
    made = Rig(home=home, options=Options(keep_seconds=2, upload_seconds=1))
    commit(made, 0, 3)
    made.clock.advance(seconds=3600)
    made.quiet()
    return made


def commit(rig: Rig, first: int, count: int) -> None:
    store = rig.store()
    if not first:
        store.commit(initialise(ONE_LEAF), generation=0)
    for number in range(first, first + count):
        rig.clock.advance(seconds=1)
        store.commit(addition(number), generation=0)


def collect(rig: Rig) -> bool:
    return rig.store()._collector.collect()


def check(rig: Rig) -> None:
    rig.quiet()
    assert without_expired(rig.store().current()) == without_expired(rig.replay())


def test_what_the_open_page_names_is_kept_however_old_it_is(rig: Rig) -> None:
    assert collect(rig)
    assert rig.stored("deltas") == rig.ids_in_log()
    check(rig)


def test_a_commit_that_lands_just_before_the_mark_rises_past_it_keeps_its_delta(rig: Rig) -> None:
    entry = Entry(addition(9), rig.clock.now_ms(), 0)
    slow = rig.ids.new()
    rig.put_blob("deltas", slow, encode_delta((entry,), identity_of("t", slow)))
    rig.clock.advance(seconds=3600)
    rig.on("before raise_low_water_mark", lambda: rig.pages.append("t", 0, slow) and None)
    assert collect(rig)
    assert slow in rig.stored("deltas")
    assert rig.store().current().reference_count == 4
    check(rig)


def test_a_round_that_another_change_of_the_manifest_overtook_deletes_nothing(home: Home) -> None:
    rig = Rig(home=home, options=Options(keep_seconds=2, upload_seconds=1))
    with small_pages(2), patch.multiple(compaction, LEAST_BYTES_TO_SNAPSHOT=1):
        commit(rig, 0, 6)
        rig.store().maintain()
        before = rig.head().manifest

        def others_go_on() -> None:
            commit(rig, 10, 6)
            with patch.object(compaction, "is_snapshot_due", return_value=True):
                rig.store().maintain()
            rig.clock.advance(seconds=3600)

        rig.on("before raise_low_water_mark", others_go_on)
        rig.clock.advance(seconds=3600)
        assert not collect(rig)
        assert rig.head().manifest.newest != before.newest
        check(rig)


@pytest.mark.parametrize(("place", "done"), [("before", False), ("after", True)])
def test_a_mark_whose_raising_was_not_answered_counts_only_if_it_was_raised(
    rig: Rig, place: str, done: bool
) -> None:
    slow = rig.ids.new()
    rig.put_blob("deltas", slow, b"of a commit that may yet land")
    rig.clock.advance(seconds=3600)
    rig.on(f"{place} raise_low_water_mark", fail(LOST))
    assert collect(rig) is done
    assert (slow in rig.stored("deltas")) is not done


def test_pages_with_ids_that_are_not_below_the_mark_stay_for_readers(home: Home) -> None:
    rig = Rig(home=home, options=Options(keep_seconds=2, upload_seconds=10**6))
    with small_pages(2):
        commit(rig, 0, 12)
        rig.store().maintain()
        assert rig.head().manifest.covered_pages > 2
        collect(rig)
        assert rig.head().first_page == 0
        check(rig)


@pytest.mark.parametrize("back", [0, 60, 3600])
def test_the_low_water_mark_never_goes_back_though_clocks_do(rig: Rig, back: int) -> None:
    collect(rig)
    mark = rig.head().low_water_mark
    assert mark >= id_at(rig.clock.now_ms() - 1000)
    rig.clock.advance(seconds=-back)
    collect(rig)
    assert rig.head().low_water_mark >= mark
