"""Runs of a step that were taken for dead and go on: what they write late never counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dormouse.features import compaction as steps_stage
from dormouse.features.compaction_steps import Step, StepSplit
from dormouse.features.rebuild import rebuild
from dormouse.messages.requests import CompactTable
from dormouse.messages.stages import OutboundMessage
from dormouse.stored.paths import RUN_MARKERS, data_prefix
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.world import Crash, World, letters
from tests.unit.features.crashing import WORDS, drive, job_of

ROWS = "".join(sorted(2 * WORDS))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, has_spark=False)


@made_once
def superseded_step(world: World) -> tuple[Table, OutboundMessage, dict[str, bytes]]:
    """Return a job whose first step was cut while a run did all of it, and what that run wrote."""
    table, message = job_of(world, WORDS, WORDS, compaction_spark_bytes=3000, gc_delay_seconds=60)
    (message,) = world.deliver(message)
    before = world.shard_objects(table)
    decide = steps_stage._save_outcome

    def late(services: Any, compaction: Any, step: Step, outcome: Any, cells: Any) -> None:
        decide(services, compaction, step, StepSplit(step.split(2)), cells)  # by others, meanwhile
        decide(services, compaction, step, outcome, cells)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps_stage, "_save_outcome", late)
        (message,) = world.deliver(message)
    wrote = {
        stored.path: world.storage.get(stored.path)
        for stored in world.storage.list(data_prefix(table.id))
        if stored.path.rpartition("/")[2].removesuffix(".parquet") not in before
    }
    assert wrote
    return table, message, wrote


def write_late(world: World, wrote: dict[str, bytes]) -> None:
    for path, body in wrote.items():
        assert world.storage.put(path, body), "it was deleted when its step was cut"


def rows_after_rebuild(world: World, table: Table) -> str:
    rebuild(world.services, table)
    found = world.tables.get(table.id)
    assert found is not None
    return world.names(found)


def test_a_step_written_after_the_commit_does_not_count_in_a_rebuild(world: World) -> None:
    table, message, wrote = superseded_step(world)
    drive(world, message)
    write_late(world, wrote)
    assert world.names(table) == ROWS
    assert rows_after_rebuild(world, table) == ROWS


def test_a_step_written_before_the_end_is_noted_does_not_count_in_a_rebuild(world: World) -> None:
    """The run that was to commit has looked at what there is, and dies before its commit."""
    table, message, wrote = superseded_step(world)
    assembled = steps_stage._combine_steps

    def then_late(*args: Any) -> Any:
        merged = assembled(*args)
        write_late(world, wrote)
        world.before_next_commit(world.crash)
        return merged

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps_stage, "_combine_steps", then_late)
        with pytest.raises(Crash):
            while True:
                (message,) = world.deliver(message)
    assert list(world.storage.list(RUN_MARKERS.prefix(table.id)))
    assert rows_after_rebuild(world, table) == ROWS


def test_a_step_written_late_does_not_count_once_its_siblings_were_merged(world: World) -> None:
    table, message, wrote = superseded_step(world)
    drive(world, message)
    world.age_objects(seconds=table.properties.orphan_age_seconds + 60)
    write_late(world, wrote)
    world.drop("letters/more.parquet", letters("z", at=900))
    world.settle()
    world.administer(CompactTable("all", table.name, all=True))
    world.settle()
    live = {*world.state(table).shards}
    assert not any(shard.startswith("heavy-") for shard in live), "all of the run is collected"
    world.sweep(audit=True)
    world.settle()
    assert rows_after_rebuild(world, table) == ROWS + "z"


def test_an_audit_deletes_a_step_written_late_and_then_the_note_of_its_run(world: World) -> None:
    table, message, wrote = superseded_step(world)
    drive(world, message)
    write_late(world, wrote)
    world.age_objects(seconds=table.properties.orphan_age_seconds + 60)
    world.sweep(audit=True)
    assert world.shard_objects(table) == {*world.state(table).shards}
    assert rows_after_rebuild(world, table) == ROWS
