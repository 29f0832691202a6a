"""Jobs whose driver or executors die: what was done counts once, and what was not is done again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from dormouse.client.instance import Instance
from dormouse.errors import UnavailableError
from dormouse.features import compaction_steps, export
from dormouse.features.rebuild import preview_rebuild
from dormouse.features.spark import list_spark_requests, save_spark_request
from dormouse.features.spark_jobs import is_spark_job_complete
from dormouse.jobs import tracked_job
from dormouse.messages.requests import CompactTable
from dormouse.messages.stages import IngestJob, OutboundMessage, SparkJob, SparkRunChanged
from dormouse.ports import Upload, WholeUpload
from dormouse.state.sources import job_id_of
from dormouse.tables.table import Table
from dormouse_spark.access import Access
from dormouse_spark.bulk_import import bulk_import
from dormouse_spark.compact import compact
from dormouse_spark.entry import main
from dormouse_spark.export_rows import export_rows
from tests.spark import killed_driver
from tests.support.spark_access import WorldAccess
from tests.support.world import LETTERS, World, letters, letters_file
from tests.unit.features.exports import exported

TEXTS = ("thequickbrownfoxjumps", "overthelazydog")
ALL = "".join(sorted("".join(TEXTS)))


class Death(BaseException):
    """The end of a process: nothing of ours may catch it."""


def die() -> None:
    raise Death


@dataclass
class Job:
    """A heavy job in a world, as `dispatch_spark` has it, and a Spark that runs it."""

    spark: SparkContext
    world: World
    table: Table
    message: SparkJob

    def run(self, open_access: Callable[[], Access] | None = None) -> None:
        """Be the driver of the newest run."""
        open_access = open_access or WorldAccess(self.world)
        runs: dict[str, Any] = {"ingest": bulk_import, "compaction": compact, "export": export_rows}
        run = runs[tracked_job(self.message).kind]
        run(self.spark, open_access, self.world.services, self.message)

    def end(self, outcome: str) -> list[OutboundMessage]:
        """End the newest run so, and do what follows until Spark is to run it again, or is not."""
        run_id = list(self.world.spark.runs)[-1]
        self.world.spark.ended[run_id] = (outcome, "")
        found = self.world.deliver(OutboundMessage("spark-runs", SparkRunChanged(run_id)))
        for message in found:
            if message.queue == "spark-jobs":
                assert self.world.deliver(message) == []
        return found

    def assert_done(self) -> None:
        """Check that each row is there once, in the table and for a rebuild, and all is tidy."""
        assert list_spark_requests(self.world.services, self.table.id) == ([], {})
        self.world.settle()
        assert self.world.names(self.table) == ALL
        assert preview_rebuild(self.world.services, self.table).state.rows == len(ALL)
        self.world.clock.advance(seconds=8 * 24 * 3600)
        self.world.age_objects(seconds=0)
        self.world.clock.advance(seconds=8 * 24 * 3600)
        self.world.sweep(audit=True)
        assert self.world.shard_objects(self.table) == set(self.world.state(self.table).shards)


def begun(spark: SparkContext, world: World, kind: str) -> Job:
    """Return a job that was dispatched, of a table of two leaves, or of one that is compacted."""
    heavy = {"ingest_spark_bytes": 1} if kind == "import" else {"export_spark_bytes": 1}
    leaves = [] if kind == "compaction" else [("m",)]
    table = world.create(splits=leaves, compaction_files=100, **heavy)
    if kind == "import":
        sources = [
            world.sources.drop(f"letters/{n}.parquet", letters_file(letters(text, at=100 * n)))
            for n, text in enumerate(TEXTS)
        ]
        world.notify(*sources)
    else:
        for n, text in enumerate(TEXTS):
            world.drop(f"letters/{n}.parquet", letters(text, at=100 * n))
        world.settle()
    if kind == "compaction":
        world.tables.change(table.id, lambda t: t.with_settings({"compaction_spark_bytes": 1}, {}))
        world.administer(CompactTable("c", "letters", all=True))
    if kind == "export":
        world.export(table, to="out")
    sent = world.queue.popleft()
    assert sent.queue == "spark-jobs"
    assert world.deliver(sent) == []
    message: Any = sent.message
    return Job(spark, world, table, message)


@pytest.mark.parametrize("kind", ["import", "compaction"])
def test_a_driver_that_dies_before_its_commit_has_done_nothing_and_the_next_does_it(
    spark: SparkContext, world: World, kind: str
) -> None:
    job = begun(spark, world, kind)
    world.before_next_commit(die)
    with pytest.raises(Death):
        job.run()
    assert world.names(job.table) == ("" if kind == "import" else ALL)
    (again,) = job.end("failed")
    assert (again.queue, len(world.spark.runs)) == ("spark-jobs", 2)
    job.run()
    job.end("succeeded")
    job.assert_done()


@pytest.mark.parametrize("kind", ["import", "compaction"])
def test_a_driver_that_dies_after_its_commit_has_done_its_job_once(
    spark: SparkContext, world: World, kind: str
) -> None:
    job = begun(spark, world, kind)
    world.after_next_commit(die)
    with pytest.raises(Death):
        job.run()
    assert world.names(job.table) == ALL
    follows = job.end("failed")
    queues = ["table-changes", *["gc-candidates"] * (kind == "compaction")]
    assert ([message.queue for message in follows], len(world.spark.runs)) == (queues, 1)
    version = world.state(job.table).version
    job.run()  # as if EMR had begun it again by itself
    assert world.state(job.table).version == version
    world.queue += follows
    job.assert_done()


def test_a_driver_of_an_export_that_dies_at_its_end_is_made_up_for(
    spark: SparkContext, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = begun(spark, world, "export")
    for name in ("save_manifest", "delete_export"):
        with monkeypatch.context() as patch:
            patch.setattr(export, name, lambda *_: die())
            with pytest.raises(Death):
                job.run()
        (again,) = job.end("failed")
        assert again.queue == "spark-jobs"
    job.run()
    (changed,) = job.end("succeeded")
    assert changed.queue == "table-changes"
    job.assert_done()
    assert exported(world) == ALL


@dataclass(frozen=True)
class Deadly:
    """Storage whose process is killed once, just after it has put something new."""

    inner: Any
    mark: Path

    def __getattr__(self, name: str) -> Any:
        if name in ("inner", "mark") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def start_upload(self, path: str, local: Path) -> Upload:
        return WholeUpload(self, path, local)

    def with_commits(self) -> Deadly:
        return self

    def upload(self, path: str, local: Path) -> bool:
        done = bool(self.inner.upload(path, local))
        try:
            self.mark.touch(exist_ok=False)
        except FileExistsError:
            return done
        os.kill(os.getpid(), signal.SIGKILL)
        return done


@pytest.mark.parametrize("kind", ["import", "compaction", "export"])
def test_an_executor_that_is_killed_when_it_has_written_something_costs_a_run_and_no_row(
    spark: SparkContext, world: World, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_steps, "MIN_TASK_BYTES", 1)
    job = begun(spark, world, kind)
    plain = WorldAccess(world).access
    deadly = Deadly(plain.storage, tmp_path / "died"), Deadly(plain.results, tmp_path / "died")
    access = replace(plain, storage=deadly[0], results=deadly[1])
    with pytest.raises(UnavailableError, match="Spark stopped the job"):
        job.run(lambda: access)
    assert (tmp_path / "died").exists()
    (again,) = job.end("failed")
    assert again.queue == "spark-jobs"
    job.run()
    job.end("succeeded")
    job.assert_done()
    assert kind != "export" or exported(world) == ALL


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_driver_whose_process_is_killed_at_its_commit_leaves_all_rows_or_none(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, when: str, spark: SparkContext
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    table = Instance.connect().create_table(f"killed-{when}", LETTERS, split_points=["m"])
    services = table.services
    local = services.scratch / f"killed-{when}.parquet"
    local.write_bytes(letters_file(letters(ALL)))
    source = table.bucket.drop(f"{table.name}/1.parquet", local)
    job = IngestJob(table.table.id, 0, job_id_of((source,)), (source,))
    save_spark_request(services, job)
    arguments = ["--instance", environment["DORMOUSE_INSTANCE"], "--table-id", job.table_id]
    arguments += ["--job-id", job.job_id, "--generation", "0"]
    ended = subprocess.run(
        [sys.executable, killed_driver.__file__, when, *arguments],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": "--driver-memory 512m pyspark-shell",
        },
        capture_output=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    is_there = when == "after"
    assert table.count() == (len(ALL) if is_there else 0)
    assert is_spark_job_complete(services, services.store(table.table).current(), job) == is_there
    assert main("ingest", arguments) == 0
    found = table.query().read_all()["letter"].to_pylist()
    assert "".join(found) == ALL
