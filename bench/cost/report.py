"""Dollars a million rows, as tables in Markdown; used by `bench.cost`."""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.common.figures import Figures, short, table
from bench.cost.prices import DATED, GB_MONTH, REQUESTS, function_dollars, request_dollars
from bench.rows.function import default_mb, function
from bench.rows.rounds import median_of

FUNCTIONS = {"compaction": "compact", "ingest": "ingest", "export": "export_rows"}
"""The function that does each."""
HEAD = (
    "",
    "M rows/s",
    "CPU s / M rows",
    "peak RSS, MB",
    "function, µ$ / M rows",
    "S3 requests, µ$ / M rows",
    "both, µ$ / M rows",
    "kept for a month, µ$ / M rows",
)
WORTH = 1.25
"""A memory with which the work is quicker may cost so many times the least."""
LOOK_UP_HEAD = ("", "GETs", "KB", "$ / million look-ups")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a million rows took and cost, with so much memory; the median of all rounds."""

    memory_mb: int
    rows_per_second: float
    cpu_seconds: float
    peak_mb: float
    function_dollars: float
    request_dollars: float
    month_dollars: float

    @property
    def dollars(self) -> float:
        """What function and requests cost together."""
        return self.function_dollars + self.request_dollars

    @property
    def fits(self) -> bool:
        """Whether the function has the memory that was used."""
        return self.peak_mb <= self.memory_mb

    def row(self) -> list[str]:
        """Return a line of a table; money in millionths of a dollar."""
        money = (self.function_dollars, self.request_dollars, self.dollars, self.month_dollars)
        return [
            f"{self.memory_mb:,} MB" + ("" if self.fits else ": too small"),
            f"{self.rows_per_second / 1e6:.2f}",
            f"{self.cpu_seconds:.2f}",
            f"{self.peak_mb:,.0f}",
            *(f"{dollars * 1e6:.1f}" for dollars in money),
        ]


def costs(figures: Figures, part: str) -> list[Cost]:
    """Return what a part of the measurements cost, by memory."""
    scratch_mb = function(FUNCTIONS[part.partition(" ")[0]]).scratch_mb
    return [_cost(figures, part, of, scratch_mb) for of in figures.subjects(part)]


def _cost(figures: Figures, part: str, of: str, scratch_mb: int) -> Cost:
    def middle(figure: str) -> float:
        return median_of(figures, part, of, figure) or 0.0

    millions, memory_mb = middle("rows") / 1e6, middle("memory_mb")
    asked = {name: middle(name) for name in REQUESTS}
    return Cost(
        memory_mb=int(memory_mb),
        rows_per_second=middle("rows_per_second"),
        cpu_seconds=middle("cpu_seconds_per_million"),
        peak_mb=middle("peak_rss_mb"),
        function_dollars=function_dollars(middle("seconds"), memory_mb, scratch_mb) / millions,
        request_dollars=request_dollars(asked) / millions,
        month_dollars=middle("written_mb") / 1000 * GB_MONTH / millions,
    )


def choice(found: Sequence[Cost]) -> Cost | None:
    """Return the quickest of those that cost little more than the cheapest; None if none fits."""
    fitting = [cost for cost in found if cost.fits]
    least = min((cost.dollars for cost in fitting), default=0.0)
    cheap = [cost for cost in fitting if cost.dollars <= WORTH * least]
    return max(cheap, key=lambda cost: cost.rows_per_second, default=None)


def verdict(found: Sequence[Cost], given_mb: int) -> str:
    """Say which memory to choose, and what that of the template costs beside it."""
    best = choice(found)
    if best is None:
        return "No memory that was tried is enough."
    said = f"To choose: {best.memory_mb:,} MB. The template gives {given_mb:,} MB"
    given = next((cost for cost in found if cost.memory_mb == given_mb), None)
    if given is None or given is best:
        return f"{said}."
    return (
        f"{said}: {given.dollars / best.dollars:.2f} times the price, "
        f"{given.rows_per_second / best.rows_per_second:.2f} times the rate."
    )


def choice_for_all(parts: Sequence[Sequence[Cost]]) -> int | None:
    """Return the memory for all functions, as there is one parameter for them; None if none fits.

    Each part of the measurements counts alike, whatever its rows cost: by how many times the least
    price a memory costs, and how many times the best rate it has.
    """
    sizes = {cost.memory_mb: 0.0 for part in parts for cost in part}
    of_all = []
    for memory_mb in sizes:
        found = [next((c for c in part if c.memory_mb == memory_mb), None) for part in parts]
        fitting = [cost for cost in found if cost is not None and cost.fits]
        if len(fitting) < len(parts):
            continue
        price = fmean(
            c.dollars / min(o.dollars for o in part if o.fits)
            for c, part in zip(fitting, parts, strict=True)
        )
        rate = fmean(
            c.rows_per_second / max(o.rows_per_second for o in part)
            for c, part in zip(fitting, parts, strict=True)
        )
        of_all.append(Cost(memory_mb, rate, 0.0, 0.0, price, 0.0, 0.0))
    best = choice(of_all)
    return None if best is None else best.memory_mb


NOTES = {
    "full": "",
    "short": "A short run: half of the rows, each measured once.",
    "quick": "A quick run, of a tenth of the rows: what a job costs once weighs ten times as much.",
}
"""What is said of a run, by its size."""


def report(figures: Figures, size: str) -> str:
    """Return all tables, after what is to be said of how they were made."""
    return "\n\n".join(_sections(figures, NOTES[size]))


def _sections(figures: Figures, note: str) -> Iterator[str]:
    yield (
        f"Measured on {dt.datetime.now(dt.UTC):%d %B %Y}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}. Prices: {DATED}."
    )
    if note:
        yield note
    parts = []
    for part in dict.fromkeys(part for part, *_ in figures.all):
        title = f"### {part[0].upper()}{part[1:]}"
        if part.startswith("look-up"):
            yield f"{title}\n\n{table(LOOK_UP_HEAD, _look_ups(figures, part))}"
            continue
        parts.append(found := costs(figures, part))
        rows = table(HEAD, [cost.row() for cost in found])
        yield f"{title}\n\n{rows}\n\n{verdict(found, default_mb())}"
    if (memory_mb := choice_for_all(parts)) is not None:
        yield f"**To choose for all: {memory_mb:,} MB.**"


def _look_ups(figures: Figures, part: str) -> Iterator[list[str]]:
    for of in figures.subjects(part):
        requests = median_of(figures, part, of, "requests") or 0.0
        read_kb = median_of(figures, part, of, "read_kb") or 0.0
        dollars = request_dollars({"GetObject": requests}) * 1e6
        yield [of.rpartition(", ")[2], short(requests), short(read_kb), f"{dollars:.2f}"]
