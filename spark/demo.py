"""The demo with Spark: millions of flights, bulk imported, compacted, exported, read and checked.

Run ``make demo-spark``, which runs ``dormouse local run -- python -m spark.demo``. The flights of a
year are imported sixteen times, each time with another number in their key.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.errors import DormouseError
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive
from dormouse.tables.properties import SparkOptions
from dormouse_cli.terminal import print_table
from dormouse_spark.datasource import register
from tools.demo import flights as data
from tools.demo.acts import DemoError, Scene, files_queue

NAME = "flights"
COPIES = 16
IMPORTS = 2
"""Two imports leave two shards in each leaf, so there is something to compact."""
TIMEOUT_SECONDS = 900
PROPERTIES: dict[str, object] = {
    "ingest_spark_bytes": 1,
    "ingest_batch_min_files": COPIES // IMPORTS,
    "ingest_batch_max_age_seconds": 120,
    "compaction_spark_bytes": 1,
    "compaction_strategy": "batch",
    "compaction_files": 2,
    "bulk_import_min_leaf_partitions": 2,
}
"""Every job is heavy enough for Spark, and a job waits for all files of its import."""
SPARK_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
MEASURES = ("flight", "distance", "copy")


def schema() -> Schema:
    """Return the schema of flights, with the number of the copy in the key."""
    plain = data.schema()
    return replace(plain, row_keys=(*plain.row_keys, Field("copy", Primitive.LONG)))


def write_copy(flights: pa.Table, number: int, folder: Path) -> Path:
    """Write a file with all flights, as copy `number`."""
    path = folder / f"copy-{number:02d}.parquet"
    numbers = pa.array([number] * flights.num_rows, pa.int64())
    pq.write_table(flights.append_column("copy", numbers), path)
    return path


def bulk_import(stage: Scene, handle: TableHandle, flights: pa.Table, folder: Path) -> None:
    """Import the copies; each import is one Spark job."""
    each = COPIES // IMPORTS
    for start in range(0, COPIES, each):
        files = [write_copy(flights, number, folder) for number in range(start, start + each)]
        began = time.perf_counter()
        with _waiting(stage, f"Spark imports {each} files of {flights.num_rows:,} rows"):
            handle.ingest(files).wait(TIMEOUT_SECONDS)
        seconds = time.perf_counter() - began
        rows = each * flights.num_rows
        stage.say(f"{rows:,} rows in {seconds:.0f} s, with the start of Spark")
        for path in files:
            path.unlink()


def compact(stage: Scene, handle: TableHandle) -> None:
    """Wait until each leaf has one shard."""
    began = time.perf_counter()
    with _waiting(stage, "Spark compacts"):
        handle.wait(TIMEOUT_SECONDS)
    status = handle.status()
    stage.say(f"compacted in {time.perf_counter() - began:.0f} s")
    stage.say(f"{status.rows:,} rows in {status.leaf_partitions} leaves, {status.shards} shards")
    if status.references > status.leaf_partitions:
        raise DemoError("not every leaf was compacted")


def show_runs(stage: Scene, handle: TableHandle) -> None:
    """Print the jobs; each must have finished."""
    jobs = [job for job in handle.jobs() if job.kind in ("ingest", "compaction", "export")]
    rows = [
        (job.kind, job.rows, job.files, job.seconds and round(job.seconds, 1), job.state)
        for job in jobs
    ]
    print_table(("job", "rows", "files", "seconds", "state"), rows)
    if any(job.state != "finished" for job in jobs):
        raise DemoError("not every job was done")


def export(stage: Scene, handle: TableHandle) -> None:
    """Let Spark write the flights of one carrier to files."""
    began = time.perf_counter()
    with _waiting(stage, "Spark exports"):
        job = handle.export(exact="UA", columns=("flight", "copy"), spark=SparkOptions())
        manifest = job.wait(TIMEOUT_SECONDS)
    files = f"{len(manifest.files)} file{'s'[: len(manifest.files) != 1]}"
    seconds = time.perf_counter() - began
    stage.say(f"{manifest.rows:,} flights of UA in {files} after {seconds:.0f} s")


def check(stage: Scene, flights: pa.Table, folder: Path) -> None:
    """Read the table as a DataFrame, and compare each carrier with the original data."""
    began = time.perf_counter()
    with _waiting(stage, "Spark reads"), _stderr_to(folder / "spark.log"):
        sums = _sums("local")
    seconds = time.perf_counter() - began
    stage.say(f"{sum(row[0] for row in sums.values()):,} rows read by Spark in {seconds:.0f} s")
    if sums != _expected(flights):
        raise DemoError("the DataFrame does not have the rows that were imported")
    stage.say("rows, and sums of three columns, are right for each of the carriers")


def _sums(instance: str) -> dict[str, tuple[int, ...]]:
    """Return the rows of each carrier in the DataFrame, and the sums of their columns."""
    builder = SparkSession.builder.master("local[2]")
    for name, value in SPARK_SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        register(session)
        reader = session.read.format("dormouse").option("instance", instance)
        frame = reader.option("table", NAME).load()
        sums = [f.sum(name).alias(name) for name in MEASURES]
        counts = frame.groupBy("carrier").agg(f.count("*").alias("rows"), *sums).collect()
    finally:
        session.stop()
    return {row["carrier"]: tuple(row[name] for name in ("rows", *MEASURES)) for row in counts}


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Redirect standard error of this process and its children to a file;
    print the file if the block fails.
    """
    stderr = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    except BaseException:
        os.write(stderr, log.read_bytes())
        raise
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def _expected(flights: pa.Table) -> dict[str, tuple[int, ...]]:
    grouped = flights.group_by("carrier").aggregate(
        [("flight", "count"), ("flight", "sum"), ("distance", "sum")]
    )
    copies = sum(range(COPIES))
    return {
        row["carrier"]: (
            row["flight_count"] * COPIES,
            row["flight_sum"] * COPIES,
            row["distance_sum"] * COPIES,
            row["flight_count"] * copies,
        )
        for row in grouped.to_pylist()
    }


def _waiting(stage: Scene, text: str) -> Progress:
    columns = (SpinnerColumn(), TextColumn("  {task.description}"), TimeElapsedColumn())
    progress = Progress(*columns, console=stage.console, transient=True)
    progress.add_task(text, total=None)
    return progress


def play(stage: Scene, folder: Path) -> None:
    """Run all acts. Raises DormouseError: an act failed."""
    flights = data.load()
    stage.title(f"{flights.num_rows * COPIES:,} flights: those of 2013, {COPIES} times over")
    handle = stage.instance.create_table(NAME, schema(), PROPERTIES)
    stage.title("Bulk imported")
    bulk_import(stage, handle, flights, folder)
    stage.title("Compacted")
    compact(stage, handle)
    stage.title("Exported")
    export(stage, handle)
    show_runs(stage, handle)
    stage.title("Read as a DataFrame, and checked")
    check(stage, flights, folder)


def main() -> int:
    """Run the demo and return the exit code."""
    console = Console(highlight=False)
    began = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="dormouse-demo-") as folder:
            play(Scene(console, Instance.connect(), files_queue()), Path(folder))
    except DormouseError as error:
        console.print(f"\nThe demo failed: {error.explanation}", style="bold red", markup=False)
        return 1
    console.print(f"\nDone in {time.perf_counter() - began:.0f} s.", style="bold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
