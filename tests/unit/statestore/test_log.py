"""The log holds an id once or not at all, whatever happens to the requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dormouse.errors import (
    ContendedError,
    CorruptDataError,
    OutcomeUnknownError,
    ServiceRefusedError,
    UnavailableError,
)
from dormouse.log.log import CollectedError, Log
from dormouse.log.pages import LOWEST_ID, PAGE_CAPACITY, Head, Manifest, Page, Segment, Snapshot
from dormouse.system import RetryPolicy
from tests.support.hooked_pages import HookedPages
from tests.support.retries import WITHOUT_PAUSES
from tests.unit.statestore.faults import Rig, fail

LOST = OutcomeUnknownError("not answered")
BUSY = UnavailableError("refused")
A, B = "aa" * 16, "bb" * 16


def ids(count: int, first: int = 0) -> list[str]:
    return [f"{n:032x}" for n in range(first, first + count)]


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.pages.open_page("t", 0, LOWEST_ID)
    made.quiet()
    return made


def fill(rig: Rig, count: int, first: int = 1000) -> None:
    for each in ids(count, first):
        rig.log().append(each, 0)


def test_the_first_append_of_all_begins_the_log() -> None:
    log = Log("t", HookedPages(), WITHOUT_PAUSES)
    assert log.append(A, 0).version == 1
    assert log.ids_after(0) == [A]


def test_an_append_that_landed_but_was_not_answered_is_found(rig: Rig) -> None:
    rig.on("after append", fail(LOST))
    assert rig.log().append(A, 0).version == 1
    assert rig.log().ids_after(0) == [A]


def test_an_append_that_arrives_after_its_repeat_gets_no_second_place(rig: Rig) -> None:
    rig.on("before append", fail(LOST))
    assert rig.log().append(A, 0).version == 1
    rig.pages.append("t", 0, A)
    assert rig.log().ids_after(0) == [A]


def test_an_append_that_arrives_when_its_page_is_full_is_lost_for_good(rig: Rig) -> None:
    def others_fill_the_page() -> None:
        fill(rig, PAGE_CAPACITY)
        raise LOST

    rig.on("before append", others_fill_the_page)
    assert rig.log().append(A, 0).version == PAGE_CAPACITY + 1
    rig.pages.append("t", 0, A)
    assert rig.log().ids_after(PAGE_CAPACITY) == [A]
    assert A not in rig.log().ids_after(0)[:PAGE_CAPACITY]


def test_an_append_that_landed_as_the_last_of_its_page_is_not_repeated_on_the_next(
    rig: Rig,
) -> None:
    fill(rig, PAGE_CAPACITY - 1)
    rig.on("after append", fail(LOST))
    assert rig.log().append(A, 0).version == PAGE_CAPACITY
    assert rig.log().ids_after(PAGE_CAPACITY) == []


def test_when_no_attempt_is_answered_the_outcome_is_unknown(rig: Rig) -> None:
    rig.pages.before = lambda call: fail(LOST if call == "append" else BUSY)()
    with pytest.raises(OutcomeUnknownError, match="may yet land"):
        rig.log().append(A, 0)


def test_a_last_look_at_a_page_with_room_does_not_prove_that_an_append_is_lost(rig: Rig) -> None:
    rig.pages.before = lambda call: fail(LOST)() if call == "append" else None
    with pytest.raises(OutcomeUnknownError, match="may yet land"):
        rig.log().append(A, 0)
    rig.pages.before = lambda _: None
    rig.pages.append("t", 0, A)
    assert rig.log().ids_after(0) == [A], "it was on its way"


def test_when_no_attempt_is_answered_a_last_look_may_find_that_one_landed(rig: Rig) -> None:
    rig.pages.after = lambda call: fail(LOST)() if call == "append" else None
    assert rig.log().append(A, 0).version == 1


def test_when_no_attempt_is_answered_but_the_page_filled_up_it_is_surely_lost(rig: Rig) -> None:
    def others_fill_the_page() -> None:
        fill(rig, PAGE_CAPACITY)
        raise LOST

    rig.on("before append", others_fill_the_page)
    once = RetryPolicy(sleep=lambda _: None, random=lambda: 0.0, attempts=1)
    with pytest.raises(ContendedError):
        Log("t", rig.pages, once).append(A, 0)
    assert A not in rig.log().ids_after(0)


def test_an_unanswered_append_stays_in_doubt_while_its_page_is_not_there_to_be_looked_at() -> None:
    rig = Rig()

    def fate(call: str) -> None:
        rig.calls.append(call)
        if call == "append" and rig.calls.count("append") == 1:
            raise LOST
        if call == "open_page":
            raise BUSY

    rig.pages.before = fate
    with pytest.raises(OutcomeUnknownError):
        rig.log().append(A, 0)


def test_when_every_attempt_is_refused_it_says_so_and_nothing_landed(rig: Rig) -> None:
    pauses: list[float] = []
    retry_policy = RetryPolicy(sleep=pauses.append, random=lambda: 0.5, attempts=10)
    rig.pages.before = lambda call: fail(BUSY)() if call == "append" else None
    with pytest.raises(UnavailableError, match="10 times; the last time: ") as failed:
        Log("t", rig.pages, retry_policy).append(A, 0)
    assert not isinstance(failed.value, ContendedError), "nobody else wrote"
    assert rig.pages.page("t", 0) == Page(0)
    assert pauses == [0.0125 * 2**n for n in range(8)] + [2.0]


def test_a_refusal_for_good_is_told_at_once_unless_an_append_before_it_may_have_landed() -> None:
    refused = ServiceRefusedError("there is no such operation")
    fates = [
        ([fail(refused)], ServiceRefusedError),
        ([fail(BUSY), fail(refused)], ServiceRefusedError),
        ([fail(LOST), fail(refused)], OutcomeUnknownError),
    ]
    for calls, told in fates:
        rig = Rig()
        fill(rig, 1)
        appends = iter(calls)
        rig.pages.before = lambda call, left=appends: next(left)() if call == "append" else None
        with pytest.raises(told):
            rig.log().append(A, 0)
        assert next(appends, None) is None


def test_only_failures_are_paused_after_not_the_step_to_the_next_page(rig: Rig) -> None:
    fill(rig, PAGE_CAPACITY)
    retry_policy = RetryPolicy(sleep=lambda _: pytest.fail("paused"), random=lambda: 1.0)
    assert Log("t", rig.pages, retry_policy).append(A, 0).version == PAGE_CAPACITY + 1


def test_a_writer_whose_guess_is_far_behind_skips_the_full_pages(rig: Rig) -> None:
    fill(rig, 5 * PAGE_CAPACITY)
    rig.quiet()
    assert rig.log().append(A, 0).version == 5 * PAGE_CAPACITY + 1
    assert rig.calls.count("before append") == 2


def test_a_writer_that_dies_having_filled_a_page_leaves_the_next_to_others(rig: Rig) -> None:
    fill(rig, PAGE_CAPACITY - 1)
    rig.on("before open_page", fail(BUSY))
    assert rig.log().append(A, 0).version == PAGE_CAPACITY
    assert rig.pages.page("t", 1) is None
    assert rig.log().ids_after(PAGE_CAPACITY) == []
    assert rig.log().append(B, 1).version == PAGE_CAPACITY + 1
    assert rig.log().ids_after(PAGE_CAPACITY - 1) == [A, B]


def test_a_page_that_is_made_while_it_is_looked_for_is_read(rig: Rig) -> None:
    fill(rig, PAGE_CAPACITY - 1)
    rig.on("before open_page", fail(BUSY))
    rig.log().append(A, 0)
    rig.on("after page", lambda: fill(rig, 1, first=7000))
    assert rig.log().ids_after(PAGE_CAPACITY) == ids(1, 7000)


def test_reading_goes_on_over_many_pages(rig: Rig) -> None:
    fill(rig, 2 * PAGE_CAPACITY + 5)
    everything = rig.log().ids_after(0)
    assert everything == ids(2 * PAGE_CAPACITY + 5, 1000)
    for version in (1, 47, 48, 49, 96, 101):
        assert rig.log().ids_after(version) == everything[version:]


def test_a_log_that_was_set_back_is_noticed_and_not_read_as_news(rig: Rig) -> None:
    fill(rig, 3)
    for version in (4, PAGE_CAPACITY + 1, 2 * PAGE_CAPACITY, 3 * PAGE_CAPACITY + 2):
        with pytest.raises(CorruptDataError, match="ends before"):
            rig.log().ids_after(version)


def test_a_manifest_that_is_ahead_of_the_log_is_not_taken_for_the_whole(rig: Rig) -> None:
    rig.pages.set_manifest("t", Manifest(1, (), (Segment(A, 0, 5 * PAGE_CAPACITY, 1),)))
    with pytest.raises(CorruptDataError, match="ends before"):
        rig.log().ids_after(5 * PAGE_CAPACITY)


# Collected pages, and the mark


def collect(rig: Rig, pages: int, mark: str = LOWEST_ID) -> None:
    """Delete the first pages as if their deltas were in a segment."""
    head = rig.pages.head("t")
    assert head
    covered = Segment(A, 0, pages * PAGE_CAPACITY, 1)
    manifest = Manifest(head.manifest.revision + 1, (), (covered,))
    assert rig.pages.raise_low_water_mark("t", Head(head.last_page, manifest, mark, pages))
    rig.pages.delete_pages("t", 0, pages)


def test_a_reader_whose_page_is_collected_goes_by_the_manifest(rig: Rig) -> None:
    fill(rig, 2 * PAGE_CAPACITY + 1)
    collect(rig, 2)
    for version in (0, 1, PAGE_CAPACITY, PAGE_CAPACITY + 3):
        with pytest.raises(CollectedError):
            rig.log().ids_after(version)
    assert len(rig.log().ids_after(2 * PAGE_CAPACITY)) == 1


def test_an_idle_reader_at_the_end_of_a_page_does_not_miss_one_that_came_and_went(rig: Rig) -> None:
    fill(rig, PAGE_CAPACITY)
    assert rig.log().ids_after(PAGE_CAPACITY) == []
    fill(rig, PAGE_CAPACITY, first=3000)
    collect(rig, 2)
    with pytest.raises(CollectedError):
        rig.log().ids_after(PAGE_CAPACITY)


def test_a_page_that_is_missing_though_nothing_covers_it_is_no_end(rig: Rig) -> None:
    fill(rig, PAGE_CAPACITY + 1)
    rig.pages.delete_pages("t", 0, 1)
    with pytest.raises(CorruptDataError, match="page 0"):
        rig.log().ids_after(0)


def test_a_page_that_was_collected_is_never_made_again(rig: Rig) -> None:
    def others_go_on() -> None:
        fill(rig, 2 * PAGE_CAPACITY)
        collect(rig, 2)

    fill(rig, PAGE_CAPACITY - 1, first=5000)
    rig.on("before open_page", others_go_on)
    rig.log().append(A, 0)
    assert rig.pages.page("t", 1) is None
    assert rig.log().append(B, 0).version == 3 * PAGE_CAPACITY + 1


def test_a_writer_whose_guess_is_collected_goes_to_the_last_page(rig: Rig) -> None:
    fill(rig, 2 * PAGE_CAPACITY)
    collect(rig, 2)
    assert rig.log().append(A, 0).version == 2 * PAGE_CAPACITY + 1


def test_an_unanswered_append_whose_page_is_collected_is_not_repeated_elsewhere(rig: Rig) -> None:
    def all_goes_on_and_the_answer_is_lost() -> None:
        fill(rig, 2 * PAGE_CAPACITY)
        collect(rig, 2)
        raise LOST

    rig.on("after append", all_goes_on_and_the_answer_is_lost)
    with pytest.raises(OutcomeUnknownError, match="its page is gone"):
        rig.log().append(A, 0)
    assert A not in rig.log().ids_after(2 * PAGE_CAPACITY)


def test_an_id_that_slept_past_the_low_water_mark_is_refused_for_good(rig: Rig) -> None:
    (slow,) = ids(1, 50)
    collect(rig, 0, mark=ids(1, 60)[0])
    for number in (0, 1):
        refused = rig.log().append(slow, number)
        assert (refused.version, refused.low_water_mark) == (None, ids(1, 60)[0])
        fill(rig, PAGE_CAPACITY)
    assert slow not in rig.log().ids_after(0)


# Changes of the manifest


def test_a_manifest_is_changed_again_when_another_change_was_quicker(rig: Rig) -> None:
    def next_manifest(manifest: Manifest) -> Manifest:
        return Manifest(manifest.revision + 1)

    rig.on("before set_manifest", lambda: rig.pages.set_manifest("t", Manifest(1)) and None)
    assert rig.log().install(A, next_manifest)
    assert rig.pages.head("t") == Head(0, Manifest(2))


def test_what_is_named_before_the_low_water_mark_does_not_come_into_the_manifest(rig: Rig) -> None:
    slow, mark = ids(1, 50)[0], ids(1, 60)[0]
    rig.on("before set_manifest", lambda: collect(rig, 0, mark))
    assert not rig.log().install(slow, lambda manifest: Manifest(manifest.revision + 1))
    head = rig.pages.head("t")
    assert head
    assert head.manifest.revision == 1


def with_snapshot(manifest: Manifest) -> Manifest:
    made = Snapshot(f"{manifest.revision:032x}", manifest.revision + 1, 0, 1)
    return replace(manifest, revision=manifest.revision + 1, snapshots=(*manifest.snapshots, made))


def test_a_change_of_the_manifest_that_another_overtook_is_made_again_of_what_that_left(
    rig: Rig,
) -> None:
    rig.on("before set_manifest", lambda: rig.log().install("f" * 32, with_snapshot) and None)
    assert rig.log().install("f" * 32, with_snapshot)
    assert [snapshot.id for snapshot in rig.head().manifest.snapshots] == ids(2)


@pytest.mark.parametrize("error", [LOST, BUSY])
def test_a_change_of_the_manifest_that_is_never_answered_is_not_called_too_late(
    rig: Rig, error: Exception
) -> None:
    rig.pages.before = lambda call: fail(error)() if call == "set_manifest" else None
    with pytest.raises(type(error)):
        rig.log().install("f" * 32, with_snapshot)
