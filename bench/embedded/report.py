"""The tables of a report: first rows, ingest, look-ups, and the goals."""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Iterator

from bench.common.figures import Figures, short, table
from bench.common.goals import HEAD, Goal
from bench.embedded.first_rows import STAGES, steps

WARM_MS, INSTALLED_MB = 1.0, 330.0
COLUMNS = {
    "first row": ("steps", "installed_mb", "install_seconds", "program_seconds"),
    "ingest": ("rows_per_second", "seconds", "peak_rss_mb", "folder_mb"),
    "look-ups": ("cold_ms", "warm_ms_p50", "warm_per_second", "peak_rss_mb"),
}


def report(figures: Figures) -> str:
    """Return what was measured, the goals, and the steps to the first row."""
    made = (
        f"Measured on {dt.datetime.now(dt.UTC):%d %B %Y}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}; each system once, in turns."
    )
    parts = [made]
    for part, columns in COLUMNS.items():
        parts += [_title(figures, part), _table(figures, part, columns)]
    parts += ["### Goals", table(HEAD, [goal.row() for goal in goals(figures)])]
    parts += ["### To the first row, step by step"]
    parts += [first_ten_minutes(figures)]
    return "\n\n".join(parts)


def first_ten_minutes(figures: Figures) -> str:
    """Return what a newcomer does with each system, side by side, and what that takes."""
    systems = figures.subjects("first row")
    rows = [
        [stage, *("<br>".join(f"`{line}`" for line in steps(s).get(stage, ())) for s in systems)]
        for stage in STAGES
    ]
    for figure, unit in (
        ("installed_mb", "MB"),
        ("install_seconds", "s"),
        ("program_seconds", "s"),
    ):
        measured = (figures.get("first row", system, 2, figure) for system in systems)
        what = figure.rpartition("_")[0]
        rows.append([f"{what}, measured", *(f"{short(value)} {unit}" for value in measured)])
    return table(("", *systems), rows)


def goals(figures: Figures) -> Iterator[Goal]:
    """Yield all goals."""
    installed = figures.get("first row", "dormouse", 2, "installed_mb")
    yield Goal(1, "installed, MB", installed, INSTALLED_MB)
    for rows in figures.sizes("look-ups", "dormouse"):
        warm = figures.get("look-ups", "dormouse", rows, "warm_ms_p50")
        yield Goal(2, f"a warm look-up in {rows:,} rows, p50, ms", warm, WARM_MS)


def _title(figures: Figures, part: str) -> str:
    sizes = sorted({at for p, _, at, _ in figures.all if p == part})
    rows = "".join(f", {size:,} rows" for size in sizes)
    return f"### {part[0].upper()}{part[1:]}{rows}"


def _table(figures: Figures, part: str, columns: tuple[str, ...]) -> str:
    sizes = {(of, at) for p, of, at, _ in figures.all if p == part}
    rows = [
        [system, *(short(figures.get(part, system, at, column)) for column in columns)]
        for system in figures.subjects(part)
        for of, at in sizes
        if of == system
    ]
    return table(("", *(column.replace("_", " ") for column in columns)), rows)
