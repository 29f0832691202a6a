"""The goals of the row engine, each held against what was measured; used by `rows_bench`."""

from __future__ import annotations

from collections.abc import Iterator

from bench.common.figures import Figures
from bench.common.goals import Goal
from bench.rows.rounds import FLOOR, PLAIN_FLOOR, median_of, median_ratio


def goals(figures: Figures) -> list[Goal]:
    """Return all goals, in parts as they were measured."""
    parts = list(dict.fromkeys(part for part, *_ in figures.all))
    return [goal for part in parts for goal in _of_part(figures, part)]


def _of_part(figures: Figures, part: str) -> Iterator[Goal]:
    def to(floor: str, figure: str) -> float | None:
        return median_ratio(figures, part, "dormouse", floor, figure)

    rows, cpu = "rows_per_second", "cpu_seconds_per_million"
    if part.startswith("compaction"):
        yield Goal(1, f"{part}: rows/s to the copy's", to(FLOOR, rows), 1.25, at_least=True)
        yield Goal(1, f"{part}: CPU to the copy's", to(FLOOR, cpu), 1.2)
        yield Goal(
            1, f"{part}: rows/s to the plain copy's", to(PLAIN_FLOOR, rows), 1, at_least=True
        )
    elif part.startswith("ingest"):
        rate = median_of(figures, part, "dormouse", rows)
        yield Goal(2, f"{part}: rows/s to the copy's", to(FLOOR, rows), 0.7, at_least=True)
        if "narrow" in part:
            yield Goal(2, f"{part}: rows/s", rate, 1.5e6, at_least=True)
    elif part == "look-up, one key":
        for heat, requests in (("cold", 2), ("warm", 1)):
            asked = median_of(figures, part, f"dormouse, {heat}", "requests")
            yield Goal(3, f"{part}, {heat}: reads", asked, requests)
        read = median_of(figures, part, "dormouse, cold", "read_kb")
        yield Goal(3, f"{part}, cold: KB read", read, 200)
    elif part == "memory":
        for stage in figures.subjects(part):
            times = median_of(figures, part, stage, "rows_to_memory")
            peak = median_of(figures, part, stage, "peak_rss_mb")
            memory = median_of(figures, part, stage, "memory_mb")
            beyond = None if peak is None or memory is None else peak - memory
            what = f"{stage} of {times:.1f} times its memory: MB beyond it at the peak"
            yield Goal(4, what, beyond, 512)
