"""What items promise, wherever they are kept."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from dormouse.statestore.items import Item, ItemKey, Items, Value
from dormouse.statestore.memory_pages import MemoryPages
from dormouse.statestore.pages import LOWEST_FLOOR, Pages, Root, Snapshot
from tests.contract.state_items import dynamodb_items
from tests.unit.statestore.memory_items import MemoryItems

ROOT = Snapshot("r1", 48, 5, 1000)
NEXT = Snapshot("r2", 96, 6, 1000)


@pytest.fixture(params=["memory", "dynamodb"])
def kept(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Items, Pages]]:
    if request.param == "memory":
        pages = MemoryPages()
        yield MemoryItems(pages), pages
        return
    with dynamodb_items(monkeypatch) as (items, remote, _):
        yield items, remote


@pytest.fixture
def items(kept: tuple[Items, Pages]) -> Items:
    return kept[0]


@pytest.fixture
def pages(kept: tuple[Items, Pages]) -> Pages:
    return kept[1]


def item(range_key: str, hash_key: str = "t#R0", **values: str | int | bytes) -> Item:
    return Item(ItemKey("references", hash_key, range_key), values)


def test_an_item_comes_back_with_every_kind_of_value(items: Items) -> None:
    key = ItemKey("partitions", "t#P", "root@1")
    values: dict[str, Value] = {"s": "é", "n": 2**53, "b": b"\x00\xff", "e": b"", "y": True}
    values["l"] = ("a", "")
    items.put(Item(key, values))
    assert list(items.query("partitions", "t#P")) == [Item(key, values)]
    assert list(items.query("shards", "t#P")) == []


def test_items_come_in_the_order_of_their_range_keys(items: Items) -> None:
    for name in ("b@2", "a@10", "b@1", "a/c@1", "c@1"):
        items.put(item(name))
    items.put(item("b@0", hash_key="u#R0"))

    def found(prefix: str = "", up_to: str | None = None) -> list[str]:
        query = items.query("references", "t#R0", prefix=prefix, up_to=up_to)
        return [each.key.range for each in query]

    assert found() == ["a/c@1", "a@10", "b@1", "b@2", "c@1"]
    assert found(prefix="b@") == ["b@1", "b@2"]
    assert found(up_to="b@1") == ["a/c@1", "a@10", "b@1"]
    assert found(prefix="d") == []


def test_what_is_put_while_the_root_stands_is_kept_however_much_it_is(
    items: Items, pages: Pages
) -> None:
    pages.open_page("t", 0, LOWEST_FLOOR)
    large = [item(f"{n:04d}", body=bytes(30_000)) for n in range(250)]
    assert items.put_while("t", 0, large)
    pages.set_root("t", Root(1))
    assert items.put_while("t", 1, [item("9999")])
    assert len(list(items.query("references", "t#R0"))) == 251


def test_nothing_is_put_once_the_root_was_changed_or_the_log_is_closed(
    items: Items, pages: Pages
) -> None:
    assert not items.put_while("t", 0, [item("a")])
    pages.open_page("t", 0, LOWEST_FLOOR)
    assert not items.put_while("t", 1, [item("b")])
    pages.set_root("t", Root(1))
    assert not items.put_while("t", 0, [item("c")])
    pages.close("t")
    for revision in (0, 1):
        assert not items.put_while("t", revision, [item("d")])
    assert list(items.query("references", "t#R0")) == []


def test_items_are_deleted_whether_or_not_they_are_there(items: Items) -> None:
    numbers = count()
    many = [item(f"{next(numbers):03d}") for _ in range(60)]
    for each in many[:58]:
        items.put(each)
    items.put(Item(ItemKey("shards", "t#S0", "s@1"), {}))
    items.delete([*(each.key for each in many[1:]), ItemKey("shards", "t#S0", "s@1")])
    items.delete([])
    assert list(items.query("references", "t#R0")) == [many[0]]
    assert list(items.query("shards", "t#S0")) == []
