"""Measure bulk imports and heavy compactions on Spark, beside plain Spark and the function.

Run by ``make bench-spark``; ``ARGS=--quick`` takes a tenth of the rows. Every measurement is a
process of its own with a Spark of its own; systems take turns, round by round. Tables go to
standard output, with ``--page FILE`` also between the marks of a page.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from figures import Figure, Figures, parsed, short, table
from goals import HEAD, Goal
from pages import page_with
from rows_bench import HERE, ROOT
from rows_rounds import median_of, median_ratio
from spark_systems import DRIVER_MEMORY, SYSTEMS, cores

LONGEST_SECONDS = 1800
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
    "import": {"plain spark": 0.9},
    "compaction": {"plain spark sort": 2.0, "the function's engine": 1.0},
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


def main() -> int:
    """Measure everything and show it; give 1 if something failed."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--quick", action="store_true", help="a tenth of the rows, once")
    asked.add_argument("--rounds", type=int, help="how often all is measured")
    asked.add_argument("--page", type=Path, help="the page whose tables are to be these")
    given = asked.parse_args()
    scale = QUICK if given.quick else FULL
    scale = replace(scale, rounds=given.rounds or scale.rounds)
    console = Console(stderr=True)
    parent = ROOT / "build" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=parent) as folder:
        found = list(measured(Path(folder), scale, console))
    text = "\n\n".join(report(Figures(found), scale))
    print(text)
    if given.page:
        given.page.write_text(page_with(given.page.read_text(), "bench-spark", text))
    wanted = sum(map(len, SYSTEMS.values())) * scale.rounds
    return 0 if len(found) == wanted * len(COLUMNS) else 1


def measured(folder: Path, scale: Scale, console: Console) -> Iterator[Figure]:
    """Make the input and give the figures, round by round."""
    sources, shards = folder / "sources", folder / "table"
    counts = max(scale.import_files, scale.compaction_files), scale.rows
    run("rows_make.py", "sources", sources, "narrow", *counts)
    run("rows_make.py", "table", shards, "narrow", sources, 1, scale.compaction_files)
    for extra in sorted(sources.glob("*.parquet"))[scale.import_files :]:
        extra.unlink()
    parts = {
        f"import of {scale.import_files * scale.rows:,} rows into {LEAVES} leaves": sources,
        f"compaction of {scale.compaction_files} x {scale.rows:,} rows": shards / "data",
    }
    for number in range(scale.rounds):
        for part, inputs in parts.items():
            for system in SYSTEMS[part.split()[0]]:
                console.print(f"round {number}: {part}, {system}", markup=False)
                out = folder / "run" / "out"
                for each in (out, out.parent / "scratch"):
                    each.mkdir(parents=True)
                try:
                    lines = run("spark_systems.py", part, system, number, inputs, LEAVES, out)
                    yield from map(parsed, lines)
                except subprocess.CalledProcessError as error:
                    last = error.stderr.strip().splitlines()[-1:]
                    console.print(f"failed: {system}: {last}", markup=False)
                finally:
                    shutil.rmtree(out.parent)


def run(script: str, *arguments: object) -> list[str]:
    """Run a script and give the lines of figures it prints."""
    done = subprocess.run(
        [sys.executable, str(HERE / script), *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
        timeout=LONGEST_SECONDS,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(p).resolve()) for p in sys.path)},
    )
    return [line for line in done.stdout.splitlines() if line.startswith("{")]


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
            goals.append(Goal(5, f"{part}: rows/s to those of {peer}", ratio, times, at_least=True))
    yield f"### Goals of Spark\n\n{table(HEAD, [goal.row() for goal in goals])}"


if __name__ == "__main__":
    sys.exit(main())
