"""Measure SQL beside DuckDB, DataFusion and Polars on the exported Parquet of the same rows.

Each query is run by each system twice: cold, in a process of its own that is asked for nothing
else, so that its CPU time includes what starting takes; and warm, in a process that has answered
others. Results are compared.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figures, Goal, measured_on, section, short, table, table_of_goals
from bench.runner import Step, benchmark, options
from bench.sql.run import QUERIES, SYSTEMS, WARM

ROWS, QUICK_ROWS = 20_000_000, 2_000_000
MOST_COLD, MOST_WARM = 1.5, 1.3
"""The most CPU time, as a multiple of DuckDB's on the exported files: in a process that
begins, and in one that has answered others.
"""
MOST_SMALL_SECONDS = 0.02
"""The most CPU time of a warm query that reads little."""
CPU = "cpu_seconds"
_AXES = {"cold": "", WARM: f"{WARM} "}
"""What the names of the figures begin with, by what they are about."""


def report(figures: Figures) -> Iterator[str]:
    yield f"{measured_on('; each query once by each system, in turns')} {_compared(figures)}"
    for axis, begins in _AXES.items():
        rows = [[query.name, *_row(figures, f"{begins}{query.name}")] for query in QUERIES]
        yield table((f"{axis}: CPU seconds", *SYSTEMS, "of DuckDB's"), rows)
    yield section("goals", table_of_goals(goals(figures)))


def _compared(figures: Figures) -> str:
    names = [f"{begins}{query.name}" for begins in _AXES.values() for query in QUERIES]
    differing = [
        name for name in names if not _agree([figures.median(name, s, "digest") for s in SYSTEMS])
    ]
    if differing:
        return f"**Results differ, or are missing: {', '.join(differing)}.**"
    return "All systems had the same results."


def _agree(digests: list[float | None]) -> bool:
    return None not in digests and len(set(digests)) == 1


def _row(figures: Figures, name: str) -> Iterator[str]:
    for system in SYSTEMS:
        yield short(figures.median(name, system, CPU))
    share = figures.ratio(name, "dormouse", "duckdb", CPU)
    yield f"{share:.2f} ×" if share else "–"


def goals(figures: Figures) -> Iterator[Goal]:
    """Yield two goals for each query: cold, and warm, where keys leave out most rows in seconds."""
    for number, (axis, most) in enumerate((("cold", MOST_COLD), (WARM, MOST_WARM)), start=1):
        for query in QUERIES:
            name = f"{_AXES[axis]}{query.name}"
            if axis == WARM and query.prunes:
                seconds = figures.median(name, "dormouse", CPU)
                yield Goal(
                    number, f"{axis}, {query.name}: CPU seconds", seconds, MOST_SMALL_SECONDS
                )
            else:
                ratio = figures.ratio(name, "dormouse", "duckdb", CPU)
                yield Goal(number, f"{axis}, {query.name}: CPU beside DuckDB", ratio, most)


def steps(folder: Path, is_quick: bool) -> Iterator[Step]:
    rows, data = QUICK_ROWS if is_quick else ROWS, f"{folder}/data"
    yield Step("sql.run:make", (data, rows))
    for heat in ("cold", WARM):
        for query in QUERIES:
            for system in SYSTEMS:
                yield Step(f"sql.run:{heat}", (system, query.name, data, rows), on_disk=True)


if __name__ == "__main__":
    asked = options(__doc__, "2,000,000 rows")
    sys.exit(benchmark("bench-sql", asked.parse_args(), steps, report))
