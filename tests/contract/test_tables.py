"""What the registry of tables promises: in memory, in DynamoDB and in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dormouse.access import AccessRule, AccessRules, granted
from dormouse.aws.items import DynamoItems
from dormouse.errors import (
    AlreadyExistsError,
    CorruptDataError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from dormouse.folder.sqlite import SqliteItems
from dormouse.items.tables import ItemTables
from dormouse.schema.schema import Field
from dormouse.schema.types import Primitive
from dormouse.tables.properties import Properties
from dormouse.tables.table import Table, Tombstone
from tests.contract.folders import database_in
from tests.contract.mocked_aws import dynamodb_table, mocked_aws
from tests.support.adapters import MemoryTables
from tests.support.memory_items import MemoryItems
from tests.support.world import LETTERS

A = Table(
    "a1",
    "letters",
    LETTERS,
    Properties(compaction_files=3),
    frozenset({"compaction_files"}),
    created_ms=7,
    schema_generation=5,
    reset_ms=8,
    renamed_ms=9,
    restored="r1",
    purged_version=6,
)

Tables = ItemTables | MemoryTables


class DynamoTables(ItemTables):
    """A registry over tables of DynamoDB made as the template makes them, and its client."""

    def __init__(self) -> None:
        dynamodb_table("state", "t", "g")
        self._client = dynamodb_table("tables", "pk")
        super().__init__(DynamoItems(self._client, {"tables": "tables", "state": "state"}))


def registry() -> DynamoTables:
    return DynamoTables()


def offline(table: Table) -> Table:
    return replace(table, online=False)


@pytest.fixture(params=["memory", "items", "dynamodb", "folder"])
def tables(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Tables]:
    if request.param == "memory":
        yield MemoryTables()
        return
    if request.param == "items":
        yield ItemTables(MemoryItems())
        return
    if request.param == "folder":
        with database_in(tmp_path) as database:
            yield ItemTables(SqliteItems(database))
        return
    with mocked_aws(monkeypatch):
        yield registry()


def test_a_table_is_found_by_name_and_by_id_just_as_it_was_made(tables: Tables) -> None:
    tables.create(A)
    assert tables.named("letters") == tables.get("a1") == A


def test_what_was_never_made_is_not_there(tables: Tables) -> None:
    tables.create(A)
    assert tables.named("a1") is None
    assert tables.get("letters") is None
    assert tables.get("name#letters") is None


def test_making_a_table_again_changes_nothing(tables: Tables) -> None:
    tables.create(A)
    tables.change("a1", offline)
    tables.create(A)
    assert tables.get("a1") == offline(A)


def test_a_name_belongs_to_one_table(tables: Tables) -> None:
    tables.create(A)
    with pytest.raises(AlreadyExistsError, match="letters"):
        tables.create(replace(A, id="b2"))
    assert tables.get("b2") is None
    assert tables.named("letters") == A


def test_an_id_keeps_its_first_name(tables: Tables) -> None:
    tables.create(A)
    with pytest.raises(AlreadyExistsError, match="others"):
        tables.create(replace(A, name="others"))
    assert tables.named("others") is None


def test_tables_are_listed_by_name(tables: Tables) -> None:
    for table_id, name in (("1", "c"), ("2", "a"), ("3", "b")):
        tables.create(replace(A, id=table_id, name=name))
    assert [table.name for table in tables.all()] == ["a", "b", "c"]


def test_a_change_is_made_of_the_newest_and_given_back(tables: Tables) -> None:
    tables.create(A)
    wider = replace(LETTERS, values=(*LETTERS.values, Field("more", Primitive.LONG)))
    tables.change("a1", offline)
    changed = tables.change(
        "a1", lambda t: replace(t, schema=wider, log="l", logs=("k", "l"), reset_ms=9, tree="t")
    )
    expected = replace(offline(A), schema=wider, log="l", logs=("k", "l"), reset_ms=9, tree="t")
    assert changed == tables.get("a1") == tables.named("letters") == expected


def test_a_change_of_a_table_that_is_gone_does_not_bring_it_back(tables: Tables) -> None:
    with pytest.raises(NotFoundError):
        tables.change("a1", offline)
    assert tables.all() == []


def test_a_change_that_is_refused_changes_nothing(tables: Tables) -> None:
    def refuse(table: Table) -> Table:
        raise InvalidRequestError("no")

    tables.create(A)
    with pytest.raises(InvalidRequestError):
        tables.change("a1", refuse)
    assert tables.get("a1") == A


def test_a_request_changes_a_table_once_however_often_it_comes(tables: Tables) -> None:
    def once_more(table: Table) -> Table:
        return replace(table, generation=table.generation + 1)

    tables.create(A)
    for _ in range(3):
        assert tables.change("a1", once_more, request_id="r1").generation == 1
    assert tables.change("a1", once_more, request_id="r2").generation == 2
    assert tables.change("a1", once_more, request_id="r1").generation == 2


def test_a_change_that_lost_to_another_is_made_again_of_what_that_one_left(tables: Tables) -> None:
    tables.create(A)
    looks = []

    def slow(table: Table) -> Table:
        looks.append(table.online)
        if len(looks) == 1:
            tables.change("a1", offline)
        return replace(table, log="new")

    tables.change("a1", slow)
    assert looks == [True, False]
    assert tables.get("a1") == replace(A, online=False, log="new")


def test_a_table_found_by_its_new_name_is_not_found_by_the_old_one(tables: Tables) -> None:
    tables.create(A)
    tables.change("a1", lambda t: replace(t, name="words"))
    assert tables.named("letters") is None
    assert tables.named("words") == tables.get("a1") == replace(A, name="words")
    successor = replace(A, id="b2")
    tables.create(successor)
    assert tables.named("letters") == successor


def test_a_name_that_is_taken_is_not_taken_away(tables: Tables) -> None:
    tables.create(A)
    tables.create(replace(A, id="b2", name="words"))
    with pytest.raises(AlreadyExistsError, match="words"):
        tables.change("a1", lambda t: replace(t, name="words"))
    assert tables.named("letters") == A
    assert tables.named("words") == replace(A, id="b2", name="words")


def test_a_deletion_that_has_begun_is_not_undone_by_a_change_that_did_not_see_it(
    tables: Tables,
) -> None:
    tables.create(A)
    tables.change("a1", lambda t: replace(t, deleting=True))
    with pytest.raises(NotFoundError):
        tables.change("a1", lambda t: replace(t, deleting=False))
    tables.change("a1", offline)
    assert tables.get("a1") == replace(A, deleting=True, online=False)


def test_a_table_has_the_instances_properties_where_it_sets_none(tables: Tables) -> None:
    tables.create(A)
    assert tables.change_defaults(lambda kept: {**kept, "compaction_files": 9}) == {
        "compaction_files": 9
    }
    tables.change_defaults(lambda kept: {**kept, "gc_delay_seconds": 5})
    assert tables.defaults() == {"compaction_files": 9, "gc_delay_seconds": 5}
    for table in (tables.get("a1"), tables.named("letters"), tables.all()[0]):
        assert table is not None
        assert table.properties == Properties(compaction_files=3, gc_delay_seconds=5)
        assert table.settings == {"compaction_files": 3}


def test_changes_of_the_instances_properties_do_not_lose_each_other(tables: Tables) -> None:
    if isinstance(tables, MemoryTables):
        pytest.skip("a change in memory has no moment at which another can be made")
    looks = []

    def slow(kept: dict[str, int | str]) -> dict[str, int | str]:
        looks.append(len(kept))
        if len(looks) == 1:
            tables.change_defaults(lambda kept: {**kept, "gc_delay_seconds": 5})
        return {**kept, "compaction_files": 9}

    tables.change_defaults(slow)
    assert looks == [0, 1]
    assert tables.defaults() == {"compaction_files": 9, "gc_delay_seconds": 5}


def test_an_instance_has_no_access_rules_until_some_are_set_and_may_have_none_left(
    tables: Tables,
) -> None:
    assert tables.access_rules() is None
    rules = (AccessRule("local", "letters", ("read",), ("note",)),)
    assert tables.change_access_rules(lambda kept: rules) == rules
    assert tables.access_rules() == rules
    for left in ((), None, rules):
        assert tables.change_access_rules(lambda _, left=left: left) == left  # type: ignore[misc]
        assert tables.access_rules() == left
    tables.create(A)
    tables.change_defaults(lambda kept: {**kept, "gc_delay_seconds": 5})
    assert tables.repair() == []
    assert tables.access_rules() == rules
    assert tables.all() == [tables.get("a1")]


def test_changes_of_access_rules_do_not_lose_each_other(tables: Tables) -> None:
    if isinstance(tables, MemoryTables):
        pytest.skip("a change in memory has no moment at which another can be made")
    one, other = (AccessRule("local", name, ("read",)) for name in ("a", "b"))
    seen = []

    def slow(kept: AccessRules) -> AccessRules:
        seen.append(kept)
        if len(seen) == 1:
            tables.change_access_rules(lambda kept: granted(kept, other))
        return granted(kept, one)

    assert tables.change_access_rules(slow) == (one, other)
    assert seen == [None, (other,)]


def test_a_deleted_name_is_free_and_a_late_repeat_of_the_deletion_leaves_the_next_table(
    tables: Tables,
) -> None:
    tables.create(A)
    tables.delete(A)
    assert tables.all() == []
    assert tables.named("letters") is None
    successor = replace(A, id="b2")
    tables.create(successor)
    tables.delete(A)
    assert tables.named("letters") == successor


def test_deleting_what_is_not_there_is_no_error(tables: Tables) -> None:
    tables.delete(A)
    assert tables.all() == []


def test_a_list_longer_than_a_page_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    with mocked_aws(monkeypatch):
        tables = registry()
        values = tuple(Field(f"{n:0250d}", Primitive.STRING) for n in range(990))
        wide = replace(LETTERS, values=values)
        for number in range(4):  # of 290 KB each; a page ends at 1 MB
            tables.create(replace(A, id=str(number), name=str(number), schema=wide))
        assert [table.name for table in tables.all()] == ["0", "1", "2", "3"]


def test_an_item_damaged_by_hand_is_distinguished_from_a_missing_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with mocked_aws(monkeypatch):
        tables = registry()
        tables.create(A)
        tables.create(replace(A, id="b2", name="words"))
        tables._client.update_item(
            TableName="tables", Key={"pk": {"S": "id#a1"}}, UpdateExpression="REMOVE body"
        )
        for look in (tables.all, lambda: tables.get("a1"), lambda: tables.named("letters")):
            with pytest.raises(CorruptDataError, match="id#a1"):
                look()
        readable, (error,) = tables.list_readable()
        assert [table.name for table in readable] == ["words"]
        assert "id#a1" in str(error)


def test_a_registry_that_cannot_be_read_is_not_an_empty_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with mocked_aws(monkeypatch):
        client = dynamodb_table("tables", "pk")
        tables = ItemTables(DynamoItems(client, {"tables": "not-deployed"}))
        for look in (tables.all, lambda: tables.get("a1"), lambda: tables.named("letters")):
            with pytest.raises(UnavailableError, match="DynamoDB"):
                look()


STONE = Tombstone.of(A, 1_700_000_000_000)


def deleting(table: Table) -> Table:
    return replace(table, deleting=True)


def test_a_tombstone_is_found_by_the_id_of_a_table_that_is_gone(tables: Tables) -> None:
    tables.create(A)
    rebuilt = tables.change("a1", lambda t: replace(deleting(t), log="l", logs=("k", "l")))
    stone = Tombstone.of(rebuilt, 5)
    assert tables.put_tombstone(stone) == tables.tombstone("a1") == stone
    tables.delete(rebuilt)
    assert tables.tombstone("a1") == stone
    assert [table.log for table in stone.states()] == ["", "k", "l"]
    assert tables.tombstone("b2") is None


def test_a_table_that_is_not_being_deleted_never_gets_a_tombstone(tables: Tables) -> None:
    tables.create(A)
    assert tables.put_tombstone(STONE) is None
    assert tables.tombstone("a1") is None
    assert tables.tombstones(0)[0] == []


def test_the_first_tombstone_of_an_id_stays(tables: Tables) -> None:
    assert tables.put_tombstone(STONE) == STONE
    assert tables.put_tombstone(replace(STONE, deleted_ms=9, name="others")) == STONE
    assert tables.tombstones(0)[0] == [STONE]


def test_an_id_with_a_tombstone_is_never_registered_again(tables: Tables) -> None:
    tables.put_tombstone(STONE)
    with pytest.raises(AlreadyExistsError):
        tables.create(A)
    assert tables.get("a1") is None
    assert tables.named("letters") is None
    tables.create(replace(A, id="b2"))


def test_tombstones_are_listed_from_a_time_on_and_many_of_one_moment_are_all_there(
    tables: Tables,
) -> None:
    ages = [*(1000 + n // 10 for n in range(40)), STONE.deleted_ms]
    for number, time_ms in enumerate(ages):
        tables.put_tombstone(replace(STONE, table_id=f"{number:016x}", deleted_ms=time_ms))
    assert [stone.deleted_ms for stone in tables.tombstones(0)[0]] == ages
    assert len({stone.table_id for stone in tables.tombstones(0)[0]}) == len(ages)
    assert [stone.deleted_ms for stone in tables.tombstones(1003)[0]] == ages[30:]
    assert tables.tombstones(STONE.deleted_ms + 1)[0] == []


def test_the_registry_is_not_made_longer_by_what_was_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with mocked_aws(monkeypatch):
        tables = registry()
        for number in range(5):
            table = replace(A, id=f"{number:016x}")
            tables.create(table)
            tables.change(table.id, deleting)
            tables.put_tombstone(Tombstone.of(table, number))
            tables.delete(table)
        assert tables._client.scan(TableName="tables")["Count"] == 2, "what is of the instance"
