"""The tables of a report: CPU seconds of each query by each system, and the goals."""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Iterator

from bench.common.figures import Figures, short, table
from bench.common.goals import HEAD, Goal, ratio
from bench.sql.queries import QUERIES, SYSTEMS, WARM

PART = "query over messages"
_REMOTE = {
    "leaf partitions": "leaves",
    "sub-queries": "sub_queries",
    "MB of its result": "result_mb",
    "seconds, in one process": "seconds",
    "CPU seconds": "cpu_seconds",
    "seconds to read the result back": "read_back_seconds",
    "peak MB": "peak_mb",
    "reads of shards": "read_requests",
    "MB read": "read_mb",
    "µ$ for functions and requests": "microdollars",
    "µ$ of Athena for the same MB, at $5 a TB (from memory)": "athena_microdollars",
}
MOST_COLD, MOST_WARM = 1.5, 1.3
"""The most CPU time, as a multiple of DuckDB's on the exported files: in a process that
begins, and in one that has answered others.
"""
MOST_SMALL_SECONDS = 0.02
"""The most CPU time of a warm query that reads little."""


COLD = "cold"
_AXES = {COLD: "", WARM: f"{WARM} "}
"""What the names of the figures begin with, by what they are about."""


def report(figures: Figures) -> str:
    """Return what was measured, and the goals."""
    made = (
        f"Measured on {dt.datetime.now(dt.UTC):%d %B %Y}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}; each query once by each system, in turns. "
        f"{_compared(figures)}"
    )
    tables = [
        table(
            (f"{axis}: CPU seconds", *SYSTEMS, "of DuckDB's"),
            [[query.name, *_row(figures, f"{begins}{query.name}")] for query in QUERIES],
        )
        for axis, begins in _AXES.items()
    ]
    goals_ = table(HEAD, [goal.row() for goal in goals(figures)])
    remote = table(("query over messages", ""), _remote(figures))
    return "\n\n".join((made, *tables, remote, "### Goals", goals_))


def _compared(figures: Figures) -> str:
    """Return whether all systems had the same results."""
    differing = [
        f"{begins}{query.name}"
        for begins in _AXES.values()
        for query in QUERIES
        if not _agree([_figure(figures, f"{begins}{query.name}", s, "digest") for s in SYSTEMS])
    ]
    if differing:
        return f"**Results differ, or are missing: {', '.join(differing)}.**"
    return "All systems had the same results."


def _agree(digests: list[float | None]) -> bool:
    return None not in digests and len(set(digests)) == 1


def _remote(figures: Figures) -> list[list[str]]:
    """Return the figures of the query over messages, a row each."""
    (size,) = figures.sizes(PART, "dormouse") or (0,)
    shown = [[name, figures.get(PART, "dormouse", size, key)] for name, key in _REMOTE.items()]
    return [[name, short(value)] for name, value in shown]


def _row(figures: Figures, name: str) -> Iterator[str]:
    for system in SYSTEMS:
        yield short(_cpu(figures, name, system))
    share = ratio(_cpu(figures, name, "dormouse"), _cpu(figures, name, "duckdb"))
    yield f"{share:.2f} ×" if share else "–"


def goals(figures: Figures) -> Iterator[Goal]:
    """Yield two goals for each query: cold, and warm, where keys leave out most rows in seconds."""
    for query in QUERIES:
        own, duckdb = (_cpu(figures, query.name, system) for system in ("dormouse", "duckdb"))
        yield Goal(1, f"cold, {query.name}: CPU beside DuckDB", ratio(own, duckdb), MOST_COLD)
    for query in QUERIES:
        name = f"{WARM} {query.name}"
        own, duckdb = (_cpu(figures, name, system) for system in ("dormouse", "duckdb"))
        if query.prunes:
            yield Goal(2, f"warm, {query.name}: CPU seconds", own, MOST_SMALL_SECONDS)
        else:
            yield Goal(2, f"warm, {query.name}: CPU beside DuckDB", ratio(own, duckdb), MOST_WARM)


def _cpu(figures: Figures, name: str, system: str) -> float | None:
    return _figure(figures, name, system, "cpu_seconds")


def _figure(figures: Figures, name: str, system: str, figure: str) -> float | None:
    (size,) = figures.sizes(name, system) or (0,)
    return figures.get(name, system, size, figure)
