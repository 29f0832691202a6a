"""Measure what a publication for readers of Iceberg writes and costs, by the size of the table and
of the change; and the CPU time in which engines plan the look-up of one key.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.cost.prices import REQUESTS, function_dollars
from bench.figures import Figures, Goal, measured_on, section, short, table, table_of_goals
from bench.iceberg.publications import CHANGES, FIRST, PART
from bench.runner import Step, benchmark, options

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


def report(figures: Figures) -> Iterator[str]:
    yield (
        f"{measured_on()} Dollars: one such publication a minute, requests and a function of "
        f"{MEMORY_MB} MB, us-east-1."
    )
    head = ("shards", "publication", "PUT", "bytes", "CPU seconds", "dollars a day")
    yield table(head, _publications(figures))
    memory = [
        [f"{shards:,}", short(figures.get(PART, "all of them", shards, "memory_bytes"))]
        for shards in figures.sizes(PART, FIRST)
    ]
    yield table(("shards", "most memory, bytes, with the state"), memory)
    planning = table(("shards", *ENGINES), _planning(figures))
    yield section("planning the look-up of one key", planning)
    yield (
        "CPU seconds, after the modules are loaded: PyIceberg's until it has the list of shards, "
        "DuckDB's until it opens the first one."
    )
    yield section("goals", table_of_goals(goals(figures)))


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


def steps(folder: Path, is_quick: bool) -> Iterator[Step]:
    for shards in SHARDS[:-1] if is_quick else SHARDS:
        published = f"{folder}/published{shards}"
        yield Step("iceberg.publications:measure", (shards, published))
        for engine in ENGINES:
            yield Step("iceberg.publications:measure_planning", (shards, published, engine))


if __name__ == "__main__":
    asked = options(__doc__, "no more than 10,000 shards")
    sys.exit(benchmark("bench-iceberg", asked.parse_args(), steps, report))
