"""Steps of a compaction: decided once, all there or nothing, and gone with their job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dormouse.features import compaction as compact_apart
from dormouse.features.compaction import load_steps
from dormouse.features.compaction_steps import Step, StepSplit
from dormouse.messages.requests import DeleteTable, ReinitialiseTable
from dormouse.state.state import DAY_MS, ReleaseJob
from dormouse.stored.paths import JOB_NOTES, PART_NUMBERS, RUN_MARKERS, run_of_shard, shard_path
from tests.support.world import Crash, World, letters
from tests.unit.features.crashing import WORDS, drive, job_of


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, has_spark=False)


def test_a_step_that_dies_after_its_shards_or_its_note_is_adopted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, message = job_of(world, WORDS, WORDS, compaction_spark_bytes=3000)
    (again,) = world.deliver(message)
    decide = compact_apart._save_outcome
    for order in ("before", "after"):
        with monkeypatch.context() as patch:

            def dies(*args: Any, order: str = order) -> None:
                if order == "after":
                    decide(*args)
                raise Crash

            patch.setattr(compact_apart, "_save_outcome", dies)
            with pytest.raises(Crash):
                world.deliver(again)
    drive(world, again)
    assert world.names(table) == "".join(sorted(2 * WORDS))


def test_two_deliveries_at_once_do_the_same_steps_and_commit_once(world: World) -> None:
    table, message = job_of(world, WORDS, WORDS, compaction_spark_bytes=3000)
    world.queue.append(message)
    world.settle(twice=True)
    assert world.names(table) == "".join(sorted(2 * WORDS))
    assert not world.state(table).jobs


def test_what_a_step_came_to_is_decided_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was taken for dead ends after its step was cut: its shards never count."""
    table, message = job_of(world, WORDS, WORDS, compaction_spark_bytes=3000)
    (again,) = world.deliver(message)
    (first, *_) = load_steps(world.services, table.id, "heavy").left
    decide = compact_apart._save_outcome

    def late(services: Any, compaction: Any, step: Step, outcome: Any, cells: Any) -> None:
        decide(services, compaction, step, StepSplit(step.split(2)), cells)  # by others, meanwhile
        decide(services, compaction, step, outcome, cells)

    with monkeypatch.context() as patch:
        patch.setattr(compact_apart, "_save_outcome", late)
        world.deliver(again)
    assert isinstance(load_steps(world.services, table.id, "heavy").outcomes[first], StepSplit)
    drive(world, again)
    assert world.names(table) == "".join(sorted(2 * WORDS))
    assert world.shard_objects(table) == {*world.state(table).shards}


def test_a_job_cut_by_other_code_is_taken_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, message = job_of(world, WORDS, WORDS, compaction_spark_bytes=3000)
    (again,) = world.deliver(message)
    (again,) = world.deliver(again)
    monkeypatch.setattr(compact_apart, "MAX_CELLS", 5)
    world.deliver(again)
    assert not world.state(table).jobs
    assert world.shard_objects(table) == {*world.state(table).shards}
    world.age_objects(seconds=8 * DAY_MS // 1000)
    world.sweep(audit=True)
    assert not list(world.storage.list(JOB_NOTES.prefix(table.id)))


def test_foreign_shards_under_the_name_of_a_job_take_it_back(world: World) -> None:
    table, message = job_of(world, WORDS, WORDS, compaction_spark_bytes=3000)
    (again,) = world.deliver(message)
    left = load_steps(world.services, table.id, "heavy").left
    for _ in left:
        (again,) = world.deliver(again)
    part = left[0].part * PART_NUMBERS + 7
    world.storage.put(shard_path(table.id, f"heavy-{part}"), b"not by this code")
    world.deliver(again)
    assert not world.state(table).jobs
    record = world.tracker.get(table.id, "heavy")
    assert record is not None and "not those that its steps wrote" in record.reason


def test_a_step_that_loses_a_row_stops_the_job(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, message = job_of(world, WORDS, WORDS, compaction_spark_bytes=3000)
    (again,) = world.deliver(message)
    monkeypatch.setattr(
        compact_apart, "count_rows_taken", lambda *args: (("any", 1 + len(WORDS) * len(args)),)
    )
    with pytest.raises(Exception, match="nothing was committed"):
        world.deliver(again)
    assert load_steps(world.services, table.id, "heavy").left, "it is not noted as done"


def test_steps_that_leave_a_gap_between_them_are_not_committed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, message = job_of(world, WORDS, WORDS, compaction_spark_bytes=3000)
    split = Step.split
    monkeypatch.setattr(Step, "split", lambda step, parts: split(step, parts)[1:])
    message = next(iter(world.deliver(message)))
    with pytest.raises(Exception, match="nothing was committed"):
        drive(world, message)
    assert set(world.state(table).jobs) == {"heavy"}


def test_an_audit_leaves_what_steps_wrote_alone_however_old(world: World) -> None:
    table, message = job_of(world, WORDS, WORDS, compaction_spark_bytes=3000)
    (again,) = world.deliver(message)
    (again,) = world.deliver(again)
    world.clock.advance(seconds=30 * DAY_MS // 1000)
    world.age_objects(seconds=30 * DAY_MS // 1000)
    before = world.shard_objects(table), list(world.storage.list(JOB_NOTES.prefix(table.id)))
    world.sweep(audit=True)
    assert before == (
        world.shard_objects(table),
        list(world.storage.list(JOB_NOTES.prefix(table.id))),
    )
    world.queue.clear()
    drive(world, again)
    assert world.names(table) == "".join(sorted(2 * WORDS))


def test_a_job_that_makes_progress_is_not_started_a_second_time_by_the_sweep(world: World) -> None:
    table, message = job_of(world, WORDS, WORDS, compaction_spark_bytes=3000)
    patience = table.properties.job_retry_seconds
    world.clock.advance(seconds=patience)
    (again,) = world.deliver(message)
    world.age_objects(seconds=0)
    world.sweep()
    assert again.message not in [m.message for m in world.queue]
    world.clock.advance(seconds=patience)
    world.sweep()
    assert again.message in [m.message for m in world.queue], "its message is lost"


@pytest.mark.parametrize("end", ["emptied", "taken back", "committed"])
def test_notes_go_with_their_job(world: World, end: str) -> None:
    table, message = job_of(world, WORDS, WORDS, compaction_spark_bytes=3000)
    (again,) = world.deliver(message)
    (again,) = world.deliver(again)
    if end == "emptied":
        world.administer(ReinitialiseTable("empty", table.name))
    elif end == "taken back":
        world.new_store(table).commit(ReleaseJob("heavy"), generation=0)
    else:
        drive(world, again)
    assert list(world.storage.list(JOB_NOTES.prefix(table.id)))
    world.sweep(audit=True)
    assert not list(world.storage.list(JOB_NOTES.prefix(table.id)))


def test_a_deleted_table_leaves_no_notes(world: World) -> None:
    table, message = job_of(world, WORDS, WORDS, compaction_spark_bytes=3000)
    world.deliver(message)
    world.administer(DeleteTable("delete", table.name))
    assert not list(world.storage.list(table.id))


def test_a_purge_of_a_large_leaf_is_cut_and_leaves_its_rows_out(world: World) -> None:
    table = world.create(compaction_spark_bytes=1)
    world.drop("letters/1.parquet", letters(WORDS))
    world.settle()
    world.purge(table, "letter IN ('a', 'h', 'p')")
    world.settle()
    assert world.names(table) == "bcdefgijklmno"
    parts = {run_of_shard(s)[1] // PART_NUMBERS for s in world.state(table).shards}
    assert len(parts) > 3
    world.purge(table, "at >= 0")
    world.settle()
    assert world.names(table) == ""


def test_a_rebuild_after_steps_counts_their_shards_as_one_whole_run(world: World) -> None:
    table, message = job_of(world, WORDS, WORDS, compaction_spark_bytes=3000)
    drive(world, message)
    (note,) = world.storage.list(RUN_MARKERS.prefix(table.id))
    assert "heavy" in note.path


def test_a_job_that_is_no_longer_assigned_is_complete(world: World) -> None:
    table, message = job_of(world, WORDS, WORDS)
    world.new_store(table).commit(ReleaseJob("heavy"), generation=0)
    assert [m.queue for m in world.deliver(message)] == ["table-changes"]
