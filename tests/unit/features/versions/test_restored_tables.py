"""A restored table is rebuilt as restored if its state is lost, and knows the files it had."""

from __future__ import annotations

import pytest

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.features.administration import administer
from dormouse.features.rebuild import rebuild
from dormouse.features.versions import tagged
from dormouse.messages.requests import CompactTable, RestoreVersion, TagVersion
from dormouse.stored.paths import RESTORED, SOURCES
from dormouse.tables.table import Table
from tests.support.world import Crash, World
from tests.unit.features.versions.restoring import (
    DELAY_SECONDS,
    age,
    ask,
    assert_sound,
    drop,
    lose_state,
    merged_since,
    newest,
    restore,
    restore_pins,
)


@pytest.fixture
def table(world: World) -> Table:
    return merged_since(world)


@pytest.mark.parametrize("is_aged", [False, True])
def test_a_rebuild_gives_the_restored_rows(world: World, table: Table, is_aged: bool) -> None:
    """What was undone does not come back, be its objects still there or not."""
    table = restore(world, table)
    if is_aged:
        age(world)
    drop(world, 4, "k")
    ask(world, CompactTable("again", table.name, all=True))
    drop(world, 5, "d")
    rebuilt = lose_state(world, table)
    assert_sound(world, rebuilt, "abcdkxyz")
    drop(world, 3, "mno")
    drop(world, 2, "xyz")
    assert_sound(world, rebuilt, "abcdkmnoxyz")
    assert_sound(world, lose_state(world, rebuilt), "abcdkmnoxyz")


def test_a_rebuild_finishes_a_restore_that_the_state_never_saw(world: World, table: Table) -> None:
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        administer(world.services, RestoreVersion("r", table.name, "before"))
    assert_sound(world, lose_state(world, newest(world, table)), "abcxyz")


def test_a_rebuild_without_the_record_says_what_is_lost(world: World, table: Table) -> None:
    table = restore(world, table)
    world.storage.delete([RESTORED.path(table.id, table.restored)])
    with pytest.raises(CorruptDataError, match="is lost"):
        rebuild(world.services, table)


def test_a_rebuild_counts_a_merge_without_rows_that_the_version_had(world: World) -> None:
    """Its run marker is of an earlier generation, and alone says that its inputs were replaced."""
    made = world.create(gc_delay_seconds=DELAY_SECONDS, compaction_files=100)
    drop(world, 1, "abc")
    drop(world, 2, "xyz")
    world.purge(made, "letter > '0'")
    world.settle()
    assert world.names(made) == ""
    drop(world, 3, "mno")
    version = world.state(made).version
    ask(world, TagVersion("t", made.name, version, "kept"))
    drop(world, 4, "k")
    table = restore(world, made, "kept")
    assert_sound(world, lose_state(world, table), "mno")
    drop(world, 1, "abc")
    assert world.names(newest(world, made)) == "mno"


def test_sealed_sources_are_those_of_the_version(world: World) -> None:
    """Segments that held later sources are forgotten; an earlier one that was merged is copied."""
    made = world.create(gc_delay_seconds=DELAY_SECONDS, compaction_files=100, orphan_age_seconds=60)
    drop(world, 1, "a")
    world.seal(made)
    drop(world, 2, "b")
    ask(world, TagVersion("t", made.name, world.state(made).version, "kept"))
    for number in range(3, 12):
        drop(world, number, "xyz"[number % 3])
        world.seal(made)
    age(world)
    kept = world.services.store(made).at(version=tagged(world.services, made, "kept").version)
    assert not set(kept.source_segments) & set(world.state(made).source_segments)
    table = restore(world, made, "kept")
    age(world)
    for number, letter in ((1, "a"), (2, "b"), (3, "x")):
        drop(world, number, letter)
    assert_sound(world, table, "abx")
    world.seal(table)
    rebuilt = lose_state(world, table)
    for number, letter in ((1, "a"), (2, "b"), (3, "x"), (4, "y")):
        drop(world, number, letter)
    assert world.names(rebuilt) == "abxy"


def test_a_segment_that_is_lost_refuses_the_restore(world: World) -> None:
    made = world.create(gc_delay_seconds=DELAY_SECONDS, compaction_files=100, orphan_age_seconds=60)
    drop(world, 1, "a")
    world.seal(made)
    ask(world, TagVersion("t", made.name, world.state(made).version, "kept"))
    (segment,) = world.state(made).source_segments
    for number in range(2, 12):
        drop(world, number, "b")
        world.seal(made)
    world.storage.delete([SOURCES.path(made.id, segment.id)])
    with pytest.raises(NotFoundError, match="not known any more which files"):
        ask(world, RestoreVersion("r", made.name, "kept"))
    assert restore_pins(world, made) == 0
    assert newest(world, made).generation == 0


def test_a_rebuilt_table_is_restored_to_its_first_version(world: World, table: Table) -> None:
    rebuilt = lose_state(world, table)
    (first,) = world.services.store(rebuilt).history()
    drop(world, 4, "k")
    restore(world, rebuilt, first.version, "whole")
    assert_sound(world, rebuilt, "abcmnoxyz")
