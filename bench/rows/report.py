"""The goals of the row engine, each held against what was measured, and the tables of a report.

Goals are numbered: 1 S3, 2 rate and CPU, 3 memory, 4 look-ups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from statistics import median

from bench.figures import (
    QUICK,
    Figures,
    Goal,
    measured_on,
    section,
    table,
    table_of,
    table_of_goals,
)
from bench.rows.stages import name_of
from bench.rows.work import FLOOR, ORIGINAL, PLAIN_FLOOR

RATE, CPU = "rows_per_second", "cpu_seconds_per_million"
PACKAGES = ("pyarrow", "datafusion", "polars", "duckdb", "deltalake", "pyiceberg")
PEERS = {
    "compaction": (ORIGINAL, "duckdb sort", "datafusion merge", "polars sort"),
    "ingest": ("polars filter and sort", "duckdb sort"),
}
"""Those that the engine is to be ahead of, in rate and in CPU time."""
DELAYS_MS = (30, 100)
ON_S3 = ", on S3"
WORST_CASES = "worst cases of memory"
_RATES = {RATE: "rows/s", CPU: "CPU s / M rows"}
_S3 = {
    **_RATES,
    "gets": "GETs",
    "puts": "PUTs",
    "parts": "parts",
    "at_once": "at once",
    "fetched_mb": "fetched, MB",
    "peak_rss_mb": "peak RSS, MB",
    "server_cpu_seconds": "server, CPU s",
}
COLUMNS = {
    "look-up": {"ms": "ms", "cpu_ms": "CPU ms", "read_kb": "KB read", "rows": "rows"},
    WORST_CASES: {"stored_mb": "inputs, MB", "peak_rss_mb": "peak RSS, MB", **_RATES},
}
"""The columns of tables, by what the names of their parts begin with."""


def report(figures: Figures, *, quick: bool, notes: Sequence[str] = ()) -> Iterator[str]:
    yield measured_on(
        "; " + ", ".join(f"{name} {version(name)}" for name in PACKAGES if find_spec(name))
    )
    if quick:
        yield f"{QUICK} Goals are meant for full ones."
    yield from notes
    for part in figures.parts():
        columns = [columns for begin, columns in COLUMNS.items() if part.startswith(begin)]
        if columns:
            requests = {"requests": "requests"} if "look-up" in part and ON_S3 in part else {}
            yield section(part, table_of(figures, part, {**columns[0], **requests}))
        elif part.endswith(ON_S3):
            yield section(part, table_of(figures, part, _S3))
        else:
            yield section(part, _work(figures, part))
    yield section("goals", table_of_goals(goals(figures)))


def _work(figures: Figures, part: str) -> str:
    head = ("", "M rows/s", "to the copy", "to the plain copy", "CPU s / M rows", "to the copy's")
    rest = {"peak_rss_mb": "peak RSS, MB", "written_mb": "written, MB", "files": "files"}
    rows = []
    for of in figures.subjects(part):
        rate = figures.median(part, of, RATE)
        values = (
            None if rate is None else rate / 1e6,
            figures.ratio(part, of, FLOOR, RATE),
            figures.ratio(part, of, PLAIN_FLOOR, RATE),
            figures.median(part, of, CPU),
            figures.ratio(part, of, FLOOR, CPU),
        )
        shown = ["-" if value is None else f"{value:.2f}" for value in values]
        rows.append([of, *shown, *(f"{figures.median(part, of, name) or 0:,.0f}" for name in rest)])
    return table((*head, *rest.values()), rows)


def goals(figures: Figures) -> list[Goal]:
    return [goal for part in figures.parts() for goal in _of_part(figures, part)]


def _of_part(figures: Figures, part: str) -> Iterator[Goal]:
    if part.startswith("look-up"):
        yield from _look_ups(figures, part)
    elif part.endswith(ON_S3):
        yield from _on_s3(figures, part)
    elif part == WORST_CASES:
        for case in figures.subjects(part):
            peak = figures.median(part, case, "peak_rss_mb")
            yield Goal(3, f"compaction of {case}: peak of memory, MB", peak, 300)
    elif part.startswith(("compaction", "ingest")):
        yield from _rates(figures, part)


def _on_s3(figures: Figures, part: str) -> Iterator[Goal]:
    """A job may take 5 % longer than without delay, and five round trips besides."""
    for delay_ms in DELAYS_MS:
        trips = round_trips(figures, part, name_of(0), name_of(delay_ms), delay_ms / 1000)
        what = f"{part}, {name_of(delay_ms)}: round trips, at 0.95 of the rate at 0 ms"
        yield Goal(1, what, trips, 5)
    if part.startswith("compaction"):
        peak = figures.median(part, name_of(DELAYS_MS[0]), "peak_rss_mb")
        yield Goal(3, f"{part}: peak of memory, MB", peak, 400)


def round_trips(figures: Figures, part: str, quick: str, slow: str, delay_s: float) -> float | None:
    """Return how many requests one after the other a job waits for that takes 5 % longer besides.

    The job was measured as `quick` and, with so many seconds before each answer, as `slow`.
    """
    trips = []
    for at in figures.sizes(part, slow):
        without, with_delay = (figures.get(part, of, at, "seconds") for of in (quick, slow))
        if without is not None and with_delay is not None:
            trips.append(max(0.0, with_delay - without / 0.95) / delay_s)
    return median(trips) if trips else None


def _rates(figures: Figures, part: str) -> Iterator[Goal]:
    stage, _, _ = part.partition(" ")
    to = partial(figures.ratio, part, "dormouse")
    for peer in PEERS[stage]:
        yield Goal(2, f"{part}: rows/s to those of {peer}", to(peer, RATE), 1, at_least=True)
        yield Goal(2, f"{part}: CPU to that of {peer}", to(peer, CPU), 1)
    least = 1.25 if stage == "compaction" else 0.7
    yield Goal(2, f"{part}: rows/s to the copy's", to(FLOOR, RATE), least, at_least=True)
    if stage == "compaction":
        plain = to(PLAIN_FLOOR, RATE)
        yield Goal(2, f"{part}: CPU to the copy's", to(FLOOR, CPU), 1.2)
        yield Goal(2, f"{part}: rows/s to the plain copy's", plain, 1, at_least=True)
        peak = figures.median(part, "dormouse", "peak_rss_mb")
        yield Goal(3, f"{part}: peak of memory, MB", peak, 300)


def _look_ups(figures: Figures, part: str) -> Iterator[Goal]:
    middle = partial(figures.median, part)
    cold, warm = "dormouse, cold", "dormouse, warm"
    if part.endswith(ON_S3):
        quick, slow = f"{name_of(0)}, cold", f"{name_of(DELAYS_MS[0])}, cold"
        if "100 keys" in part:
            least, most = middle(quick, "ms"), middle(slow, "ms")
            trips = None if least is None or most is None else (most - least) / DELAYS_MS[0]
            yield Goal(4, f"{part}, cold: round trips", trips, 3)
        else:
            yield Goal(4, f"{part}, cold: requests", middle(quick, "requests"), 2)
            warm = f"{name_of(0)}, warm"
            yield Goal(4, f"{part}, warm: requests", middle(warm, "requests"), 1)
    elif part == "look-up, one key":
        yield Goal(4, f"{part}, cold: KB read", middle(cold, "read_kb"), 200)
        yield Goal(4, f"{part}, warm: ms", middle(warm, "ms"), 1)
    elif part == "look-up, one key of wide rows":
        yield Goal(4, f"{part}, cold: KB read", middle(cold, "read_kb"), 200)
    elif part == "look-up, 100 keys":
        for figure, what, bound in (("ms", "ms", 1.0), ("read_kb", "KB read", 0.5)):
            ratio = figures.ratio(part, cold, "duckdb, cold", figure)
            yield Goal(4, f"{part}, cold: {what} to DuckDB's", ratio, bound)
