"""An export task that crashed twice: Spark does the rest, or the export fails with its reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dormouse.errors import UnavailableError
from dormouse.features import export_rows
from dormouse.features.export import load_export
from dormouse.features.export_rows import write_task
from dormouse.features.long_jobs import Parts
from dormouse.jobs import CRASH_LIMIT
from dormouse.messages.stages import ExportJob, OutboundMessage
from dormouse.query import selection as exports
from dormouse.state.state import DAY_MS
from dormouse.stored.paths import EXPORTS
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.world import Crash, World, letters


@made_once
def begun(world: World, monkeypatch: pytest.MonkeyPatch, **properties: object) -> tuple[Table, str]:
    """Return a table of two leaves, and an export of it of a task for each."""
    monkeypatch.setattr(exports, "MAX_TASK_BYTES", 1)
    cut = exports.plan_tasks
    monkeypatch.setattr(
        "dormouse.features.export.plan_tasks",
        lambda state, ranges: cut(state, ranges, task_bytes=1),
    )
    table = world.create(splits=[("m",)], **properties)
    world.drop("letters/1.parquet", letters("abyz"))
    world.settle()
    return table, world.export(table, to="out")


def kills(patch: pytest.MonkeyPatch, dies: Callable[[int], bool]) -> list[int]:
    """Let runs of tasks end without a word; return the tasks that were tried."""
    tried: list[int] = []

    def deadly(worker: Any, export: Any, task: int, **named: Any) -> bool:
        tried.append(task)
        if dies(task):
            raise Crash
        return write_task(worker, export, task, **named)

    patch.setattr(export_rows, "write_task", deadly)
    return tried


def drive(world: World) -> list[OutboundMessage]:
    """Deliver messages of exports as SQS does until none is left; return other messages."""
    others, receives = [], dict[str, int]()
    while world.queue:
        outgoing = world.queue.popleft()
        if outgoing.queue != "exports":
            others.append(outgoing)
            continue
        receives[str(outgoing)] = receives.get(str(outgoing), 0) + 1
        try:
            world.queue += world.deliver(outgoing)
        except Crash:
            if receives[str(outgoing)] < 3:
                world.queue.append(outgoing)
    return others


def test_with_spark_an_export_one_of_whose_tasks_crashed_twice_is_sparks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    table, export_id = begun(world, monkeypatch)
    tried = kills(monkeypatch, lambda task: task == 1)
    (sent,) = drive(world)
    assert (sent.queue, sent.message) == ("spark-jobs", ExportJob(table.id, export_id))
    assert tried.count(1) == CRASH_LIMIT and tried.count(0) == 1
    world.deliver(sent)
    (run,) = world.spark.runs.values()
    assert (run.kind, run.job_id) == ("export", export_id)


def test_without_spark_an_export_one_of_whose_tasks_crashed_twice_fails_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, has_spark=False)
    table, export_id = begun(world, monkeypatch)
    tried = kills(monkeypatch, lambda task: task == 1)
    for _ in range(10):
        drive(world)
        world.clock.advance(seconds=DAY_MS // 1000)
        world.age_objects(seconds=DAY_MS // 1000)
        world.sweep(audit=True)
    assert tried.count(1) == CRASH_LIMIT and tried.count(0) == 1
    record = world.tracker.get(table.id, export_id)
    assert record is not None and record.state == "failed" and "export it in parts" in record.reason
    assert load_export(world.services, table.id, export_id) is None


@pytest.mark.parametrize("has_spark", [False, True])
def test_a_task_whose_runs_died_when_it_was_done_does_not_fail_the_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_spark: bool
) -> None:
    world = World(tmp_path, has_spark=has_spark)
    table, export_id = begun(world, monkeypatch)
    (first, _) = world.queue
    write = export_rows.write_task
    with monkeypatch.context() as patch:

        def dies(*args: Any, **named: Any) -> bool:
            patch.setattr(Parts, "has_ended", lambda *_: False)  # both began before it was
            write(*args, **named)
            raise Crash

        patch.setattr(export_rows, "write_task", dies)
        for _ in range(CRASH_LIMIT):
            with pytest.raises(Crash):
                world.deliver(first)
    drive(world)
    record = world.tracker.get(table.id, export_id)
    assert record is not None and record.state == "finished"
    assert not world.spark.runs


def test_a_task_that_crashed_once_is_done_by_the_next_run_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, has_spark=False)
    table, export_id = begun(world, monkeypatch)
    tried = kills(monkeypatch, lambda task: tried == [0])
    drive(world)
    record = world.tracker.get(table.id, export_id)
    assert record is not None and record.state == "finished"
    assert not list(world.storage.list(EXPORTS.prefix(table.id)))


def test_a_task_that_failed_and_said_so_has_not_crashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    table, export_id = begun(world, monkeypatch)
    (first, _) = world.queue
    with monkeypatch.context() as patch:

        def fails(*args: Any, **named: Any) -> bool:
            raise UnavailableError("S3 is down")

        patch.setattr(export_rows, "write_task", fails)
        for _ in range(3):
            with pytest.raises(UnavailableError):
                world.deliver(first)
    drive(world)
    record = world.tracker.get(table.id, export_id)
    assert record is not None and record.state == "finished"


def test_a_task_of_many_steps_has_not_crashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, has_spark=False)
    table, export_id = begun(world, monkeypatch)
    steps: list[int] = []

    def slow(*args: Any, **named: Any) -> bool:
        steps.append(args[2])
        return len(steps) > 6 and write_task(*args, **named)

    monkeypatch.setattr(export_rows, "write_task", slow)
    drive(world)
    record = world.tracker.get(table.id, export_id)
    assert record is not None and record.state == "finished"
