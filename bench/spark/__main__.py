"""Measure bulk imports and heavy compactions on Spark, beside plain Spark and the function.

Every measurement has a Spark of its own; systems take turns, round by round.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from bench.figures import Figures, Goal, measured_on, section, short, table, table_of_goals
from bench.rows.__main__ import compaction
from bench.runner import OUT, Step, benchmark, options
from bench.spark.systems import DRIVER_MEMORY, NOT_OPTIMIZED, SYSTEMS, cores

ENGINE = "the function's engine"
COLUMNS = {
    "rows_per_second": "rows/s",
    "cpu_seconds_per_million": "CPU s / M rows",
    "peak_rss_mb": "peak RSS, MB",
    "shuffled_mb": "shuffled, MB",
    "written_mb": "written, MB",
    "files": "files",
}
RATIO = "rows/s to plain Spark's"
PLAIN = {"import": "plain spark", "compaction": "plain spark sort"}
"""What Spark does with the same input by itself."""
GOALS = {
    "import": {"plain spark": 2.0, f"plain spark{NOT_OPTIMIZED}": 2.0},
    "compaction": {"plain spark sort": 2.0, f"plain spark sort{NOT_OPTIMIZED}": 2.0, ENGINE: 1.0},
}
"""What Dormouse is held against in each part, and how many times its rows/s it is to reach."""


IMPORTED, COMPACTED = 10, 20
"""How many files are imported, and how many shards compacted."""
ROWS, QUICK_ROWS, ROUNDS = 1_000_000, 100_000, 3
LEAVES = 64


def steps(folder: Path, is_quick: bool) -> Iterator[Step]:
    rows = QUICK_ROWS if is_quick else ROWS
    sources, table = f"{folder}/sources", f"{folder}/table"
    yield Step("rows.make:sources", (sources, "narrow", IMPORTED, rows))
    yield Step("rows.make:sources", (f"{folder}/many", "narrow", COMPACTED, rows))
    yield Step("rows.make:table", (table, "narrow", f"{folder}/many", 1, COMPACTED))
    parts = {
        f"import of {IMPORTED * rows:,} rows into {LEAVES} leaves": sources,
        f"compaction of {COMPACTED} x {rows:,} rows": f"{table}/data",
    }
    for number in range(1 if is_quick else ROUNDS):
        for part, inputs in parts.items():
            for system in SYSTEMS[part.split()[0]]:
                given = (part, system, number, inputs, LEAVES, OUT)
                yield Step("spark.systems:measure", given, on_disk=True)
        yield compaction(part, ENGINE, number, "narrow", table)


def report(figures: Figures) -> Iterator[str]:
    spark = f"Spark {version('pyspark')} in `local[{cores()}]` with {DRIVER_MEMORY} of heap"
    yield measured_on(f", {spark}; medians of all rounds")
    goals = []
    for part in figures.parts():
        kind = part.split()[0]
        rows = []
        for system in figures.subjects(part):
            values = [short(figures.median(part, system, figure)) for figure in COLUMNS]
            to_plain = figures.ratio(part, system, PLAIN[kind], "rows_per_second")
            rows.append([system, values[0], short(to_plain), *values[1:]])
        first, *others = COLUMNS.values()
        yield section(part, table(["", first, RATIO, *others], rows))
        for peer, times in GOALS[kind].items():
            ratio = figures.ratio(part, "dormouse", peer, "rows_per_second")
            goals.append(Goal(6, f"{part}: rows/s to those of {peer}", ratio, times, at_least=True))
    yield section("goals of Spark", table_of_goals(goals))


if __name__ == "__main__":
    asked = options(__doc__, "a tenth of the rows, once")
    sys.exit(benchmark("bench-spark", asked.parse_args(), steps, report))
