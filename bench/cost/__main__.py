"""Measure what a million rows cost, by the memory of the functions, on an S3 that takes its time.

Run by ``make bench-cost``; ``ARGS=--short`` takes half the rows and measures once, ``--quick`` a
tenth. Tables go to standard output, with ``--page FILE`` also between the marks of a page; ``--json
FILE`` keeps all figures.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.common.figures import Figures
from bench.common.runner import OUT, Step, benchmark, options
from bench.cost.report import FUNCTIONS, report
from bench.rows import look_ups
from bench.rows.__main__ import FULL, QUICK, Scale, made
from bench.rows.function import function

SIZES_MB = (1024, 1769, 3008)
"""Less than a core, one core, and as many as two threads can use."""
WORK = (
    ("compaction", "narrow", "large-table/data"),
    ("compaction", "wide", "wide-table/data"),
    ("ingest", "narrow", "one/000.parquet"),
    ("ingest", "wide", "wide/000.parquet"),
    ("export", "narrow", "leaves-table/data"),
    ("export", "wide", "wide-leaves-table/data"),
)
"""What is measured: a stage, the kind of its rows, and its input."""
SHORT = replace(FULL, large=1_000_000, wide=300_000, ingest=2_500_000, rounds=1)
"""Jobs of seconds, so that what a job costs once still weighs little: about four minutes."""
OF_INPUTS = {"large", "tiny", "tiny-table", "answers"}
"""What the inputs and the look-ups are made of."""


def steps(folder: Path, scale: Scale) -> Iterator[Step]:
    """Yield what makes the inputs, and then the rounds."""
    inputs = {path.partition("/")[0] for _, _, path in WORK}
    for step in made(folder, scale):
        if Path(step.arguments[1]).name in inputs | OF_INPUTS:
            yield step
    for number in range(scale.rounds):
        for stage, kind, path in WORK:
            for memory_mb in SIZES_MB:
                sized = function(FUNCTIONS[stage], memory_mb)
                part = f"{stage} of {kind} rows"
                given = (part, stage, str(number), kind, f"{folder}/{path}", OUT, str(memory_mb))
                yield Step("cost.stages", given, environment=sized.environment)
        for what in ("one_key", "keys_100"):
            tables = (f"{folder}/leaves-table/data", f"{folder}/tiny-table", f"{folder}/answers")
            asked = (look_ups.PARTS[what], str(number), what, *tables, OUT, "0")
            yield Step("rows.look_ups_on_s3", asked)


def main() -> int:
    """Measure everything and show it; return 1 if something failed."""
    asked = options(__doc__, "a tenth of the rows")
    asked.add_argument("--short", action="store_true", help="half the rows, measured once")
    given = asked.parse_args()
    scale = QUICK if given.quick else SHORT if given.short else FULL
    size = "quick" if given.quick else "short" if given.short else "full"

    def shown(figures: Figures) -> str:
        return report(figures, size)

    return benchmark("bench-cost", given, lambda folder: [*steps(folder, scale)], shown)


if __name__ == "__main__":
    sys.exit(main())
