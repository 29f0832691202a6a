"""What changes while the steps of a job are done: no row is lost, doubled or brought back by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dormouse.features.compaction import load_steps
from dormouse.features.rebuild import rebuild
from dormouse.messages.requests import (
    CompactTable,
    DeleteRows,
    DeleteTable,
    ReinitialiseTable,
    RenameTable,
    SetProperties,
)
from dormouse.messages.stages import OutboundMessage, SelectionMessage
from dormouse.schema.schema import Field
from dormouse.schema.types import Primitive
from dormouse.stored.paths import JOB_NOTES
from dormouse.tables.table import Table
from tests.support.depth import in_turn
from tests.support.made_once import made_once
from tests.support.world import World, letters
from tests.unit.features.crashing import WORDS, drive, job_of

TWICE = "".join(sorted(2 * WORDS))
MOMENTS = pytest.mark.parametrize("messages", in_turn([1, 3, None], parts=3))
"""After the job was cut, after two steps, and (None) when only the commit is left."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, has_spark=False)


@made_once
def begun(world: World, messages: int | None) -> tuple[Table, OutboundMessage]:
    """Return a job of two files with the same letters, of which so many messages are done."""
    table, message = job_of(world, WORDS, WORDS, compaction_spark_bytes=1000)
    done = 0
    while done != messages:
        (message,) = world.deliver(message)
        done += 1
        if not load_steps(world.services, table.id, "heavy").left:
            assert messages is None
            break
    return table, message


def known(world: World, table: Table) -> Table:
    found = world.tables.get(table.id)
    assert found is not None
    return found


def ends(world: World, table: Table, message: OutboundMessage, letters_then: str) -> None:
    """Drive the job to its end; check the rows, also after a rebuild, and that nothing is left."""
    drive(world, message)
    state = world.state(known(world, table))
    assert "heavy" not in state.jobs
    assert world.names(known(world, table)) == letters_then
    world.age_objects(seconds=table.properties.orphan_age_seconds * 2 + 60)
    world.sweep(audit=True)
    world.settle()
    assert not list(world.storage.list(JOB_NOTES.prefix(table.id)))
    rebuild(world.services, known(world, table))
    assert world.names(known(world, table)) == letters_then


def sets(**properties: object) -> Callable[[World, Table], None]:
    def change(world: World, table: Table) -> None:
        world.administer(SetProperties("set", table.name, properties))

    return change


def adds_a_column(world: World, table: Table) -> None:
    world.alter(table, add=[Field("more", Primitive.LONG, nullable=True)], rename={"note": "text"})


def drops_a_column(world: World, table: Table) -> None:
    world.alter(table, drop=["note"])


def deletes(world: World, table: Table) -> None:
    world.clock.advance(seconds=1)
    selection = SelectionMessage(where="letter < 'i' AND note IS NOT NULL")
    world.administer(DeleteRows("delete", table.name, selection))


def deletes_and_drops(world: World, table: Table) -> None:
    deletes(world, table)
    drops_a_column(world, table)


CHANGES: dict[str, tuple[Callable[[World, Table], None], str]] = {
    "a deletion": (deletes, TWICE[16:]),
    "a deletion by a column that is dropped": (deletes_and_drops, TWICE[16:]),
    "a filter": (sets(filters="where(letter < 'i')"), TWICE[:16]),
    "an aggregation": (sets(aggregations="last(note)"), WORDS),
    "other sizes of steps": (sets(compaction_spark_bytes=1), TWICE),
    "no steps any more": (sets(compaction_spark_bytes=0), TWICE),
    "smaller shards": (sets(shard_target_bytes=1), TWICE),
    "a new and a renamed column": (adds_a_column, TWICE),
    "a column less": (drops_a_column, TWICE),
    "another name": (lambda w, t: w.administer(RenameTable("name", t.name, "words")), TWICE),
    "Spark": (lambda w, _: setattr(w, "services", replace(w.services, has_spark=True)), TWICE),
}


@MOMENTS
@pytest.mark.parametrize("change", CHANGES)
def test_a_job_ends_with_the_rows_that_the_table_has_by_then(
    world: World, change: str, messages: int | None
) -> None:
    table, message = begun(world, messages)
    apply, rows = CHANGES[change]
    apply(world, table)
    world.queue.clear()
    if change == "Spark":
        (handed,) = world.deliver(message)
        assert (handed.queue, handed.message) == ("spark-jobs", message.message)
        world.services = replace(world.services, has_spark=False)
        world.services = replace(world.services, spark=None)
    ends(world, table, message, rows)


@MOMENTS
def test_rows_that_are_purged_between_steps_are_in_no_object_when_it_is_finished(
    world: World, messages: int | None
) -> None:
    table, message = begun(world, messages)
    world.purge(table, "letter = 'b' OR letter = 'p'")
    drive(world, message)
    world.settle()
    left = TWICE.replace("b", "").replace("p", "")
    assert world.names(table) == left
    assert world.shard_objects(table) == {*world.state(table).shards}
    rebuild(world.services, table)
    assert world.names(known(world, table)) == left


@MOMENTS
def test_a_job_of_a_reset_table_is_not_planned_again(world: World, messages: int | None) -> None:
    table, message = begun(world, messages)
    world.clock.advance(seconds=60)
    world.administer(ReinitialiseTable("empty", table.name))
    world.drop("letters/new.parquet", letters("xyz", at=900))
    ends(world, table, message, "xyz")


@MOMENTS
def test_a_job_of_a_deleted_table_leaves_nothing(world: World, messages: int | None) -> None:
    table, message = begun(world, messages)
    world.administer(DeleteTable("delete", table.name))
    drive(world, message)
    world.sweep(audit=True)
    world.settle()
    assert not list(world.storage.list(f"{table.id}/"))


@MOMENTS
def test_a_rebuild_between_steps_counts_each_row_once(world: World, messages: int | None) -> None:
    table, message = begun(world, messages)
    rebuild(world.services, table)
    assert world.names(known(world, table)) == TWICE
    ends(world, table, message, TWICE)
    world.administer(CompactTable("all", table.name, all=True))
    world.settle()
    assert world.names(known(world, table)) == TWICE


@MOMENTS
def test_a_partition_that_is_split_between_steps(world: World, messages: int | None) -> None:
    table, message = begun(world, messages)
    world.administer(SetProperties("set", table.name, {"split_threshold_rows": 4}))
    world.settle()
    state = world.state(table)
    assert "heavy" in state.jobs and len(list(state.partitions.leaves())) == 2
    ends(world, table, message, TWICE)
