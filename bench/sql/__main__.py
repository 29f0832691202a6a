"""Measure SQL beside DuckDB, DataFusion and Polars on the exported Parquet of the same rows.

Run by ``make bench-sql``; it takes some minutes. ``ARGS=--quick`` takes 2,000,000 rows, not
20,000,000. Each query is run by each system twice: cold, in a process of its own that is asked for
nothing else, so that its CPU time includes what starting takes, for Dormouse that of both
processes; and warm, in a process that has answered others (`bench.sql.warm`). Results are
compared. At last, a query over messages reads all of a table of 1,000 leaves by sub-queries
(`bench.sql.remote`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.common.runner import Step, benchmark, options
from bench.sql.queries import QUERIES, SYSTEMS
from bench.sql.report import report

ROWS, QUICK_ROWS = 20_000_000, 2_000_000
LEAVES, QUICK_LEAVES = 1_000, 100
REMOTE_ROWS, QUICK_REMOTE_ROWS = 25_000_000, 1_000_000
"""Of the query over messages: some 85 bytes each in its result, which is 2 GB."""


def main() -> int:
    """Measure and report."""
    given = options(__doc__, "2,000,000 rows").parse_args()
    rows = QUICK_ROWS if given.quick else ROWS

    def steps(folder: Path) -> list[Step]:
        data = str(folder / "data")
        made = Step("sql.make", (data, str(rows)))
        measured = [
            Step(f"sql.{module}", (system, query.name, data, str(rows)), on_disk=True)
            for module in ("run", "warm")
            for query in QUERIES
            for system in SYSTEMS
        ]
        leaves = str(QUICK_LEAVES if given.quick else LEAVES)
        count = str(QUICK_REMOTE_ROWS if given.quick else REMOTE_ROWS)
        remote = Step("sql.remote", (leaves, count, str(folder / "remote")), on_disk=True)
        return [made, *measured, remote]

    return benchmark("bench-sql", given, steps, report)


if __name__ == "__main__":
    sys.exit(main())
