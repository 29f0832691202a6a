"""Crashes and lost answers at every place there is, in commits and in all of the maintenance."""

from __future__ import annotations

import pytest

from dormouse.errors import OutcomeUnknownError, UnavailableError
from dormouse.log.engine import Options
from dormouse.state.rules import AlreadyCommitted, Committed
from dormouse.state.state import Transaction, without_expired
from tests.support.depth import in_turn
from tests.support.trees import initialise
from tests.unit.statestore.faults import Crash, Home, Rig, fail, small_pages
from tests.unit.statestore.histories import ONE_LEAF, addition

BUSY = UnavailableError("refused")
LOST = OutcomeUnknownError("not answered")
COMMITS = 9
OF_BLOBS = {
    "objects": ("put", "get", "delete"),
    "items": ("put_item", "batch_get_item", "query", "batch_write_item"),
}
SCRIPT: list[tuple[Transaction, ...]] = [
    (initialise(ONE_LEAF),),
    *((addition(2 * n), addition(2 * n + 1)) for n in range(1, COMMITS)),
]


def rig_of(home: Home) -> Rig:
    options = Options(keep_seconds=2, upload_seconds=1)
    return Rig(options=options, home=home)


def run_script(rig: Rig) -> None:
    """Commit the script, maintaining after each; a failed step is done again by a new process."""
    store = rig.store()
    for transactions in SCRIPT:
        rig.clock.advance(seconds=1)
        for _ in range(3):
            before = rig.ids_in_log()
            try:
                outcomes = store.commit(*transactions, generation=0)
                assert all(isinstance(o, Committed | AlreadyCommitted) for o in outcomes)
                before = rig.ids_in_log()
                store.maintain()
                break
            except UnavailableError:
                assert rig.ids_in_log() == before, "nothing was committed, it said"
                store = rig.store()
            except (Crash, OutcomeUnknownError):
                store = rig.store()
        else:
            pytest.fail("one fault cannot fail a step three times")


def places_of(rig: Rig) -> list[str]:
    run_script(rig)
    return rig.calls


def is_tried(home: Home, place: str) -> bool:
    """Whether a test is to stop here: with items, where it is not the same as with objects."""
    return home == "objects" or place.endswith(OF_BLOBS["items"])


def check_after(rig: Rig) -> None:
    """Check that all is there once, for old readers and new, and nothing else after one round."""
    rig.quiet()
    everything = rig.replay()
    assert without_expired(rig.store().current()) == without_expired(everything)
    assert sorted(r.shard for r in everything.all_references()) == sorted(
        f"s{n}" for n in range(2, 2 * COMMITS)
    )
    check_history(rig)
    rig.clock.advance(seconds=60)
    for _ in range(2):
        rig.store()._collector.collect()
    check_garbage(rig)
    assert without_expired(rig.store().current()) == without_expired(everything)


def check_history(rig: Rig) -> None:
    """Check that every version that is to be kept can be read."""
    states = rig.states()
    newest = len(states) - 1
    kept = [v for v in range(1, newest) if states[v + 1].time_ms > rig.clock.ms - 2000]
    for version in (kept[0], newest):
        found = rig.store().at(version=version)
        assert without_expired(found) == without_expired(states[version])


def check_garbage(rig: Rig) -> None:
    """Check that only what is named is left, all of it being older than the floor."""
    head = rig.head()
    covered = head.manifest.segments[-1].version if head.manifest.segments else 0
    if head.manifest.newest:
        covered = max(covered, head.manifest.covered_pages * 2)
    assert set(rig.stored("deltas")) == set(rig.ids_in_log()[covered:])
    assert set(rig.stored("segments")) == {segment.id for segment in head.manifest.segments}
    assert set(rig.stored("snapshots")) == {snapshot.id for snapshot in head.manifest.snapshots}
    assert sorted(rig.pages.logs["t"].pages) == [*range(head.first_page, head.last_page + 1)]


def test_a_crash_at_any_place_loses_and_doubles_nothing(home: Home) -> None:
    with small_pages(2):
        whole = rig_of(home)
        places = places_of(whole)
        assert whole.head().manifest.snapshots and whole.head().first_page > 0
        written = {"append", "open_page", "set_manifest", "raise_low_water_mark", "delete_pages"}
        assert {f"after {call}" for call in (*written, *OF_BLOBS[home])} <= set(places)
        for number in in_turn([n for n, place in enumerate(places) if is_tried(home, place)]):
            rig = rig_of(home)
            rig.at = {number: fail(Crash())}
            run_script(rig)
            check_after(rig)


@pytest.mark.parametrize("error", [BUSY, LOST])
def test_a_fault_at_any_place_is_survived_or_reported(home: Home, error: Exception) -> None:
    writes = ("append", "open_page", "set_manifest", "raise_low_water_mark", "delete_pages")
    with small_pages(2):
        places = places_of(rig_of(home))
        for number, place in in_turn(list(enumerate(places))):
            is_write = place.endswith(writes)
            if not is_tried(home, place):
                continue
            if (error is LOST) != (is_write and place.startswith("after")):
                continue  # a write that landed is not "refused"; only a write's fate is unknown
            if error is BUSY and not is_write and place.startswith("after"):
                continue  # to who asked it is the same as before
            rig = rig_of(home)
            rig.at = {number: fail(error)}
            run_script(rig)
            check_after(rig)
