"""The S3 state store: what it costs, and what it makes of faults, crashes and other writers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings

from dormouse.errors import (
    CorruptDataError,
    InvariantError,
    OutcomeUnknownError,
    UnavailableError,
)
from dormouse.model.names import delta_prefix
from dormouse.model.state import TableState
from dormouse.model.transactions import InitialisePartitions, Transaction
from dormouse.statestore import engine, pages, snapshots
from dormouse.statestore.codec import FORMAT, KIND
from dormouse.statestore.codec_file import write_file
from dormouse.statestore.protocol import AlreadyCommitted, Committed
from dormouse.statestore.snapshots import without_forgotten
from tests.unit.statestore.faults import Crash, Rig, fail
from tests.unit.statestore.histories import ONE_LEAF, Delta, addition, fold_all, histories

INITIALISE = InitialisePartitions(ONE_LEAF)
BUSY = UnavailableError("refused")
LOST = OutcomeUnknownError("not answered")


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.store().commit(INITIALISE, addition(0), generation=0)
    made.quiet()
    return made


@contextmanager
def small_pages(capacity: int) -> Iterator[None]:
    """Let pages take few ids, so that short tests turn many and write many snapshots."""
    with (
        patch.multiple(pages, PAGE_CAPACITY=capacity),
        patch.multiple(snapshots, PAGE_CAPACITY=capacity),
    ):
        yield


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
        "before put",
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
    assert rig.calls.count("before get") == 2
    assert rig.calls.count("before page") == 1


# What a reader sees


@settings(max_examples=50)
@given(histories(longest=15))
def test_any_history_committed_is_the_history_folded(history: list[Delta]) -> None:
    rig = Rig()
    with small_pages(3):
        writers = [rig.store(), rig.store()]
        for number, delta in enumerate(history):
            rig.clock.ms = delta.time_ms
            writer = writers[number % 2]
            writer.commit(*delta.transactions, generation=delta.generation)
            writer.maintain()
        warm, cold = writers[0].current(), rig.store().current()
    assert warm == fold_all(history)
    assert without_forgotten(cold) == without_forgotten(warm)


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


@pytest.mark.parametrize("place", ["before put", "after put"])
@pytest.mark.parametrize("error", [BUSY, LOST])
def test_an_upload_that_fails_is_tried_again_under_its_name(
    rig: Rig, place: str, error: Exception
) -> None:
    store = rig.store()
    rig.on(place, fail(error))
    assert store.commit(addition(1), generation=0) == (Committed(2),)
    assert len(list(rig.storage.list("t/state/deltas/"))) == 2


@pytest.mark.parametrize("error", [BUSY, LOST])
def test_a_commit_whose_upload_keeps_failing_changed_nothing(rig: Rig, error: Exception) -> None:
    store = rig.store()
    store.current()
    with patch.object(rig.storage, "put", side_effect=error), pytest.raises(UnavailableError):
        store.commit(addition(1), generation=0)
    assert rig.replay().version == 1
    assert store.commit(addition(1), generation=0) == (Committed(2),)


def test_a_commit_that_landed_but_whose_verdict_is_unread_is_not_called_a_failure(
    rig: Rig,
) -> None:
    store = rig.store()
    store.current()
    rig.pages.before = lambda call: fail(BUSY)() if call == "page" else None
    with pytest.raises(OutcomeUnknownError, match="landed"):
        store.commit(addition(1), generation=0)
    rig.pages.before = lambda call: None
    assert store.commit(addition(1), generation=0) == (AlreadyCommitted(),)
    assert store.current().reference_count == 2


def test_a_read_that_fails_is_tried_again_a_bounded_number_of_times(rig: Rig) -> None:
    store = rig.store()
    store.current()
    rig.store().commit(addition(1), generation=0)
    rig.on("before page", fail(BUSY))
    assert store.current().version == 2
    rig.store().commit(addition(2), generation=0)
    rig.on("after get", fail(BUSY))
    assert store.current() == rig.replay()

    def refuse(call: str) -> None:
        rig.calls.append(call)
        raise BUSY

    rig.pages.before = refuse
    with pytest.raises(UnavailableError):
        store.current()
    assert len(rig.calls) == rig.patience.attempts


def test_a_delta_of_a_later_format_stops_readers_before_any_of_it(rig: Rig) -> None:
    store = rig.store()
    before = store.current()
    delta_id = rig.ids.new()
    later = write_file([], pa.schema([("kind", pa.string())]), KIND, FORMAT + 1, {})
    rig.store().commit(addition(1), generation=0)
    rig.storage.put(f"{delta_prefix('t')}{delta_id}.parquet", later)
    rig.log().append(delta_id, 0)
    for reader in (store, rig.store()):
        with pytest.raises(CorruptDataError, match=delta_id):
            reader.current()
    assert store._follower.last_seen() is before
    with pytest.raises(OutcomeUnknownError):
        store.commit(addition(2), generation=0)


def test_a_lost_delta_or_snapshot_is_named(rig: Rig) -> None:
    store = rig.store()
    for n in range(1, 60):
        store.commit(addition(n), generation=0)
    cold = rig.store()
    (*_, newest) = [item.path for item in rig.storage.list("t/state/deltas/")]
    rig.storage.delete([newest])
    with pytest.raises(CorruptDataError, match=Path(newest).stem):
        cold.current()
    store.maintain()
    assert cold.current().version == 60
    (snapshot,) = [item.path for item in rig.storage.list("t/state/snapshots/")]
    rig.storage.delete([snapshot])
    with pytest.raises(CorruptDataError, match=Path(snapshot).stem):
        rig.store().current()


# Snapshots by many


def written_until_due(rig: Rig) -> None:
    store = rig.store()
    for n in range(100, 160):
        store.commit(addition(n), generation=0)
    rig.quiet()


def test_a_snapshotter_that_slept_never_moves_the_root_back(rig: Rig) -> None:
    written_until_due(rig)

    def others_go_on() -> None:
        rig.store().commit(addition(1), generation=0)
        rig.store().maintain()

    rig.on("before set_root", others_go_on)
    rig.store().maintain()
    head = rig.pages.head("t")
    assert head
    assert head.root
    assert head.root.version == 62
    assert [item.path for item in rig.storage.list("t/state/snapshots/")] == [
        f"t/state/snapshots/{head.root.id}.parquet"
    ]
    assert rig.store().current() == rig.replay()


def test_a_snapshot_whose_root_was_set_but_not_answered_is_kept(rig: Rig) -> None:
    written_until_due(rig)
    rig.on("after set_root", fail(LOST))
    with pytest.raises(OutcomeUnknownError):
        rig.store().maintain()
    rig.store().maintain()
    assert rig.store().current() == rig.replay()


def test_a_snapshot_whose_repeated_update_was_refused_is_kept_for_it_is_the_root(rig: Rig) -> None:
    written_until_due(rig)
    once = rig.pages.set_root
    with patch.object(rig.pages, "set_root", lambda *root: once(*root) and once(*root)):
        rig.store().maintain()
    assert rig.store().current() == rig.replay()


def test_a_reader_that_comes_too_late_for_a_snapshot_takes_the_newer_one(rig: Rig) -> None:
    written_until_due(rig)
    rig.store().maintain()
    (old,) = [item.path for item in rig.storage.list("t/state/snapshots/")]

    def it_is_replaced() -> None:
        rig.store().commit(*(addition(n) for n in range(200, 300)), generation=0)
        with patch.multiple(snapshots, PAGE_CAPACITY=1):
            rig.store().maintain()
        rig.storage.delete([old])

    rig.on("after head", it_is_replaced)
    assert rig.store().current().reference_count == 161


def test_a_state_that_contradicts_itself_is_never_made_a_snapshot(rig: Rig) -> None:
    written_until_due(rig)
    broken = patch.multiple(engine, broken_invariants=lambda state: ["a shard is lost"])
    with broken, pytest.raises(InvariantError, match="a shard is lost"):
        rig.store().maintain()
    assert list(rig.storage.list("t/state/snapshots/")) == []


# Crashes and lost answers at every place there is


SCRIPT: list[tuple[Transaction, ...]] = [
    (INITIALISE,),
    *((addition(2 * n), addition(2 * n + 1)) for n in range(1, 6)),
]


def run_script(rig: Rig) -> None:
    """Commit the script, maintaining after each; a failed step is done again by a new process."""
    store = rig.store()
    for transactions in SCRIPT:
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


def places_of_the_script() -> list[str]:
    rig = Rig()
    with small_pages(2):
        run_script(rig)
    return rig.calls


def check_after(rig: Rig) -> None:
    rig.quiet()
    cold, replayed = rig.store().current(), rig.replay()
    assert cold == replayed
    assert sorted(r.shard for r in cold.all_references()) == sorted(f"s{n}" for n in range(2, 12))


def test_a_crash_at_any_place_loses_and_doubles_nothing() -> None:
    with small_pages(2):
        places = places_of_the_script()
        assert {"after open_page", "after set_root", "before append", "after put"} <= set(places)
        for number in range(len(places)):
            rig = Rig(at={number: fail(Crash())})
            run_script(rig)
            check_after(rig)


@pytest.mark.parametrize("error", [BUSY, LOST])
def test_a_fault_at_any_place_is_survived_or_told_apart(error: Exception) -> None:
    with small_pages(2):
        for number, place in enumerate(places_of_the_script()):
            is_write = place.endswith(("append", "open_page", "set_root"))
            if (error is LOST) != (is_write and place.startswith("after")):
                continue  # a write that landed is not "refused"; only a write's fate is unknown
            rig = Rig(at={number: fail(error)})
            run_script(rig)
            check_after(rig)
