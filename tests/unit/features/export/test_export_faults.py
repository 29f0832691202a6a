"""Exports that are disturbed: by repeats, deaths, losses, and by what happens to the table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest
from msgspec import structs

from dormouse.errors import AlreadyExistsError, DormouseError, OutcomeUnknownError, UnavailableError
from dormouse.features import export as exports
from dormouse.features import export_rows as stage
from dormouse.features.administration import administer
from dormouse.features.export import load_export, load_manifest, save_manifest
from dormouse.messages.requests import ExportRows, ReinitialiseTable
from dormouse.messages.stages import ExportTask, OutboundMessage, PartitionSplits
from dormouse.ports import Storage
from dormouse.query import selection as cutting
from dormouse.state.jobs import JobEvent, Tracked
from dormouse.stored.paths import shard_path
from tests.support.depth import calls_in_turn
from tests.support.trees import LEFT, RIGHT
from tests.support.world import Crash, World, letters
from tests.unit.features.exports import ALL, assert_forgotten, exported, filled, record_of, rows_of


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every leaf is a task of its own."""
    monkeypatch.setattr(cutting, "MAX_TASK_SHARDS", 1)


@pytest.mark.usefixtures("small_tasks")
def test_every_message_twice_is_the_same_export(world: World) -> None:
    table = filled(world)
    world.export(table, to="out")
    world.queue += list(world.queue)
    world.settle(twice=True)
    assert rows_of(world) == world.rows(table)
    assert_forgotten(world, table)


@pytest.mark.usefixtures("small_tasks")
def test_what_happens_to_the_table_meanwhile_is_not_exported(world: World) -> None:
    table = filled(world, splits=[("m",)], split_threshold_rows=12, compaction_files=2)
    before = world.rows(table)
    world.export(table, to="out")
    tasks = list(world.queue)
    world.queue.clear()
    for leaf in (LEFT, RIGHT):
        world.queue.append(
            OutboundMessage("partition-splits", PartitionSplits(table.id, 0, (leaf,)))
        )
    world.set_online(table, True)
    world.drop("letters/late.parquet", letters("nobodyknows", at=900))
    world.alter(table, drop=["note"])
    while world.queue:  # all but the collection, which comes after its delay
        message = world.queue.popleft()
        if message.queue != "gc-candidates":
            world.queue += world.deliver(message)
    assert len(world.state(table).partitions) > 3
    world.queue += tasks
    world.settle()
    assert rows_of(world) == before


@pytest.mark.usefixtures("small_tasks")
def test_a_shard_that_is_gone_ends_the_export_with_what_to_do(world: World) -> None:
    table = filled(world)
    export = world.export(table, to="out")
    shards = sorted(world.state(table).shards)
    world.storage.delete([shard_path(table.id, shards[0])])
    world.settle()
    record = record_of(world, table, export)
    assert record.state == "failed"
    assert shards[0] in record.reason
    assert "--skip-damaged" in record.reason
    assert load_manifest(world.results, "out") is None
    assert_forgotten(world, table)


def test_a_table_that_is_gone_ends_the_export(world: World) -> None:
    table = filled(world)
    world.export(table, to="out")
    world.delete(table)
    world.settle()
    assert load_manifest(world.results, "out") is None
    assert_forgotten(world, table)


def test_a_reset_table_is_exported_as_it_was(world: World) -> None:
    table = filled(world)
    world.export(table, to="out")
    administer(world.services, ReinitialiseTable("empty", table.name))
    world.settle()
    assert exported(world) == ALL


def test_two_exports_to_one_prefix_at_once_do_not_mix(world: World) -> None:
    table = filled(world)
    first = world.export(table, to="out")
    other = world.export(table, to="out", where="letter = 'a'")
    world.settle()
    assert exported(world) == ALL
    assert record_of(world, table, first).state == "finished"
    record = record_of(world, table, other)
    assert (record.state, "prefix of its own" in record.reason) == ("failed", True)
    assert_forgotten(world, table)


def test_a_redelivered_request_is_one_export(world: World) -> None:
    table = filled(world)
    asked = ExportRows("twice", table.name, "out")
    for _ in range(2):
        world.tracker.kept.clear()  # its record is not there, as after a death
        world.queue += administer(world.services, asked)
    world.settle()
    world.tracker.kept.clear()
    assert administer(world.services, asked) == []
    assert exported(world) == ALL


class Dying:
    """A storage that kills the process at its `left`-th call from now; shares the count."""

    def __init__(self, inner: object, left: list[int]) -> None:
        self.inner, self.left = inner, left

    def __getattr__(self, name: str) -> object:
        found = getattr(self.inner, name)
        if name in ("get", "put", "upload", "open", "list", "delete"):
            self.left[0] -= 1
            if self.left[0] == 0:
                raise Crash
        return found


@pytest.mark.usefixtures("small_tasks")
def test_a_death_at_any_call_of_a_storage_is_made_good_by_the_redelivery(tmp_path: Path) -> None:
    for call in calls_in_turn(1):
        world = World(tmp_path / str(call))
        table = filled(world, splits=[("m",)])
        left = [call]
        alive = world.services
        world.services = replace(
            alive,
            storage=cast(Storage, Dying(world.storage, left)),
            results=cast(Storage, Dying(world.results, left)),
        )
        asked = ExportRows("once", table.name, "out")
        try:
            world.queue += administer(world.services, asked)
        except Crash:
            world.services = alive
            world.queue += administer(world.services, asked)
        while world.queue:
            message = world.queue.popleft()
            try:
                world.queue += world.deliver(message)
            except Crash:
                world.services = alive
                world.queue += world.deliver(message)
        assert rows_of(world) == world.rows(table), f"died at call {call}"
        world.services = alive
        world.clock.advance(seconds=2 * 60 * 60)
        world.age_objects(seconds=60 * 60)
        world.sweep()  # what it left behind goes too
        assert_forgotten(world, table)
        if left[0] > 0:
            return


@pytest.mark.usefixtures("small_tasks")
@pytest.mark.parametrize("lost", [0, 2, 4])
def test_tasks_whose_messages_were_lost_are_sent_by_the_sweep(world: World, lost: int) -> None:
    table = filled(world)
    world.export(table, to="out")
    tasks = [world.queue.popleft() for _ in range(4)]
    for message in tasks[lost:]:
        assert world.deliver(message) == []
    world.clock.advance(seconds=2 * 60 * 60)
    world.age_objects(seconds=30 * 60)
    world.sweep()
    assert not [m for m in world.queue if m.queue == "exports"], "it may be under way"
    world.age_objects(seconds=60 * 60)
    world.sweep()
    world.settle()
    assert exported(world) == ALL
    assert_forgotten(world, table)


@pytest.mark.usefixtures("small_tasks")
def test_tasks_that_wait_in_a_long_queue_are_sent_again_more_and_more_rarely(world: World) -> None:
    table = filled(world)
    world.export(table, to="out")
    world.age_objects(seconds=0)
    patience_seconds = table.properties.job_retry_seconds
    sent_again = []
    for look in range(4 * 9):  # four times in each patience
        world.clock.advance(seconds=patience_seconds / 4)
        world.queue.clear()
        world.sweep()
        if tasks := [m for m in world.queue if m.queue == "exports"]:
            sent_again.append((look + 1) / 4)
            assert len(tasks) == 4
    assert sent_again == [1, 2, 4, 8]


@pytest.mark.usefixtures("small_tasks")
def test_an_export_whose_last_task_died_before_the_manifest_is_finished_by_the_sweep(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(world)
    world.export(table, to="out")
    monkeypatch.setattr(exports, "save_manifest", die)
    with pytest.raises(Crash):
        world.settle()
    monkeypatch.undo()
    assert load_manifest(world.results, "out") is None
    world.clock.advance(seconds=2 * 60 * 60)
    world.age_objects(seconds=60 * 60)
    world.sweep()
    world.settle()
    assert exported(world) == ALL


@pytest.mark.parametrize("error", [UnavailableError, OutcomeUnknownError])
def test_what_does_not_answer_is_recorded_and_done_later(
    world: World, error: type[DormouseError]
) -> None:
    table = filled(world)
    export = world.export(table, to="out")
    message = world.queue.popleft()
    world.services = replace(world.services, results=cast(Storage, Down(error)))
    with pytest.raises(error):
        world.deliver(message)
    assert record_of(world, table, export).state == "failed"
    world.services = replace(world.services, results=world.results)
    world.queue.append(message)
    world.settle()
    assert exported(world) == ALL
    assert record_of(world, table, export).state == "finished"


def die(*_: object) -> None:
    raise Crash


@dataclass
class Down:
    """A storage that does not answer."""

    error: type[DormouseError]

    def list(self, prefix: str) -> object:
        raise self.error("S3 does not answer")


def test_the_manifest_of_another_export_is_never_taken_for_ones_own(world: World) -> None:
    table = filled(world)
    world.export(table, to="out")
    world.settle()
    theirs = load_manifest(world.results, "out")
    assert theirs is not None
    other = load_export(world.services, table.id, world.export(table, to="other"))
    assert other is not None
    with pytest.raises(AlreadyExistsError, match="another export"):
        save_manifest(
            world.services,
            structs.replace(other, to="out"),
            structs.replace(theirs, export=other.id),
        )
    assert load_manifest(world.results, "out") == theirs


def test_an_export_whose_last_task_dies_before_its_record_is_recorded_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(world)
    export = world.export(table, to="out")
    (message,) = world.queue
    whole = world.tracker.record

    def dies(job: Tracked, event: JobEvent, at_ms: int) -> None:
        if event.state == "finished":
            raise Crash
        whole(job, event, at_ms)

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(world.tracker, "record", dies)
        world.settle()
    world.queue.append(message)
    world.settle()
    assert record_of(world, table, export).state == "finished"
    assert exported(world) == ALL


def test_a_task_delivered_while_another_completes_the_export_does_not_record_it_as_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    table = world.create()
    world.drop("letters/1.parquet", letters("abc"))
    world.settle()
    export_id = world.export(table)
    looks = [load_export(world.services, table.id, export_id), None]
    world.settle()
    monkeypatch.setattr("dormouse.features.export.load_export", lambda *_: looks.pop(0))
    stage.export_rows(world.services, ExportTask(table.id, export_id, 0))
    assert world.tracker.kept[table.id, export_id].state == "finished"


def test_an_export_whose_parts_were_deleted_is_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the sweep would send tasks for ever that find nothing to do."""
    table = filled(world)
    export = load_export(world.services, table.id, world.export(table, to="out"))
    assert export is not None

    def dies(*_: object) -> None:
        raise Crash

    monkeypatch.setattr(exports, "delete_below", dies)
    with pytest.raises(Crash):
        exports.delete_export(world.services, export)
    assert load_export(world.services, table.id, export.id) is None
