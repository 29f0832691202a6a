"""The engine of the state store: what it costs, and what it makes of faults and other writers."""

from __future__ import annotations

import threading
from unittest.mock import patch

import pytest
from hypothesis import given, settings

from dormouse.errors import CorruptDataError, OutcomeUnknownError, UnavailableError
from dormouse.model.state import TableState
from dormouse.state_store import AlreadyCommitted, Committed
from dormouse.statestore.delta import codec
from dormouse.statestore.snapshot.trimming import without_expired
from tests.support.trees import initialise
from tests.unit.statestore.faults import Home, Rig, fail, small_pages
from tests.unit.statestore.histories import ONE_LEAF, Delta, addition, fold_all, histories

INITIALISE = initialise(ONE_LEAF)
BUSY = UnavailableError("refused")
LOST = OutcomeUnknownError("not answered")
PUT = {"objects": "put", "items": "put_item"}
GET = {"objects": "get", "items": "batch_get_item"}


@pytest.fixture
def rig(home: Home) -> Rig:
    made = Rig(home=home)
    made.store().commit(INITIALISE, addition(0), generation=0)
    made.quiet()
    return made


# What it costs


def test_a_read_with_nothing_new_is_one_read_of_a_page(rig: Rig) -> None:
    store = rig.store()
    first = store.current()
    rig.quiet()
    assert store.current() is first
    assert rig.calls == ["before page", "after page"]


def test_a_commit_is_one_object_one_update_and_the_verdicts_read_of_a_page(rig: Rig) -> None:
    store = rig.store()
    store.current()
    rig.quiet()
    store.commit(addition(1), generation=0)
    assert [c for c in rig.calls if c.startswith("before")] == [
        f"before {PUT[rig.home]}",
        "before append",
        "before page",
    ]


def test_a_reader_fetches_each_new_delta_once(rig: Rig) -> None:
    reader = rig.store()
    reader.current()
    rig.store().commit(addition(1), generation=0)
    rig.store().commit(addition(2), generation=0)
    rig.quiet()
    assert reader.current().version == 3
    assert rig.calls.count(f"before {GET[rig.home]}") == (2 if rig.home == "objects" else 1)
    assert rig.calls.count("before page") == 1


# What a reader sees


@settings(max_examples=50, deadline=None)
@given(histories(longest=15))
@pytest.mark.parametrize("kept", ["objects", "items"])
def test_any_history_committed_is_the_history_folded(kept: Home, history: list[Delta]) -> None:
    rig = Rig(home=kept)
    with small_pages(3):
        writers = [rig.store(), rig.store()]
        for number, delta in enumerate(history):
            rig.clock.ms = delta.time_ms
            writer = writers[number % 2]
            writer.commit(*delta.transactions, generation=delta.generation)
            writer.maintain()
        warm, cold = writers[0].current(), rig.store().current()
    assert warm == fold_all(history)
    assert without_expired(cold) == without_expired(warm)


def test_a_reader_sees_one_version_and_all_of_it_while_others_write(rig: Rig) -> None:
    seen: list[TableState] = []
    done = threading.Event()

    def read() -> None:
        reader = rig.store()
        while not done.is_set():
            seen.append(reader.current())

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    writer = rig.store()
    for n in range(1, 40):
        writer.commit(addition(2 * n), addition(2 * n + 1), generation=0)
    done.set()
    for reader in readers:
        reader.join()
    assert seen
    for state in seen:
        assert state.reference_count == 2 * state.version - 1


# What it makes of faults


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("error", [BUSY, LOST])
def test_an_upload_that_fails_is_tried_again_under_its_name(
    rig: Rig, place: str, error: Exception
) -> None:
    store = rig.store()
    rig.on(f"{place} {PUT[rig.home]}", fail(error))
    assert store.commit(addition(1), generation=0) == (Committed(2),)
    assert len(rig.stored("deltas")) == 2


@pytest.mark.parametrize("error", [BUSY, LOST])
def test_a_commit_whose_upload_keeps_failing_changed_nothing(rig: Rig, error: Exception) -> None:
    store = rig.store()
    store.current()
    client = rig.storage if rig.home == "objects" else rig.dynamodb
    with (
        patch.object(client, PUT[rig.home], side_effect=error),
        pytest.raises(UnavailableError),
    ):
        store.commit(addition(1), generation=0)
    assert rig.replay().version == 1
    assert store.commit(addition(1), generation=0) == (Committed(2),)


@pytest.mark.parametrize("error", [BUSY, CorruptDataError("the page is damaged")])
def test_a_commit_that_landed_but_whose_verdict_is_unread_is_not_called_a_failure(
    rig: Rig, error: Exception
) -> None:
    store = rig.store()
    store.current()
    rig.pages.before = lambda call: fail(error)() if call == "page" else None
    with pytest.raises(OutcomeUnknownError, match="landed"):
        store.commit(addition(1), generation=0)
    rig.pages.before = lambda call: None
    assert store.commit(addition(1), generation=0) == (AlreadyCommitted(),)
    assert store.current().reference_count == 2


def test_a_strict_commit_that_another_overtakes_is_judged_again_and_not_written_twice(
    rig: Rig,
) -> None:
    store = rig.store(is_strict=True)
    store.current()
    before = len(rig.ids_in_log())
    rig.on("before append", lambda: rig.store().commit(addition(1), generation=0) and None)
    assert store.commit(addition(1), generation=0) == (AlreadyCommitted(),)
    assert len(rig.ids_in_log()) == before + 1


def test_what_one_thread_folds_no_other_folds_at_the_same_time(rig: Rig) -> None:
    store = rig.store()
    rig.store().commit(addition(1), generation=0)
    held: list[bool] = []
    rig.on("before page", lambda: held.append(store._tail._lock.locked()))
    store.current()
    assert held == [True]


def test_a_read_that_fails_is_tried_again_a_bounded_number_of_times(rig: Rig) -> None:
    store = rig.store()
    store.current()
    rig.store().commit(addition(1), generation=0)
    rig.on("before page", fail(BUSY))
    assert store.current().version == 2
    rig.store().commit(addition(2), generation=0)
    rig.on(f"after {GET[rig.home]}", fail(BUSY))
    assert store.current() == rig.replay()
    rig.quiet()

    def refuse(call: str) -> None:
        rig.calls.append(call)
        raise BUSY

    rig.pages.before = refuse
    with pytest.raises(UnavailableError):
        store.current()
    assert len(rig.calls) == rig.retry_policy.attempts


def later_delta(delta_id: str) -> bytes:
    with patch.object(codec, "FORMAT", codec.FORMAT + 1):
        return codec.encode_delta((), codec.identity_of("t", delta_id))


def test_a_delta_of_a_later_format_stops_readers_before_any_of_it(rig: Rig) -> None:
    store = rig.store()
    before = store.current()
    delta_id = rig.ids.new()
    rig.store().commit(addition(1), generation=0)
    rig.put_blob("deltas", delta_id, later_delta(delta_id))
    rig.log().append(delta_id, 0)
    for reader in (store, rig.store()):
        with pytest.raises(CorruptDataError, match=delta_id):
            reader.current()
    assert store._tail.last_seen() is before
    with pytest.raises(OutcomeUnknownError):
        store.commit(addition(2), generation=0)


def test_a_lost_delta_is_named(rig: Rig) -> None:
    store = rig.store()
    store.commit(addition(1), generation=0)
    (*_, newest) = rig.stored("deltas")
    rig.lose_blob("deltas", newest)
    with pytest.raises(CorruptDataError, match=newest):
        rig.store().current()
