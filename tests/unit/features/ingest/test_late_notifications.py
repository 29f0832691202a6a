"""Notifications that come late: a file is for the table that had its folder at its time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dormouse.features.batch_files import CLOCK_SKEW_MS, batch_files
from dormouse.messages.requests import (
    CreateTable,
    DeleteTable,
    IngestFiles,
    ReinitialiseTable,
    RenameTable,
)
from dormouse.state.jobs import JobRecord
from dormouse.state.sources import Source
from tests.support.world import LETTERS, World, letters, letters_file


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.create()
    world.clock.advance(seconds=60)
    return world


def dropped(world: World, key: str = "letters/1.parquet", text: str = "ab") -> Source:
    """Drop a file whose notification is on its way; S3 says in it when that was."""
    source = world.sources.drop(key, letters_file(letters(text)))
    return replace(source, dropped_ms=world.clock.now_ms())


def emptied(world: World) -> None:
    world.administer(ReinitialiseTable(world.ids.new(), "letters"))


def created_again(world: World) -> None:
    world.administer(DeleteTable("gone", "letters"))
    world.administer(CreateTable("another", "letters", LETTERS.to_json()))


def renamed(world: World) -> None:
    world.create("others")
    world.administer(RenameTable("away", "letters", "first"))
    world.administer(RenameTable("here", "others", "letters"))


CHANGES: dict[str, Callable[[World], None]] = {
    "emptied": emptied,
    "created again": created_again,
    "renamed": renamed,
}


def refusal(world: World, source: Source) -> JobRecord | None:
    (recorded,) = [r for (_, job), r in world.tracker.kept.items() if job == source.id]
    return recorded if recorded.state == "refused" else None


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_dropped_before_its_table_changed_is_refused_with_the_reason(
    world: World, change: str
) -> None:
    late = dropped(world)
    world.clock.advance(seconds=1)
    CHANGES[change](world)
    world.settle()
    world.notify(late)
    world.settle()
    table = world.tables.named("letters")
    assert table is not None
    assert world.names(table) == ""
    recorded = refusal(world, late)
    assert recorded is not None
    assert (recorded.table_id, recorded.subject) == (table.id, late.key)
    assert "dropped at" in recorded.reason and "drop it again" in recorded.reason


def test_a_refused_late_file_is_ingested_when_requested_by_its_key(world: World) -> None:
    late = dropped(world)
    world.clock.advance(seconds=1)
    emptied(world)
    world.notify(late)
    world.administer(IngestFiles("r", "letters", (late.key,), reply=True))
    world.settle()
    table = world.tables.named("letters")
    assert table is not None and world.names(table) == "ab"
    assert world.replies[-1].outcome == "finished"


def test_one_that_is_dropped_again_is_ingested(world: World) -> None:
    late = dropped(world)
    world.clock.advance(seconds=1)
    emptied(world)
    world.notify(late)
    world.clock.advance(seconds=1)
    world.notify(dropped(world))
    world.settle()
    table = world.tables.named("letters")
    assert table is not None and world.names(table) == "ab"


@pytest.mark.parametrize("apart_ms", [0, CLOCK_SKEW_MS])
def test_a_file_dropped_at_once_after_a_reset_is_ingested_though_clocks_differ(
    world: World, apart_ms: int
) -> None:
    emptied(world)
    source = dropped(world)
    world.notify(replace(source, dropped_ms=source.dropped_ms - apart_ms))
    world.settle()
    table = world.tables.named("letters")
    assert table is not None and world.names(table) == "ab"


def test_a_file_of_which_nobody_knows_when_it_was_dropped_is_ingested(world: World) -> None:
    late = replace(dropped(world), dropped_ms=0)
    world.clock.advance(seconds=1)
    emptied(world)
    world.notify(late)
    world.settle()
    table = world.tables.named("letters")
    assert table is not None and world.names(table) == "ab"


def test_when_it_was_dropped_is_no_part_of_what_a_file_is(world: World) -> None:
    source = dropped(world)
    assert replace(source, dropped_ms=0).id == source.id
    world.notify(source)
    world.settle()
    world.notify(replace(source, dropped_ms=source.dropped_ms + 5))
    world.settle()
    table = world.tables.named("letters")
    assert table is not None and world.names(table) == "ab"


def test_files_beside_a_late_one_are_ingested(world: World) -> None:
    late = dropped(world)
    world.clock.advance(seconds=1)
    emptied(world)
    world.settle()
    fresh = dropped(world, "letters/2.parquet", "xy")
    world.queue += batch_files(world.services, [late, fresh])
    world.settle()
    table = world.tables.named("letters")
    assert table is not None and world.names(table) == "xy"
