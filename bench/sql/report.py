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
MOST_WHERE_ALL_IS_READ = 1.3
"""The most CPU time, as a multiple of DataFusion's on the same files."""


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
            (f"{axis}: CPU seconds", *SYSTEMS, "of DataFusion's"),
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
    share = ratio(_cpu(figures, name, "dormouse"), _cpu(figures, name, "datafusion"))
    yield f"{share:.2f} ×" if share else "–"


def goals(figures: Figures) -> Iterator[Goal]:
    """Yield two goals for each query, cold and warm: ahead of all where keys prune, near DataFusion
    elsewhere.
    """
    for number, (axis, begins) in enumerate(_AXES.items(), 1):
        for query in QUERIES:
            name = f"{begins}{query.name}"
            own = _cpu(figures, name, "dormouse")
            others = SYSTEMS[1:] if query.prunes else ("datafusion",)
            measured = [_cpu(figures, name, system) for system in others]
            best = min((cpu for cpu in measured if cpu is not None), default=None)
            bound = 1.0 if query.prunes else MOST_WHERE_ALL_IS_READ
            beside = "the best" if query.prunes else "DataFusion"
            what = f"{axis}, {query.name}: CPU beside {beside}"
            yield Goal(number, what, ratio(own, best), bound)


def _cpu(figures: Figures, name: str, system: str) -> float | None:
    return _figure(figures, name, system, "cpu_seconds")


def _figure(figures: Figures, name: str, system: str, figure: str) -> float | None:
    (size,) = figures.sizes(name, system) or (0,)
    return figures.get(name, system, size, figure)
