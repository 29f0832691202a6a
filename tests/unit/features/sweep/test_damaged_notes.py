"""What is kept of a job and damaged: what its error says to do about it is true."""

from __future__ import annotations

import pytest

from dormouse.errors import CorruptDataError
from dormouse.features.export import TaskFiles, load_export, load_manifest, manifest_path, parts_of
from dormouse.features.purge import ShardMatches, save_matches
from dormouse.stored.paths import EXPORTS, PURGES, export_done_path, export_task_path
from dormouse.tables.table import Table
from tests.support.damage import flipped, rewrite
from tests.support.made_once import made_once
from tests.support.world import World, letters
from tests.unit.features.exports import rows_of

A_WEEK = 7 * 24 * 60 * 60


@pytest.fixture
@made_once
def table(world: World) -> Table:
    table = world.create()
    world.drop("letters/1.parquet", letters("abc"))
    world.settle()
    return table


def damage(world: World, path: str) -> None:
    file = world.folder / "data" / path
    body = file.read_bytes()
    rewrite(file, flipped(body, len(body) // 2))


def test_verdicts_that_are_damaged_are_found_out_once_more(world: World, table: Table) -> None:
    purge_id = world.purge(table, "letter = 'b'")
    (shard,) = world.state(table).shards
    save_matches(world.services, table.id, purge_id, ShardMatches(clean=frozenset({shard})))
    (kept,) = world.storage.list(PURGES.parts(table.id, purge_id))
    damage(world, kept.path)
    world.settle()
    assert world.names(table) == "ac"
    assert list(world.storage.list(PURGES.prefix(table.id))) == []


def test_a_purge_with_a_damaged_request_can_be_requested_again(world: World, table: Table) -> None:
    purge_id = world.purge(table, "letter = 'b'")
    path = PURGES.path(table.id, purge_id)
    damage(world, path)
    (step,) = (message for message in world.queue if message.queue == "purges")
    with pytest.raises(CorruptDataError, match=purge_id) as raised:
        world.deliver(step)
    assert "request the purge again, and delete this object" in raised.value.hint
    world.queue.clear()
    world.storage.delete([path])
    world.clock.advance(seconds=1)
    world.purge(table, "letter = 'b' ")
    world.settle()
    assert world.names(table) == "ac"
    assert list(world.storage.list(PURGES.prefix(table.id))) == []


def test_an_export_that_is_damaged_is_gone_with_all_its_parts_once_it_is_deleted(
    world: World, table: Table
) -> None:
    export_id = world.export(table, to="one")
    path = EXPORTS.path(table.id, export_id)
    damage(world, path)
    (task,) = world.queue
    with pytest.raises(CorruptDataError, match=export_id) as raised:
        world.deliver(task)
    assert "request the export again, and delete the object" in raised.value.hint
    world.queue.clear()
    world.storage.delete([path])
    world.clock.advance(seconds=A_WEEK)
    world.age_objects(seconds=A_WEEK)
    world.sweep()
    assert list(world.storage.list(EXPORTS.prefix(table.id))) == []


@pytest.mark.parametrize("part", ["what a task is to do", "what a task wrote"])
def test_an_export_of_which_a_part_is_damaged_fails_and_says_what_to_do(
    world: World, table: Table, part: str
) -> None:
    export_id = world.export(table, to="out")
    export = load_export(world.services, table.id, export_id)
    assert export is not None
    if part == "what a task wrote":
        parts_of(world.storage, export).end(0, TaskFiles(()))
        path = export_done_path(table.id, export_id, 0)
    else:
        path = export_task_path(table.id, export_id, export.cut, 0)
    damage(world, path)
    world.settle()
    record = world.tracker.get(table.id, export_id)
    assert record is not None
    assert record.state == "failed"
    assert path in record.reason
    assert "request it again" in record.reason
    assert list(world.storage.list(EXPORTS.prefix(table.id))) == []
    world.export(table, to="two")
    world.settle()
    assert len(rows_of(world, "two")) == 3


def test_what_belongs_to_another_export_is_not_believed(world: World, table: Table) -> None:
    first, second = (world.export(table, to=to) for to in ("one", "two"))
    other = (world.folder / "data" / EXPORTS.path(table.id, first)).read_bytes()
    rewrite(world.folder / "data" / EXPORTS.path(table.id, second), other)
    with pytest.raises(CorruptDataError, match=f"{second}.json is not an export"):
        load_export(world.services, table.id, second)


def test_a_damaged_manifest_is_not_believed(world: World, table: Table) -> None:
    world.export(table, to="out")
    world.settle()
    file = world.folder / "results" / manifest_path("out")
    body = file.read_bytes()
    rewrite(file, body.replace(b'"rows": 3', b'"rows": 4'))
    with pytest.raises(CorruptDataError, match=r"out/_manifest\.json") as raised:
        load_manifest(world.results, "out")
    assert "export the rows again" in raised.value.hint
