"""The goals of starting, each held against what was measured, and the tables of a report."""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Iterator

from bench.common.figures import Figures, table
from bench.common.goals import HEAD, Goal

BOUNDS = {
    ("python", "import dormouse"): 0.1,
    ("folder", "table list"): 0.2,
    ("folder", "status"): 0.2,
    ("folder", "query --key"): 0.45,
    ("folder", "completion of a name"): 0.45,
    ("deployment", "table list"): 0.45,
    ("deployment", "status"): 0.45,
    ("deployment", "query --key"): 0.7,
    ("deployment", "completion of a name"): 0.45,
}
"""The most CPU seconds of each, on a quiet machine."""


def goals(figures: Figures) -> Iterator[Goal]:
    """Yield all goals."""
    for number, ((where, what), bound) in enumerate(BOUNDS.items(), start=1):
        measured = figures.get(where, what, 0, "cpu_seconds")
        yield Goal(number, f"{where}: {what}, CPU seconds", measured, bound)


def report(figures: Figures) -> str:
    """Return what was measured, and the goals."""
    rows = [[part, of, f"{value:.3f}"] for (part, of, _, _), value in figures.all.items()]
    made = (
        f"Measured on {dt.datetime.now(dt.UTC):%d %B %Y}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}; the least of all rounds, user and system time of "
        "the whole process."
    )
    return "\n\n".join(
        (
            made,
            table(("where", "what", "CPU seconds"), rows),
            "### Goals",
            table(HEAD, [goal.row() for goal in goals(figures)]),
        )
    )
