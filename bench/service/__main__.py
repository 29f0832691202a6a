"""Measure the HTTP API of an instance in a folder, and what a look-up costs on AWS."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figures, measured_on, short, table
from bench.runner import OUT, Step, benchmark, options

RESULT_ROWS = 17_500_000
"""Of the large result: some 115 bytes each as JSON, which is 2 GB."""
PARTS = {
    "look-ups": ("ms", "cpu_ms", "server_cpu_ms"),
    "clients": ("p50_ms", "p99_ms", "rate", "errors", "cpu_ms", "peak_mb"),
    "results": ("seconds", "cpu_seconds", "megabytes", "peak_mb"),
    "starts": ("cpu_seconds",),
    "cold start": ("cpu_seconds",),
    "requests": ("count",),
    "dollars": ("a_million",),
}
"""The figures of each part."""


def report(figures: Figures) -> Iterator[str]:
    yield measured_on()
    for part, names in PARTS.items():
        rows = [
            [of, short(at) if at else "", *(short(figures.get(part, of, at, n)) for n in names)]
            for of in figures.subjects(part)
            for at in figures.sizes(part, of)
        ]
        if rows:
            yield table((part, "of", *(name.replace("_", " ") for name in names)), rows)
    if total := sum(value for (part, *_), value in figures.all.items() if part == "dollars"):
        yield f"A million look-ups by a warm function cost ${total:.2f}."


def steps(folder: Path, is_quick: bool) -> Iterator[Step]:
    yield Step("service.measured:look_ups", (OUT, 200 if is_quick else 2000), on_disk=True)
    yield Step("service.measured:clients", (OUT, 64, 10 if is_quick else 60), on_disk=True)
    rows = RESULT_ROWS // 100 if is_quick else RESULT_ROWS
    yield Step("service.measured:results", (OUT, rows), on_disk=True)
    yield Step("service.measured:starts", (OUT, 3 if is_quick else 9))
    yield Step("service.measured:requests", (OUT, 200), on_disk=True)


if __name__ == "__main__":
    asked = options(__doc__, "a tenth of the look-ups, a hundredth of the result")
    sys.exit(benchmark("bench-service", asked.parse_args(), steps, report))
