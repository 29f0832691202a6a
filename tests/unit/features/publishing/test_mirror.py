"""The entry of a table in Glue names what is published of it, or is not there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dormouse.errors import (
    AlreadyExistsError,
    ContendedError,
    InvalidRequestError,
    UnavailableError,
)
from dormouse.features.measure import lag_ms
from dormouse.features.publish_iceberg import publish_iceberg
from dormouse.messages.requests import RenameTable, SetDefaults, SetProperties
from dormouse.messages.stages import TableChanged
from dormouse.ports import MirrorEntry
from dormouse.state.versions import PublicationRecord
from dormouse.storage import root_uri
from dormouse.tables.table import Table
from tests.support.memory_mirror import MemoryMirror, refuse
from tests.support.world import LETTERS, World, letters

MIRRORED = {"iceberg": "on", "iceberg_glue": "on"}


@pytest.fixture
def glue(world: World) -> MemoryMirror:
    mirror = MemoryMirror()
    world.services = replace(world.services, mirror=mirror)
    return mirror


def drop(world: World, at: int, name: str = "letters") -> None:
    world.drop(f"{name}/{at}.parquet", letters("a", at=at))
    world.deliver_all_but("gc-candidates")


def record_of(world: World, table: Table) -> PublicationRecord:
    record = world.publications.get(table.id)
    assert record is not None
    return record


def uri_of(world: World, table: Table) -> str:
    return f"{root_uri(world.storage)}/{record_of(world, table).metadata}"


def publish(world: World, table: Table) -> None:
    publish_iceberg(world.services, TableChanged(table.id))


def test_an_entry_names_the_newest_metadata(world: World, glue: MemoryMirror) -> None:
    table = world.create("Letters", **MIRRORED)
    for at in range(3):
        drop(world, at, "Letters")
        assert list(glue.entries) == ["letters"]
        assert glue.tables["letters"].metadata == uri_of(world, table)
    assert glue.tables["letters"].columns == [
        ("letter", "string"),
        ("at", "bigint"),
        ("note", "string"),
    ]
    before = len(glue.calls)
    publish(world, table)
    assert len(glue.calls) == before


def test_a_table_that_is_not_to_be_in_glue_is_not(world: World, glue: MemoryMirror) -> None:
    world.create(iceberg="on")
    drop(world, 0)
    assert not glue.calls


def test_a_failed_mirror_is_made_up_for_by_the_sweep_and_counts_as_lag(
    world: World, glue: MemoryMirror
) -> None:
    table = world.create(**MIRRORED)
    drop(world, 0)
    glue.before = refuse
    world.drop("letters/1.parquet", letters("b", at=1))
    with pytest.raises(UnavailableError):
        world.deliver_all_but("gc-candidates")
    world.queue.clear()
    publish_until_refused(world, table)
    assert glue.tables["letters"].metadata != uri_of(world, table)
    world.clock.advance(seconds=90)
    assert lag_ms(world.services, table, world.state(table)) >= 90_000
    glue.before = lambda call: None
    world.sweep()
    world.deliver_all_but("gc-candidates")
    assert glue.tables["letters"].metadata == uri_of(world, table)
    assert lag_ms(world.services, table, world.state(table)) == 0


def publish_until_refused(world: World, table: Table) -> None:
    with pytest.raises(UnavailableError):
        publish(world, table)


def test_without_a_database_a_table_is_behind(world: World, glue: MemoryMirror) -> None:
    glue.database = ""
    table = world.create(**MIRRORED)
    drop(world, 0)
    assert not glue.calls
    world.clock.advance(seconds=9)
    assert lag_ms(world.services, table, world.state(table)) == 9_000


def test_a_slow_publisher_does_not_put_older_metadata_over_newer(
    world: World, glue: MemoryMirror
) -> None:
    table = world.create(**MIRRORED)
    drop(world, 0)
    puts = iter([True])

    def overtaken(call: str) -> None:
        if call == "put" and next(puts, False):
            drop(world, 2)

    record = record_of(world, table)
    world.publications.replace(table.id, record, replace(record, mirrored=""))
    glue.entries["letters"] = replace(glue.entries["letters"], metadata="older", version="old")
    glue.before = overtaken
    publish(world, table)
    assert glue.tables["letters"].metadata == uri_of(world, table)
    assert record_of(world, table).mirrored == record_of(world, table).metadata


def test_the_record_is_looked_at_after_the_entry(world: World, glue: MemoryMirror) -> None:
    table = world.create(**MIRRORED)
    drop(world, 0)
    record = record_of(world, table)
    world.publications.replace(table.id, record, replace(record, mirrored=""))
    glue.entries["letters"] = replace(glue.entries["letters"], metadata="older")
    gets = iter([True])

    def overtaken(call: str) -> None:
        if call == "get" and next(gets, False):
            drop(world, 2)

    glue.before = overtaken
    publish(world, table)
    assert glue.tables["letters"].metadata == uri_of(world, table)
    assert glue.entries["letters"].metadata == uri_of(world, table)


def test_a_mirror_that_always_loses_asks_to_come_again(world: World, glue: MemoryMirror) -> None:
    table = world.create(**MIRRORED)

    def lose(call: str) -> None:
        if call == "put":
            entry = MirrorEntry(table.id, "other", str(len(glue.calls)))
            glue.entries["letters"] = entry

    glue.before = lose
    with pytest.raises(ContendedError, match="Glue"):
        publish(world, table)
        publish(world, table)


@pytest.mark.parametrize("call", ["get", "put"])
def test_a_run_that_is_cut_off_at_glue_is_continued(
    world: World, glue: MemoryMirror, call: str
) -> None:
    table = world.create(**MIRRORED)

    def fail(made: str) -> None:
        if made == call:
            raise UnavailableError("cut off")

    glue.before = fail
    with pytest.raises(UnavailableError):
        publish(world, table)
    assert record_of(world, table).metadata, "what is published does not wait for Glue"
    glue.before = lambda made: None
    publish(world, table)
    assert glue.tables["letters"].metadata == uri_of(world, table)


def test_an_entry_of_somebody_else_is_left_alone(world: World, glue: MemoryMirror) -> None:
    table = world.create(**MIRRORED)
    other = MirrorEntry("", "s3://elsewhere/metadata.json", "1")
    glue.entries["letters"] = other
    with pytest.raises(AlreadyExistsError, match=r"lake\.letters"):
        publish(world, table)
    world.administer(SetProperties("off", "letters", {"iceberg": "off"}))
    world.settle()
    assert glue.entries == {"letters": other}


def test_a_renamed_table_has_one_entry_under_its_new_name(world: World, glue: MemoryMirror) -> None:
    table = world.create(**MIRRORED)
    drop(world, 0)
    world.administer(RenameTable("rename", "letters", "Words"))
    world.settle()
    assert list(glue.entries) == ["words"]
    assert glue.tables["words"].metadata == uri_of(world, table)


@pytest.mark.parametrize("setting", ["iceberg", "iceberg_glue"])
def test_withdrawal_deletes_the_entry_first(world: World, glue: MemoryMirror, setting: str) -> None:
    table = world.create(**MIRRORED)
    drop(world, 0)
    glue.before = refuse
    world.administer(SetProperties("off", "letters", {setting: "off"}))
    with pytest.raises(UnavailableError):
        world.settle()
    world.queue.clear()
    assert record_of(world, table).metadata
    glue.before = lambda call: None
    publish(world, table)
    assert glue.entries == {}
    assert record_of(world, table).mirror == ""
    assert bool(record_of(world, table).metadata) == (setting == "iceberg_glue")


def test_a_deleted_table_leaves_no_entry(world: World, glue: MemoryMirror) -> None:
    table = world.create(**MIRRORED)
    drop(world, 0)
    world.delete(table)
    kept = world.tables.get(table.id)
    assert kept is not None and kept.deleting
    assert glue.entries, "what it names is still there"
    assert list(world.storage.list(table.id))
    world.sweep()
    world.settle()
    assert glue.entries == {}
    world.sweep()
    assert world.tables.get(table.id) is None
    assert world.publications.get(table.id) is None
    assert not list(world.storage.list(table.id))


def test_names_that_glue_cannot_have_or_tell_apart_are_refused(
    world: World, glue: MemoryMirror
) -> None:
    world.create("Users", **MIRRORED)
    with pytest.raises(InvalidRequestError, match="'Users' would both be 'users'|'users'"):
        world.create("users", **MIRRORED)
    with pytest.raises(InvalidRequestError, match="dot"):
        world.create("us.ers", **MIRRORED)
    for name in ("users", "us.ers"):
        world.create(name, iceberg="on")
        with pytest.raises(InvalidRequestError):
            world.administer(SetProperties(f"on-{name}", name, {"iceberg_glue": "on"}))
    world.create("free", **MIRRORED)
    with pytest.raises(InvalidRequestError, match="dot"):
        world.administer(RenameTable("dot", "free", "fr.ee"))
    with pytest.raises(InvalidRequestError):
        world.administer(SetDefaults("all", {"iceberg_glue": "on"}))


def test_the_parts_of_a_table_with_rules_are_in_glue(world: World, glue: MemoryMirror) -> None:
    rules: dict[str, Any] = {"iceberg_parts": "yes", "filters": "where(at > 0)"}
    table = world.create("letters", LETTERS, **MIRRORED, **rules)
    publish(world, table)
    publish(world, table)
    assert list(glue.entries) == ["letters__parts"]


def test_an_instance_without_glue_refuses_the_property(world: World) -> None:
    with pytest.raises(InvalidRequestError, match="folder"):
        world.create(**MIRRORED)
