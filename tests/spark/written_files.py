"""Writes tests/unit/sources/written with the libraries that people write such files with.

``python written_files.py LIBRARY``, in an environment that has the library: pandas, polars, duckdb
or pyspark. Each writes the same three rows as CSV and JSON with its defaults, and what these need
to hold times at all. The version that wrote a file is in its name; `test_written_files.py` reads
them.
"""

from __future__ import annotations

import datetime as dt
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1] / "unit" / "sources" / "written"
TIMES = [
    dt.datetime(2024, 2, 29, 12),  # noqa: DTZ001  # without a zone is what is to be written
    dt.datetime(1969, 12, 31, 23, 59, 59, 123456),  # noqa: DTZ001
    dt.datetime(2024, 2, 29),  # noqa: DTZ001
]
ZONE = "Asia/Kolkata"
COLUMNS: dict[str, list[Any]] = {
    "k": [1, 2, 3],
    "naive": TIMES,
    "utc": [time.replace(tzinfo=dt.UTC) for time in TIMES],
    "off": [time.replace(tzinfo=dt.UTC) for time in TIMES],
    "day": [time.date() for time in TIMES],
    "f": [1.5, -0.0, None],
    "b": [True, False, None],
    "s": ["a", 'say "a, b"\nc', None],
}


def with_pandas() -> None:
    """Write a file for each way in which pandas writes times."""
    import pandas as pd

    frame = pd.DataFrame(COLUMNS)
    frame["off"] = frame["off"].dt.tz_convert(ZONE)
    name = f"pandas-{pd.__version__}"
    frame.to_csv(HERE / f"{name}.csv", index=False)
    lines: dict[str, Any] = {"orient": "records", "lines": True}
    frame.to_json(HERE / f"{name}-iso.json", date_format="iso", date_unit="us", **lines)
    frame.to_json(HERE / f"{name}-epoch.json", date_format="epoch", **lines)


def with_polars() -> None:
    """Write a file in either format."""
    import polars as pl

    frame = pl.DataFrame(COLUMNS).with_columns(pl.col("off").dt.convert_time_zone(ZONE))
    frame.write_csv(HERE / f"polars-{pl.__version__}.csv")
    frame.write_ndjson(HERE / f"polars-{pl.__version__}.json")


def with_duckdb() -> None:
    """Write a file in either format; times with a zone are shown in that of the session."""
    import duckdb

    database = duckdb.connect()
    database.execute(f"SET timezone = '{ZONE}'")
    database.execute(
        "CREATE TABLE x (k BIGINT, naive TIMESTAMP, utc TIMESTAMPTZ, off TIMESTAMPTZ, day DATE, "
        "f DOUBLE, b BOOLEAN, s VARCHAR)"
    )
    rows = list(zip(*COLUMNS.values(), strict=True))
    database.executemany("INSERT INTO x VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    for ending in ("csv", "json"):
        database.execute(f"COPY x TO '{HERE / f'duckdb-{duckdb.__version__}.{ending}'}'")


def with_pyspark() -> None:
    """Write a file in either format; Spark escapes quotes with backslashes unless asked not to."""
    import pyspark
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[1]").config("spark.sql.session.timeZone", ZONE)
    spark = session.getOrCreate()
    kinds = "k long, naive timestamp_ntz, utc timestamp, off timestamp, day date, f double, "
    frame = spark.createDataFrame(
        list(zip(*COLUMNS.values(), strict=True)), kinds + "b boolean, s string"
    ).coalesce(1)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        frame.write.option("header", True).option("escape", '"').csv(str(out / "csv"))
        frame.write.json(str(out / "json"))
        for ending in ("csv", "json"):
            (part,) = (out / ending).glob("part-*")
            shutil.copy(part, HERE / f"spark-{pyspark.__version__}.{ending}")


if __name__ == "__main__":
    {"pandas": with_pandas, "polars": with_polars, "duckdb": with_duckdb, "pyspark": with_pyspark}[
        sys.argv[1]
    ]()
