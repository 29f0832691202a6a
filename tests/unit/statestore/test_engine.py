"""The engine of the state store: what it costs, and what it makes of faults and other writers."""

from __future__ import annotations

import gc
import threading
from unittest.mock import patch

import pytest
from hypothesis import given, settings

from dormouse.errors import CorruptDataError, OutcomeUnknownError, UnavailableError
from dormouse.log import blobs as codec
from dormouse.log import compaction
from dormouse.log.blobs import Overlap, in_turn, side_by_side
from dormouse.log.engine import StateStore
from dormouse.state.rules import AlreadyCommitted, Committed
from dormouse.state.state import TableState, without_expired
from dormouse.stored.paths import blob_prefix
from tests.support.depth import examples
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


def test_a_commit_is_one_object_one_look_at_the_log_and_one_update(rig: Rig) -> None:
    store = rig.store()
    store.current()
    rig.quiet()
    store.commit(addition(1), generation=0)
    put, look = f"before {PUT[rig.home]}", "before page"
    # An object carries deltas before it, so where it will be is looked up first.
    upload = [look, put] if rig.home == "objects" else [put, look]
    assert [c for c in rig.calls if c.startswith("before")] == [*upload, "before append"]


def test_a_reader_fetches_each_new_delta_once(rig: Rig) -> None:
    reader = rig.store()
    reader.current()
    rig.store().commit(addition(1), generation=0)
    rig.store().commit(addition(2), generation=0)
    rig.quiet()
    assert reader.current().version == 3
    assert rig.calls.count(f"before {GET[rig.home]}") == 2  # two objects; or what a replica lacked
    assert rig.calls.count("before page") == 1


# What a reader sees


@settings(max_examples=examples(50), deadline=None)
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
    with patch.object(client, PUT[rig.home], side_effect=error), pytest.raises(UnavailableError):
        store.commit(addition(1), generation=0)
    assert rig.replay().version == 1
    assert store.commit(addition(1), generation=0) == (Committed(2),)


def test_others_deltas_are_folded_before_the_append_which_then_finds_the_last_page(
    rig: Rig,
) -> None:
    with small_pages(3):
        store, other = rig.store(), rig.store()
        store.current()
        for number in range(2, 6):
            other.commit(addition(number), generation=0)
        rig.quiet()
        assert store.commit(addition(1), generation=0) == (Committed(6),)
        assert [c for c in rig.calls if c.endswith((GET[rig.home], "append"))][-2:] == [
            "before append",
            "after append",
        ]
        assert rig.calls.count("before append") == 1


def test_a_writer_among_many_looks_again_before_it_appends_to_a_page_nearly_full(rig: Rig) -> None:
    with small_pages(4):
        store, other = rig.store(), rig.store()
        store.current(), other.current()
        rig.on("before append", lambda: committed_by(other, 2))
        store.commit(addition(1), generation=0)  # it was overtaken once, and is the third of four
        rig.quiet()
        rig.on("after page", lambda: committed_by(other, 3))  # which fills the page
        assert store.commit(addition(4), generation=0) == (Committed(5),)
        assert rig.calls.count("before append") == 1


def committed_by(store: StateStore, number: int) -> None:
    assert len(store.commit(addition(number), generation=0)) == 1


def test_damage_met_before_the_append_is_an_error_and_nothing_was_committed(rig: Rig) -> None:
    store = rig.store()
    store.current()
    rig.pages.before = lambda call: fail(BUSY)() if call == "page" else None
    with pytest.raises(UnavailableError):
        store.commit(addition(1), generation=0)
    assert rig.replay().version == 1


@pytest.mark.parametrize("overlap", [in_turn, side_by_side])
def test_an_upload_that_fails_while_others_are_read_is_the_error_of_the_commit(
    rig: Rig, overlap: Overlap
) -> None:
    store = rig.store(overlap=overlap)
    store.current()
    client = rig.storage if rig.home == "objects" else rig.dynamodb
    with patch.object(client, PUT[rig.home], side_effect=BUSY), pytest.raises(UnavailableError):
        store.commit(addition(1), generation=0)
    assert store.commit(addition(1), generation=0) == (Committed(2),)


def test_the_collector_of_python_does_not_run_inside_a_commit_and_does_after(rig: Rig) -> None:
    store, seen = rig.store(), list[bool]()
    rig.on("before append", lambda: seen.append(gc.isenabled()))
    gc.enable()
    with patch.object(compaction, "_paused", 0):  # a test before may have left a commit half done
        store.commit(addition(1), generation=0)
    assert seen == [False]
    assert gc.isenabled()


@pytest.mark.parametrize("error", [BUSY, CorruptDataError("the delta is damaged")])
def test_a_commit_that_landed_but_whose_verdict_is_unread_is_not_called_a_failure(
    rig: Rig, error: Exception
) -> None:
    store, other = rig.store(), rig.store()
    store.current(), other.current()
    rig.on("before append", lambda: committed_by(other, 2))
    client = rig.storage if rig.home == "objects" else rig.dynamodb
    with (
        patch.object(client, GET[rig.home], side_effect=error),
        pytest.raises(OutcomeUnknownError, match="landed"),
    ):
        store.commit(addition(1), generation=0)
    assert store.commit(addition(1), generation=0) == (AlreadyCommitted(),)
    assert store.current().reference_count == 3


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
    with pytest.raises(CorruptDataError, match=delta_id):
        store.commit(addition(2), generation=0)
    assert len(rig.ids_in_log()) == 3, "nothing was appended after it"


def test_deltas_lie_below_sixteen_prefixes_and_all_are_destroyed() -> None:
    rig = Rig()
    with small_pages(100):
        store = rig.store()
        store.commit(INITIALISE, generation=0)
        for number in range(16):
            store.commit(addition(number), generation=0)
        paths = [each.path for each in rig.storage.list(blob_prefix("t", "delta"))]
        assert len({path.rpartition("/")[0] for path in paths}) == 16
        assert rig.store().current().version == 17
        store.destroy()
        assert not [*rig.storage.list(blob_prefix("t", "delta"))]


def test_a_lost_delta_is_named(rig: Rig) -> None:
    store = rig.store()
    store.commit(addition(1), generation=0)
    (*_, newest) = rig.stored("deltas")
    rig.lose_blob("deltas", newest)
    with pytest.raises(CorruptDataError, match=newest):
        rig.store().current()


def test_a_store_that_answers_with_too_few_deltas_is_one_typed_error(rig: Rig) -> None:
    store = rig.store()
    with (
        patch.object(type(store.reader.deltas), "stream", lambda *_: iter(())),
        pytest.raises(CorruptDataError, match="lacks delta"),
    ):
        store.current()
