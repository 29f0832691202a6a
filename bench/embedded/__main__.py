"""Measure an instance in a folder beside DuckDB, SQLite, LanceDB and delta-rs.

Run by ``make bench-embedded``; it downloads the newest release of each. ``ARGS=--quick`` ingests
200,000 rows, not 5,000,000. Tables go to standard output, with ``--page FILE`` also between the
marks of a page; ``--json FILE`` keeps all figures. A system that is not installed is reported as
failed, and left out.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.common.runner import OUT, Step, benchmark, options
from bench.embedded.report import report
from bench.embedded.systems import SYSTEMS

ROWS, QUICK_ROWS = 5_000_000, 200_000


def main() -> int:
    """Measure and report."""
    given = options(__doc__, "200,000 rows").parse_args()
    rows = QUICK_ROWS if given.quick else ROWS

    def steps(folder: Path) -> list[Step]:
        file = str(folder / "rows.parquet")
        made = Step("embedded.make", (file, str(rows)))
        tables = [Step("embedded.tables", (name, file, OUT), on_disk=True) for name in SYSTEMS]
        first = [Step("embedded.first_rows", (name, OUT), on_disk=True) for name in SYSTEMS]
        return [made, *tables, *first]

    return benchmark("bench-embedded", given, steps, report)


if __name__ == "__main__":
    sys.exit(main())
