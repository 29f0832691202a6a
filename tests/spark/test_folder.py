"""An instance in a folder: Spark reads its tables, and spark-submit runs its heavy jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.folder.spark import SparkSubmit
from dormouse.settings import spark_environment
from dormouse.tables.properties import SparkOptions
from dormouse_spark.datasource import register
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import LETTERS


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    monkeypatch.delenv("DORMOUSE_SPARK", raising=False)
    with Instance.open(tmp_path / "mice", background=False) as instance:
        yield instance


@pytest.fixture
def letters(instance: Instance, tmp_path: Path) -> TableHandle:
    table = instance.create_table("letters", LETTERS)
    for number in range(3):
        path = tmp_path / f"{number}.csv"
        path.write_text(f"letter,at,note\na,{number},x\nb,{number},y\n")
        table.ingest(path)
    return table


def test_a_table_of_a_folder_is_a_data_frame(
    spark: SparkContext, instance: Instance, letters: TableHandle, tmp_path: Path
) -> None:
    session = SparkSession(spark)
    register(session)

    def rows(**options: str) -> list[tuple[object, ...]]:
        frame = session.read.format("dormouse").option("instance", str(tmp_path / "mice"))
        found = frame.option("table", "letters").options(**options).load()
        return sorted((row["letter"], row["note"]) for row in found.collect())

    assert rows() == [("a", "x")] * 3 + [("b", "y")] * 3
    assert rows(**{"from": "b"}) == [("b", "y")] * 3
    version = letters.status().version
    path = tmp_path / "later.csv"
    path.write_text("letter,at,note\nc,1,z\n")
    letters.ingest(path)
    assert len(rows()) == 7
    assert len(rows(as_of=str(version))) == 6
    with pytest.raises(PySparkException, match="there is no instance in"):
        session.read.format("dormouse").option("instance", str(tmp_path / "none")).option(
            "table", "letters"
        ).load()
    assert not (tmp_path / "none").exists()
    (ours,) = (tmp_path / "mice" / ".processes").iterdir()
    assert instance.folder is not None and instance.folder.process is not None
    assert ours.name == instance.folder.process.name, "drivers and executors leave nothing behind"


def test_heavy_jobs_of_a_folder_are_run_by_spark_submit(
    instance: Instance, letters: TableHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three runs, each of which starts Java and Python processes: the real thing takes its time."""
    ran: list[str] = []
    call = SparkSubmit.__call__

    def counted(self: SparkSubmit, run: object, check: object) -> object:
        outcome = call(self, run, check)  # type: ignore[arg-type]
        ran.append(f"{run.kind} {outcome}")  # type: ignore[attr-defined]
        return outcome

    monkeypatch.setattr(SparkSubmit, "__call__", counted)
    assert instance.compact("letters", everything=True, spark=SparkOptions()) == 1
    letters.wait(LIMIT_SECONDS)
    assert (letters.count(), letters.status().shards) == (6, 1)
    again = instance.ingest_files("letters", ["letters/0.csv"], spark=SparkOptions(), again=True)
    again.wait(LIMIT_SECONDS)
    assert letters.count() == 8
    export = letters.export(to="out", spark=SparkOptions())
    export.wait(LIMIT_SECONDS)
    assert (tmp_path / "mice" / "exports" / "out" / "_manifest.json").is_file()
    assert ran == [f"{kind} ('succeeded', '')" for kind in ("compaction", "ingest", "export")]
    states = {job.state for job in letters.jobs() if job.kind in ("compaction", "ingest", "export")}
    assert states == {"finished"}
    assert list((tmp_path / "mice" / "logs").iterdir()) == []


def test_a_run_that_fails_says_why_and_keeps_its_log(instance: Instance, tmp_path: Path) -> None:
    from dormouse.folder.spark import StoredRun

    environment = spark_environment()
    assert environment is not None
    submit = SparkSubmit(tmp_path / "nowhere", environment, 2**28, tmp_path)
    (tmp_path / "nowhere").mkdir()
    outcome, reason = submit(StoredRun("t", "job1", "compaction", 0, 1), lambda: None)
    assert outcome == "failed"
    assert "is not the folder of an instance" in reason
    assert reason.endswith("see logs/spark-job1.log")
    assert (tmp_path / "nowhere" / "logs" / "spark-job1.log").is_file()
