"""Measure bulk imports and heavy compactions on Spark, beside plain Spark and the function.

Run by ``make bench-spark``; ``ARGS=--quick`` takes a tenth of the rows. Every measurement has a
Spark of its own; systems take turns, round by round. Tables go to standard output, with
``--page FILE`` also between the marks of a page.
"""

from __future__ import annotations

import datetime as dt
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from bench.common.figures import Figures, short, table
from bench.common.goals import HEAD, Goal
from bench.common.runner import OUT, Step, benchmark, options
from bench.rows.function import function
from bench.rows.rounds import median_of, median_ratio
from bench.spark.systems import DRIVER_MEMORY, ENGINE, NOT_OPTIMIZED, SYSTEMS, cores

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
    "compaction": {
        "plain spark sort": 2.0,
        f"plain spark sort{NOT_OPTIMIZED}": 2.0,
        ENGINE: 1.0,
    },
}
"""What Dormouse is held against in each part, and how many times its rows/s it is to reach."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How many files of how many rows each, and how often each is measured."""

    import_files: int
    compaction_files: int
    rows: int
    rounds: int


FULL = Scale(10, 20, 1_000_000, 3)
QUICK = Scale(10, 20, 100_000, 1)
LEAVES = 64


def steps(folder: Path, scale: Scale) -> Iterator[Step]:
    """Return what makes the input, and the measurements, round by round."""
    sources, table = f"{folder}/sources", f"{folder}/table"
    few, many = str(scale.import_files), str(scale.compaction_files)
    yield Step("rows.make", ("sources", sources, "narrow", few, str(scale.rows)))
    yield Step("rows.make", ("sources", f"{folder}/many", "narrow", many, str(scale.rows)))
    yield Step("rows.make", ("table", table, "narrow", f"{folder}/many", "1", many))
    parts = {
        f"import of {scale.import_files * scale.rows:,} rows into {LEAVES} leaves": sources,
        f"compaction of {scale.compaction_files} x {scale.rows:,} rows": f"{table}/data",
    }
    for number in range(scale.rounds):
        for part, inputs in parts.items():
            for system in SYSTEMS[part.split()[0]]:
                given = (part, system, str(number), inputs, str(LEAVES), OUT)
                environment = function("compact").environment if system == ENGINE else {}
                yield Step("spark.systems", given, on_disk=True, environment=environment)


def main() -> int:
    """Measure everything and show it; return 1 if something failed."""
    asked = options(__doc__, "a tenth of the rows, once")
    asked.add_argument("--rounds", type=int, help="how often all is measured")
    given = asked.parse_args()
    scale = QUICK if given.quick else FULL
    scale = replace(scale, rounds=given.rounds or scale.rounds)

    def shown(figures: Figures) -> str:
        return "\n\n".join(report(figures, scale))

    return benchmark("bench-spark", given, lambda f: [*steps(f, scale)], shown)


def report(figures: Figures, scale: Scale) -> Iterator[str]:
    """Return how it was measured, a table of each part, medians of its rounds, and the goals."""
    rounds = f"medians of {scale.rounds} rounds" if scale.rounds > 1 else "one round"
    yield (
        f"Measured on {dt.datetime.now(dt.UTC):%d %B %Y}, {cores()} cores, Spark "
        f"{version('pyspark')} in `local[{cores()}]` with {DRIVER_MEMORY} of heap, Python "
        f"{platform.python_version()}; {rounds}."
    )
    if scale.rows < FULL.rows:
        yield "A quick run, of a tenth of the rows: what each job costs once weighs ten times more."
    goals = []
    for part in dict.fromkeys(part for part, *_ in figures.all):
        kind = part.split()[0]
        rows = []
        for system in figures.subjects(part):
            values = [short(median_of(figures, part, system, figure)) for figure in COLUMNS]
            to_plain = median_ratio(figures, part, system, PLAIN[kind], "rows_per_second")
            rows.append([system, values[0], short(to_plain), *values[1:]])
        first, *others = COLUMNS.values()
        yield f"### {part[0].upper()}{part[1:]}\n\n{table(['', first, RATIO, *others], rows)}"
        for peer, times in GOALS[kind].items():
            ratio = median_ratio(figures, part, "dormouse", peer, "rows_per_second")
            goals.append(Goal(6, f"{part}: rows/s to those of {peer}", ratio, times, at_least=True))
    yield f"### Goals of Spark\n\n{table(HEAD, [goal.row() for goal in goals])}"


if __name__ == "__main__":
    sys.exit(main())
