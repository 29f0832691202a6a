"""Measure the CPU time that commands take to start, in an environment made from the wheel.

Run by ``make bench-startup``; it downloads what the wheel needs. ``ARGS=--quick`` takes three
rounds, not fifteen. Tables go to standard output, with ``--page FILE`` also between the marks of a
page; ``--json FILE`` keeps all figures.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.common.runner import Step, benchmark, options
from bench.startup.goals import report

ROUNDS, QUICK_ROUNDS = 15, 3


def main() -> int:
    """Measure and report."""
    given = options(__doc__, "three rounds").parse_args()
    rounds = QUICK_ROUNDS if given.quick else ROUNDS

    def steps(folder: Path) -> list[Step]:
        return [Step("startup.commands", (str(folder / "startup"), str(rounds)))]

    return benchmark("bench-startup", given, steps, report)


if __name__ == "__main__":
    sys.exit(main())
