"""A pinned version stays whole: whenever collectors run, and wherever the process dies."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from dormouse.errors import (
    ContendedError,
    CorruptDataError,
    DormouseError,
    NotFoundError,
    OutcomeUnknownError,
)
from dormouse.features.garbage import collectable, unpinned
from dormouse.log.engine import Options
from dormouse.log.pinning import CLOCK_MARGIN_MS
from dormouse.state.partitions import ROOT
from dormouse.state.rules import accepted
from dormouse.state.state import AssignJob, DeleteShards, TableState, without_expired
from dormouse.state.versions import OwnerKind, PinOwner
from tests.support.depth import in_turn
from tests.support.trees import initialise
from tests.unit.statestore.faults import Crash, Home, Rig, fail, made_once
from tests.unit.statestore.histories import ONE_LEAF, addition, merge_of, shard_of

KEEP_SECONDS = 600
OWNER = PinOwner(OwnerKind.TAG, "before")
OPTIONS = Options(keep_seconds=KEEP_SECONDS, upload_seconds=1)


@pytest.fixture
def rig(home: Home) -> Rig:
    """A table of two shards, at version 3."""
    return table_of_two(home)


@made_once
def table_of_two(home: Home) -> Rig:
    rig = Rig(home=home, options=OPTIONS)
    store = rig.store()
    store.commit(initialise(ONE_LEAF), generation=0)
    for number in range(2):
        store.commit(addition(number), generation=0)
    return rig


@made_once
def merged_table(home: Home) -> Rig:
    """The same after `merge`."""
    rig = table_of_two(home)
    merge(rig)
    rig.quiet()
    return rig


def merge(rig: Rig) -> None:
    """Replace both shards by one: versions 4 and 5."""
    store = rig.store()
    state = store.current()
    inputs = tuple(sorted(state.shards))
    merged = merge_of("m", inputs, shard_of("m-0", ("a",), ("z",)))
    for transaction in (AssignJob("m", ROOT, inputs), merged):
        (outcome,) = store.commit(transaction, generation=0)
        accepted(outcome)


def add(rig: Rig) -> None:
    rig.store().pins.add(OWNER, rig.store().at(version=3))


def collect_shards(rig: Rig) -> None:
    """Delete the shards that are due, as `collect_garbage` does."""
    store = rig.store()
    state = store.current()
    due, _ = collectable(state, state.unreferenced, rig.clock.now_ms(), KEEP_SECONDS)
    if due := unpinned(store, state, due):
        store.commit(DeleteShards(tuple(due)), generation=0)


def collect_state(rig: Rig) -> None:
    rig.store()._collector.collect()


def is_whole(rig: Rig) -> bool:
    """Return whether the version is pinned and all of it is there; fail if only a part is."""
    store = rig.store()
    pins = store.pins.all()
    for pin in pins:
        state = store.pins.state(pin)
        assert state == without_expired(rig.replay(pin.version))
        held = [shard for shard, count in state.reference_counts.items() if count]
        missing = set(held) - set(store.current().shards)
        assert not missing, f"the pinned version {pin.version} lacks {missing}"
    return bool(pins)


def test_a_pinned_version_outlives_every_delay_and_is_freed_with_its_pin(rig: Rig) -> None:
    state = rig.store().at(version=3)
    pin = rig.store().pins.add(OWNER, state)
    assert (pin.version, pin.rows, pin.is_confirmed) == (3, state.rows, True)
    merge(rig)
    for _ in range(3):
        rig.clock.advance(seconds=24 * 3600)
        collect_shards(rig)
        collect_state(rig)
    assert is_whole(rig)
    assert rig.store().at(version=3) == rig.store().pins.state(pin)
    assert rig.store().pins.remove(OWNER)
    assert not rig.store().pins.remove(OWNER)
    rig.clock.advance(seconds=3600)
    collect_shards(rig)
    collect_state(rig)
    assert not rig.store().current().unreferenced
    assert pin.snapshot_id not in rig.stored("snapshots")
    with pytest.raises(NotFoundError, match="not pinned any more"):
        rig.store().pins.state(pin)


def test_an_owner_keeps_the_pin_that_it_has(rig: Rig) -> None:
    first = rig.store().pins.add(OWNER, rig.store().at(version=2))
    assert rig.store().pins.add(OWNER, rig.store().at(version=3)) == first


def test_a_version_that_lost_a_shard_cannot_be_pinned(rig: Rig) -> None:
    state = rig.store().at(version=3)
    merge(rig)
    rig.clock.advance(seconds=KEEP_SECONDS)
    collect_shards(rig)
    with pytest.raises(NotFoundError, match="cannot be pinned any more"):
        rig.store().pins.add(OWNER, state)
    assert rig.pages.pins.all("t") == []


@pytest.mark.parametrize(("before_ms", "is_pinned"), [(1, True), (0, False)])
def test_shards_whose_delay_is_nearly_over_cannot_be_pinned(
    rig: Rig, before_ms: int, is_pinned: bool
) -> None:
    state = rig.store().at(version=3)
    merge(rig)
    rig.clock.advance(seconds=(KEEP_SECONDS * 1000 - CLOCK_MARGIN_MS - before_ms) / 1000)
    if is_pinned:
        assert rig.store().pins.add(OWNER, state).version == 3
        return
    with pytest.raises(NotFoundError):
        rig.store().pins.add(OWNER, state)


def test_a_snapshot_below_the_low_water_mark_is_not_pinned(rig: Rig) -> None:
    state = rig.store().current()

    def sleep_and_collect() -> None:
        rig.clock.advance(seconds=3600)
        collect_state(rig)

    rig.on("before put_pin", sleep_and_collect)
    with pytest.raises(ContendedError, match="took too long"):
        rig.store().pins.add(OWNER, state)
    assert rig.pages.pins.all("t") == []
    assert rig.store().pins.add(OWNER, state).version == 3


def test_whatever_is_collected_while_a_version_is_pinned_it_is_whole_or_refused(home: Home) -> None:
    """Both collectors run at every step of a pin, with the delay over or nearly so."""

    def collect(rig: Rig, late_seconds: int) -> None:
        rig.clock.advance(seconds=late_seconds)
        collect_shards(rig)
        collect_state(rig)

    outcomes = set()
    for late_seconds in (1, KEEP_SECONDS):
        steps = range(steps_of(home, add))
        for step in sorted({0, *in_turn(steps, parts=4), steps[-1]}):
            rig = merged_table(home)
            rig.at = {step: partial(collect, rig, late_seconds)}
            with suppress(NotFoundError, ContendedError):
                add(rig)
            rig.quiet()
            rig.clock.advance(seconds=3600)
            collect_shards(rig)
            collect_state(rig)
            outcomes.add(is_whole(rig))
    assert outcomes == {True, False}


@pytest.mark.parametrize("collect", [collect_shards, collect_state])
def test_whenever_a_version_is_pinned_while_others_are_collected_it_is_whole_or_refused(
    home: Home, collect: Callable[[Rig], None]
) -> None:
    """A version is pinned at every step of a collector, for which its shards are due."""
    for step in in_turn(range(steps_of(home, collect, age_seconds=KEEP_SECONDS))):
        rig = merged_table(home)
        state = rig.store().at(version=3)
        rig.clock.advance(seconds=KEEP_SECONDS)

        def pin(rig: Rig = rig, state: TableState = state) -> None:
            with suppress(NotFoundError, ContendedError):
                rig.store().pins.add(OWNER, state)

        rig.quiet()
        rig.at = {step: pin}
        collect(rig)
        rig.quiet()
        is_whole(rig)


def test_wherever_the_process_dies_no_part_of_a_version_is_pinned(home: Home) -> None:
    """After the crash, collectors run, and the next attempt pins the version."""
    for error in (Crash(), OutcomeUnknownError("not answered")):
        for step in in_turn(range(steps_of(home, add))):
            rig = merged_table(home)
            rig.at = {step: fail(error)}
            with suppress(Crash, DormouseError):
                add(rig)
            rig.quiet()
            is_whole(rig)
            rig.clock.advance(seconds=2)
            collect_state(rig)
            with suppress(ContendedError):
                add(rig)
            add(rig)
            rig.clock.advance(seconds=3600)
            collect_shards(rig)
            collect_state(rig)
            assert is_whole(rig), f"{error!r} at step {step}"


def test_a_pin_left_unconfirmed_holds_its_version_until_it_has_expired(rig: Rig) -> None:
    state = rig.store().at(version=3)
    rig.on("before replace_pin", fail(Crash()))
    with pytest.raises(Crash):
        rig.store().pins.add(OWNER, state)
    rig.quiet()
    assert rig.store().pins.all() == []
    merge(rig)
    rig.clock.advance(seconds=KEEP_SECONDS)
    collect_shards(rig)
    assert len(rig.store().current().unreferenced) == 2
    rig.store().pins.remove_expired()
    collect_shards(rig)
    assert not rig.store().current().unreferenced


def test_a_pin_with_a_limit_is_gone_after_it(rig: Rig) -> None:
    until_ms = rig.clock.now_ms() + 5_000
    rig.store().pins.add(OWNER, rig.store().current(), expires_ms=until_ms)
    rig.clock.advance(seconds=4.999)
    rig.store().pins.remove_expired()
    assert len(rig.store().pins.all()) == 1
    rig.clock.advance(seconds=0.001)
    assert rig.store().pins.all() == []
    rig.store().pins.remove_expired()
    assert rig.pages.pins.all("t") == []


def test_a_pin_that_expired_before_it_was_confirmed_is_not_confirmed(rig: Rig) -> None:
    state = rig.store().current()

    def sleep_and_expire() -> None:
        rig.clock.advance(seconds=3600)
        rig.store().pins.remove_expired()

    rig.on("before replace_pin", sleep_and_expire)
    with pytest.raises(ContendedError, match="removed before it was confirmed"):
        rig.store().pins.add(OWNER, state)
    assert rig.store().pins.all() == []


def test_a_lost_snapshot_of_a_pin_is_reported_and_stops_collection(rig: Rig) -> None:
    pin = rig.store().pins.add(OWNER, rig.store().at(version=3))
    merge(rig)
    rig.lose_blob("snapshots", pin.snapshot_id)
    rig.clock.advance(seconds=3600)
    with pytest.raises(CorruptDataError, match="is lost"):
        collect_shards(rig)
    assert len(rig.store().current().unreferenced) == 2


def test_a_destroyed_state_has_no_pins(rig: Rig) -> None:
    rig.store().pins.add(OWNER, rig.store().current())
    rig.store().destroy()
    assert rig.pages.pins.all("t") == []


def test_a_pin_on_a_state_destroyed_meanwhile_is_refused(rig: Rig) -> None:
    state = rig.store().current()
    rig.on("before put_pin", lambda: rig.store().destroy())
    with pytest.raises(NotFoundError, match="destroyed"):
        rig.store().pins.add(OWNER, state)
    assert rig.pages.pins.all("t") == []


def test_the_history_names_changes_jobs_and_rows(rig: Rig) -> None:
    merge(rig)
    history = rig.store().history()
    assert [each.version for each in history] == [1, 2, 3, 4, 5]
    assert history[0].changes == ("initialise partitions",)
    assert history[1].changes == ("add shards",)
    assert (history[3].changes, history[3].jobs) == (("assign job",), ("m",))
    assert [each.rows for each in history] == [state.rows for state in rig.states()[1:]]
    assert [each.time_ms for each in history] == [state.time_ms for state in rig.states()[1:]]


def steps_of(home: Home, act: Callable[[Rig], object], *, age_seconds: int = 0) -> int:
    """Count the places that an action on the table passes, so long after it was merged."""
    rig = merged_table(home)
    rig.clock.advance(seconds=age_seconds)
    rig.quiet()
    act(rig)
    return len(rig.calls)
