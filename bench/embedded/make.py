"""Write the file that all systems ingest: ``make FILE ROWS``. Its rows are in no order."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def main(file: Path, rows: int) -> None:
    """Write the file; the same rows each time."""
    random = np.random.default_rng(7)
    ids = random.permutation(rows)
    names = pa.array([f"name-{number:08d}" for number in random.integers(0, rows, rows)])
    at = pa.array(1_700_000_000_000_000 + ids * 1000, pa.timestamp("us"))
    values = {"id": ids, "name": names, "value": random.random(rows), "at": at}
    pq.write_table(pa.table(values), file)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
