"""What pages promise, wherever they are kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from dormouse.errors import CorruptDataError
from dormouse.folder.sqlite import SqliteItems
from dormouse.items.pages import ItemPages
from dormouse.log.pages import LOWEST_ID, PAGE_CAPACITY, Head, Manifest, Page, Segment, Snapshot
from tests.contract.folders import database_in
from tests.contract.state_pages import dynamodb_pages
from tests.support.memory_items import MemoryItems


def delta_id(number: int) -> str:
    return f"{number:032x}"


@pytest.fixture(params=["memory", "dynamodb", "folder"])
def pages(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ItemPages]:
    if request.param == "memory":
        yield ItemPages(MemoryItems())
        return
    if request.param == "folder":
        with database_in(tmp_path) as database:
            yield ItemPages(SqliteItems(database))
        return
    with dynamodb_pages(monkeypatch) as kept:
        yield kept


def test_a_table_has_no_log_before_its_first_page(pages: ItemPages) -> None:
    assert pages.head("t") is None
    assert pages.page("t", 0) is None
    assert pages.append("t", 0, delta_id(1)) is None
    assert pages.open_page("t", 0, LOWEST_ID)
    assert pages.head("t") == Head(last_page=0)
    assert pages.page("t", 0) == Page(0)
    assert pages.head("another") is None


def test_ids_keep_the_order_in_which_they_were_appended(pages: ItemPages) -> None:
    pages.open_page("t", 0, LOWEST_ID)
    for number in (3, 1, 2):
        pages.append("t", 0, delta_id(number))
    assert pages.page("t", 0) == Page(0, (delta_id(3), delta_id(1), delta_id(2)))


def test_a_repeated_append_finds_its_id_and_takes_no_second_place(pages: ItemPages) -> None:
    pages.open_page("t", 0, LOWEST_ID)
    pages.append("t", 0, delta_id(1))
    pages.append("t", 0, delta_id(2))
    assert pages.append("t", 0, delta_id(1)) == Page(0, (delta_id(1), delta_id(2)))
    assert pages.page("t", 0) == Page(0, (delta_id(1), delta_id(2)))


def test_a_full_page_takes_nothing_and_shows_what_it_holds(pages: ItemPages) -> None:
    pages.open_page("t", 0, LOWEST_ID)
    full = Page(0, tuple(delta_id(n) for n in range(PAGE_CAPACITY)))
    for each in full.ids:
        pages.append("t", 0, each)
    assert pages.append("t", 0, delta_id(999)) == full
    assert pages.page("t", 0) == full


def test_pages_are_made_one_after_the_other_and_once_each(pages: ItemPages) -> None:
    assert not pages.open_page("t", 1, LOWEST_ID)
    assert pages.open_page("t", 0, LOWEST_ID)
    assert not pages.open_page("t", 0, LOWEST_ID)
    assert not pages.open_page("t", 2, LOWEST_ID)
    assert pages.open_page("t", 1, LOWEST_ID)
    assert not pages.open_page("t", 0, LOWEST_ID)
    assert pages.head("t") == Head(last_page=1)


def test_the_hash_key_of_pages_moves_on_without_a_gap(pages: ItemPages) -> None:
    for number in range(66):
        assert pages.open_page("t", number, LOWEST_ID)
    pages.append("t", 64, delta_id(7))
    assert pages.page("t", 64) == Page(64, (delta_id(7),))
    assert pages.page("t", 63) == Page(63)


def manifest(revision: int) -> Manifest:
    """A manifest of two snapshots and two segments, identified by its revision."""
    return Manifest(
        revision,
        (Snapshot(delta_id(revision), 90, 1_700_000_000_000, 1), Snapshot(delta_id(1), 95, 5, 7)),
        (Segment(delta_id(2), 48, 96, 5), Segment(delta_id(3), 96, 144, 6)),
    )


def test_the_manifest_changes_from_one_revision_to_the_next(pages: ItemPages) -> None:
    pages.open_page("t", 0, LOWEST_ID)
    assert pages.set_manifest("t", manifest(1))
    for stale in (manifest(1), Manifest(0), manifest(3)):
        assert not pages.set_manifest("t", stale)
    assert pages.head("t") == Head(0, manifest(1))
    assert pages.set_manifest("t", Manifest(2))
    assert pages.head("t") == Head(0, Manifest(2))


def test_the_low_water_mark_rises_in_the_head_and_the_last_page_at_once(pages: ItemPages) -> None:
    pages.open_page("t", 0, LOWEST_ID)
    pages.open_page("t", 1, LOWEST_ID)
    pages.append("t", 1, delta_id(4))
    raised = Head(1, manifest(1), low_water_mark=delta_id(5), first_page=1)
    assert pages.raise_low_water_mark("t", raised)
    assert pages.head("t") == raised
    assert pages.page("t", 1) == Page(1, (delta_id(4),), delta_id(5))
    assert pages.append("t", 1, delta_id(3)) == Page(1, (delta_id(4),), delta_id(5))
    assert pages.append("t", 1, delta_id(5)) == Page(1, (delta_id(4), delta_id(5)), delta_id(5))


def test_the_mark_does_not_rise_past_another_change_of_the_manifest_or_a_new_page(
    pages: ItemPages,
) -> None:
    pages.open_page("t", 0, LOWEST_ID)
    assert not pages.raise_low_water_mark("t", Head(0, Manifest(2), delta_id(5)))
    assert not pages.raise_low_water_mark("t", Head(1, Manifest(1), delta_id(5)))
    pages.open_page("t", 1, LOWEST_ID)
    assert not pages.raise_low_water_mark("t", Head(0, Manifest(1), delta_id(5)))
    assert pages.head("t") == Head(1)
    assert pages.page("t", 1) == Page(1)


def test_a_page_is_made_with_the_low_water_mark_there_is(pages: ItemPages) -> None:
    pages.open_page("t", 0, LOWEST_ID)
    pages.raise_low_water_mark("t", Head(0, Manifest(1), delta_id(5)))
    assert not pages.open_page("t", 1, LOWEST_ID)
    assert pages.open_page("t", 1, delta_id(5))
    assert pages.append("t", 1, delta_id(4)) == Page(1, (), delta_id(5))


def test_a_table_without_a_log_gets_no_manifest(pages: ItemPages) -> None:
    assert not pages.set_manifest("t", manifest(1))
    assert pages.head("t") is None


def test_a_closed_log_takes_neither_pages_nor_manifests_and_stays_closed(pages: ItemPages) -> None:
    pages.open_page("t", 0, LOWEST_ID)
    pages.raise_low_water_mark("t", Head(0, manifest(1), delta_id(1)))
    assert pages.close("t") == Head(0, closed=True)
    assert pages.close("t") == Head(0, closed=True)
    assert not pages.open_page("t", 1, LOWEST_ID)
    assert not pages.set_manifest("t", Manifest(1))
    assert pages.head("t") == Head(0, closed=True)


def test_a_log_closed_before_it_began_can_never_begin(pages: ItemPages) -> None:
    assert pages.close("t") == Head(-1, closed=True)
    assert not pages.open_page("t", 0, LOWEST_ID)


def test_deleted_pages_are_gone_and_those_of_other_tables_are_not(pages: ItemPages) -> None:
    for number in range(30):
        pages.open_page("t", number, LOWEST_ID)
    pages.open_page("u", 0, LOWEST_ID)
    pages.close("t")
    for _ in range(2):
        pages.delete_pages("t", 0, 30)
    assert [pages.page("t", n) for n in (0, 24, 25, 29)] == [None] * 4
    assert pages.append("t", 29, delta_id(1)) is None
    assert pages.page("u", 0) == Page(0)


def test_of_appends_at_once_each_gets_its_own_place(pages: ItemPages) -> None:
    pages.open_page("t", 0, LOWEST_ID)
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


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"ids": {"S": "x"}, "mark": {"B": b"\0"}},
        {"ids": {"L": [{"S": "x"}]}, "mark": {"B": b"\0"}},
        {"last_page": {"S": "x"}},
        {"last_page": {"N": "1"}, "revision": {"N": "1"}, "snapshots": {"L": [{"M": {}}]}},
    ],
)
def test_an_item_that_belongs_to_no_log_is_reported_by_its_key(
    monkeypatch: pytest.MonkeyPatch, attributes: dict[str, Any]
) -> None:
    with dynamodb_pages(monkeypatch) as pages:
        client = boto3.client("dynamodb", region_name="eu-west-2")
        for key in (
            {"t": {"S": "t#H"}, "g": {"S": "0"}},
            {"t": {"S": "t#0#0"}, "g": {"S": f"{0:012d}"}},
        ):
            client.put_item(TableName="state", Item={**key, **attributes})
        for read, name in ((lambda: pages.head("t"), "t#H"), (lambda: pages.page("t", 0), "t#0#0")):
            with pytest.raises(CorruptDataError, match=name) as raised:
                read()
            assert "dormouse rebuild" in raised.value.hint
