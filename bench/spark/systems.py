"""Import rows into leaves, or make sorted shards one, as Dormouse's Spark jobs and others do it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from bench.measure import run_all
from bench.rows import instance as rows_instance
from bench.rows.data import KEYS, SCHEMAS, expected_of, split_points
from bench.rows.make import write_source
from bench.rows.stages import report
from bench.spark.access import MEMORY_BYTES, local
from dormouse.features.spark import JVM_OPTIONS
from dormouse.messages.stages import IngestJob
from dormouse.state.sources import Source, job_id_of
from dormouse.storage import FolderStorage
from dormouse_spark.bulk_import import bulk_import
from dormouse_spark.compact import compact

DRIVER_MEMORY = "4g"
WARM_UP_ROWS = 20_000
WARM_UP_FILES = 3
"""With so many files of a table for each core, a compaction has a task for each worker."""
WORKERS_START_SECONDS = 2
"""How long a worker stays busy after its start, so that the next task needs another one."""
JVM_ENDS_SECONDS = 60
"""How long the JVM may take to end."""
NOT_OPTIMIZED = ", JVM as ours"
"""The end of the name of a system that has the same options of the JVM as Dormouse's jobs."""
Work = Callable[[], object]


def cores() -> int:
    """Count the cores that this process may use: ``taskset`` can leave it some."""
    return len(os.sched_getaffinity(0))


def started(events: Path, scratch: Path, system: str) -> SparkSession:
    """Start Spark on all cores this process may use, quiet, with a log of events.

    Dormouse's jobs are submitted with options of the JVM. Plain Spark is measured both ways: these
    make short jobs of its own faster, too.
    """
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    os.environ["PYTHONPATH"] = os.pathsep.join(str(Path(path).resolve()) for path in sys.path)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": events.as_uri(),
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.hadoop.parquet.compression.codec.zstd.level": "1",
    }
    if system == "dormouse" or system.endswith(NOT_OPTIMIZED):
        settings["spark.driver.extraJavaOptions"] = JVM_OPTIONS
    builder = SparkSession.builder.master(f"local[{cores()}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def dormouse_import(
    spark: SparkSession, files: Sequence[Path], leaves: int, out: Path, scratch: Path
) -> Work:
    given = rows_instance.services(FolderStorage(out), scratch, MEMORY_BYTES, seed=1)
    table = rows_instance.create(given, SCHEMAS["narrow"], split_points(leaves))
    settings: dict[str, int | str] = {"bulk_import_min_leaf_partitions": leaves}
    given.tables.change(table.id, lambda t: t.with_settings(settings, {}))
    sources = tuple(Source("local", f"rows/{f}", f.name, f.stat().st_size) for f in files)
    job = IngestJob(table.id, 0, job_id_of(sources), sources)
    reach = partial(local, out, scratch)
    return lambda: bulk_import(spark.sparkContext, reach, given, job)


def spark_import(
    spark: SparkSession, files: Sequence[Path], leaves: int, out: Path, scratch: Path
) -> Work:
    def work() -> None:
        rows = spark.read.parquet(*map(str, files))
        ranges = rows.repartitionByRange(leaves, KEYS[0]).sortWithinPartitions(*KEYS)
        ranges.write.mode("append").parquet(str(out / "sorted"))

    return work


def dormouse_compact(
    spark: SparkSession, files: Sequence[Path], leaves: int, out: Path, scratch: Path
) -> Work:
    given, job = rows_instance.assigned(files, SCHEMAS["narrow"], out, scratch, MEMORY_BYTES)

    def work() -> None:
        compact(spark.sparkContext, partial(local, out, scratch), given, job)
        rows_instance.unlink(files, out)

    return work


def spark_sort(
    spark: SparkSession, files: Sequence[Path], leaves: int, out: Path, scratch: Path
) -> Work:
    def work() -> None:
        rows = spark.read.parquet(*map(str, files))
        rows.orderBy(*KEYS).write.mode("append").parquet(str(out / "sorted"))

    return work


SYSTEMS: dict[str, dict[str, Callable[..., Work]]] = {
    "import": {
        "dormouse": dormouse_import,
        "plain spark": spark_import,
        f"plain spark{NOT_OPTIMIZED}": spark_import,
    },
    "compaction": {
        "dormouse": dormouse_compact,
        "plain spark sort": spark_sort,
        f"plain spark sort{NOT_OPTIMIZED}": spark_sort,
    },
}


def measure(part: str, system: str, number: int, inputs: str, leaves: int, place: str) -> None:
    """Measure one system once. Spark is started, and warmed up with some rows, before that.

    Raises:
        ValueError: it wrote other rows, or not in order.
    """
    files = sorted(Path(inputs).resolve().rglob("*.parquet"))
    make = SYSTEMS[part.split()[0]][system]
    with TemporaryDirectory(dir=Path(place).parent / "scratch") as name:
        folder = Path(name)
        for each in ("events", "warm", "warm-in", "scratch"):
            (folder / each).mkdir()
        spark = started(folder / "events", folder / "scratch", system)
        warm_up(spark, make, part, files, folder)
        before = shuffled_bytes(folder / "events")
        work = make(spark, files, leaves, Path(place), folder / "scratch")

        def shuffled() -> dict[str, float]:
            end(spark)
            return {"shuffled_mb": (shuffled_bytes(folder / "events") - before) / 1e6}

        expected, out = expected_of(Path(inputs)), Path(place)
        report(part, system, number, work, expected, out, others=shuffled, measured=run_all)


def shuffled_bytes(events: Path) -> int:
    """Return what all tasks of a log of events wrote to shuffles, as stored."""
    logs = (path for path in events.rglob("*") if path.is_file())
    found = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    metrics = [e.get("Task Metrics") for e in found if e["Event"] == "SparkListenerTaskEnd"]
    return sum(each["Shuffle Write Metrics"]["Shuffle Bytes Written"] for each in metrics if each)


def load(number: int) -> None:
    """Import, in a Python worker, what tasks of Dormouse import.

    Each then stays busy for a while, so that every core starts a worker of its own, and none is
    left to start while it is measured.
    """
    import dormouse_spark.bulk_import  # noqa: F401
    import dormouse_spark.compact  # noqa: F401

    time.sleep(WORKERS_START_SECONDS)


def warm_up(
    spark: SparkSession, make: Callable[..., Work], part: str, files: Sequence[Path], folder: Path
) -> None:
    """Do the same to few rows first, so that code is loaded and compiled, in every worker."""
    spark.sparkContext.parallelize(range(cores()), cores()).foreach(load)
    if part.startswith("import"):
        write_source(folder / "warm-in" / "some.parquet", "narrow", WARM_UP_ROWS, 0)
        files = [folder / "warm-in" / "some.parquet"]
    some = files[: WARM_UP_FILES * cores()]
    make(spark, some, 2, folder / "warm", folder / "scratch")()


def end(spark: SparkSession) -> None:
    """Stop Spark and wait for its JVM: the system counts a process to the one that waited for it.

    PySpark ends without waiting, and what the JVM did would seem to be done by others.
    """
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    jvm: subprocess.Popen[bytes] = gateway.proc
    assert jvm.stdin is not None
    jvm.stdin.close()  # the JVM ends when nobody can write to it
    jvm.wait(JVM_ENDS_SECONDS)
