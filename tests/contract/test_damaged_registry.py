"""Damage to any item of the registry: it names itself, harms no other, and is brought back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from dormouse.access import AccessRule
from dormouse.errors import AlreadyExistsError, CorruptDataError, DamagedEntryError
from dormouse.items import store
from dormouse.items.store import Item, Key
from dormouse.items.tables import Repair
from dormouse.tables.table import Table, Tombstone
from tests.contract.mocked_aws import mocked_aws
from tests.contract.test_tables import STONE, A, DynamoTables, deleting, offline, registry
from tests.support.damaged_items import some_damages

B = replace(A, id="b2", name="words")
NAMES = ("a1", "letters")
"""What the damaged table of these tests can be named by."""


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[DynamoTables]:
    with mocked_aws(monkeypatch):
        tables = registry()
        tables.create(A)
        tables.create(B)
        tables.change_defaults(lambda kept: {**kept, "gc_delay_seconds": 5})
        yield tables


def item(tables: DynamoTables, pk: str) -> Any:
    return tables._client.get_item(TableName="tables", Key={"pk": {"S": pk}}).get("Item")


def put(tables: DynamoTables, stored: Any) -> None:
    tables._client.put_item(TableName="tables", Item=stored)


def lose(tables: DynamoTables, pk: str) -> None:
    tables._client.delete_item(TableName="tables", Key={"pk": {"S": pk}})


def whole(tables: DynamoTables) -> list[Table]:
    """Return the tables as they should be, read in each way there is."""
    listed = tables.all()
    assert listed == [tables.named("letters"), tables.named("words")]
    assert listed == [tables.get("a1"), tables.get("b2")]
    return listed


@pytest.mark.parametrize("pk", ["id#a1", "name#letters"])
def test_any_damage_to_a_table_names_it_harms_no_other_and_is_mended(
    tables: DynamoTables, pk: str
) -> None:
    before, good = whole(tables), item(tables, pk)
    looks = {"id#a1": [lambda: tables.get("a1")], "name#letters": []}[pk]
    for what, damaged in some_damages(good, ("pk",)):
        put(tables, damaged)
        for look in [lambda: tables.named("letters"), *looks]:
            with pytest.raises(DamagedEntryError, match=pk) as raised:
                look()
            assert raised.value.hint.startswith("`dormouse rebuild "), what
        readable, (error,) = tables.list_readable()
        assert [t.name for t in readable if t.id != "a1"] == ["words"], what
        assert error.name == "letters", what
        assert tables.named("words") == tables.get("b2") == before[1], what
        assert tables.change("b2", lambda table: table) == before[1], what
        assert tables.repair("words") == [], what
        with pytest.raises(CorruptDataError):
            tables.named("letters")
        assert len(tables.repair(error.what)) == 1, what
        assert item(tables, pk) == good, what
    assert whole(tables) == before


@pytest.mark.parametrize("which", ["", *NAMES])
@pytest.mark.parametrize("pks", [["id#a1"], ["name#letters"], ["id#a1", "name#letters"]])
def test_what_is_lost_of_a_table_is_brought_back_by_name_id_or_with_all(
    tables: DynamoTables, pks: list[str], which: str
) -> None:
    before = whole(tables)
    for pk in pks:
        lose(tables, pk)
    if len(pks) == 1:
        readable, (error,) = tables.list_readable()
        assert (error.name, pks[0] in str(error)) == ("letters", True)
        assert "words" in [table.name for table in readable]
    assert len(tables.repair(which)) == len(pks)
    assert whole(tables) == before


def test_a_name_whose_entry_is_lost_is_not_taken_for_none(tables: DynamoTables) -> None:
    lose(tables, "id#a1")
    with pytest.raises(DamagedEntryError, match="id#a1"):
        tables.named("letters")


def test_damaged_properties_of_the_instance_are_those_of_their_copy(tables: DynamoTables) -> None:
    before, good = whole(tables), item(tables, "instance")
    for what, damaged in some_damages(good, ("pk",)):
        put(tables, damaged)
        assert tables.defaults() == {"gc_delay_seconds": 5}, what
        assert tables.get("a1") == before[0], what
        readable, (error,) = tables.list_readable()
        assert readable == before, what
        assert (error.what, "instance" in str(error)) == ("(instance)", True)
        with pytest.raises(CorruptDataError, match="instance"):
            tables.change_defaults(lambda kept: {**kept, "gc_delay_seconds": 6})
        assert tables.repair() == ["the instance's properties"], what
        assert item(tables, "instance") == good, what
    assert whole(tables) == before


def test_damaged_access_rules_let_nobody_in_until_they_are_brought_back(
    tables: DynamoTables,
) -> None:
    before, rules = whole(tables), (AccessRule("local", "letters", ("read",)),)
    tables.change_access_rules(lambda _: rules)
    good = item(tables, "access")
    for what, damaged in [*some_damages(good, ("pk",)), ("lost", None)]:
        put(tables, damaged) if damaged else lose(tables, "access")
        with pytest.raises(DamagedEntryError, match="access") as raised:
            tables.access_rules()
        assert raised.value.hint.startswith("`dormouse rebuild`"), what
        with pytest.raises(DamagedEntryError, match="access"):
            tables.change_access_rules(lambda _: None)
        assert whole(tables) == before, what
        assert tables.repair() == ["the access rules"], what
        assert item(tables, "access") == good, what
    assert tables.access_rules() == rules
    for pk in ("access", "copy#access"):
        put(tables, {**good, "pk": {"S": pk}, "body": {"S": '{"rules":null}'}})
    with pytest.raises(DamagedEntryError):
        tables.access_rules()
    with pytest.raises(CorruptDataError, match="access"):
        tables.repair()


def test_lost_instance_properties_are_reported_and_restored(tables: DynamoTables) -> None:
    before = whole(tables)
    lose(tables, "instance")
    assert tables.defaults() == {"gc_delay_seconds": 5}
    assert tables.get("a1") == before[0]
    readable, (error,) = tables.list_readable()
    assert readable == before
    assert "instance" in str(error)
    tables.repair()
    assert whole(tables) == before


def test_where_the_copy_of_the_properties_is_damaged_too_none_are_made_up(
    tables: DynamoTables,
) -> None:
    for pk in ("instance", "copy#instance"):
        put(tables, {**item(tables, pk), "more": {"S": ""}})
    for look in (tables.defaults, tables.list_readable, lambda: tables.get("a1")):
        with pytest.raises(CorruptDataError, match="instance"):
            look()
    with pytest.raises(CorruptDataError, match="instance"):
        tables.repair()


def test_a_damaged_copy_is_made_again_of_what_it_is_of(tables: DynamoTables) -> None:
    good = item(tables, "copy#id#a1")
    for what, damaged in some_damages(good, ("pk",)):
        put(tables, damaged)
        assert tables.repair() == ["the copy of the entry of table 'letters'"], what
        assert item(tables, "copy#id#a1") == good, what
    lose(tables, "copy#id#a1")
    tables.repair()
    assert item(tables, "copy#id#a1") == good


def test_what_is_damaged_with_its_copy_is_named_and_all_else_is_mended(
    tables: DynamoTables,
) -> None:
    for pk in ("id#a1", "copy#id#a1", "id#b2"):
        put(tables, {**item(tables, pk), "more": {"S": ""}})
    with pytest.raises(CorruptDataError, match="'id#a1'") as raised:
        tables.repair()
    assert "backup" in raised.value.hint
    assert tables.get("b2") == replace(B, properties=tables.get("b2").properties)  # type: ignore[union-attr]


def test_what_was_changed_last_is_what_comes_back(tables: DynamoTables) -> None:
    tables.change("a1", lambda table: replace(offline(table), name="others"))
    tables.change_defaults(lambda kept: {**kept, "gc_delay_seconds": 7})
    for pk in ("id#a1", "instance"):
        put(tables, {**item(tables, pk), "body": {"S": "{}"}})
    tables.repair()
    kept = tables.named("others")
    assert kept is not None
    assert (kept.online, kept.properties.gc_delay_seconds) == (False, 7)
    assert tables.change("a1", lambda table: replace(table, online=True)).online


def test_an_item_that_belongs_elsewhere_is_not_believed(tables: DynamoTables) -> None:
    put(tables, {**item(tables, "id#b2"), "pk": {"S": "id#a1"}})
    with pytest.raises(DamagedEntryError, match="id#a1"):
        tables.get("a1")
    put(tables, {**item(tables, "name#words"), "pk": {"S": "name#letters"}})
    with pytest.raises(DamagedEntryError, match="name#letters"):
        tables.named("letters")
    tables.repair()
    assert [table.id for table in whole(tables)] == ["a1", "b2"]


def test_an_item_of_another_format_says_which_and_what_to_do(tables: DynamoTables) -> None:
    with pytest.MonkeyPatch.context() as later:
        later.setattr(store, "FORMAT", 2)
        tables.create(replace(A, id="c3", name="later"))
    with pytest.raises(DamagedEntryError, match=r"format 2.*is 1") as raised:
        tables.get("c3")
    assert "another version" in raised.value.hint


def test_a_deleted_table_does_not_come_back(tables: DynamoTables) -> None:
    tables.change("a1", deleting)
    tables.put_tombstone(STONE)
    tables.delete(A)
    assert tables.repair() == []
    assert tables.get("a1") is None
    assert tables.named("letters") is None


def stale_repair(tables: DynamoTables) -> tuple[Repair, list[Item]]:
    """Return a repair that has seen the entry of a table as damaged, and slept since."""
    good = item(tables, "id#a1")
    put(tables, {**good, "more": {"S": ""}})
    seen = list(tables._items.scan("tables", "id#", "name#", "copy#"))
    put(tables, good)
    return Repair(tables._items), seen


def test_a_repair_that_comes_late_sets_nothing_back(tables: DynamoTables) -> None:
    repair, seen = stale_repair(tables)
    tables.change("a1", offline)
    assert repair.repair(seen, "letters") == []
    kept = tables.get("a1")
    assert kept is not None
    assert not kept.online


def test_a_repair_that_comes_late_brings_no_deleted_table_back(tables: DynamoTables) -> None:
    _, seen = stale_repair(tables)
    lost = [each for each in seen if each.key.owner != "id#a1"]
    tables.delete(A)
    repair = Repair(tables._items)
    assert repair.repair(lost, "a1") == ["the name 'letters'"][:0]
    assert tables.get("a1") is None


@pytest.mark.parametrize("backup", [False, True])
def test_what_has_a_tombstone_is_not_brought_back(tables: DynamoTables, backup: bool) -> None:
    """Nor by a backup of the registry, which is of another time than that of the tombstones."""
    copy = item(tables, "copy#id#a1")
    lose(tables, "id#a1")
    assert tables.put_tombstone(STONE) == STONE
    if backup:
        put(tables, copy)
    assert tables.repair("a1") == []
    with pytest.raises(DamagedEntryError) if backup else nullcontext():
        assert tables.get("a1") is None


def test_a_damaged_entry_that_looks_deleting_gets_no_tombstone(tables: DynamoTables) -> None:
    damaged = item(tables, "id#a1")
    body = damaged["body"]["S"].replace('"name"', '"deleting":true,"name"')
    put(tables, {**damaged, "body": {"S": body}})
    with pytest.raises(CorruptDataError, match="id#a1"):
        tables.put_tombstone(STONE)
    assert tables.tombstone("a1") is None


def test_a_damaged_name_that_no_table_has_is_free_again(tables: DynamoTables) -> None:
    put(tables, {"pk": {"S": "name#nobody"}, "body": {"S": "a1"}})
    with pytest.raises(AlreadyExistsError):
        tables.create(replace(A, id="c3", name="nobody"))
    assert tables.repair("nobody") == ["the name 'nobody', which no table has"]
    tables.create(replace(A, id="c3", name="nobody"))


OTHER = replace(STONE, table_id="c3", deleted_ms=STONE.deleted_ms + 1)


@pytest.mark.parametrize("place", ["by id", "in order"])
def test_any_damage_to_a_tombstone_harms_no_other_and_is_mended(
    tables: DynamoTables, place: str
) -> None:
    stone = Tombstone.of(tables.change("a1", deleting), STONE.deleted_ms)
    tables.put_tombstone(stone)
    tables.put_tombstone(OTHER)
    client = tables._client
    (good,) = [
        found
        for found in client.scan(TableName="state")["Items"]
        if '"a1"' in found["body"]["S"] and (found["g"] == {"S": "0"}) == (place == "by id")
    ]
    for what, damaged in some_damages(good, ("t", "g")):
        client.put_item(TableName="state", Item=damaged)
        found, damage = tables.tombstones(0)
        assert OTHER in found, what
        assert tables.tombstone("c3") == OTHER, what
        if place == "by id":
            with pytest.raises(CorruptDataError, match="a1#T") as raised:
                tables.tombstone("a1")
            assert "dormouse rebuild" in raised.value.hint
        else:
            assert (len(found), len(damage)) == (1, 1), what
        assert tables.repair() == ["the tombstone of table 'a1'"], what
        assert tables.tombstones(0) == ([stone, OTHER], []), what
        assert tables.tombstone("a1") == stone, what
    for found in client.scan(TableName="state")["Items"]:
        client.put_item(TableName="state", Item={**found, "body": {"S": "{}"}})
    with pytest.raises(CorruptDataError, match="tombstone of table 'a1'"):
        tables.repair()


@pytest.mark.parametrize("which", ["", "letters"])
def test_no_name_is_freed_while_nobody_knows_whose_it_is(tables: DynamoTables, which: str) -> None:
    for pk in ("id#a1", "copy#id#a1", "name#letters"):
        put(tables, {**item(tables, pk), "more": {"S": ""}})
    damaged = item(tables, "name#letters")
    with pytest.raises(CorruptDataError, match="'name#letters'") as raised:
        tables.repair(which)
    assert "backup" in raised.value.hint
    assert item(tables, "name#letters") == damaged
    with pytest.raises(AlreadyExistsError):
        tables.create(replace(A, id="c3"))


def test_a_registry_of_a_newer_release_is_left_as_it_is(tables: DynamoTables) -> None:
    with pytest.MonkeyPatch.context() as later:
        later.setattr(store, "FORMAT", store.FORMAT + 1)
        newer = replace(A, id="c3", name="later")
        tables.create(newer)
        stored = [item(tables, pk) for pk in ("id#c3", "copy#id#c3", "name#later")]
    with pytest.raises(CorruptDataError, match="'id#c3'"):
        tables.repair()
    assert [item(tables, pk) for pk in ("id#c3", "copy#id#c3", "name#later")] == stored


def test_nothing_is_set_over_properties_of_the_instance_that_were_lost(
    tables: DynamoTables,
) -> None:
    lose(tables, "instance")
    with pytest.raises(DamagedEntryError, match="instance") as raised:
        tables.change_defaults(lambda kept: {**kept, "compaction_files": 9})
    assert "dormouse rebuild" in raised.value.hint
    tables.repair()
    assert tables.defaults() == {"gc_delay_seconds": 5}


def test_a_table_is_read_by_two_requests_though_nothing_is_set_for_the_instance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with mocked_aws(monkeypatch):
        tables = registry()
        tables.create(A)
        asked: list[str] = []
        items: Any = tables._items
        get = items._get

        def noted(key: Key) -> object:
            asked.append(key.owner)
            return get(key)

        monkeypatch.setattr(items, "_get", noted)
        tables.get("a1")
    assert asked == ["id#a1", "instance"]
