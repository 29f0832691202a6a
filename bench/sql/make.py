"""Make the data: ``make FOLDER ROWS``: an instance in a folder, and its rows as Parquet.

The flights are those of New York in 2013. The exported files are what `dormouse export` writes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from dormouse.client.instance import Instance
from dormouse_cli.demo.flights import load, schema

METERS = 200_000
FILE_ROWS = 2_000_000
KINDS = np.array(["grid", "heat", "solar", "wind"])


def main(folder: Path, rows: int) -> None:
    """Fill three tables, and export them."""
    with Instance.open(folder / "mice", background=False) as instance:
        splits = [METERS * part // 16 for part in range(1, 16)]
        columns = "meter:long, at:timestamp, watts:double, kind:string"
        table = instance.create_table(
            "rows", columns, row_keys=["meter"], sort_keys=["at"], split_points=splits
        )
        for batch in readings(rows):
            table.ingest(batch)
        meters = instance.create_table("meters", "meter:long, region:string", row_keys=["meter"])
        ids = np.arange(METERS)
        names = pa.array([f"region {n % 50}" for n in range(METERS)])
        meters.ingest(pa.table({"meter": ids, "region": names}))
        instance.create_table("flights", schema()).ingest(load())
        instance.wait(timeout_seconds=1800)
        for name in ("rows", "meters", "flights"):
            instance.compact(name, everything=True)
        instance.wait(timeout_seconds=1800)
        for name in ("rows", "meters", "flights"):
            export = instance.table(name).export(to=name)
            export.wait(timeout_seconds=1800)
            export.download(folder / name)


def readings(rows: int) -> Iterator[pa.Table]:
    """Yield readings in the order of time, a file at a time."""
    random = np.random.default_rng(7)
    for start in range(0, rows, FILE_ROWS):
        count = min(FILE_ROWS, rows - start)
        at = (start + np.arange(count)) * 1_000_000 + 1_700_000_000_000_000
        yield pa.table(
            {
                "meter": random.integers(0, METERS, count),
                "at": pa.array(at, pa.timestamp("us", "UTC")),
                "watts": np.round(random.uniform(0, 1000, count), 1),
                "kind": pa.array(KINDS[random.integers(0, 4, count)]),
            }
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
