"""Heavy jobs on the local stack: dispatched, done by a real Spark, and known to be done."""

from __future__ import annotations

from typing import Any

import boto3
import pyarrow as pa

from dormouse.schema.schema import Schema
from dormouse.stored.paths import SPARK_JOBS
from dormouse.tables.properties import SparkOptions
from tests.support.waiting import LIMIT_SECONDS
from tests.system.conftest import System

SCHEMA = Schema.from_json({"rowKeyFields": [{"name": "n", "type": "LongType"}]})
ROWS = 2_000


def run_states(job_id: str) -> list[str]:
    emr: Any = boto3.client("emr-serverless")
    runs = emr.list_job_runs(applicationId="dormouse-local")["jobRuns"]
    return [run["state"] for run in runs if run["name"].split("/")[1] == job_id]


def numbers(start: int) -> pa.Table:
    return pa.table({"n": pa.array(range(start, start + ROWS), pa.int64())})


def test_files_are_bulk_imported_compacted_and_exported_by_spark(system: System) -> None:
    properties = {
        "ingest_spark_bytes": 1,
        "compaction_spark_bytes": 1,
        "compaction_strategy": "batch",
        "compaction_files": 2,
        "bulk_import_min_leaf_partitions": 1,
    }
    table = system.instance.create_table("heavy", SCHEMA, properties)
    for start in (0, ROWS):
        table.ingest(numbers(start)).wait(LIMIT_SECONDS)
    table.wait(LIMIT_SECONDS)
    assert table.query().read_all()["n"].to_pylist() == list(range(2 * ROWS))
    jobs = list(table.jobs())
    assert {(job.kind, job.state) for job in jobs} >= {
        ("ingest", "finished"),
        ("compaction", "finished"),
    }
    export = table.export(spark=SparkOptions(spark_executors=2))
    assert export.wait(LIMIT_SECONDS).rows == 2 * ROWS
    jobs = list(table.jobs())
    assert [job.state for job in jobs if job.kind == "export"] == ["finished"]
    system.instance.polling.until_nothing(
        lambda: len(list(table.services.storage.list(SPARK_JOBS.prefix(table.table.id)))),
        timeout_seconds=LIMIT_SECONDS,
        looks=1,
    )
    for job in jobs:
        if job.kind in ("ingest", "compaction", "export"):
            assert run_states(job.job_id) == ["SUCCESS"], job
