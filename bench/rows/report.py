"""The figures of the rows benchmarks as tables in Markdown; used by `bench.rows`."""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec

from bench.common.figures import Figures, short, table
from bench.common.goals import HEAD
from bench.rows import worst_cases
from bench.rows.goals import ON_S3, goals
from bench.rows.on_s3 import name_of
from bench.rows.rounds import FLOOR, PLAIN_FLOOR, median_of, median_ratio

PEERS = ("pyarrow", "datafusion", "polars", "duckdb", "deltalake", "pyiceberg")
WORK_HEAD = (
    "",
    "M rows/s",
    "to the copy",
    "to the plain copy",
    "CPU s / M rows",
    "to the copy's",
    "peak RSS, MB",
    "written, MB",
    "files",
)
S3_COLUMNS = {
    "gets": "GETs",
    "puts": "PUTs",
    "parts": "parts",
    "at_once": "at once",
    "fetched_mb": "fetched, MB",
    "peak_rss_mb": "peak RSS, MB",
    "server_cpu_seconds": "server, CPU s",
}
LOOK_UP_HEAD = ("", "ms", "CPU ms", "requests", "KB read", "rows")
S3_HEAD = ("", "M rows/s", "to 0 ms", "CPU s / M rows", *S3_COLUMNS.values())
STEP_HEAD = ("", "M rows/s", "CPU s / M rows")
MEMORY_HEAD = ("", "memory, MB", "rows, MB", "peak RSS, MB", "rows to memory", "peak to memory")

WORST_HEAD = ("a compaction of", "inputs, MB", "peak RSS, MB", "CPU s")


def report(figures: Figures, *, quick: bool, notes: Sequence[str] = ()) -> str:
    """Return all tables, after what is to be said of how they were made."""
    return "\n\n".join(_sections(figures, quick, notes))


def _sections(figures: Figures, quick: bool, notes: Sequence[str]) -> Iterator[str]:
    versions = ", ".join(f"{name} {version(name)}" for name in PEERS if find_spec(name))
    yield (
        f"Measured on {dt.datetime.now(dt.UTC):%d %B %Y}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}; {versions}."
    )
    if quick:
        yield (
            "A quick run, of a tenth of the rows: what a job costs once weighs ten times as much "
            "as in a full one, for which the goals are meant."
        )
    yield from notes
    for part in dict.fromkeys(part for part, *_ in figures.all):
        if part.startswith("look-up"):
            head, rows = LOOK_UP_HEAD, _look_ups(figures, part)
        elif part.startswith("steps"):
            head, rows = STEP_HEAD, _steps(figures, part)
        elif part.endswith(ON_S3):
            head, rows = S3_HEAD, _on_s3(figures, part)
        elif part == worst_cases.PART:
            head, rows = WORST_HEAD, _worst(figures, part)
        elif part == "memory":
            head, rows = MEMORY_HEAD, _memory(figures, part)
        else:
            head, rows = WORK_HEAD, _work(figures, part)
        yield f"### {part[0].upper()}{part[1:]}\n\n{table(head, rows)}"
    yield f"### Goals\n\n{table(HEAD, [goal.row() for goal in goals(figures)])}"


def _work(figures: Figures, part: str) -> Iterator[list[str]]:
    for system in figures.subjects(part):

        def middle(figure: str, system: str = system) -> float | None:
            return median_of(figures, part, system, figure)

        def to(floor: str, figure: str, system: str = system) -> str:
            return _two_digits(median_ratio(figures, part, system, floor, figure))

        rate, cpu = "rows_per_second", "cpu_seconds_per_million"
        per_second = middle(rate)
        yield [
            system,
            _two_digits(per_second and per_second / 1e6),
            to(FLOOR, rate),
            to(PLAIN_FLOOR, rate),
            _two_digits(middle(cpu)),
            to(FLOOR, cpu),
            *(_whole(middle(name)) for name in ("peak_rss_mb", "written_mb", "files")),
        ]


def _on_s3(figures: Figures, part: str) -> Iterator[list[str]]:
    for of in figures.subjects(part):
        rate = median_of(figures, part, of, "rows_per_second")
        to_quickest = median_ratio(figures, part, of, name_of(0, 0), "rows_per_second")
        cpu = median_of(figures, part, of, "cpu_seconds_per_million")
        first = (of, _two_digits(rate and rate / 1e6), _two_digits(to_quickest), _two_digits(cpu))
        yield [*first, *(short(median_of(figures, part, of, name)) for name in S3_COLUMNS)]


def _steps(figures: Figures, part: str) -> Iterator[list[str]]:
    for step in figures.subjects(part):
        rate = median_of(figures, part, step, "rows_per_second")
        cpu = median_of(figures, part, step, "cpu_seconds_per_million")
        yield [step, _two_digits(rate and rate / 1e6), _two_digits(cpu)]


def _look_ups(figures: Figures, part: str) -> Iterator[list[str]]:
    for of in figures.subjects(part):
        names = ("ms", "cpu_ms", "requests", "read_kb", "rows")
        yield [of, *(short(median_of(figures, part, of, name)) for name in names)]


def _memory(figures: Figures, part: str) -> Iterator[list[str]]:
    for of in figures.subjects(part):
        names = ("memory_mb", "rows_mb", "peak_rss_mb", "rows_to_memory", "peak_to_memory")
        yield [of, *(short(median_of(figures, part, of, name)) for name in names)]


def _worst(figures: Figures, part: str) -> Iterator[list[str]]:
    for of in figures.subjects(part):
        names = ("stored_mb", "peak_rss_mb", "cpu_seconds")
        yield [of, *(short(median_of(figures, part, of, name)) for name in names)]


def _two_digits(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
