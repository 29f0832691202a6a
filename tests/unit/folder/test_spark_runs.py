"""The runs of Spark in a folder: done once, by one process at a time, even if one dies."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dormouse import lifeline
from dormouse.client import in_folder
from dormouse.client.instance import Instance
from dormouse.features.compaction import compact
from dormouse.folder import spark
from dormouse.folder.processes import Leaving, LeavingError
from dormouse.folder.queues import SqliteQueues
from dormouse.folder.spark import (
    KEPT_SECONDS,
    MAX_STARTS,
    SparkRuns,
    SparkSubmit,
    SparkWorker,
    StoredRun,
)
from dormouse.folder.sqlite import Database, remove_expired
from dormouse.messages.stages import CompactionJob, SparkRunChanged, decode
from dormouse.ports import SparkRun
from dormouse.state import jobs
from dormouse.state.jobs import ClusterSize
from dormouse.tables.properties import SparkOptions
from tests.support.adapters import FakeClock
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import LETTERS

SIZE = ClusterSize(1, 1, 1)


@pytest.fixture
def alive() -> set[str]:
    return {"one", "two"}


@pytest.fixture
def of(database: Database, clock: FakeClock, alive: set[str]) -> Callable[[str], SparkRuns]:
    return lambda name: SparkRuns(database, clock, name, alive.__contains__)


def a_run(token: str = "token", attempt: int = 1) -> SparkRun:
    return SparkRun("t", f"job-{token}", "compaction", 0, attempt, token, SIZE, "")


def announced(database: Database, clock: FakeClock) -> list[str]:
    received = SqliteQueues(database, clock, "this", {"this"}.__contains__).receive(
        "spark-runs", 100
    )
    return [decode(message.body, SparkRunChanged).run_id for message in received]


def test_a_run_is_started_once_done_once_and_its_end_is_announced(
    database: Database, clock: FakeClock, of: Callable[[str], SparkRuns]
) -> None:
    runs = of("one")
    run_id = runs.start(a_run())
    assert runs.start(a_run()) == run_id
    found = runs.describe(run_id)
    assert found is not None
    assert (found.table_id, found.job_id, found.attempt, found.outcome) == ("t", "job-token", 1, "")
    taken = runs.take()
    assert taken is not None
    runs.end(*taken, "failed", "no room")
    ended = runs.describe(run_id)
    assert ended is not None
    assert (ended.outcome, ended.reason) == ("failed", "no room")
    assert runs.start(a_run()) == run_id, "its token is known"
    assert runs.take() is None
    assert announced(database, clock) == [run_id]
    with database.writing() as connection:
        remove_expired(connection, clock.now_ms() + KEPT_SECONDS * 1000)
    assert runs.describe(run_id) is None


def test_one_run_is_done_at_a_time_in_a_folder(of: Callable[[str], SparkRuns]) -> None:
    one, two = of("one"), of("two")
    one.start(a_run("a"))
    one.start(a_run("b"))
    taken = one.take()
    assert taken is not None
    assert two.take() is None
    one.end(*taken, "succeeded", "")
    assert two.take() is not None


def test_a_run_of_a_dead_process_is_taken_by_another_and_fails_if_all_of_them_die(
    database: Database, clock: FakeClock, alive: set[str], of: Callable[[str], SparkRuns]
) -> None:
    run_id = of("one").start(a_run())
    for number in range(MAX_STARTS):
        name = f"process-{number}"
        alive.add(name)
        taken = of(name).take()
        assert taken is not None and taken[0] == run_id
        assert of("two").take() is None
        alive.remove(name)
    assert of("two").take() is None
    found = of("two").describe(run_id)
    assert found is not None
    assert found.outcome == "failed"
    assert "died" in found.reason
    assert announced(database, clock) == [run_id]


def test_a_run_whose_end_could_not_be_written_is_taken_again_by_the_same_process(
    of: Callable[[str], SparkRuns],
) -> None:
    runs = of("one")
    runs.start(a_run())
    assert runs.take() is not None
    assert runs.take() is not None, "its thread has ended: a full disk kept it from saying how"


@pytest.mark.parametrize("why", [LeavingError("the process ends"), KeyboardInterrupt()])
def test_a_process_that_leaves_hands_its_run_back_as_if_it_had_not_had_it(
    of: Callable[[str], SparkRuns], why: BaseException
) -> None:
    one, two = of("one"), of("two")
    one.start(a_run())

    def leave(run: StoredRun, check: Callable[[], None]) -> tuple[str, str]:
        raise why

    worker = SparkWorker(one, leave, Leaving())
    for _ in range(MAX_STARTS + 1):
        if isinstance(why, KeyboardInterrupt):
            with pytest.raises(KeyboardInterrupt):
                worker.step()
        else:
            assert not worker.step()
    taken = two.take()
    assert taken is not None
    assert taken[1].starts == 1


def test_a_run_that_does_not_end_in_time_is_ended_and_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def hang(*_: object, **__: object) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sleep", "1000"], start_new_session=True))
        return started[0]

    monkeypatch.setattr(lifeline, "start", hang)
    monkeypatch.setattr(spark, "SPARK_RUN_SECONDS", 0)
    submit = spark.SparkSubmit(tmp_path, {}, 2**28, tmp_path)
    outcome, reason = submit(StoredRun("t", "job1", "compaction", 0, 1), lambda: None)
    assert (outcome, "did not end within" in reason) == ("failed", True)
    assert started[0].poll() is not None


def test_threads_of_a_process_do_one_run_at_a_time(of: Callable[[str], SparkRuns]) -> None:
    runs = of("one")
    runs.start(a_run("a"))
    runs.start(a_run("b"))
    during: list[bool] = []

    def run(_: StoredRun, check: Callable[[], None]) -> tuple[str, str]:
        during.append(worker.step())
        return "succeeded", ""

    worker = SparkWorker(runs, run, Leaving())
    assert [worker.step(), worker.step(), worker.step()] == [True, True, False]
    assert during == [False, False]


def test_a_damaged_run_is_unknown_to_its_job_and_keeps_no_other_waiting(
    database: Database, of: Callable[[str], SparkRuns]
) -> None:
    runs = of("one")
    runs.start(a_run("a"))
    with database.writing() as connection:
        connection.execute("UPDATE items SET body = '{}' WHERE owner = '(spark-runs)'")
    runs.start(a_run("b"))
    assert runs.describe("a") is None
    taken = runs.take()
    assert taken is not None
    assert taken[0] == "b"


def test_a_heavy_job_of_a_folder_is_with_spark_until_its_run_has_ended_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is done here as its driver does it; tests/spark has the driver."""
    monkeypatch.setattr(in_folder, "spark_environment", dict)
    monkeypatch.setattr(jobs, "LEAST_WAIT_SECONDS", 0)
    instance = Instance.open(tmp_path / "mice", background=False)
    done: list[int] = []

    def drive(self: SparkSubmit, run: StoredRun, check: Callable[[], None]) -> tuple[str, str]:
        done.append(run.attempt)
        if run.attempt == 1:
            return "failed", "no room"
        job = CompactionJob(run.table_id, run.generation, run.job_id)
        assert list(compact(instance.services, job)), "what Spark leaves to the tracking of its run"
        return "succeeded", ""

    monkeypatch.setattr(SparkSubmit, "__call__", drive)
    table = instance.create_table("letters", LETTERS)
    for number in range(3):
        path = tmp_path / f"{number}.csv"
        path.write_text(f"letter,at,note\na,{number},x\n")
        table.ingest(path)
    assert instance.compact("letters", everything=True, spark=SparkOptions()) == 1
    table.wait(LIMIT_SECONDS)
    assert done == [1, 2]
    assert (table.status().shards, table.count()) == (1, 3)
    assert [job.state for job in table.jobs() if job.kind == "compaction"] == ["finished"]
    instance.close()
