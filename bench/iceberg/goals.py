"""The goals of publishing, each held against what was measured, and the tables of a report."""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Iterator

from bench.common.figures import Figures, short, table
from bench.common.goals import HEAD, Goal
from bench.cost.prices import REQUESTS, function_dollars
from bench.iceberg.publications import CHANGES, FIRST, PART

SHARDS = (1_000, 10_000, 100_000)
ENGINES = ("pyiceberg", "duckdb")
MEMORY_MB = 1769
"""The memory of the function `publish_iceberg`, which gives it one processor."""
A_DAY = 24 * 60
"""Publications in a day of one a minute."""
BOUNDS = {"puts": 5, "size_bytes": 300_000, "cpu_seconds": 3}
"""The most objects, bytes and CPU seconds of a change of 1+1 in the largest table."""
KINDS = (FIRST, *(f"{count}+{count}" for count in CHANGES))


def goals(figures: Figures) -> Iterator[Goal]:
    """Yield all goals."""
    for number, (figure, bound) in enumerate(BOUNDS.items(), start=1):
        measured = figures.get(PART, KINDS[1], SHARDS[-1], figure)
        yield Goal(number, f"{SHARDS[-1]:,} shards, a change of 1+1: {figure}", measured, bound)


def dollars_a_day(figures: Figures, kind: str, shards: int) -> float | None:
    """Return the price of a day with one such publication a minute."""
    names = ("puts", "gets", "cpu_seconds")
    found = [figures.get(PART, kind, shards, name) for name in names]
    if None in found:
        return None
    puts, gets, seconds = (value or 0.0 for value in found)
    requests = puts * REQUESTS["PutObject"] + gets * REQUESTS["GetObject"]
    return A_DAY * (requests + function_dollars(seconds, MEMORY_MB, 0))


def report(figures: Figures) -> str:
    """Return what was measured, and the goals."""
    made = (
        f"Measured on {dt.datetime.now(dt.UTC):%d %B %Y}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}. Dollars: one such publication a minute, requests and "
        f"a function of {MEMORY_MB} MB, us-east-1."
    )
    memory = [
        [f"{shards:,}", short(figures.get(PART, "all of them", shards, "memory_bytes"))]
        for shards in figures.sizes(PART, FIRST)
    ]
    return "\n\n".join(
        (
            made,
            table(
                ("shards", "publication", "PUT", "bytes", "CPU seconds", "dollars a day"),
                _publications(figures),
            ),
            table(("shards", "most memory, bytes, with the state"), memory),
            "### Planning the look-up of one key",
            table(("shards", *ENGINES), _planning(figures)),
            "CPU seconds, after the modules are loaded: PyIceberg's until it has the list of "
            "shards, DuckDB's until it opens the first one.",
            "### Goals",
            table(HEAD, [goal.row() for goal in goals(figures)]),
        )
    )


def _publications(figures: Figures) -> Iterator[list[str]]:
    for shards in figures.sizes(PART, FIRST):
        for kind in KINDS:
            values = [
                figures.get(PART, kind, shards, name)
                for name in ("puts", "size_bytes", "cpu_seconds")
            ]
            if values[0] is not None:
                dollars = "" if kind == FIRST else short(dollars_a_day(figures, kind, shards))
                yield [f"{shards:,}", kind, *map(short, values), dollars]


def _planning(figures: Figures) -> Iterator[list[str]]:
    for shards in figures.sizes("planning", ENGINES[0]):
        cpu = (figures.get("planning", engine, shards, "cpu_seconds") for engine in ENGINES)
        yield [f"{shards:,}", *map(short, cpu)]
