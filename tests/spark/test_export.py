"""Heavy exports: the tasks of an export side by side, what functions would have written."""

from __future__ import annotations

from functools import partial

import pytest
from pyspark import SparkContext

from dormouse.errors import DormouseError, UnavailableError
from dormouse.messages.stages import ExportJob
from dormouse.query import selection
from dormouse.stored.paths import EXPORTS
from dormouse.tables.table import Table
from dormouse_spark.export_rows import export_rows
from tests.support.spark_access import WorldAccess
from tests.support.world import Crash, World, letters
from tests.unit.features.exports import exported, manifest, record_of

TEXT = "thequickbrownfoxjumpsoverthelazydog"


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every leaf is a task of its own."""
    monkeypatch.setattr(selection, "MAX_TASK_SHARDS", 1)


def begun(world: World) -> tuple[Table, ExportJob]:
    """Return a table of three leaves, and the job to export all of it."""
    table = world.create(splits=[("h",), ("p",)], export_spark_bytes=1)
    world.drop("letters/1.parquet", letters(TEXT))
    world.settle()
    world.export(table, to="out")
    job = world.queue.popleft().message
    assert isinstance(job, ExportJob)
    return table, job


def run(spark: SparkContext, world: World, job: ExportJob) -> None:
    export_rows(spark, WorldAccess(world), world.services, job)


def test_an_export_is_written_by_tasks_and_ended_by_the_driver_once(
    spark: SparkContext, world: World
) -> None:
    table, job = begun(world)
    for _ in range(2):
        run(spark, world, job)
        assert exported(world) == "".join(sorted(TEXT))
    assert [file.name for file in manifest(world).files] == [
        f"part-{task:05d}-000.parquet" for task in range(3)
    ]
    assert record_of(world, table, job.job_id).rows == len(TEXT)
    assert list(world.storage.list(EXPORTS.prefix(table.id))) == []


def test_a_run_goes_on_with_the_tasks_that_another_has_left(
    spark: SparkContext, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, job = begun(world)
    with monkeypatch.context() as patch:
        patch.setattr("dormouse.features.export.save_manifest", lambda *_: World.crash())
        with pytest.raises(Crash):
            run(spark, world, job)
    written = {o.path: o.modified_ms for o in world.results.list("out/")}
    assert len(written) == 3 and "out/_manifest.json" not in written
    run(spark, world, job)
    assert exported(world) == "".join(sorted(TEXT))
    again = {o.path: o.modified_ms for o in world.results.list("out/part")}
    assert again == written, "what was done is not done again"


def test_an_export_whose_shards_were_collected_ends_and_says_what_to_do(
    spark: SparkContext, world: World
) -> None:
    table, job = begun(world)
    gone = next(o for o in world.storage.list(f"{table.id}/data/"))
    world.storage.delete([gone.path])
    run(spark, world, job)
    record = record_of(world, table, job.job_id)
    assert (record.state, "request the export again" in record.reason) == ("failed", True)
    assert list(world.storage.list(EXPORTS.prefix(table.id))) == []


def test_what_may_pass_fails_the_run_and_leaves_the_export_to_the_next(
    spark: SparkContext, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, job = begun(world)
    with monkeypatch.context() as patch:
        refusal = UnavailableError("the bucket is busy")
        patch.setattr("dormouse_spark.export_rows.write_task", partial(_fail, refusal))
        with pytest.raises(DormouseError, match="Spark stopped the job"):
            run(spark, world, job)
    assert record_of(world, table, job.job_id).state == "failed"
    run(spark, world, job)
    assert exported(world) == "".join(sorted(TEXT))


def _fail(error: DormouseError, *_: object) -> None:
    raise error
