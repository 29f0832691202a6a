"""The goals of starting, each held against what was measured, and the tables of a report."""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Iterator

from bench.common.figures import Figures, table
from bench.common.goals import HEAD, Goal, ratio

FLOOR = ("python", "one client of botocore")
"""What any program that speaks to AWS takes before its first request."""
BOUNDS = {
    ("python", "import dormouse"): 0.3,
    ("folder", "table list"): 1.2,
    ("folder", "status"): 1.2,
    ("folder", "query --key"): 2,
    ("folder", "completion of a name"): 1.2,
    ("deployment", "table list"): 2,
    ("deployment", "status"): 2.5,
    ("deployment", "query --key"): 3,
    ("deployment", "completion of a name"): 2,
}
"""The most CPU time of each, as a multiple of the floor: seconds would depend on the machine."""


def goals(figures: Figures) -> Iterator[Goal]:
    """Yield all goals."""
    floor = cpu_seconds(figures, FLOOR)
    for number, (of, bound) in enumerate(BOUNDS.items(), start=1):
        measured = ratio(cpu_seconds(figures, of), floor)
        yield Goal(number, f"{of[0]}: {of[1]}, of {FLOOR[1]}", measured, bound)


def cpu_seconds(figures: Figures, of: tuple[str, str]) -> float | None:
    """Return the least CPU seconds of a command, None if it was not measured."""
    return figures.get(*of, 0, "cpu_seconds")


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
