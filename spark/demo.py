"""Millions of flights by way of Spark: bulk imported, compacted, exported, read, and checked.

Run as ``dormouse local run -- python spark/demo.py``, which is ``make demo-spark``. The
flights of a year come sixteen times over, each time with another number in their key.
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

from dormouse.client import Instance, SparkOptions, TableHandle
from dormouse.errors import DormouseError
from dormouse.schema.schema import Field, Primitive, Schema
from dormouse_cli.demo import flights as data
from dormouse_cli.demo.acts import DemoError, Stage, files_queue
from dormouse_cli.terminal import plain_table
from dormouse_spark.datasource import register

NAME = "flights"
COPIES = 16
IMPORTS = 2
"""Two imports leave two shards in a leaf, which is what there is to compact."""
PATIENCE_SECONDS = 900
PROPERTIES: dict[str, object] = {
    "ingest_spark_bytes": 1,
    "ingest_batch_min_files": COPIES // IMPORTS,
    "ingest_batch_max_age_seconds": 120,
    "compaction_spark_bytes": 1,
    "compaction_strategy": "batch",
    "compaction_files": 2,
    "bulk_import_min_leaf_partitions": 2,
}
"""Everything is heavy, and files wait until those of an import are there."""
SPARK_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
MEASURES = ("flight", "distance", "copy")


def schema() -> Schema:
    """Return the schema of flights with the number of the copy in the key."""
    plain = data.schema()
    return replace(plain, row_keys=(*plain.row_keys, Field("copy", Primitive.LONG)))


def write_copy(flights: pa.Table, number: int, folder: Path) -> Path:
    """Write a file with all flights, as copy `number`."""
    path = folder / f"copy-{number:02d}.parquet"
    numbers = pa.array([number] * flights.num_rows, pa.int64())
    pq.write_table(flights.append_column("copy", numbers), path)
    return path


def bulk_import(stage: Stage, handle: TableHandle, flights: pa.Table, folder: Path) -> None:
    """Import the copies, each import as one job of Spark."""
    each = COPIES // IMPORTS
    for start in range(0, COPIES, each):
        files = [write_copy(flights, number, folder) for number in range(start, start + each)]
        began = time.perf_counter()
        with _waiting(stage, f"Spark imports {each} files of {flights.num_rows:,} rows"):
            handle.ingest(files).wait(PATIENCE_SECONDS)
        seconds = time.perf_counter() - began
        rows = each * flights.num_rows
        stage.say(f"{rows:,} rows in {seconds:.0f} s, with the start of Spark")
        for path in files:
            path.unlink()


def compact(stage: Stage, handle: TableHandle) -> None:
    """Wait until the shards of each leaf are one."""
    began = time.perf_counter()
    with _waiting(stage, "Spark compacts"):
        handle.wait(PATIENCE_SECONDS)
    status = handle.status()
    stage.say(f"compacted in {time.perf_counter() - began:.0f} s")
    stage.say(f"{status.rows:,} rows in {status.leaf_partitions} leaves, {status.shards} shards")
    if status.references > status.leaf_partitions:
        raise DemoError("not every leaf was compacted")


def show_runs(stage: Stage, handle: TableHandle) -> None:
    """Show the jobs; every one must have been done, at the first attempt."""
    table = plain_table(["job", "rows", "files", "seconds", "state"], ["", 0, 0, 0.0, ""])
    jobs = [job for job in handle.jobs() if job.kind in ("ingest", "compaction", "export")]
    for job in jobs:
        seconds = "" if job.seconds is None else f"{job.seconds:.1f}"
        table.add_row(job.kind, f"{job.rows:,}", str(job.files), seconds, job.state)
    stage.console.print(table)
    if any(job.state != "finished" for job in jobs):
        raise DemoError("not every job was done")


def export(stage: Stage, handle: TableHandle) -> None:
    """Have Spark write the flights of one carrier to files."""
    began = time.perf_counter()
    with _waiting(stage, "Spark exports"):
        asked = handle.export(exact="UA", columns=("flight", "copy"), spark=SparkOptions())
        manifest = asked.wait(PATIENCE_SECONDS)
    files = f"{len(manifest.files)} file{'s'[: len(manifest.files) != 1]}"
    seconds = time.perf_counter() - began
    stage.say(f"{manifest.rows:,} flights of UA in {files} after {seconds:.0f} s")


def check(stage: Stage, flights: pa.Table, folder: Path) -> None:
    """Read the table as a DataFrame, and compare each carrier with the original."""
    began = time.perf_counter()
    with _waiting(stage, "Spark reads"), _told_to(folder / "spark.log"):
        found = _sums("local")
    seconds = time.perf_counter() - began
    stage.say(f"{sum(row[0] for row in found.values()):,} rows read by Spark in {seconds:.0f} s")
    if found != _expected(flights):
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
def _told_to(log: Path) -> Iterator[None]:
    """Let what processes begun in the block say go to a file, which is shown if it fails."""
    kept = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    except BaseException:
        os.write(kept, log.read_bytes())
        raise
    finally:
        os.dup2(kept, 2)
        os.close(kept)


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


def _waiting(stage: Stage, text: str) -> Progress:
    columns = (SpinnerColumn(), TextColumn("  {task.description}"), TimeElapsedColumn())
    progress = Progress(*columns, console=stage.console, transient=True)
    progress.add_task(text, total=None)
    return progress


def play(stage: Stage, folder: Path) -> None:
    """Play all acts.

    Raises:
        DormouseError: something did not go as it must.
    """
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
    """Return the exit code."""
    console = Console(highlight=False)
    began = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="dormouse-demo-") as folder:
            play(Stage(console, Instance.connect(), files_queue()), Path(folder))
    except DormouseError as error:
        console.print(f"\nThe demo failed: {error.explanation}", style="bold red", markup=False)
        return 1
    console.print(f"\nDone in {time.perf_counter() - began:.0f} s.", style="bold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
