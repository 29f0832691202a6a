"""A tagged version reads as it was, whatever is merged, emptied, audited or collected since."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dormouse.access import EVERYTHING
from dormouse.errors import AlreadyExistsError, InvalidRequestError, NotFoundError
from dormouse.features.administration import administer
from dormouse.features.checking import check
from dormouse.features.versions import read_version, tagged
from dormouse.keys import KeyRange
from dormouse.messages.requests import (
    AdminRequest,
    CompactTable,
    ReinitialiseTable,
    TagVersion,
    UntagVersion,
)
from dormouse.query.rows import query_rows
from dormouse.query.selection import select
from dormouse.state.versions import is_tag
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.world import World, letters

DELAY_SECONDS = 600


@made_once
def filled(world: World) -> Table:
    """Return a table of two shards, which are not merged by themselves."""
    table = world.create(
        gc_delay_seconds=DELAY_SECONDS, compaction_files=100, orphan_age_seconds=60
    )
    for number, text in enumerate(("abc", "xyz")):
        world.drop(f"letters/{number}.parquet", letters(text, at=number))
        world.settle()
    return table


def ask(world: World, *requests: AdminRequest) -> None:
    for request in requests:
        world.queue += administer(world.services, request)
        world.settle()


def read(world: World, table: Table, version: int) -> Sequence[object]:
    now, state = read_version(world.services, table, version=version)
    selection = select(
        now.schema, state.version, world.clock.now_ms(), [KeyRange()], permission=EVERYTHING
    )
    rows = query_rows(world.services, now, state, selection).read_all().to_pylist()
    assert len(rows) == 6
    return rows


def rewrite(world: World, table: Table, name: str = "c") -> None:
    ask(world, CompactTable(name, table.name, all=True))


def age(world: World, table: Table) -> None:
    """Let all delays go by, and audit."""
    for _ in range(3):
        world.clock.advance(seconds=3600)
        world.age_objects(seconds=3000)
        world.sweep(audit=True)
        world.settle()


def test_a_tagged_version_is_read_after_its_shards_were_merged(world: World) -> None:
    table = filled(world)
    version = world.state(table).version
    before = read(world, table, version)
    ask(world, TagVersion("1", table.name, version, "before"))
    rewrite(world, table)
    age(world, table)
    assert len(world.state(table).unreferenced) == 2
    assert read(world, table, version) == before
    assert tagged(world.services, table, "before").version == version


def test_a_tag_of_an_emptied_table_keeps_its_shards_from_the_audit(world: World) -> None:
    table = filled(world)
    version = world.state(table).version
    before = read(world, table, version)
    ask(world, TagVersion("1", table.name, version, "before"))
    world.clock.advance(seconds=3600)
    ask(world, ReinitialiseTable("2", table.name))
    age(world, table)
    assert read(world, table, version) == before
    assert not check(world.services, table).findings
    ask(world, UntagVersion("3", table.name, "before"))
    age(world, table)
    assert not world.shard_objects(table)


def test_what_only_a_tag_needs_is_deleted_once_it_is_removed(world: World) -> None:
    table = filled(world)
    ask(world, TagVersion("1", table.name, world.state(table).version, "before"))
    rewrite(world, table)
    age(world, table)
    assert not check(world.services, table).findings
    ask(world, UntagVersion("2", table.name, "before"))
    assert not len(world.state(table).unreferenced)
    assert world.shard_objects(table) == set(world.state(table).shards)


def test_shards_freed_by_a_lost_message_are_found_by_the_sweep(world: World) -> None:
    table = filled(world)
    ask(world, TagVersion("1", table.name, world.state(table).version, "before"))
    rewrite(world, table)
    age(world, table)
    administer(world.services, UntagVersion("2", table.name, "before"))
    age(world, table)
    assert not len(world.state(table).unreferenced)


def test_a_tag_is_made_once_however_often_it_is_asked_for(world: World) -> None:
    table = filled(world)
    version = world.state(table).version
    for _ in range(2):
        ask(world, TagVersion("1", table.name, version, "before"))
    ask(world, TagVersion("2", table.name, version, "before"))
    with pytest.raises(AlreadyExistsError, match=f"of version {version}"):
        ask(world, TagVersion("3", table.name, version - 1, "before"))


def test_a_version_that_is_not_kept_cannot_be_tagged(world: World) -> None:
    table = filled(world)
    version = world.state(table).version
    rewrite(world, table)
    world.clock.advance(seconds=DELAY_SECONDS)
    with pytest.raises(NotFoundError, match="cannot be pinned any more"):
        ask(world, TagVersion("1", table.name, version, "late"))
    with pytest.raises(NotFoundError, match="has no version"):
        ask(world, TagVersion("2", table.name, 10_000, "future"))


def test_a_tag_that_is_not_there_cannot_be_removed(world: World) -> None:
    table = filled(world)
    with pytest.raises(NotFoundError, match="no tag 'other'"):
        ask(world, UntagVersion("1", table.name, "other"))


@pytest.mark.parametrize("name", ["", "7", "2026-01-31", "a b", "a/b", "x" * 129, "ä", "a\n"])
def test_names_that_could_be_a_version_or_a_time_are_no_tags(world: World, name: str) -> None:
    assert not is_tag(name)
    table = filled(world)
    with pytest.raises(InvalidRequestError, match="cannot be the name of a tag"):
        ask(world, TagVersion("1", table.name, 1, name))
