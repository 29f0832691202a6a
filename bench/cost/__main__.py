"""Measure what a million rows cost, by the memory of the functions, on an S3 that takes time."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bench.cost.prices import DATED, GB_MONTH, REQUESTS, function_dollars, request_dollars
from bench.figures import Figures, measured_on, section, table
from bench.rows.__main__ import FULL, QUICK, made
from bench.rows.function import default_mb, function
from bench.runner import OUT, Step, benchmark, options

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


def steps(folder: Path, is_quick: bool) -> Iterator[Step]:
    scale = QUICK if is_quick else FULL
    inputs = {path.partition("/")[0] for _, _, path in WORK} | {"large"}
    for step in made(folder, scale):
        if Path(str(step.arguments[0])).name in inputs:
            yield step
    for number in range(scale.rounds):
        for stage, kind, path in WORK:
            for memory_mb in SIZES_MB:
                sized = function(FUNCTIONS[stage], memory_mb)
                part = f"{stage} of {kind} rows"
                given = (part, stage, number, kind, f"{folder}/{path}", OUT, memory_mb)
                yield Step("cost.stages:measure", given, environment=sized.environment)


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
        return self.function_dollars + self.request_dollars

    @property
    def fits(self) -> bool:
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


def costs(figures: Figures, part: str) -> Iterator[Cost]:
    scratch_mb = function(FUNCTIONS[part.partition(" ")[0]]).scratch_mb
    for of in figures.subjects(part):
        middle = {name: figures.median(part, of, name) or 0.0 for name in figures.names(part)}
        millions, memory_mb = middle["rows"] / 1e6, middle["memory_mb"]
        seconds, asked = middle["seconds"], {name: middle.get(name, 0.0) for name in REQUESTS}
        yield Cost(
            memory_mb=int(memory_mb),
            rows_per_second=middle["rows_per_second"],
            cpu_seconds=middle["cpu_seconds_per_million"],
            peak_mb=middle["peak_rss_mb"],
            function_dollars=function_dollars(seconds, memory_mb, scratch_mb) / millions,
            request_dollars=request_dollars(asked) / millions,
            month_dollars=middle["written_mb"] / 1000 * GB_MONTH / millions,
        )


def choice(found: Sequence[Cost]) -> Cost | None:
    """Return the quickest of those that cost little more than the cheapest; None if none fits."""
    fitting = [cost for cost in found if cost.fits]
    least = min((cost.dollars for cost in fitting), default=0.0)
    cheap = [cost for cost in fitting if cost.dollars <= WORTH * least]
    return max(cheap, key=lambda cost: cost.rows_per_second, default=None)


def choice_for_all(parts: Sequence[Sequence[Cost]]) -> int | None:
    """Return the memory for all functions, as there is one parameter for them; None if none fits.

    Each part of the measurements counts alike, whatever its rows cost: by how many times the least
    price a memory costs, and how many times the best rate it has.
    """
    of_all = []
    for memory_mb in SIZES_MB:
        prices, rates = [], []
        for part in parts:
            least = min((cost.dollars for cost in part if cost.fits), default=1.0)
            best = max(cost.rows_per_second for cost in part)
            for cost in part:
                if cost.memory_mb == memory_mb and cost.fits:
                    prices.append(cost.dollars / least)
                    rates.append(cost.rows_per_second / best)
        if len(prices) == len(parts) > 0:
            of_all.append(Cost(memory_mb, fmean(rates), 0.0, 0.0, fmean(prices), 0.0, 0.0))
    best_of_all = choice(of_all)
    return best_of_all.memory_mb if best_of_all else None


def report(figures: Figures) -> Iterator[str]:
    yield f"{measured_on()} Prices: {DATED}."
    parts = []
    for part in figures.parts():
        parts.append(found := [*costs(figures, part)])
        yield section(part, table(HEAD, [cost.row() for cost in found]))
    if (memory_mb := choice_for_all(parts)) is not None:
        yield f"**To choose for all: {memory_mb:,} MB.** The template gives {default_mb():,} MB."


if __name__ == "__main__":
    asked = options(__doc__, "a tenth of the rows")
    sys.exit(benchmark("bench-cost", asked.parse_args(), steps, report))
