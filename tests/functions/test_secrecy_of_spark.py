"""Spark jobs disclose no value of a row, whatever they meet; a stand-in for Spark runs them."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from dormouse.aws import handling
from dormouse.features.export import export_id_of
from dormouse.features.spark import save_spark_request
from dormouse.jobs import tracked_job
from dormouse.messages.stages import ExportJob, IngestJob, SparkJob
from dormouse.state.sources import job_id_of
from tests.functions.conftest import TABLE_ID, Functions
from tests.functions.damage import JOB, damage, with_everything
from tests.functions.disclosure import SECRET, disclosed, values_in
from tests.support.spark_access import WorldAccess
from tests.template.spark_jobs import Here

EXPORT = ExportJob(TABLE_ID, export_id_of("e"))
Driver = Callable[[SparkJob], int]


@pytest.fixture
def driver(functions: Functions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Driver:
    """Runs a job of the instance as spark-submit does; returns the driver's exit code."""
    monkeypatch.setenv("DORMOUSE_ACCOUNT", "123456789012")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    from dormouse_spark import entry  # PySpark takes long to import

    access = WorldAccess(functions.world)
    monkeypatch.setattr(
        entry, "opened", lambda _: nullcontext((handling.wiring().services, access))
    )
    monkeypatch.setattr(entry, "SparkContext", SimpleNamespace(getOrCreate=Here))

    def run(job: SparkJob) -> int:
        given = {"instance": "local", "table-id": TABLE_ID, "job-id": job.job_id, "generation": "0"}
        options = [f"--{name}={value}" for name, value in given.items()]
        return entry.main(tracked_job(job).kind, options)

    return run


def heavy_import(functions: Functions) -> IngestJob:
    """Keep the request of an import of a good file and of one whose second row is bad."""
    sources = [
        functions.world.sources.drop(f"letters/{name}.csv", f"letter,at,note\n{body}".encode())
        for name, body in (
            ("good", f"{SECRET},1,{SECRET}\n"),
            ("bad", f"x,1,\nx,{SECRET},{SECRET}\n"),
        )
    ]
    job = IngestJob(TABLE_ID, 0, job_id_of(sources), tuple(sources))
    save_spark_request(functions.world.services, job)
    return job


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("pages of shards", "compaction"),
        ("pages of shards", "export"),
        ("footers of shards", "compaction"),
        ("footers of shards", "export"),
        ("the state", "compaction"),
        ("the state", "ingest"),
        ("conditions of requests", "export"),
        ("requests", "export"),
        ("requests for Spark", "ingest"),
    ],
)
def test_a_driver_that_meets_damage_says_so_without_a_value(
    functions: Functions,
    driver: Driver,
    log: io.StringIO,
    capsys: pytest.CaptureFixture[str],
    what: str,
    kind: str,
) -> None:
    with_everything(functions)
    jobs = {"compaction": JOB, "export": EXPORT, "ingest": heavy_import(functions)}
    damage(functions, what)
    code = driver(jobs[kind])
    text = disclosed(functions, log, capsys)
    assert (f"job {jobs[kind].job_id}: " in text) if code else ("state='failed'" in text)
    assert not values_in(text)


def test_a_driver_that_refuses_a_file_says_where_and_not_what(
    functions: Functions, driver: Driver, log: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    with_everything(functions)
    assert driver(heavy_import(functions)) == 0
    text = disclosed(functions, log, capsys)
    assert "state='refused'" in text
    assert not values_in(text)
