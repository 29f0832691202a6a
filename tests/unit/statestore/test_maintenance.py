"""Segments, snapshots and collection: what they cost, and what others may do meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from dormouse.errors import CorruptDataError, InvariantError, NotFoundError, OutcomeUnknownError
from dormouse.items.pages import page_key
from dormouse.items.store import IDS, MARK, Put
from dormouse.log import compaction, snapshot
from dormouse.log import pages as segment_levels
from dormouse.log.blobs import Delta
from dormouse.log.engine import Options
from dormouse.log.snapshot import decode_segment, encode_segment, encode_snapshot
from dormouse.state.rules import Committed
from dormouse.state.state import without_expired
from tests.support.depth import in_turn
from tests.support.trees import initialise
from tests.unit.statestore.faults import Home, Rig, fail, small_pages
from tests.unit.statestore.histories import ONE_LEAF, addition

LOST = OutcomeUnknownError("not answered")
BRIEFLY = Options(keep_seconds=2, upload_seconds=1)


@pytest.fixture
def rig(home: Home) -> Rig:
    made = Rig(home=home, options=BRIEFLY)
    made.store().commit(initialise(ONE_LEAF), addition(0), generation=0)
    return made


def commit(rig: Rig, first: int, count: int, *, maintain: bool = False) -> None:
    store = rig.store()
    for n in range(first, first + count):
        rig.clock.advance(seconds=1)
        store.commit(addition(n), generation=0)
        if maintain:
            store.maintain()
    rig.quiet()


def check(rig: Rig) -> None:
    rig.quiet()
    assert without_expired(rig.store().current()) == without_expired(rig.replay())


# What it costs


def test_when_nothing_is_due_maintenance_reads_the_head_and_no_more(rig: Rig) -> None:
    commit(rig, 1, 60, maintain=True)
    store = rig.store()
    rig.quiet()
    store.maintain()
    assert rig.calls == ["before head", "after head"]


def test_a_cold_reader_fetches_segments_in_place_of_the_deltas_in_them(rig: Rig) -> None:
    commit(rig, 1, 500)
    rig.store().maintain()
    rig.quiet()
    assert rig.store().current().version == 501
    if rig.home == "objects":
        assert rig.calls.count("before get") == 1 + 4, "a segment; deltas 10, 19, 20, 21"
    else:  # a segment of two items, then 21 deltas, of which the fake returns five at once, and
        # the newest only to a consistent read
        assert rig.calls.count("before batch_get_item") == 1 + 5 + 1


def test_the_number_of_segments_grows_with_the_logarithm_of_the_log(rig: Rig) -> None:
    with small_pages(2):
        few = patch.multiple(segment_levels, SEGMENTS_PER_LEVEL=4, MOST_SEGMENTS=99)
        with few, patch.multiple(compaction, LEAST_BYTES_TO_SNAPSHOT=10**9):
            commit(rig, 1, 150, maintain=True)
        manifest = rig.head().manifest
        assert [s.after for s in manifest.segments[1:]] == [
            s.version for s in manifest.segments[:-1]
        ]
        assert len(manifest.segments) <= 3 * 4
        check(rig)


def test_a_reader_that_fell_behind_goes_on_by_segments_and_not_from_a_snapshot(rig: Rig) -> None:
    with small_pages(4):
        behind = rig.store()
        behind.current()
        with patch.multiple(compaction, LEAST_BYTES_TO_SNAPSHOT=10**9):
            commit(rig, 1, 60, maintain=True)
        rig.clock.advance(seconds=60)
        rig.store()._collector.collect()
        rig.store()._collector.collect()
        assert rig.head().first_page > 0
        assert rig.head().manifest.snapshots == ()
        assert behind.current() == rig.replay()


# Snapshots


@pytest.fixture
def due(rig: Rig) -> Rig:
    """A table of which a snapshot is due."""
    commit(rig, 100, 60)
    with patch.multiple(compaction, LEAST_BYTES_TO_SNAPSHOT=1):
        yield rig


def test_a_snapshotter_that_slept_never_moves_the_newest_back(due: Rig) -> None:
    def others_go_on() -> None:
        due.store().commit(addition(1), generation=0)
        due.store().maintain()

    put = {"objects": "put", "items": "put_item"}[due.home]
    due.on(f"before {put}", others_go_on, skip=1)
    due.store().maintain()
    assert [s.version for s in due.head().manifest.snapshots] == [62]
    check(due)


def test_a_manifest_that_was_changed_but_not_answered_is_kept(due: Rig) -> None:
    for skip in (0, 1):
        due.on("after set_manifest", fail(LOST), skip=skip)
        due.store().maintain()
        check(due)
    assert len(due.head().manifest.snapshots) == len(due.stored("snapshots")) == 1


def test_a_state_that_contradicts_itself_is_never_made_a_snapshot(due: Rig) -> None:
    broken = patch.multiple(compaction, broken_invariants=lambda state: ["a shard is lost"])
    with broken, pytest.raises(InvariantError, match="a shard is lost"):
        due.store().maintain()
    assert due.stored("snapshots") == []


def test_a_lost_snapshot_or_segment_is_named(due: Rig) -> None:
    due.store().maintain()
    (snapshot,), (segment,) = due.stored("snapshots"), due.stored("segments")
    due.lose_blob("snapshots", snapshot)
    with pytest.raises(CorruptDataError, match=snapshot):
        due.store().current()
    due.lose_blob("segments", segment)
    with pytest.raises(CorruptDataError, match=segment):
        due.store().at(version=3)


def test_a_reader_that_comes_too_late_for_a_snapshot_takes_the_newer_one(due: Rig) -> None:
    with small_pages(4):
        made = Rig(home=due.home, options=BRIEFLY)
        made.store().commit(initialise(ONE_LEAF), generation=0)
        commit(made, 1, 60, maintain=True)
        old = made.head().manifest.newest
        assert old

        def it_is_collected() -> None:
            commit_silently(made)

        def commit_silently(rig: Rig) -> None:
            store = rig.store()
            for n in range(200, 260):
                rig.clock.advance(seconds=1)
                store.commit(addition(n), generation=0)
                store.maintain()
            rig.clock.advance(seconds=60)
            store._collector.collect()

        made.on("after head", it_is_collected)
        reader = made.store()
        assert without_expired(reader.current()) == without_expired(made.replay())
        assert old.id not in made.stored("snapshots")


# Others meanwhile


def test_another_maintainer_at_any_place_of_one_does_no_harm(home: Home) -> None:
    def played(action: Callable[[Rig], None] | None, number: int) -> Rig:
        rig = Rig(home=home, options=BRIEFLY)
        rig.at = {number: lambda: action(rig)} if action else {}
        store = rig.store()
        store.commit(initialise(ONE_LEAF), generation=0)
        for n in range(1, 12):
            rig.clock.advance(seconds=1)
            store.commit(addition(n), generation=0)
            if n % 3 == 0:
                store.maintain()
        return rig

    def maintain_and_collect(rig: Rig) -> None:
        rig.store().maintain()
        rig.store()._collector.collect()
        rig.clock.advance(seconds=5)
        rig.store()._collector.collect()

    with small_pages(2):
        for number in in_turn(range(len(played(None, -1).calls))):
            rig = played(maintain_and_collect, number)
            assert rig.replay().reference_count == 11
            check(rig)


def test_a_writer_that_slept_past_the_mark_uploads_again_and_loses_nothing(rig: Rig) -> None:
    def it_sleeps_and_all_is_collected() -> None:
        rig.clock.advance(seconds=3600)
        rig.store()._collector.collect()

    for number in range(2):
        store = rig.store()
        store.current()
        rig.on("before append", it_sleeps_and_all_is_collected)
        (outcome,) = store.commit(addition(7 + number), generation=0)
        assert outcome == Committed(2 + number)
        assert set(rig.stored("deltas")) == set(rig.ids_in_log())
    check(rig)


def test_a_machine_whose_clock_is_far_behind_can_still_commit(rig: Rig) -> None:
    rig.clock.advance(seconds=3600)
    rig.store()._collector.collect()
    rig.clock.advance(seconds=-3600)
    assert rig.store().commit(addition(1), generation=0) == (Committed(2),)
    check(rig)


def test_what_a_crashed_commit_uploaded_is_collected_once_it_can_land_no_more(rig: Rig) -> None:
    rig.put_blob("deltas", rig.ids.new(), b"of a crashed commit")
    rig.put_blob("segments", rig.ids.new(), b"of a manifest that lost")
    rig.put_blob("snapshots", rig.ids.new(), b"of a manifest that lost")
    rig.store()._collector.collect()
    assert len(rig.stored("deltas")) == 2
    rig.clock.advance(seconds=2)
    rig.store()._collector.collect()
    assert rig.stored("deltas") == rig.ids_in_log()
    assert rig.stored("segments") == rig.stored("snapshots") == []


def test_a_segment_that_slept_past_the_mark_does_not_come_into_the_manifest(rig: Rig) -> None:
    def it_sleeps_and_all_is_collected() -> None:
        rig.clock.advance(seconds=3600)
        rig.store()._collector.collect()

    commit(rig, 1, 60)
    put = {"objects": "put", "items": "put_item"}[rig.home]
    rig.on(f"after {put}", it_sleeps_and_all_is_collected)
    rig.store().maintain()
    assert rig.stored("segments") == [segment.id for segment in rig.head().manifest.segments] == []
    rig.store().maintain()
    assert len(rig.head().manifest.segments) == 1
    check(rig)


def test_writers_readers_and_maintainers_at_once_agree_on_every_version(home: Home) -> None:
    rig = Rig(home=home, options=Options(keep_seconds=0, upload_seconds=0))
    rig.store().commit(initialise(ONE_LEAF), generation=0)
    done, seen, failures = threading.Event(), [], []

    def until_done(work: Callable[[], None]) -> None:
        try:
            while not done.is_set():
                work()
        except Exception as failure:
            failures.append(failure)

    def maintain() -> None:
        rig.clock.advance(seconds=1)
        rig.store().maintain()
        rig.store()._collector.collect()

    warm = rig.store()
    works = [maintain, maintain]
    works += [lambda: seen.append(warm.current()), lambda: seen.append(rig.store().current())]
    with small_pages(4):
        others = [threading.Thread(target=until_done, args=(work,)) for work in works]
        for thread in others:
            thread.start()
        writer = rig.store()
        for n in range(1, 100):
            assert writer.commit(addition(n), generation=0) == (Committed(n + 1),)
        done.set()
        for thread in others:
            thread.join()
        assert not failures
        for state in seen:
            assert state.reference_count == state.version - 1
        check(rig)


# The past


def test_a_version_is_read_as_long_as_it_is_kept_and_then_it_is_gone(rig: Rig) -> None:
    with small_pages(2):
        commit(rig, 1, 20, maintain=True)
        for _ in range(2):
            rig.store()._collector.collect()
        manifest = rig.head().manifest
        oldest = manifest.snapshots[0].version
        assert oldest > 1
        for version in range(oldest, 22):
            assert without_expired(rig.store().at(version=version)) == without_expired(
                rig.replay(version)
            )
        with pytest.raises(NotFoundError, match="oldest kept is version"):
            rig.store().at(version=oldest - 1)
        with pytest.raises(NotFoundError, match="oldest kept is version"):
            rig.store().at(time_ms=rig.replay(oldest).time_ms - 1)
        assert rig.store().at(time_ms=rig.clock.ms - 2000).version >= oldest


def test_a_reader_of_the_past_that_is_overtaken_reads_it_whole_or_not(home: Home) -> None:
    def reading(number: int) -> Rig:
        rig = Rig(home=home, options=BRIEFLY)
        rig.store().commit(initialise(ONE_LEAF), generation=0)
        commit(rig, 1, 12, maintain=True)

        def all_is_collected() -> None:
            rig.clock.advance(seconds=60)
            store = rig.store()
            for n in range(50, 60):
                store.commit(addition(n), generation=0)
                store.maintain()
            rig.clock.advance(seconds=60)
            store._collector.collect()

        rig.at = {number: all_is_collected}
        for version in (11, 13):
            try:
                found = rig.store().at(version=version)
            except NotFoundError:
                continue
            assert without_expired(found) == without_expired(rig.replay(version))
        return rig

    with small_pages(2):
        for number in in_turn(range(len(reading(-1).calls))):
            reading(number)


def replaced(rig: Rig, kind: str, body: bytes) -> None:
    """Replace the body of the only snapshot or segment."""
    (name,) = rig.stored(kind)
    rig.lose_blob(kind, name)
    rig.put_blob(kind, name, body)


def test_a_snapshot_of_another_version_is_not_believed(due: Rig) -> None:
    due.store().maintain()
    state = due.store().current()
    older = replace(state, version=state.version - 1)
    replaced(due, "snapshots", encode_snapshot("t", older))
    with pytest.raises(CorruptDataError, match="is not of version"):
        due.store().current()


def test_a_segment_that_is_shorter_than_it_was_is_not_believed(due: Rig) -> None:
    due.store().maintain()
    (segment,) = due.stored("segments")
    deltas = decode_segment(due.blob("segments", segment), "t", segment)
    replaced(due, "segments", encode_segment(deltas[:-1], "t"))
    with pytest.raises(CorruptDataError, match=segment):
        due.store().at(version=3)


def test_a_segment_of_its_size_that_lacks_deltas_is_not_believed(
    due: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    due.store().maintain()
    (segment,) = due.stored("segments")

    def all_but_the_last(*given: Any, **named: Any) -> list[Delta]:
        return decode_segment(*given, **named)[:-1]

    monkeypatch.setattr(snapshot, "decode_segment", all_but_the_last)
    with pytest.raises(CorruptDataError, match=f"{segment} .* lacks deltas"):
        due.store().at(version=3)


@pytest.mark.parametrize("left", [0, 10])
def test_a_page_that_is_lost_or_lacks_deltas_is_not_compacted(rig: Rig, left: int) -> None:
    commit(rig, 1, 100)
    page = rig.pages.logs["t"].pages[0]
    rig.pages.delete_pages("t", 0, 1)
    if left:
        ids = b"".join(map(bytes.fromhex, page.ids[:left]))
        mark = bytes.fromhex(page.low_water_mark)
        rig.pages._items.write(Put(page_key("t", 0), {IDS: ids, MARK: mark}))
    with pytest.raises(CorruptDataError, match="page 0"):
        rig.store().maintain()
    assert rig.stored("segments") == []


def test_a_version_that_is_yet_to_come_is_not_the_newest(rig: Rig) -> None:
    with pytest.raises(NotFoundError, match="no version 2"):
        rig.store().at(version=2)
