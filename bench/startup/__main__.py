"""Measure the CPU time that commands take to start, in an environment made from the wheel.

Run by ``make bench-startup``; it downloads what the wheel needs. ``ARGS=--quick`` takes three
rounds, not fifteen. Tables go to standard output, with ``--page FILE`` also between the marks of a
page; ``--json FILE`` keeps all figures.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from bench.figures import Figures, Goal, measured_on, quotient, section, table, table_of_goals
from bench.runner import Step, benchmark, options

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
        measured = quotient(cpu_seconds(figures, of), floor)
        yield Goal(number, f"{of[0]}: {of[1]}, of {FLOOR[1]}", measured, bound)


def cpu_seconds(figures: Figures, of: tuple[str, str]) -> float | None:
    """Return the least CPU seconds of a command, None if it was not measured."""
    return figures.get(*of, 0, "cpu_seconds")


def report(figures: Figures) -> Iterator[str]:
    """Yield what was measured, and the goals."""
    yield measured_on("; the least of all rounds, user and system time of the whole process")
    rows = [[part, of, f"{value:.3f}"] for (part, of, _, _), value in figures.all.items()]
    yield table(("where", "what", "CPU seconds"), rows)
    yield section("goals", table_of_goals(goals(figures)))


def main() -> int:
    """Measure and report."""
    given = options(__doc__, "three rounds").parse_args()
    rounds = 3 if given.quick else 15
    return benchmark(
        "bench-startup",
        given,
        lambda folder: [Step("startup.commands:measure_all", (f"{folder}/startup", rounds))],
        report,
    )


if __name__ == "__main__":
    sys.exit(main())
