"""The log: an id stands in it once or not at all, whatever becomes of the requests."""

from __future__ import annotations

import pytest

from dormouse.errors import (
    ContendedError,
    CorruptDataError,
    OutcomeUnknownError,
    UnavailableError,
)
from dormouse.statestore.log import Log
from dormouse.statestore.pages import PAGE_CAPACITY, MemoryPages, Page, Root
from dormouse.statestore.patience import WITHOUT_PAUSES, Patience
from tests.unit.statestore.faults import Rig, fail

LOST = OutcomeUnknownError("not answered")
BUSY = UnavailableError("refused")


def ids(count: int, first: int = 0) -> list[str]:
    return [f"{n:032x}" for n in range(first, first + count)]


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.pages.open_page("t", 0)
    made.quiet()
    return made


def fill(rig: Rig, count: int, first: int = 1000) -> None:
    for each in ids(count, first):
        rig.log().append(each, 0)


def test_the_first_append_of_all_begins_the_log() -> None:
    log = Log("t", MemoryPages(), WITHOUT_PAUSES)
    assert log.append("a", 0) == 1
    assert log.ids_after(0) == ["a"]


def test_an_append_that_landed_but_was_not_answered_is_found(rig: Rig) -> None:
    rig.on("after append", fail(LOST))
    assert rig.log().append("a", 0) == 1
    assert rig.log().ids_after(0) == ["a"]


def test_an_append_that_arrives_after_its_repeat_gets_no_second_place(rig: Rig) -> None:
    rig.on("before append", fail(LOST))
    assert rig.log().append("a", 0) == 1
    rig.pages.append("t", 0, "a")
    assert rig.log().ids_after(0) == ["a"]


def test_an_append_that_arrives_when_its_page_is_full_is_lost_for_good(rig: Rig) -> None:
    def others_fill_the_page() -> None:
        fill(rig, PAGE_CAPACITY)
        raise LOST

    rig.on("before append", others_fill_the_page)
    assert rig.log().append("a", 0) == PAGE_CAPACITY + 1
    rig.pages.append("t", 0, "a")
    assert rig.log().ids_after(PAGE_CAPACITY) == ["a"]
    assert "a" not in rig.log().ids_after(0)[:PAGE_CAPACITY]


def test_an_append_that_landed_as_the_last_of_its_page_is_not_repeated_on_the_next(
    rig: Rig,
) -> None:
    fill(rig, PAGE_CAPACITY - 1)
    rig.on("after append", fail(LOST))
    assert rig.log().append("a", 0) == PAGE_CAPACITY
    assert rig.log().ids_after(PAGE_CAPACITY) == []


def test_when_no_attempt_is_answered_the_outcome_is_unknown(rig: Rig) -> None:
    rig.pages.before = lambda call: fail(LOST if call == "append" else BUSY)()
    with pytest.raises(OutcomeUnknownError, match="may yet land"):
        rig.log().append("a", 0)


def test_when_no_attempt_is_answered_a_last_look_may_find_that_one_landed(rig: Rig) -> None:
    rig.pages.after = lambda call: fail(LOST)() if call == "append" else None
    assert rig.log().append("a", 0) == 1


def test_when_no_attempt_is_answered_but_the_page_filled_up_it_is_surely_lost(rig: Rig) -> None:
    def others_fill_the_page() -> None:
        fill(rig, PAGE_CAPACITY)
        raise LOST

    rig.on("before append", others_fill_the_page)
    once = Patience(sleep=lambda _: None, random=lambda: 0.0, attempts=1)
    with pytest.raises(ContendedError):
        Log("t", rig.pages, once).append("a", 0)
    assert "a" not in rig.log().ids_after(0)


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
        rig.log().append("a", 0)


def test_when_every_attempt_is_refused_it_says_so_and_nothing_landed(rig: Rig) -> None:
    pauses: list[float] = []
    patience = Patience(sleep=pauses.append, random=lambda: 0.5, attempts=10)
    rig.pages.before = lambda call: fail(BUSY)() if call == "append" else None
    with pytest.raises(ContendedError, match="10 times"):
        Log("t", rig.pages, patience).append("a", 0)
    assert rig.pages.page("t", 0) == Page(0)
    assert pauses == [0.0125 * 2**n for n in range(8)] + [2.0]


def test_only_failures_are_paused_after_not_the_step_to_the_next_page(rig: Rig) -> None:
    fill(rig, PAGE_CAPACITY)
    patience = Patience(sleep=lambda _: pytest.fail("paused"), random=lambda: 1.0)
    assert Log("t", rig.pages, patience).append("a", 0) == PAGE_CAPACITY + 1


def test_a_writer_whose_guess_is_far_behind_skips_the_full_pages(rig: Rig) -> None:
    fill(rig, 5 * PAGE_CAPACITY)
    rig.quiet()
    assert rig.log().append("a", 0) == 5 * PAGE_CAPACITY + 1
    assert rig.calls.count("before append") == 2


def test_a_writer_that_dies_having_filled_a_page_leaves_the_next_to_others(rig: Rig) -> None:
    fill(rig, PAGE_CAPACITY - 1)
    rig.on("before open_page", fail(BUSY))
    assert rig.log().append("a", 0) == PAGE_CAPACITY
    assert rig.pages.page("t", 1) is None
    assert rig.log().ids_after(PAGE_CAPACITY) == []
    assert rig.log().append("b", 1) == PAGE_CAPACITY + 1
    assert rig.log().ids_after(PAGE_CAPACITY - 1) == ["a", "b"]


def test_a_page_that_is_made_while_it_is_looked_for_is_read(rig: Rig) -> None:
    fill(rig, PAGE_CAPACITY - 1)
    rig.on("before open_page", fail(BUSY))
    rig.log().append("a", 0)
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


def test_the_root_of_a_lost_log_is_not_taken_for_the_whole(rig: Rig) -> None:
    rig.pages.set_root("t", Root("x", 10, 1))
    with pytest.raises(CorruptDataError, match="ends before"):
        rig.log().ids_after(10)
