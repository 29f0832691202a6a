"""Measure the HTTP API of an instance in a folder, and what a look-up costs on AWS.

Run by ``make bench-service``. ``ARGS=--quick`` takes fewer look-ups, ten seconds of clients, and a
hundredth of the result. The server is a process of its own, `dormouse serve`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.common.runner import OUT, Step, benchmark, options
from bench.service.report import report

LOOK_UPS, QUICK_LOOK_UPS = 2000, 200
CLIENTS = 64
SECONDS, QUICK_SECONDS = 60, 10
RESULT_ROWS, QUICK_RESULT_ROWS = 17_500_000, 175_000
"""Of the large result: some 115 bytes each as JSON, which is 2 GB."""
STARTS, QUICK_STARTS = 9, 3


def main() -> int:
    """Measure and report."""
    given = options(__doc__, "a tenth of the look-ups, a hundredth of the result").parse_args()

    def steps(folder: Path) -> list[Step]:
        quick = given.quick
        look_ups = str(QUICK_LOOK_UPS if quick else LOOK_UPS)
        seconds = str(QUICK_SECONDS if quick else SECONDS)
        rows = str(QUICK_RESULT_ROWS if quick else RESULT_ROWS)
        return [
            Step("service.look_ups", (OUT, look_ups), on_disk=True),
            Step("service.clients", (OUT, str(CLIENTS), seconds), on_disk=True),
            Step("service.results", (OUT, rows), on_disk=True),
            Step(
                "service.starts",
                (
                    OUT,
                    str(QUICK_STARTS if quick else STARTS),
                ),
            ),
            Step("service.requests", (OUT, str(QUICK_LOOK_UPS)), on_disk=True),
        ]

    return benchmark("bench-service", given, steps, report)


if __name__ == "__main__":
    sys.exit(main())
