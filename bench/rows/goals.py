"""The goals of the row engine, each held against what was measured; used by `bench.rows`.

They are numbered: 1 S3, 2 rate and CPU, 3 memory, 4 look-ups.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.common.figures import Figures
from bench.common.goals import Goal
from bench.rows import original_plan, worst_cases
from bench.rows.on_s3 import name_of
from bench.rows.rounds import FLOOR, PLAIN_FLOOR, median_of, median_ratio, round_trips

RATE, CPU = "rows_per_second", "cpu_seconds_per_million"
PEERS = {
    "compaction": (original_plan.NAME, "duckdb sort", "datafusion merge", "polars sort"),
    "ingest": ("polars filter and sort", "duckdb sort"),
}
"""Those that the engine is to be ahead of, in rate and in CPU time."""
DELAYS_MS = (30, 100)
ON_S3 = ", on S3"
LONG_SECONDS = 30
"""A job that takes as long without delay has to be as fast with it, whatever its fixed costs."""


def goals(figures: Figures) -> list[Goal]:
    """Return all goals, in parts as they were measured."""
    parts = list(dict.fromkeys(part for part, *_ in figures.all))
    return [goal for part in parts for goal in _of_part(figures, part)]


def _of_part(figures: Figures, part: str) -> Iterator[Goal]:
    if part.startswith("look-up"):
        yield from _look_ups(figures, part)
    elif part.endswith(ON_S3):
        yield from _on_s3(figures, part)
    elif part == worst_cases.PART:
        for case in figures.subjects(part):
            peak = median_of(figures, part, case, "peak_rss_mb")
            yield Goal(3, f"compaction of {case}: peak of memory, MB", peak, 300)
    elif part == "memory":
        yield from _memory(figures, part)
    elif part.startswith(("compaction", "ingest")):
        yield from _rates(figures, part)


def _on_s3(figures: Figures, part: str) -> Iterator[Goal]:
    """A job may take 5 % longer than without delay, and five round trips besides if it is short."""
    quick = name_of(0, 0)
    is_long = (median_of(figures, part, quick, "seconds") or 0) >= LONG_SECONDS
    for delay_ms in DELAYS_MS:
        slow = name_of(delay_ms, 0)
        if is_long:
            ratio = median_ratio(figures, part, slow, quick, RATE)
            yield Goal(1, f"{part}, {slow}: rate to that at 0 ms", ratio, 0.95, at_least=True)
            continue
        trips = round_trips(figures, part, name_of(0, 0), slow, delay_ms / 1000)
        yield Goal(1, f"{part}, {slow}: round trips, at 0.95 of the rate at 0 ms", trips, 5)
    if part.startswith("compaction"):
        peak = median_of(figures, part, name_of(DELAYS_MS[0], 0), "peak_rss_mb")
        yield Goal(3, f"{part}: peak of memory, MB", peak, 400)


def _rates(figures: Figures, part: str) -> Iterator[Goal]:
    stage, _, _ = part.partition(" ")

    def to(peer: str, figure: str) -> float | None:
        return median_ratio(figures, part, "dormouse", peer, figure)

    for peer in PEERS[stage]:
        yield Goal(2, f"{part}: rows/s to those of {peer}", to(peer, RATE), 1, at_least=True)
        yield Goal(2, f"{part}: CPU to that of {peer}", to(peer, CPU), 1)
    if stage == "compaction":
        yield Goal(2, f"{part}: rows/s to the copy's", to(FLOOR, RATE), 1.25, at_least=True)
        yield Goal(2, f"{part}: CPU to the copy's", to(FLOOR, CPU), 1.2)
        yield Goal(
            2, f"{part}: rows/s to the plain copy's", to(PLAIN_FLOOR, RATE), 1, at_least=True
        )
        peak = median_of(figures, part, "dormouse", "peak_rss_mb")
        yield Goal(3, f"{part}: peak of memory, MB", peak, 300)
    else:
        yield Goal(2, f"{part}: rows/s to the copy's", to(FLOOR, RATE), 0.7, at_least=True)


def _look_ups(figures: Figures, part: str) -> Iterator[Goal]:
    def middle(of: str, figure: str) -> float | None:
        return median_of(figures, part, of, figure)

    if part.endswith(ON_S3):
        if "100 keys" in part:
            quick, slow = (middle(f"{name_of(ms, 0)}, cold", "ms") for ms in (0, DELAYS_MS[0]))
            trips = None if quick is None or slow is None else (slow - quick) / DELAYS_MS[0]
            yield Goal(4, f"{part}, cold: round trips", trips, 3)
    elif part == "look-up, one key":
        for heat, requests in (("cold", 2), ("warm", 1)):
            yield Goal(
                4, f"{part}, {heat}: reads", middle(f"dormouse, {heat}", "requests"), requests
            )
        yield Goal(4, f"{part}, cold: KB read", middle("dormouse, cold", "read_kb"), 200)
        yield Goal(4, f"{part}, warm: ms", middle("dormouse, warm", "ms"), 1)
    elif part == "look-up, one key of wide rows":
        yield Goal(4, f"{part}, cold: KB read", middle("dormouse, cold", "read_kb"), 200)
    elif part == "look-up, 100 keys":
        for figure, what, bound in (("ms", "ms", 1.0), ("read_kb", "KB read", 0.5)):
            ratio = median_ratio(figures, part, "dormouse, cold", "duckdb, cold", figure)
            yield Goal(4, f"{part}, cold: {what} to DuckDB's", ratio, bound)


def _memory(figures: Figures, part: str) -> Iterator[Goal]:
    for stage in figures.subjects(part):
        times = median_of(figures, part, stage, "rows_to_memory")
        peak = median_of(figures, part, stage, "peak_rss_mb")
        memory = median_of(figures, part, stage, "memory_mb")
        beyond = None if peak is None or memory is None else peak - memory
        what = f"{stage} of {times:.1f} times its memory: MB beyond it at the peak"
        yield Goal(3, what, beyond, 512)
