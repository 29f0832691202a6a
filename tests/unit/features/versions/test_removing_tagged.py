"""What must remove rows for good says which tags hold them, and releases these only if asked to."""

from __future__ import annotations

import pytest

from dormouse.errors import InvalidRequestError
from dormouse.features.administration import administer
from dormouse.features.versions import tags_of
from dormouse.messages.requests import (
    AdminRequest,
    DeleteTable,
    PurgeRows,
    ReinitialiseTable,
    TagVersion,
)
from dormouse.messages.stages import SelectionMessage
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.world import World, letters

ROWS = SelectionMessage(where="letter = 'a'")


@pytest.fixture
@made_once
def table(world: World) -> Table:
    """A table with two tags."""
    made = world.create(gc_delay_seconds=600)
    world.drop("letters/1.parquet", letters("abc"))
    world.settle()
    version = world.state(made).version
    for tag in ("monday", "tuesday"):
        world.administer(TagVersion(tag, made.name, version, tag))
    return made


@pytest.mark.parametrize(
    "request_of", [PurgeRows("p", "letters", ROWS), DeleteTable("d", "letters")]
)
def test_it_is_refused_by_the_names_of_the_tags(
    world: World, table: Table, request_of: AdminRequest
) -> None:
    with pytest.raises(InvalidRequestError, match="tags hold them: monday, tuesday"):
        administer(world.services, request_of)
    assert len(tags_of(world.services, table)) == 2
    assert len(world.rows(table)) == 3
    assert not world.tables.all()[0].deleting


def test_a_purge_told_to_release_tags_leaves_no_object_with_the_rows(
    world: World, table: Table
) -> None:
    world.administer(PurgeRows("p", table.name, ROWS, release_tags=True))
    world.settle()
    assert tags_of(world.services, table) == []
    assert world.shard_objects(table) == set(world.state(table).shards)
    assert {row["letter"] for row in world.rows(table)} == {"b", "c"}


def test_a_purge_that_is_refused_releases_no_tag(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dormouse.features.delete_rows.MAX_CONDITION_CHARACTERS", 3)
    with pytest.raises(InvalidRequestError, match="characters in its normal form"):
        administer(world.services, PurgeRows("p", table.name, ROWS, release_tags=True))
    assert len(tags_of(world.services, table)) == 2


def test_a_table_told_to_release_tags_is_deleted_with_its_pins(world: World, table: Table) -> None:
    world.administer(DeleteTable("d", table.name, release_tags=True))
    assert not world.tables.all()
    assert world.pages.pins.all(table.state_id) == []


def test_a_deletion_that_has_begun_goes_on(world: World, table: Table) -> None:
    world.administer(DeleteTable("d", table.name, release_tags=True))
    world.administer(DeleteTable("d", table.name, release_tags=True))
    assert not world.tables.all()


@pytest.mark.parametrize("is_told", [False, True])
def test_an_emptied_table_keeps_its_tags_unless_told_to_release_them(
    world: World, table: Table, is_told: bool
) -> None:
    request = ReinitialiseTable("r", table.name, release_tags=is_told)
    for _ in range(2):
        world.administer(request)
        world.settle()
    assert len(world.rows(table)) == 0
    assert [pin.owner.name for pin in tags_of(world.services, table)] == (
        [] if is_told else ["monday", "tuesday"]
    )
