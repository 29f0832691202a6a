"""What is damaged of one table is shown as damaged, and keeps nobody from the others."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from dormouse.client.instance import Instance
from dormouse.errors import DamagedEntryError
from dormouse.state.jobs import DAMAGED, JobRecord
from dormouse.stored.paths import state_prefix
from tests.cli.conftest import Dormouse
from tests.support.adapters import MemoryTables
from tests.support.instances import InMemory


@pytest.fixture
def damaged(flights: Dormouse, memory: InMemory) -> Dormouse:
    """Besides the table `flights`, one called `broken` whose entry cannot be read."""
    assert flights("table", "add", "broken", "--schema", "schema.json").exit_code == 0
    memory.world.tables.damaged.add(memory.instance.table("broken").table.id)
    return flights


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_damaged_entry_is_listed_and_the_listing_is_no_success(damaged: Dormouse) -> None:
    for form in ("table", "json"):
        listed = damaged("table", "list", "--format", form)
        assert listed.exit_code == 1
        assert "error: the registry's item" in listed.stderr
        assert "hint: dormouse rebuild" in listed.stderr
    broken, flights = sorted(lines(listed.stdout), key=lambda row: str(row["name"]))
    assert (flights["name"], flights["online"], flights["damaged"]) == ("flights", True, "")
    assert (broken["name"], broken["online"]) == ("broken", None)
    assert "cannot be read" in str(broken["damaged"])
    assert "broken" in damaged("table", "list").stdout


def test_other_tables_are_measured_waited_for_and_answer(damaged: Dormouse) -> None:
    measured = damaged("metrics", "--format", "json")
    assert measured.exit_code == 1
    flights, broken = lines(measured.stdout)
    assert (flights["table"], flights["rows"], flights["damaged"]) == ("flights", 5, None)
    assert (broken["table"], "cannot be read" in str(broken["damaged"])) == ("broken", True)
    waited = damaged("wait")
    assert waited.exit_code == 1
    assert "cannot be read" in waited.stderr
    for verb in ("status", "jobs", "wait", "metrics", "check"):
        assert damaged(verb, "flights").exit_code == 0, verb
        found = damaged(verb, "broken")
        assert (found.exit_code, "dormouse rebuild" in found.stderr) == (1, True), verb
    assert damaged("queues").exit_code == 0
    assert damaged("jobs").exit_code == 0


def test_a_state_that_is_damaged_is_a_row_that_says_so(flights: Dormouse, memory: InMemory) -> None:
    flights("table", "add", "broken", "--schema", "schema.json")
    table_id = memory.instance.table("broken").table.id
    for stored in list(memory.world.storage.list(state_prefix(table_id))):
        path = memory.world.folder / "data" / stored.path
        path.chmod(0o644)
        path.write_bytes(b"damaged")
    memory.world.services.store.cache_clear()  # type: ignore[attr-defined]  # as in a new process
    measured = flights("metrics", "--format", "json")
    assert measured.exit_code == 1
    assert [(row["table"], bool(row["damaged"])) for row in lines(measured.stdout)] == [
        ("broken", True),
        ("flights", False),
    ]
    waited = flights("wait")
    assert (waited.exit_code, table_id in waited.stderr) == (1, True)


@pytest.mark.parametrize("which", [["broken"], []])
def test_a_damaged_entry_is_brought_back_and_its_state_is_left_alone(
    damaged: Dormouse, memory: InMemory, which: list[str]
) -> None:
    assert damaged("rebuild", *which, "--dry-run").exit_code == 1
    assert memory.world.tables.damaged
    repaired = damaged("rebuild", *which)
    assert repaired.exit_code == 0
    assert (
        "restored from its copy, as it was damaged or lost: the entry of table 'broken'"
        in repaired.stderr
    )
    assert "rebuilt with" not in repaired.stderr
    listed = damaged("table", "list", "--format", "json")
    assert listed.exit_code == 0
    assert [set(row) for row in lines(listed.stdout)] == [
        {"name", "online", "row_keys", "created"}
    ] * 2
    assert damaged("rebuild").stderr == "no entry of the registry is damaged\n"
    assert damaged("rebuild", "--dry-run").exit_code == 0


def test_damaged_instance_properties_are_reported_by_listings_that_are_still_complete(
    flights: Dormouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_readable = MemoryTables.list_readable
    error = DamagedEntryError("the registry's item 'instance' cannot be read")
    monkeypatch.setattr(
        MemoryTables, "list_readable", lambda self: (list_readable(self)[0], [error])
    )
    for verb in (["table", "list"], ["metrics"], ["wait"], ["rebuild", "--dry-run"]):
        result = flights(*verb)
        assert (result.exit_code, "'instance'" in result.stderr) == (1, True), verb
    (row,) = lines(flights("table", "list", "--format", "json").stdout)
    assert row["name"] == "flights"


def test_files_of_tables_meet_the_damage_of_their_own_tables_only(damaged: Dormouse) -> None:
    def applied(name: str) -> object:
        Path("tables.yaml").write_text(f"tables: [{{name: {name}, online: false}}]")
        return damaged("table", "apply", "tables.yaml", "--force").exit_code

    assert applied("flights") == 0
    assert applied("broken") == 1


def test_a_damaged_record_is_always_shown_and_the_listing_is_no_success(
    flights: Dormouse, memory: InMemory
) -> None:
    table_id = memory.instance.table("flights").table.id
    memory.world.tracker.kept[table_id, "j"] = JobRecord(table_id, "j", "", DAMAGED, reason="it is")
    for options in ([], ["--failed"], ["--kind", "split"], ["--id", "j"]):
        shown = flights("jobs", "flights", "--format", "json", *options)
        assert shown.exit_code == 1, options
        assert ("j", DAMAGED) in [(r["job"], r["state"]) for r in lines(shown.stdout)], options
    assert flights("jobs", "flights").exit_code == 1
    assert flights("jobs").exit_code == 0


def test_a_table_whose_name_was_lost_is_damaged_and_not_missing(tmp_path: Path) -> None:
    """An error that it is missing would make a person create another one."""
    with Instance.open(tmp_path / "mice") as mice:
        mice.create_table("users", "id:long", row_keys=["id"])
    with contextlib.closing(sqlite3.connect(tmp_path / "mice" / "dormouse.sqlite")) as database:
        database.execute("DELETE FROM items WHERE owner = 'name#users'")
        database.commit()
    with Instance.open(tmp_path / "mice") as mice:
        for ask in (
            lambda: mice.table("users"),
            lambda: mice.sql("SELECT * FROM users"),
            lambda: mice.set_properties("users", {"gc_delay_seconds": 1}),
        ):
            with pytest.raises(DamagedEntryError, match="'name#users' is missing") as caught:
                ask()
            assert "`dormouse rebuild users`" in caught.value.hint
        assert mice.repair("users") == ["the name 'users'"]
        assert mice.table("users").count() == 0
