"""Jobs at which Spark fails or that it refuses: dead-lettered, reported, retried with backoff."""

from __future__ import annotations

from pathlib import Path

import pytest

from dormouse.errors import InvalidRequestError, OutcomeUnknownError, UnavailableError
from dormouse.features.export import delete_export, load_export
from dormouse.jobs import record, tracked_job
from dormouse.state.jobs import Failed
from dormouse.stored.paths import EXPORTS
from tests.support.depth import is_whole
from tests.support.world import World
from tests.unit.features.heavy import Heavy, heavy_compaction, heavy_export, heavy_ingest

SENT_BACK = pytest.mark.parametrize("heavy", [heavy_ingest, heavy_compaction], indirect=True)
"""The jobs that can be redriven after they failed; an export cannot."""


@SENT_BACK
def test_a_job_that_fails_too_often_becomes_a_dead_letter_with_the_reason(heavy: Heavy) -> None:
    for _ in range(2):
        heavy.dispatch()
        heavy.end("failed", "out of memory")
    (dead,) = heavy.dispatch()
    assert (dead.queue, dead.message) == ("spark-jobs-dead", heavy.job)
    assert "2 times" in dead.reason and "out of memory" in dead.reason
    assert heavy.record().reason == dead.reason
    assert heavy.kept() == []


@SENT_BACK
def test_what_the_driver_says_is_the_reason_and_not_its_exit_code(heavy: Heavy) -> None:
    for attempt in ("attempt 1, run run1: no key", "attempt 2, run run2: no key"):
        heavy.dispatch()
        record(heavy.world.services, tracked_job(heavy.job), Failed("no key"))
        heavy.end("failed", "exit code 1")
        heavy.end("failed", "exit code 1")
        assert heavy.record().reason == attempt
    (dead,) = heavy.dispatch()
    assert dead.reason == f"Spark failed 2 times, last in {attempt}"


def test_a_compaction_that_spark_failed_at_is_neither_planned_again_nor_tried_by_itself(
    tmp_path: Path,
) -> None:
    heavy = heavy_compaction(World(tmp_path))
    world = heavy.world
    patience_seconds = heavy.table.properties.job_retry_seconds
    given_up = []
    for hour in range(48):
        world.clock.advance(seconds=patience_seconds)
        world.sweep()
        while world.queue:
            outgoing = world.queue.popleft()
            if outgoing.queue == "spark-jobs-dead":
                given_up.append(hour + 1)
                continue
            running = {*world.spark.runs} - {*world.spark.ended}
            world.queue += world.deliver(outgoing)
            for run_id in {*world.spark.runs} - {*world.spark.ended} - running:
                world.spark.ended[run_id] = ("failed", "no memory")
                world.queue += heavy.messages_at_end(run_id)
                world.queue += heavy.messages_at_end(run_id)
    assert given_up == [1]
    assert len(world.spark.runs) == 2, "as often as the table says"
    assert set(world.state(heavy.table).jobs) == {"heavy"}
    heavy.dispatch()
    heavy.work()
    assert not world.state(heavy.table).jobs, "sent back when its cause is gone, it is done"


def test_while_spark_takes_nothing_the_sweep_does_not_multiply_its_jobs(heavy: Heavy) -> None:
    world = heavy.world
    world.spark.refusals = [UnavailableError("no room")] * 10_000
    circulating = heavy.dispatch()
    for _ in range(12 * (23 if is_whole() else 6)):  # hours of sweeps
        world.clock.advance(seconds=300)
        world.queue.clear()
        world.sweep()
        circulating += [m for m in world.queue if m.queue == "spark-jobs"]
        circulating = [again for m in circulating for again in world.deliver(m)]
    assert 1 <= len(circulating) <= 6


@SENT_BACK
def test_a_redriven_dead_letter_is_tried_from_the_start(heavy: Heavy) -> None:
    for _ in range(2):
        heavy.dispatch()
        heavy.end("failed")
    heavy.dispatch()
    heavy.world.clock.advance(seconds=1)
    assert heavy.dispatch() == []
    runs = heavy.world.spark.runs
    assert [run.attempt for run in runs.values()] == [1, 2, 1]
    assert len({run.token for run in runs.values()}) == 3


@pytest.mark.parametrize("error", [UnavailableError("throttled"), OutcomeUnknownError("silence")])
def test_a_job_that_cannot_be_started_for_now_waits_longer_and_longer(
    heavy: Heavy, error: Exception
) -> None:
    delays = []
    for _ in range(4):
        heavy.world.spark.refusals.append(error)
        (again,) = heavy.dispatch()
        assert (again.queue, again.message) == ("spark-jobs", heavy.again)
        delays.append(again.delay_seconds)
        heavy.world.clock.advance(seconds=1000)
    assert delays == sorted(set(delays)) and delays[0] == 30 and delays[-1] <= 900
    assert str(error) in heavy.record().reason
    assert heavy.dispatch() == []
    assert [run.attempt for run in heavy.world.spark.runs.values()] == [1]


@SENT_BACK
def test_a_job_that_cannot_be_started_for_a_day_is_a_dead_letter(heavy: Heavy) -> None:
    heavy.world.spark.refusals = [UnavailableError("no room"), UnavailableError("no room")]
    heavy.dispatch()
    heavy.world.clock.advance(seconds=25 * 60 * 60)
    (dead,) = heavy.dispatch()
    assert (dead.queue, dead.reason) == ("spark-jobs-dead", "no room")


@SENT_BACK
def test_a_job_that_spark_refuses_is_a_dead_letter_at_once(heavy: Heavy) -> None:
    heavy.world.spark.refusals = [InvalidRequestError("no such role", hint="make it")]
    (dead,) = heavy.dispatch()
    assert (dead.queue, dead.reason) == ("spark-jobs-dead", "no such role; make it")
    assert heavy.kept() == []


@pytest.mark.parametrize(
    "refusal", [InvalidRequestError("no such role"), UnavailableError("no room")]
)
def test_a_failed_export_leaves_no_dead_letter(tmp_path: Path, refusal: Exception) -> None:
    heavy = heavy_export(World(tmp_path))
    heavy.world.spark.refusals = [UnavailableError("no room"), refusal]
    heavy.dispatch()
    heavy.world.clock.advance(seconds=25 * 60 * 60)
    assert heavy.dispatch() == []
    assert (heavy.record().state, heavy.record().reason) == ("failed", str(refusal))
    heavy.dispatch()
    assert heavy.world.spark.runs == {}
    prefix = EXPORTS.prefix(heavy.table.id)
    assert heavy.kept() == [] and list(heavy.world.storage.list(prefix)) == []


def test_a_failed_export_is_not_recorded_as_finished_by_a_concurrent_task(tmp_path: Path) -> None:
    heavy = heavy_export(World(tmp_path))
    heavy.dispatch()
    services = heavy.world.services
    export = load_export(services, heavy.table.id, heavy.job.job_id)
    assert export is not None
    delete_export(services, export)  # its record of failing was older than another's, and not kept
    heavy.end("succeeded")
    found = heavy.record()
    assert found.state == "failed" and "no manifest" in found.reason
