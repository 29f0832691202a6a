"""Published tables as Spark reads them, with the release of Iceberg in ``DORMOUSE_ICEBERG_JAR``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

OPTIONS = {"snapshot": "snapshot-id", "tag": "tag", "time_ms": "as-of-timestamp"}
BETWEEN = {"since": "start-snapshot-id", "snapshot": "end-snapshot-id"}


@contextmanager
def spark_session(**options: str) -> Iterator[SparkSession]:
    """Run Spark in this process, at its defaults but for what a small machine needs."""
    builder = SparkSession.builder.master("local[2]").config(
        map={
            "spark.jars": os.environ["DORMOUSE_ICEBERG_JAR"],
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            **options,
        }
    )
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def open_reader() -> Iterator[Any]:
    """Yield a function that reads a table by its metadata file, without a catalog."""
    with spark_session() as session:

        def read(metadata: str, at: dict[str, Any], where: str) -> pa.Table:
            reader = session.read.format("iceberg")
            columns = at.pop("columns", "*")
            for key, value in at.items():
                reader = reader.option((BETWEEN if "since" in at else OPTIONS)[key], value)
            frame = reader.load(f"file://{metadata}")
            rows = frame.where(where) if where else frame
            return rows.selectExpr(*columns.split(", ")).toArrow()

        yield read
