"""Measure an instance in a folder beside DuckDB, SQLite, LanceDB and delta-rs.

The newest release of each is downloaded. A system that is not installed is reported as failed, and
left out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.embedded.systems import PROGRAMS, SYSTEMS, install_of
from bench.figures import (
    Figures,
    Goal,
    measured_on,
    section,
    short,
    table,
    table_of,
    table_of_goals,
)
from bench.runner import OUT, Step, benchmark, options

ROWS, QUICK_ROWS = 5_000_000, 200_000
WARM_MS, INSTALLED_MB = 1.0, 330.0
COLUMNS = {
    "ingest": ("rows_per_second", "seconds", "peak_rss_mb", "folder_mb"),
    "look-ups": ("cold_ms", "warm_ms_p50", "warm_per_second", "peak_rss_mb"),
}
FIRST_ROW = ("steps", "installed_mb", "install_seconds", "program_seconds")


def report(figures: Figures) -> Iterator[str]:
    yield measured_on("; each system once, in turns")
    for part, names in COLUMNS.items():
        sizes = sorted({at for p, _, at, _ in figures.all if p == part})
        rows = "".join(f", {size:,} rows" for size in sizes)
        columns = {name: name.replace("_", " ") for name in names}
        yield section(f"{part}{rows}", table_of(figures, part, columns))
    yield section("goals", table_of_goals(goals(figures)))
    yield section("to the first row", first_ten_minutes(figures))


def first_ten_minutes(figures: Figures) -> str:
    """Return what a newcomer does with each system, side by side, and what that takes."""
    systems = figures.subjects("first row")
    shown = {"install": install_of, "program": PROGRAMS.__getitem__}
    rows = [
        [what, *("<br>".join(f"`{line}`" for line in of(s).splitlines()) for s in systems)]
        for what, of in shown.items()
    ]
    for name in FIRST_ROW:
        measured = (short(figures.get("first row", system, 2, name)) for system in systems)
        rows.append([f"measured: {name.replace('_', ' ')}", *measured])
    return table(("", *systems), rows)


def goals(figures: Figures) -> Iterator[Goal]:
    installed = figures.get("first row", "dormouse", 2, "installed_mb")
    yield Goal(1, "installed, MB", installed, INSTALLED_MB)
    for rows in figures.sizes("look-ups", "dormouse"):
        warm = figures.get("look-ups", "dormouse", rows, "warm_ms_p50")
        yield Goal(2, f"a warm look-up in {rows:,} rows, p50, ms", warm, WARM_MS)


def steps(folder: Path, is_quick: bool) -> Iterator[Step]:
    file = f"{folder}/rows.parquet"
    yield Step("embedded.systems:make", (file, QUICK_ROWS if is_quick else ROWS))
    for name in SYSTEMS:
        for part in ("ingest", "look_up"):
            yield Step(f"embedded.systems:{part}", (name, file, f"{folder}/{name}"), on_disk=True)
    for name in SYSTEMS:
        yield Step("embedded.systems:first_row", (name, OUT), on_disk=True)


if __name__ == "__main__":
    asked = options(__doc__, f"{QUICK_ROWS:,} rows")
    sys.exit(benchmark("bench-embedded", asked.parse_args(), steps, report))
