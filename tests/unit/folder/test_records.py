"""Damage to any record of a folder is noticed, named, and mended where there is a copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dormouse.access import AccessRule
from dormouse.errors import CorruptDataError, DamagedEntryError
from dormouse.folder.sqlite import Database, SqliteItems
from dormouse.items.pages import ItemPages
from dormouse.items.records import ItemTracker
from dormouse.items.tables import ItemTables
from dormouse.log.pages import LOWEST_ID, Head
from dormouse.state.jobs import DAMAGED
from tests.contract.test_tables import STONE, A, deleting
from tests.contract.test_tracker import AT_MS, JOB, STARTED

B = replace(A, id="b2", name="words")
DAMAGES = (
    "UPDATE items SET body = replace(body, '1', '7') WHERE {}",
    "UPDATE items SET body = '{{}}' WHERE {}",
    "UPDATE items SET body = substr(body, 1, 5) WHERE {}",
    "UPDATE items SET sum = x'0011223344556677' WHERE {}",
)
LOSS = "DELETE FROM items WHERE {}"


@pytest.fixture
def tables(database: Database) -> ItemTables:
    tables = ItemTables(SqliteItems(database))
    tables.create(A)
    tables.create(B)
    tables.change_defaults(lambda kept: {**kept, "gc_delay_seconds": 5})
    return tables


def damage(database: Database, how: str, where: str) -> None:
    with database.writing() as connection:
        assert connection.execute(how.format(where)).rowcount


@pytest.mark.parametrize("how", [*DAMAGES, LOSS])
@pytest.mark.parametrize("name", ["letters", "a1", ""])
def test_any_damage_to_a_table_names_it_harms_no_other_and_is_mended(
    database: Database, tables: ItemTables, how: str, name: str
) -> None:
    before = tables.all()
    damage(database, how, "owner = 'id#a1'")
    for look in (lambda: tables.named("letters"), lambda: tables.get("a1"), tables.all):
        with pytest.raises(DamagedEntryError, match="id#a1") as raised:
            look()
        assert raised.value.hint.startswith("`dormouse rebuild ")
    readable, (error,) = tables.list_readable()
    assert readable == [tables.get("b2")]
    assert (error.name, error.table_id) == ("letters", "a1")
    assert tables.repair("words") == []
    assert tables.repair(name) == ["the entry of table 'letters'"]
    assert tables.all() == before
    assert tables.repair() == []


def test_an_item_under_another_name_is_not_believed(database: Database, tables: ItemTables) -> None:
    before = tables.all()
    damage(database, "UPDATE items SET owner = 'name#lettuce' WHERE {}", "owner = 'name#letters'")
    with pytest.raises(DamagedEntryError):
        tables.named("lettuce")
    assert {error.what for error in tables.list_readable()[1]} == {"letters", "lettuce"}
    mended = ["the name 'letters'", "the name 'lettuce', which no table has"]
    assert tables.repair() == mended
    assert tables.all() == before
    assert tables.named("lettuce") is None


@pytest.mark.parametrize("how", [*DAMAGES, LOSS])
def test_damaged_properties_of_the_instance_are_those_of_the_copy(
    database: Database, tables: ItemTables, how: str
) -> None:
    damage(database, how.replace("'1', '7'", "'5', '7'"), "owner = 'instance'")
    assert tables.defaults() == {"gc_delay_seconds": 5}
    readable, (error,) = tables.list_readable()
    assert len(readable) == 2
    assert "'instance'" in str(error)
    with pytest.raises(DamagedEntryError):
        tables.change_defaults(lambda kept: {})
    assert tables.repair() == ["the instance's properties"]
    assert tables.change_defaults(lambda kept: {}) == {}


@pytest.mark.parametrize("how", [*DAMAGES, LOSS])
def test_damaged_access_rules_let_nobody_in_until_they_are_brought_back(
    database: Database, tables: ItemTables, how: str
) -> None:
    rules = (AccessRule("aws-id:AIDA1", "letters", ("read",)),)
    tables.change_access_rules(lambda _: rules)
    damage(database, how, "owner = 'access'")
    for look in (tables.access_rules, lambda: tables.change_access_rules(lambda _: None)):
        with pytest.raises(DamagedEntryError, match="access") as raised:
            look()
        assert raised.value.hint.startswith("`dormouse rebuild`")
    assert len(tables.all()) == 2, "tables are not affected"
    assert tables.repair() == ["the access rules"]
    assert tables.access_rules() == rules
    damage(database, DAMAGES[1], "owner LIKE '%access'")
    with pytest.raises(CorruptDataError, match="'access'"):
        tables.repair()


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_tombstone_is_reported_and_mended(
    database: Database, tables: ItemTables, how: str
) -> None:
    tables.change("a1", deleting)
    tables.put_tombstone(STONE)
    damage(database, how, "owner = 'a1#T'")
    with pytest.raises(CorruptDataError, match="a1#T"):
        tables.tombstone("a1")
    assert tables.repair() == ["the tombstone of table 'a1'"]
    assert tables.tombstone("a1") == STONE
    damage(database, how, "owner = '(tombstones)'")
    assert len(tables.tombstones(0)[1]) == 1
    assert tables.repair() == ["the tombstone of table 'a1'"]
    assert tables.tombstones(0) == ([STONE], [])


def test_what_has_no_whole_copy_either_is_named(database: Database, tables: ItemTables) -> None:
    damage(database, DAMAGES[1], "owner LIKE '%id#a1'")
    damage(database, DAMAGES[3], "owner = 'id#b2'")
    with pytest.raises(CorruptDataError, match="'id#a1'"):
        tables.repair()
    assert tables.named("words") is not None, "the other was repaired"


@pytest.mark.parametrize("how", ["body = '{{}}'", "body = x'07'", "sum = x'0011223344556677'"])
def test_a_damaged_log_is_reported_and_can_still_be_closed(database: Database, how: str) -> None:
    pages = ItemPages(SqliteItems(database))
    for number in range(2):
        pages.open_page("t", number, LOWEST_ID)
    pages.append("t", 1, f"{1:032x}")
    reads: list[tuple[str, Callable[[], object]]] = [
        ("t#H", lambda: pages.head("t")),
        ("t#0#0", lambda: pages.page("t", 1)),
        ("t#0#0", lambda: pages.append("t", 1, f"{2:032x}")),
    ]
    damage(database, f"UPDATE items SET {how} WHERE {{}}", "space = 'state'")
    for kind, read in reads:
        with pytest.raises(
            CorruptDataError, match=f"{kind}.* of a table's log is damaged"
        ) as raised:
            read()
        assert "dormouse rebuild" in raised.value.hint
    assert pages.close("t") == Head(1, first_page=0, closed=True)


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_record_of_a_job_is_shown_and_replaced_by_the_next(
    database: Database, how: str
) -> None:
    tracker = ItemTracker(SqliteItems(database))
    tracker.record(JOB, STARTED, AT_MS)
    damage(database, how, "space = 'jobs'")
    assert tracker.get("t", "j") is None
    (shown,) = tracker.records("t")
    assert (shown.job_id, shown.state) == ("j", DAMAGED)
    assert "'j' is damaged" in shown.reason
    tracker.record(JOB, STARTED, AT_MS)
    assert tracker.get("t", "j") is not None


def test_a_request_whose_table_cannot_be_read_any_more_is_about_none(database: Database) -> None:
    tracker = ItemTracker(SqliteItems(database))
    tracker.bind("r", "t1", 7)
    damage(database, DAMAGES[0], "space = 'jobs'")
    with pytest.raises(CorruptDataError, match="'r'") as raised:
        tracker.bind("r", "u", 8)
    assert "another request_id" in raised.value.hint
