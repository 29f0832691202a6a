"""Deliveries of one request to create a table that sleep while others go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from dormouse.model.tables import Table
from dormouse.ports import NO_TABLE
from dormouse.requests import CreateTable, DeleteTable
from dormouse.stages.rebuild import rebuild
from tests.support.world import LETTERS, Crash, World, letters

REQUEST = CreateTable("create-letters", "letters", LETTERS.to_json())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def made_and_deleted(world: World) -> None:
    """Be another delivery of the request, and then whoever deletes the table."""
    world.administer(REQUEST)
    world.administer(DeleteTable("delete", "letters"))
    del world.tracker.kept[NO_TABLE, REQUEST.request_id]


def test_a_delivery_that_slept_until_its_table_was_deleted_leaves_none_without_a_state(
    world: World,
) -> None:
    world.after_next_commit(lambda: made_and_deleted(world))
    world.administer(REQUEST)
    assert world.tables.all() == []


def test_one_that_died_when_it_had_made_a_deleted_table_again_is_made_good(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = world.tables.delete

    def die(table: Table) -> None:
        raise Crash

    def made_and_deleted_by_others() -> None:
        made_and_deleted(world)
        monkeypatch.setattr(world.tables, "delete", die)

    world.after_next_commit(made_and_deleted_by_others)
    with pytest.raises(Crash):
        world.administer(REQUEST)
    monkeypatch.setattr(world.tables, "delete", delete)
    world.administer(REQUEST)
    assert world.tables.all() == []


@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_duplicate_leaves_a_table_alone_that_is_being_rebuilt(
    world: World, rebuilt: bool
) -> None:
    table = world.create("letters")
    world.drop("letters/1.parquet", letters("ab"))
    world.settle()
    del world.tracker.kept[NO_TABLE, REQUEST.request_id]
    if rebuilt:
        rebuild(world.services, table)
    else:
        world.services.store(table).terminate()
    world.administer(REQUEST)
    assert [kept.id for kept in world.tables.all()] == [table.id]
