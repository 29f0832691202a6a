"""Measure bulk imports and heavy compactions on Spark, beside plain Spark and the function.

Run by ``make bench-spark``; ``ARGS=--quick`` takes a tenth of the rows. Every measurement is a
process of its own with a Spark of its own; systems take turns, round by round. Tables go to
standard output.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from rich.console import Console

from figures import Figure, Figures, parsed, short, table
from goals import HEAD, Goal
from rows_bench import HERE, ROOT
from spark_systems import SYSTEMS

LONGEST_SECONDS = 1800
COLUMNS = {
    "rows_per_second": "rows/s",
    "cpu_seconds_per_million": "CPU s / M rows",
    "peak_rss_mb": "peak RSS, MB",
    "shuffled_mb": "shuffled, MB",
    "written_mb": "written, MB",
    "files": "files",
}
PEERS = {"import": ("plain spark", 0.9), "compaction": ("plain spark sort", 2.0)}
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
    given = asked.parse_args()
    scale = QUICK if given.quick else FULL
    console = Console(stderr=True)
    parent = ROOT / "build" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=parent) as folder:
        found = list(measured(Path(folder), scale, given.rounds or scale.rounds, console))
    print("\n\n".join(report(Figures(found))))
    wanted = sum(map(len, SYSTEMS.values())) * (given.rounds or scale.rounds)
    return 0 if len(found) == wanted * len(COLUMNS) else 1


def measured(folder: Path, scale: Scale, rounds: int, console: Console) -> Iterator[Figure]:
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
    for number in range(rounds):
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


def report(figures: Figures) -> Iterator[str]:
    """Give a table of each part, medians of its rounds, and the goals."""
    goals = []
    for part in dict.fromkeys(part for part, *_ in figures.all):
        rows = []
        for system in figures.subjects(part):
            values = [middle(figures, part, system, figure) for figure in COLUMNS]
            rows.append([system, *map(short, values)])
        yield f"### {part[0].upper()}{part[1:]}\n\n{table(['', *COLUMNS.values()], rows)}"
        peer, times = PEERS[part.split()[0]]
        rates = (middle(figures, part, of, "rows_per_second") for of in ("dormouse", peer))
        ours, theirs = rates
        ratio = ours / theirs if ours and theirs else None
        goals.append(Goal(1, f"{part}: rows/s to those of {peer}", ratio, times, at_least=True))
    yield f"### Goals\n\n{table(HEAD, [goal.row() for goal in goals])}"


def middle(figures: Figures, part: str, system: str, figure: str) -> float | None:
    """Give the median over all rounds; None if it was not measured."""
    values = [figures.get(part, system, at, figure) for at in figures.sizes(part, system)]
    known = [value for value in values if value is not None]
    return median(known) if known else None


if __name__ == "__main__":
    sys.exit(main())
