"""What stored pins promise, wherever they are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dormouse.errors import CorruptDataError
from dormouse.folder.sqlite import Database, SqliteItems
from dormouse.items.records import ItemPins
from dormouse.state.versions import OwnerKind, Pin, PinOwner
from tests.contract.folders import database_in
from tests.contract.state_pages import dynamodb_pages
from tests.support.memory_items import MemoryItems


def pin_of(name: str, version: int = 3, kind: OwnerKind = OwnerKind.TAG) -> Pin:
    owner = PinOwner(kind, name)
    return Pin(owner, version, 5_000, 1, 12, f"{version:032x}", 900, 6_000, expires_ms=7_000)


@pytest.fixture(params=["memory", "dynamodb", "folder"])
def pins(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ItemPins]:
    if request.param == "memory":
        yield ItemPins(MemoryItems())
        return
    if request.param == "folder":
        with database_in(tmp_path) as database:
            yield ItemPins(SqliteItems(database))
        return
    with dynamodb_pages(monkeypatch) as kept:
        yield kept.pins


def test_pins_are_read_as_they_were_put_by_table_and_owner(pins: ItemPins) -> None:
    made = [pin_of("b"), pin_of("a", kind=OwnerKind.EXPORT), pin_of("a", 9)]
    for pin in made:
        assert pins.put("t", pin) == pin
    assert pins.put("u", pin_of("b", 4)) == pin_of("b", 4)
    assert pins.all("t") == [made[1], made[2], made[0]]
    assert pins.all("u") == [pin_of("b", 4)]
    assert pins.all("another") == []


def test_an_owner_has_one_pin_and_the_first_stays(pins: ItemPins) -> None:
    pins.put("t", pin_of("a", 3))
    assert pins.put("t", pin_of("a", 4)) == pin_of("a", 3)
    assert pins.all("t") == [pin_of("a", 3)]


def test_a_pin_is_replaced_only_as_it_was_read(pins: ItemPins) -> None:
    old = pin_of("a")
    confirmed = replace(old, is_confirmed=True, expires_ms=None)
    assert not pins.replace("t", old, confirmed)
    pins.put("t", old)
    assert pins.replace("t", old, confirmed)
    assert not pins.replace("t", old, confirmed)
    assert pins.all("t") == [confirmed]


def test_a_pin_is_deleted_whatever_it_holds_or_only_as_it_was_read(pins: ItemPins) -> None:
    old = pin_of("a")
    pins.put("t", old)
    pins.put("t", pin_of("b"))
    pins.replace("t", old, replace(old, is_confirmed=True))
    assert not pins.delete("t", old.owner, only=old)
    assert pins.delete("t", old.owner)
    assert not pins.delete("t", old.owner)
    assert pins.delete("t", pin_of("b").owner, only=pin_of("b"))
    assert pins.all("t") == []


def test_the_pins_of_one_table_are_cleared(pins: ItemPins) -> None:
    for name in "abc":
        pins.put("t", pin_of(name))
        pins.put("u", pin_of(name))
    pins.clear("t")
    assert pins.all("t") == []
    assert len(pins.all("u")) == 3


def test_a_damaged_item_is_reported_and_can_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    with dynamodb_pages(monkeypatch) as pages:
        pages.pins.put("t", pin_of("a"))
        (item,) = pages._client.scan(TableName="state")["Items"]
        changed = {**item, "body": {"S": item["body"]["S"].replace('"version":3', '"version":4')}}
        pages._client.put_item(TableName="state", Item=changed)
        with pytest.raises(CorruptDataError, match="no shard of it can be deleted"):
            pages.pins.all("t")
        assert pages.pins.delete("t", pin_of("a").owner)
        assert pages.pins.all("t") == []


def test_a_damaged_record_is_reported_and_can_be_deleted(tmp_path: Path) -> None:
    with database_in(tmp_path) as database:
        pins = ItemPins(SqliteItems(database))
        pins.put("t", pin_of("a"))
        _damage(database)
        with pytest.raises(CorruptDataError, match="no shard of it can be deleted"):
            pins.all("t")
        assert pins.delete("t", pin_of("a").owner)
        assert pins.all("t") == []


def _damage(database: Database) -> None:
    with database.writing() as connection:
        connection.execute(
            """UPDATE items SET body = replace(body, '"version":3', '"version":4')"""
        )
