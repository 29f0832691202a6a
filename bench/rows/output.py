"""Do a piece of work, look whether its output is what it should be, and print the figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from bench.common.figures import emit
from bench.rows.data import KEYS
from bench.rows.measure import run


def report(
    part: str,
    system: str,
    number: int,
    work: Callable[[], object],
    rows: int,
    out: Path,
    *,
    in_order: bool,
) -> None:
    """Metric `work`, which writes so many rows below `out`, for all keys in order or for none.

    Raises:
        ValueError: it wrote other rows, or not in order.
    """
    taken = run(work)
    files = [pq.ParquetFile(path).metadata for path in out.rglob("*.parquet")]
    written = sum(file.num_rows for file in files)
    if written != rows:
        raise ValueError(f"{system} wrote {written} rows of {rows}")
    if in_order:
        check_order(files)
    emit(
        part,
        system,
        number,
        rows_per_second=rows / taken["seconds"],
        cpu_seconds_per_million=taken["cpu_seconds"] / rows * 1e6,
        peak_rss_mb=taken["peak_rss_bytes"] / 1e6,
        written_mb=sum(path.stat().st_size for path in out.rglob("*.parquet")) / 1e6,
        files=len(files),
    )


def check_order(files: list[pq.FileMetaData]) -> None:
    """Hold the row groups of all files to be in key order, by their statistics.

    Raises:
        ValueError: they are not.
    """
    spans = [[_span(file.row_group(i)) for i in range(file.num_row_groups)] for file in files]
    in_order = [span for file in sorted(spans) for span in file]
    if any(high > low for (_, high), (low, _) in zip(in_order, in_order[1:], strict=False)):
        raise ValueError("the rows are not in order")


def _span(group: pq.RowGroupMetaData) -> tuple[str, str]:
    for i in range(group.num_columns):
        column = group.column(i)
        if column.path_in_schema == KEYS[0] and column.statistics is not None:
            return column.statistics.min, column.statistics.max
    raise ValueError(f"there are no statistics of {KEYS[0]}")
