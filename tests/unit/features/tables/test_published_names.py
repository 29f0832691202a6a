"""Readers of Iceberg find each table under names that no other table has."""

from __future__ import annotations

from pathlib import Path

import pytest

from dormouse.errors import InvalidRequestError
from dormouse.features.copying import copy_table
from dormouse.messages.requests import RenameTable, SetDefaults, SetProperties
from tests.support.world import World

RULES = {"iceberg_parts": "yes", "filters": "where(at > 0)"}
PUBLISHED = {"iceberg": "on", **RULES}


def test_a_table_with_rules_is_not_published_beside_a_table_of_the_name_of_its_parts(
    world: World,
) -> None:
    world.create("users__parts")
    with pytest.raises(InvalidRequestError, match="'users__parts'"):
        world.create("users", **PUBLISHED)
    table = world.create("users", **RULES)
    with pytest.raises(InvalidRequestError, match="'users__parts'"):
        world.administer(SetProperties("on", "users", {"iceberg": "on"}))
    with pytest.raises(InvalidRequestError, match="'users__parts'"):
        world.administer(SetDefaults("all", {"iceberg": "on"}))
    assert world.tables.get(table.id) == table
    other = world.create("others", **PUBLISHED)
    with pytest.raises(InvalidRequestError, match="'users__parts'"):
        world.administer(RenameTable("rename", "others", "users"))
    assert world.tables.get(other.id) == other


def test_no_table_takes_the_name_of_the_parts_of_another(tmp_path: Path, world: World) -> None:
    world.create("users", **PUBLISHED)
    with pytest.raises(InvalidRequestError, match="'users__parts'"):
        world.create("users__parts")
    table = world.create("others")
    with pytest.raises(InvalidRequestError, match="'users__parts'"):
        world.administer(RenameTable("rename", "others", "users__parts"))
    other = World(tmp_path / "other")
    copied = other.create("copied")
    with pytest.raises(InvalidRequestError, match="'users__parts'"):
        copy_table(other.services, copied, "bucket", world.services, "users__parts")
    assert {each.name for each in world.tables.all()} == {"users", "others"}
    assert world.tables.get(table.id) == table


def test_names_are_free_where_nothing_has_parts(world: World) -> None:
    world.create("users", iceberg="on")
    world.create("users__parts", iceberg="on")
    world.create("others", **RULES)
    world.create("others__parts", iceberg="on")
    table = world.create("alone", **PUBLISHED)
    world.administer(SetProperties("again", "alone", {"iceberg": "on", "gc_delay_seconds": 5}))
    world.administer(RenameTable("rename", "alone", "alone__parts"))
    found = world.tables.get(table.id)
    assert found is not None and found.name == "alone__parts"
