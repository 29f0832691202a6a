"""Damaged notes of the steps of a job: the job is done by another, and no row is lost for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dormouse.messages.requests import CompactTable
from dormouse.state.state import DAY_MS
from dormouse.stored.paths import JOB_NOTES, steps_prefix
from dormouse.tables.table import Table
from tests.support.damage import DAMAGE, rewrite
from tests.support.made_once import made_once
from tests.support.world import World
from tests.unit.features.crashing import WORDS, job_of

ROWS = "".join(sorted(2 * WORDS))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, has_spark=False)


@pytest.fixture
@made_once
def cut(world: World) -> Table:
    """A table with a job that was cut, of which one step is done."""
    table, message = job_of(world, WORDS, WORDS, compaction_spark_bytes=3000)
    (message,) = world.deliver(message)
    (message,) = world.deliver(message)
    world.queue.append(message)
    return table


def taken_back(world: World, table: Table, path: str) -> None:
    """Do the next step; check that the job is over, why, and that another can do it whole."""
    world.deliver(world.queue.popleft())
    assert not world.state(table).jobs
    record = world.tracker.get(table.id, "heavy")
    assert record is not None and record.state == "failed" and path in record.reason
    assert world.shard_objects(table) == {*world.state(table).shards}
    assert world.names(table) == ROWS
    world.administer(CompactTable("again", table.name, all=True))
    world.settle()
    assert world.names(table) == ROWS
    world.age_objects(seconds=8 * DAY_MS // 1000)
    world.sweep(audit=True)
    assert not list(world.storage.list(JOB_NOTES.prefix(table.id)))


@pytest.mark.parametrize("note", [0, 1], ids=["the whole that was cut", "the step that is done"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_note_takes_its_job_back(
    world: World, cut: Table, note: int, damage: str
) -> None:
    paths = sorted(stored.path for stored in world.storage.list(steps_prefix(cut.id, "heavy")))
    assert len(paths) == 2
    bodies = [(world.folder / "data" / path).read_bytes() for path in paths]
    rewrite(world.folder / "data" / paths[note], DAMAGE[damage](bodies[note], bodies[1 - note]))
    taken_back(world, cut, paths[note])


def test_a_foreign_object_among_the_notes_takes_the_job_back(world: World, cut: Table) -> None:
    path = f"{steps_prefix(cut.id, 'heavy')}read-me.txt"
    world.storage.put(path, b"by hand")
    taken_back(world, cut, path)
