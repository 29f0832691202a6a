"""The tables of a report of the HTTP API."""

from __future__ import annotations

import datetime as dt
import os
import platform

from bench.common.figures import Figures, short, table


def report(figures: Figures) -> str:
    """Return what was measured."""
    made = (
        f"Measured on {dt.datetime.now(dt.UTC):%d %B %Y}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}."
    )
    parts = [
        part_table(figures, "look-ups", ("ms", "cpu_ms", "server_cpu_ms")),
        added(figures),
        part_table(figures, "clients", ("p50_ms", "p99_ms", "rate", "errors", "cpu_ms", "peak_mb")),
        part_table(figures, "results", ("seconds", "cpu_seconds", "megabytes", "peak_mb")),
        part_table(figures, "starts", ("cpu_seconds",)),
        part_table(figures, "imports of serve_http", ("cpu_seconds",)),
        part_table(figures, "cold start", ("cpu_seconds",)),
        part_table(figures, "requests", ("count",)),
        part_table(figures, "dollars", ("a_million",)),
        total(figures),
    ]
    return "\n\n".join([made, *filter(None, parts)])


def part_table(figures: Figures, part: str, names: tuple[str, ...]) -> str:
    """Return the table of one part; empty if it was not measured."""
    rows = [
        [of, short(at) if at else "", *(short(figures.get(part, of, at, name)) for name in names)]
        for of in figures.subjects(part)
        for at in figures.sizes(part, of)
    ]
    head = (part, "of", *(name.replace("_", " ") for name in names))
    return table(head, rows) if rows else ""


def added(figures: Figures) -> str:
    """Return what HTTP adds to a look-up."""
    (at,) = figures.sizes("look-ups", "HTTP") or (0,)
    found = [
        (figures.get("look-ups", "HTTP", at, name), figures.get("look-ups", "client", at, name))
        for name in ("ms", "cpu_ms")
    ]
    said = [short(a - b) for a, b in found if a is not None and b is not None]
    return f"HTTP adds {said[0]} ms and {said[1]} ms of CPU time." if len(said) == 2 else ""


def total(figures: Figures) -> str:
    """Return what a million look-ups cost."""
    found = [value for (part, *_), value in figures.all.items() if part == "dollars"]
    return f"A million look-ups by a warm function cost ${sum(found):.2f}." if found else ""
