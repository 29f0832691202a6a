"""A compaction too large for one function: Spark or steps do it; what neither can is reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dormouse.features import compaction as compact_apart
from dormouse.features import compaction as compact_stage
from dormouse.jobs import CRASH_LIMIT
from dormouse.keys import encode_key
from dormouse.messages.requests import CompactTable
from dormouse.shards.run_markers import RunMarker, put_run_marker
from dormouse.state.state import DAY_MS
from dormouse.state.versions import Provenance
from dormouse.stored.paths import JOB_NOTES, PART_NUMBERS, RUN_MARKERS, run_of_shard, set_aside_path
from tests.support.world import Crash, World
from tests.unit.features.crashing import WORDS, drive, job_of, kills


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, has_spark=False)


def test_a_compaction_larger_than_a_function_does_is_done_in_steps_with_one_commit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, message = job_of(world, WORDS, WORDS[::2], compaction_spark_bytes=1000)
    before = world.state(table)
    tried = kills(monkeypatch, lambda span, part: False)
    sent = [message]
    while sent[-1].queue == "compaction-jobs":
        assert world.state(table) == before, "nothing of it shows before all is there"
        sent += world.deliver(sent[-1])[:1]
    state = world.state(table)
    assert state.version == before.version + 1
    steps = len(tried)
    assert steps > 3 and len(sent) - 1 == steps + 2, "to cut, to do, to commit"
    assert len({part for _, part in tried}) == steps
    assert world.names(table) == "".join(sorted(WORDS + WORDS[::2]))
    assert len(state.shards) - len(state.unreferenced) == steps
    record = world.tracker.get(table.id, "heavy")
    assert record is not None and (record.state, record.rows, record.rows_read) == (
        "finished",
        24,
        24,
    )


def test_a_compaction_that_a_function_does_is_not_cut(world: World) -> None:
    table, message = job_of(world, WORDS, WORDS)
    assert drive(world, message).count("compaction-jobs") == 1
    assert not list(world.storage.list(JOB_NOTES.prefix(table.id)))


def test_with_spark_a_large_compaction_is_no_functions(tmp_path: Path) -> None:
    world = World(tmp_path)
    _, message = job_of(world, WORDS, WORDS, compaction_spark_bytes=1000)
    (sent,) = world.deliver(message)
    assert (sent.queue, sent.message) == ("spark-jobs", message.message)


def test_a_compaction_that_crashed_twice_goes_to_spark_and_to_no_function_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    table, message = job_of(world, WORDS, WORDS, spark_attempts=1)
    tried = kills(monkeypatch, lambda span, part: True)
    drive(world, message)
    assert len(tried) == CRASH_LIMIT and len(world.spark.runs) == 1
    world.spark.ended["run1"] = ("failed", "out of memory, too")
    for _ in range(40):
        world.clock.advance(seconds=DAY_MS // 1000)
        world.age_objects(seconds=DAY_MS // 1000)
        world.sweep(audit=True)
        world.settle()
    assert len(tried) == CRASH_LIMIT and len(world.spark.runs) == 1
    (dead,) = world.dead
    assert (dead.queue, dead.message) == ("spark-jobs-dead", message.message)
    world.redrive()
    world.settle()
    assert len(world.spark.runs) == 2, "a person can"


def test_a_compaction_crashed_twice_is_sparks_though_spark_took_nothing_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    table, message = job_of(world, WORDS, WORDS)
    tried = kills(monkeypatch, lambda span, part: True)
    drive(world, message)
    world.storage.delete([o.path for o in world.storage.list(f"{table.id}/spark/")])
    world.tracker.kept.clear()
    world.clock.advance(seconds=table.properties.job_retry_seconds)
    world.age_objects(seconds=table.properties.job_retry_seconds)
    world.sweep()
    assert [m.queue for m in world.queue if m.message == message.message] == ["spark-jobs"]
    assert len(tried) == CRASH_LIMIT


def test_without_spark_a_compaction_that_crashed_twice_is_halved_as_often_as_it_needs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, message = job_of(world, WORDS, WORDS)
    small = 5

    def is_too_much(span: Any, part: int | None) -> bool:
        if part is None:
            return True
        high = "z" if span.max is None else span.max[0]
        low = span.min[0] if span.min else "a"
        return sum(low <= letter < high for letter in WORDS) >= small

    tried = kills(monkeypatch, is_too_much)
    drive(world, message)
    assert world.names(table) == "".join(sorted(2 * WORDS))
    times = [tried.count(each) for each in tried]
    assert max(times) == CRASH_LIMIT, "nothing is tried a third time in one place"
    assert not world.state(table).jobs
    assert not world.dead


def test_shards_of_what_was_cut_are_gone_before_the_commit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, message = job_of(world, WORDS, WORDS, shard_target_bytes=1)
    with monkeypatch.context() as patch:  # the whole job is written, and dies before its commit
        patch.setattr(compact_stage, "count_rows_taken", lambda *_: World.crash())
        for _ in range(CRASH_LIMIT):
            with pytest.raises(Crash):
                world.deliver(message)
    written = world.shard_objects(table) - {*world.state(table).shards}
    assert written
    (again,) = world.deliver(message)
    with monkeypatch.context() as patch:  # and so does its first half
        patch.setattr(compact_apart, "count_rows_taken", lambda *_: World.crash())
        for _ in range(CRASH_LIMIT):
            with pytest.raises(Crash):
                world.deliver(again)
    drive(world, again)
    state = world.state(table)
    assert world.shard_objects(table) == {*state.shards}
    numbers = [run_of_shard(s)[1] // PART_NUMBERS for s in state.shards if s.startswith("heavy-")]
    assert len({*numbers}) == 3 and 0 not in numbers
    assert world.names(table) == "".join(sorted(2 * WORDS))


def test_rows_of_one_key_that_no_function_can_merge_are_reported_once_and_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, message = job_of(world, "aaaa", "aa")
    with monkeypatch.context() as patch:
        tried = kills(patch, lambda span, part: True)
        drive(world, message)
        for _ in range(40):
            world.clock.advance(seconds=DAY_MS // 1000)
            world.age_objects(seconds=DAY_MS // 1000)
            world.sweep(audit=True)
            world.settle()
        assert len(tried) == CRASH_LIMIT
        (dead,) = world.dead
        assert (dead.queue, dead.message) == ("compaction-jobs-dead", message.message)
        assert "dormouse dlq redrive compaction-jobs" in dead.reason
        record = world.tracker.get(table.id, "heavy")
        assert record is not None and (record.state, record.reason) == ("failed", dead.reason)
        assert set(world.state(table).jobs) == {"heavy"}, "it stays assigned"
    world.redrive()
    world.settle()
    assert world.names(table) == "aaaaaa" and not world.state(table).jobs


def test_a_step_of_one_key_that_no_function_can_merge_is_reported_once_and_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, message = job_of(world, "abc" + "m" * 20 + "xyz", "am")

    def is_too_much(span: Any, part: int | None) -> bool:
        return part is None or span.contains(encode_key(("m",)))

    with monkeypatch.context() as patch:
        tried = kills(patch, is_too_much)
        drive(world, message)
        for _ in range(40):
            world.clock.advance(seconds=DAY_MS // 1000)
            world.age_objects(seconds=DAY_MS // 1000)
            world.sweep(audit=True)
            world.settle()
        assert max(tried.count(each) for each in tried) == CRASH_LIMIT
        (dead,) = world.dead
        assert "dlq redrive compaction-jobs" in dead.reason
        world.redrive()
        before = len(tried)
        drive(world, world.queue.popleft())
        assert len(tried) == before + CRASH_LIMIT, "a person can have it tried again"
        assert len(world.dead) == 1
    world.redrive()
    world.settle()
    assert world.names(table) == "".join(sorted("abc" + "m" * 20 + "xyz" + "am"))
    assert not world.state(table).jobs


def test_a_job_that_spark_failed_at_is_done_in_steps_once_there_is_no_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    table, message = job_of(world, WORDS, WORDS, spark_attempts=1)
    kills(monkeypatch, lambda span, part: part is None)
    drive(world, message)
    world.spark.ended["run1"] = ("failed", "out of memory, too")
    patience = table.properties.job_retry_seconds
    world.clock.advance(seconds=patience)
    world.age_objects(seconds=patience)
    world.sweep()
    world.settle()
    assert [letter.queue for letter in world.dead] == ["spark-jobs-dead"]
    world.services = replace(world.services, spark=None, has_spark=False)
    world.clock.advance(seconds=2 * patience)
    world.age_objects(seconds=2 * patience)
    world.sweep()
    (again,) = [each for each in world.queue if each.message == message.message]
    world.queue.clear()
    drive(world, again)
    assert world.names(table) == "".join(sorted(2 * WORDS))
    assert not world.state(table).jobs


def test_a_whole_run_does_not_commit_beside_a_noted_end_of_other_shards(world: World) -> None:
    """Spark died right before its commit and was switched off; a rebuild believes its note."""
    table, message = job_of(world, WORDS, WORDS)
    put_run_marker(
        world.storage, table.id, RunMarker("heavy", Provenance(job="heavy", number=1), (7,))
    )
    world.deliver(message)
    assert not world.state(table).jobs
    record = world.tracker.get(table.id, "heavy")
    assert record is not None and RUN_MARKERS.path(table.id, "heavy") in record.reason
    assert not list(world.storage.list(RUN_MARKERS.prefix(table.id)))
    assert world.shard_objects(table) == {*world.state(table).shards}
    world.administer(CompactTable("again", table.name, all=True))
    world.settle()
    assert world.names(table) == "".join(sorted(2 * WORDS))


def test_a_job_set_aside_goes_to_spark_once_there_is_spark(world: World) -> None:
    table, message = job_of(world, "aaaa", "aa")
    world.storage.put(set_aside_path(table.id, "heavy", "function"), b"")
    world.age_objects(seconds=0)
    world.clock.advance(seconds=10 * DAY_MS // 1000)
    world.sweep()
    assert message.message not in [m.message for m in world.queue]
    world.services = replace(world.services, has_spark=True)
    world.clock.advance(seconds=10 * DAY_MS // 1000)
    world.sweep()
    assert [m.queue for m in world.queue if m.message == message.message] == ["spark-jobs"]
