"""Measure what a publication for readers of Iceberg writes and costs, by the size of the table and
of the change; and the CPU time in which engines plan the look-up of one key.

Run by ``make bench-iceberg``; two minutes. ``ARGS=--quick`` stops at 10,000 shards. Tables go to
standard output, with ``--page FILE`` also between the marks of a page; ``--json FILE`` keeps all
figures.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.common.runner import Step, benchmark, options
from bench.iceberg.goals import ENGINES, SHARDS, report


def main() -> int:
    """Measure and report."""
    given = options(__doc__, "no more than 10,000 shards").parse_args()

    def steps(folder: Path) -> list[Step]:
        chosen = []
        for shards in SHARDS[:-1] if given.quick else SHARDS:
            published = str(folder / f"published{shards}")
            chosen.append(Step("iceberg.publications", (str(shards), published)))
            for engine in ENGINES:
                chosen.append(Step("iceberg.planning", (str(shards), published, engine)))
        return chosen

    return benchmark("bench-iceberg", given, steps, report)


if __name__ == "__main__":
    sys.exit(main())
