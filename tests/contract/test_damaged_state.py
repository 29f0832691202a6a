"""Damage to any item of a state: it names its table, harms no other, and a rebuild mends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from dormouse.aws.items import DynamoItems
from dormouse.errors import CorruptDataError
from dormouse.features.rebuild import rebuild
from dormouse.log.engine import StateStore
from dormouse.log.pages import LOWEST_ID, Manifest, Segment, Snapshot
from dormouse.tables.table import Table
from tests.contract.state_items import DELTAS, dynamodb_tables
from tests.contract.state_pages import DynamoPages, dynamodb_pages
from tests.support.damaged_items import Item, damages, some_damages
from tests.support.stores import items_store, objects_store
from tests.support.world import World, letters

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Home = Literal["s3", "dynamodb"]
STATE = "state"


@dataclass
class Deployed:
    """Two tables whose states lie in a DynamoDB of its own, as each new process finds them."""

    world: World
    client: DynamoDBClient
    open: Callable[[Table], StateStore]
    damaged: Table
    sound: Table

    def items(self, name: str) -> list[Item]:
        """Return the items of a DynamoDB table that belong to the table to be damaged."""
        found: list[Item] = []
        for page in self.client.get_paginator("scan").paginate(TableName=name):
            found += page["Items"]
        hashed = "t" if name == STATE else "k"
        return [item for item in found if item[hashed]["S"].startswith(self.damaged.id)]


@pytest.fixture(params=["s3", "dynamodb"])
def home(request: pytest.FixtureRequest) -> Home:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def deployed(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployed]:
    with dynamodb_tables(monkeypatch) as (items, pages):
        world = World(tmp_path)

        def opened(table: Table) -> StateStore:
            return _store(home, world, table, items, pages)

        world.services = replace(world.services, store=cache(opened))
        tables = [world.create(name=name) for name in ("letters", "words")]
        for table in tables:
            world.drop(f"{table.name}/1.parquet", letters("abc"))
        world.settle()
        yield Deployed(world, items._client, opened, *tables)


def _store(
    home: Home, world: World, table: Table, items: DynamoItems, pages: DynamoPages
) -> StateStore:
    if home == "s3":
        return objects_store(table.state_id, world.storage, pages, world.clock, world.ids)
    return items_store(table.state_id, items, pages, world.clock, world.ids)


def rows(deployed: Deployed, table: Table) -> int:
    newest = deployed.world.tables.get(table.id)
    assert newest is not None
    return deployed.open(newest).current().rows


def held_up(deployed: Deployed, name: str, damaged: Item, what: str) -> None:
    """Damage one item: the table says so with what to do, and the other goes on."""
    table = deployed.damaged
    deployed.client.put_item(TableName=name, Item=damaged)
    with pytest.raises(CorruptDataError, match=table.id) as raised:
        rows(deployed, table)
    assert "dormouse rebuild" in raised.value.hint, (what, raised.value.explanation)
    assert rows(deployed, deployed.sound) == 3, what


@pytest.mark.parametrize("which", ["the head", "a page"])
def test_a_damaged_log_is_named_with_its_table_and_mended_by_a_rebuild(
    deployed: Deployed, which: str
) -> None:

    def tried() -> list[tuple[str, Item]]:
        (item,) = (
            i
            for i in deployed.items(STATE)
            if i["t"]["S"].endswith("#H") == (which == "the head") and "closed" not in i
        )
        return some_damages(item, ("t", "g"))

    for number in range(len(tried())):
        what, damaged = tried()[number]
        held_up(deployed, STATE, damaged, what)
        _rebuild(deployed)


def test_a_damaged_delta_is_mended_by_a_rebuild(deployed: Deployed, home: Home) -> None:
    if home == "s3":
        return  # its objects are damaged elsewhere
    item = deployed.items(DELTAS)[0]
    for what, damaged in some_damages(item, ("k", "i")):
        held_up(deployed, DELTAS, damaged, what)
    _rebuild(deployed)
    left = {i["k"]["S"].partition("#")[0] for i in deployed.items(DELTAS)}
    assert deployed.damaged.id not in left, "what is damaged is deleted with the rest"


def _rebuild(deployed: Deployed) -> None:
    deployed.world.services.store.cache_clear()  # type: ignore[attr-defined]  # as in a new process
    table = deployed.world.tables.get(deployed.damaged.id)
    assert table is not None
    rebuild(deployed.world.services, table)
    assert rows(deployed, deployed.damaged) == 3
    assert rows(deployed, deployed.sound) == 3
    left = [i["t"]["S"] for i in deployed.items(STATE)]
    of_old_log = [hashed for hashed in left if hashed.startswith(f"{table.state_id}#")]
    assert of_old_log == [f"{table.state_id}#H"], "an append asks for nothing but a page"


def _damaged(deployed: list[Any], put: Callable[[Item], object], read: Callable[[], object]) -> int:
    """Return how many damages of an item were tried; each is noticed by a read."""
    (good,) = deployed
    tried = 0
    for what, damaged in damages(good, ("t", "g")):
        put(damaged)
        with pytest.raises(CorruptDataError, match=good["t"]["S"]):
            read()
            raise AssertionError(what)
        tried += 1
    put(good)
    read()
    return tried


def test_every_damage_to_a_head_and_to_a_page_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = Manifest(1, (Snapshot("5e" * 16, 96, 7, 9),), (Segment("ab" * 16, 0, 48, 5),))
    with dynamodb_pages(monkeypatch) as pages:
        pages.open_page("t", 0, LOWEST_ID)
        for number in (1, 2, 3):
            pages.append("t", 0, f"{number:032x}")
        pages.set_manifest("t", manifest)
        found = pages._client.scan(TableName=STATE)["Items"]
        heads, page = ([i for i in found if i["t"]["S"] == t] for t in ("t#H", "t#0#0"))

        def put(item: Any) -> None:
            pages._client.put_item(TableName=STATE, Item=item)

        assert _damaged(heads, put, lambda: pages.head("t")) > 30
        assert _damaged(page, put, lambda: pages.page("t", 0)) > 15
        put({**heads[0], "closed": {"S": "1"}})
        with pytest.raises(CorruptDataError, match="closed"):
            pages.head("t")
        put({**page[0], "g": {"S": f"{1:012d}"}})
        with pytest.raises(CorruptDataError, match="checksum"):
            pages.page("t", 1)
        put(heads[0])
        pages.close("t")
        found = pages._client.scan(TableName=STATE)["Items"]
        closed = [item for item in found if item["t"]["S"] == "t#H"]
        assert _damaged(closed, put, lambda: pages.head("t")) > 15
