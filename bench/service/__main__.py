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
    after = {"look-ups": added, "dollars": total}
    for part, names in PARTS.items():
        texts = [part_table(figures, part, names)]
        if part in after:
            texts.append(after[part](figures))
        yield from filter(None, texts)


def part_table(figures: Figures, part: str, names: tuple[str, ...]) -> str:
    rows = [
        [of, short(at) if at else "", *(short(figures.get(part, of, at, name)) for name in names)]
        for of in figures.subjects(part)
        for at in figures.sizes(part, of)
    ]
    head = (part, "of", *(name.replace("_", " ") for name in names))
    return table(head, rows) if rows else ""


def added(figures: Figures) -> str:
    (at,) = figures.sizes("look-ups", "HTTP") or (0,)
    found = [
        (figures.get("look-ups", "HTTP", at, name), figures.get("look-ups", "client", at, name))
        for name in ("ms", "cpu_ms")
    ]
    said = [short(a - b) for a, b in found if a is not None and b is not None]
    return f"HTTP adds {said[0]} ms and {said[1]} ms of CPU time." if len(said) == 2 else ""


def total(figures: Figures) -> str:
    found = [value for (part, *_), value in figures.all.items() if part == "dollars"]
    return f"A million look-ups by a warm function cost ${sum(found):.2f}." if found else ""


def main() -> int:
    given = options(__doc__, "a tenth of the look-ups, a hundredth of the result").parse_args()

    def steps(folder: Path) -> Iterator[Step]:
        quick = given.quick
        yield Step("service.client:look_ups", (OUT, 200 if quick else 2000), on_disk=True)
        yield Step("service.client:clients", (OUT, 64, 10 if quick else 60), on_disk=True)
        rows = RESULT_ROWS // 100 if quick else RESULT_ROWS
        yield Step("service.client:results", (OUT, rows), on_disk=True)
        yield Step("service.function:starts", (OUT, 3 if quick else 9))
        yield Step("service.function:requests", (OUT, 200), on_disk=True)

    return benchmark("bench-service", given, steps, report)


if __name__ == "__main__":
    sys.exit(main())
