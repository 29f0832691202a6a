"""Spark writes straight into an inbox: what its committers show meanwhile is no row, and the final
files are rows once. What is right is what Spark itself reads from the folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from dormouse.client.instance import Instance
from tests.support.waiting import eventually

VERSION = "mapreduce.fileoutputcommitter.algorithm.version"
Rows = Iterator[pa.RecordBatch]


@pytest.fixture
def session(spark: SparkContext) -> SparkSession:
    return SparkSession(spark)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        instance.create_table("t", "id: long, _p: long?", row_keys=["id"])
        yield instance


def ingested(instance: Instance) -> list[int]:
    """Return the ids of all rows, once all files that have rested are rows; nothing is refused."""
    assert instance.folder is not None
    for path in inbox(instance).rglob("*"):
        os.utime(path, (0, 0))
    instance.wait()
    assert not [job for job in instance.jobs() if job.state == "refused"]
    return sorted(row["id"] for row in instance.table("t").query().to_arrow().to_pylist())


def inbox(instance: Instance) -> Path:
    assert instance.folder is not None
    return Path(instance.folder.layout.inbox) / "t"


def after(then: Callable[[], object], batches: Rows) -> Rows:
    """Return the rows of the first task at once, and do something first where there are others."""
    for batch in batches:
        if batch.num_rows and batch.column(0)[0].as_py():
            then()
        yield batch


def write(frame: DataFrame, folder: Path, version: str) -> None:
    frame.write.option(VERSION, version).mode("append").parquet(folder.as_uri())


@pytest.mark.parametrize("version", ["1", "2"])
def test_files_of_tasks_are_rows_once_their_job_gave_them_their_names(
    session: SparkSession, instance: Instance, tmp_path: Path, version: str
) -> None:
    folder, go = inbox(instance), tmp_path / "go"
    held = session.range(2, numPartitions=2).mapInArrow(
        partial(after, partial(eventually, go.exists)), "id long"
    )
    done = "_temporary/0/task_*/part-00000-*" if version == "1" else "part-00000-*"
    with ThreadPoolExecutor(1) as thread:
        job = thread.submit(write, held, folder, version)
        eventually(lambda: [*folder.glob(done)])
        meanwhile = ingested(instance)
        go.touch()
        job.result()
    assert meanwhile == ([] if version == "1" else [0])
    assert ingested(instance) == [0, 1]


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_failed_job_adds_what_spark_reads_of_it(
    session: SparkSession, instance: Instance, version: str
) -> None:
    folder = inbox(instance)
    failing = session.range(4, numPartitions=2).selectExpr(
        "if(id < 3, id, raise_error('no')) AS id"
    )
    with pytest.raises(PySparkException):
        write(failing, folder, version)
    read = session.read.schema("id long").parquet(folder.as_uri())
    assert ingested(instance) == sorted(row["id"] for row in read.collect())


def test_partitions_that_are_overwritten_add_their_new_rows_once(
    session: SparkSession, instance: Instance
) -> None:
    """A column `_p` is data, also in the name of a folder; rows of replaced files stay."""
    folder = inbox(instance)
    for start in (0, 4):
        rows = session.range(start, start + 4, numPartitions=2).withColumn("_p", col("id") % 2)
        writer = rows.write.partitionBy("_p").mode("overwrite")
        writer.option("partitionOverwriteMode", "dynamic").parquet(folder.as_uri())
        assert ingested(instance) == list(range(start + 4))
    found = instance.table("t").query().to_arrow().to_pylist()
    assert all(row["_p"] == row["id"] % 2 for row in found)
