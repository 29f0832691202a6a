"""What pages promise, wherever they are kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from dormouse.statestore.pages import PAGE_CAPACITY, Head, MemoryPages, Page, Pages, Root
from tests.contract.state_pages import dynamodb_pages


def delta_id(number: int) -> str:
    return f"{number:032x}"


@pytest.fixture(params=["memory", "dynamodb"])
def pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    if request.param == "memory":
        yield MemoryPages()
        return
    with dynamodb_pages(monkeypatch) as kept:
        yield kept


def test_a_table_has_no_log_before_its_first_page(pages: Pages) -> None:
    assert pages.head("t") is None
    assert pages.page("t", 0) is None
    assert pages.append("t", 0, delta_id(1)) is None
    assert pages.open_page("t", 0)
    assert pages.head("t") == Head(last_page=0)
    assert pages.page("t", 0) == Page(0)
    assert pages.head("another") is None


def test_ids_keep_the_order_in_which_they_were_appended(pages: Pages) -> None:
    pages.open_page("t", 0)
    for number in (3, 1, 2):
        pages.append("t", 0, delta_id(number))
    assert pages.page("t", 0) == Page(0, (delta_id(3), delta_id(1), delta_id(2)))


def test_a_repeated_append_finds_its_id_and_takes_no_second_place(pages: Pages) -> None:
    pages.open_page("t", 0)
    pages.append("t", 0, delta_id(1))
    pages.append("t", 0, delta_id(2))
    assert pages.append("t", 0, delta_id(1)) == Page(0, (delta_id(1), delta_id(2)))
    assert pages.page("t", 0) == Page(0, (delta_id(1), delta_id(2)))


def test_a_full_page_takes_nothing_and_shows_what_it_holds(pages: Pages) -> None:
    pages.open_page("t", 0)
    full = Page(0, tuple(delta_id(n) for n in range(PAGE_CAPACITY)))
    for each in full.ids:
        pages.append("t", 0, each)
    assert pages.append("t", 0, delta_id(999)) == full
    assert pages.page("t", 0) == full


def test_pages_are_made_one_after_the_other_and_once_each(pages: Pages) -> None:
    assert not pages.open_page("t", 1)
    assert pages.open_page("t", 0)
    assert not pages.open_page("t", 0)
    assert not pages.open_page("t", 2)
    assert pages.open_page("t", 1)
    assert not pages.open_page("t", 0)
    assert pages.head("t") == Head(last_page=1)


def test_the_hash_key_of_pages_moves_on_without_a_gap(pages: Pages) -> None:
    for number in range(66):
        assert pages.open_page("t", number)
    pages.append("t", 64, delta_id(7))
    assert pages.page("t", 64) == Page(64, (delta_id(7),))
    assert pages.page("t", 63) == Page(63)


def test_the_root_only_ever_moves_to_a_newer_snapshot(pages: Pages) -> None:
    pages.open_page("t", 0)
    assert pages.set_root("t", Root("b", 20, 1))
    for stale in (Root("a", 10, 1), Root("c", 20, 1)):
        assert not pages.set_root("t", stale)
    assert pages.head("t") == Head(0, Root("b", 20, 1))
    assert pages.set_root("t", Root("d", 21, 9))
    assert pages.head("t") == Head(0, Root("d", 21, 9))


def test_a_table_without_a_log_gets_no_root(pages: Pages) -> None:
    assert not pages.set_root("t", Root("a", 1, 1))
    assert pages.head("t") is None


def test_a_closed_log_takes_neither_pages_nor_roots_and_stays_closed(pages: Pages) -> None:
    pages.open_page("t", 0)
    pages.set_root("t", Root("a", 1, 1))
    assert pages.close("t") == Head(0, closed=True)
    assert pages.close("t") == Head(0, closed=True)
    assert not pages.open_page("t", 1)
    assert not pages.set_root("t", Root("b", 2, 1))
    assert pages.head("t") == Head(0, closed=True)


def test_a_log_closed_before_it_began_can_never_begin(pages: Pages) -> None:
    assert pages.close("t") == Head(-1, closed=True)
    assert not pages.open_page("t", 0)


def test_deleted_pages_are_gone_and_those_of_other_tables_are_not(pages: Pages) -> None:
    for number in range(30):
        pages.open_page("t", number)
    pages.open_page("u", 0)
    pages.close("t")
    for _ in range(2):
        pages.delete_pages("t", 29)
    assert [pages.page("t", n) for n in (0, 24, 25, 29)] == [None] * 4
    assert pages.append("t", 29, delta_id(1)) is None
    assert pages.page("u", 0) == Page(0)


def test_of_appends_at_once_each_gets_its_own_place(pages: Pages) -> None:
    pages.open_page("t", 0)
    writers = [
        threading.Thread(
            target=lambda first: [pages.append("t", 0, delta_id(first + n)) for n in range(4)],
            args=(100 * writer,),
        )
        for writer in range(8)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    page = pages.page("t", 0)
    assert page
    assert sorted(page.ids) == sorted(delta_id(100 * w + n) for w in range(8) for n in range(4))
