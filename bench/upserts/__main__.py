"""Measure rows that change beside delta-rs, PyIceberg and DuckLake.

PyIceberg changes one row and deletes: many upserts of it take longer than all else together.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figures, Goal, measured_on, quotient, section, table_of, table_of_goals
from bench.runner import Step, benchmark, options
from bench.upserts.systems import CHANGES, SYSTEMS

ROWS, QUICK_ROWS = 20_000_000, 500_000
UPSERTS, QUICK_UPSERTS = 1_000_000, 50_000
COMPACTION, LOOK_UP = "compaction afterwards", "look-ups of 100 keys, by a new process"
BEFORE, AFTER, COMPACTED = "before", "after 10,000 upserts in a frame", "compacted"
SMALL = "200 commits of ten rows"
SMALL_COLUMNS = {
    "commits_s": "commits/s",
    "cpu_ms": "CPU ms",
    "files": "more files",
    "aggregate_ms": "aggregate, ms",
}
COLUMNS = {"ms": "ms", "cpu_ms": "CPU ms", "peak_rss_mb": "peak RSS, MB", "written_kb": "KB"}
PEERS = tuple(name for name in SYSTEMS if name != "dormouse")


def report(figures: Figures) -> Iterator[str]:
    yield measured_on(f"; {ROWS:,} rows, {UPSERTS:,} upserts; each system once, in turns")
    for part in figures.parts():
        special = {LOOK_UP: {"requests": "requests", "read_kb": "KB read"}, SMALL: SMALL_COLUMNS}
        columns = special.get(part, COLUMNS)
        yield section(part, table_of(figures, part, columns))
    yield section("goals", table_of_goals(goals(figures)))


def goals(figures: Figures) -> Iterator[Goal]:
    one, deletion, many = CHANGES
    ours = {
        (what, name): figures.median(what, "dormouse", name) for what, _, _, name in figures.all
    }

    def of_peers(what: str) -> float | None:
        taken = [figures.median(what, peer, "cpu_ms") for peer in PEERS]
        return min(filter(None, taken), default=None)

    cpu = ours.get((one, "cpu_ms"))
    yield Goal(1, f"{one}: ms", ours.get((one, "ms")), 1000)
    yield Goal(1, f"{one}: CPU to that of the best peer", quotient(cpu, of_peers(one)), 0.01)
    yield Goal(1, f"{one}: peak of memory, MB", ours.get((one, "peak_rss_mb")), 300)
    cpu = ours.get((many, "cpu_ms"))
    of_append = figures.median(many, "dormouse, appended", "cpu_ms")
    yield Goal(2, f"{many}: CPU to that of appending them", quotient(cpu, of_append), 1.3)
    yield Goal(2, f"{many}: CPU to that of the best peer", quotient(cpu, of_peers(many)), 0.05)
    yield Goal(3, f"{deletion}: ms", ours.get((deletion, "ms")), 50)
    yield Goal(3, f"{deletion}: KB written", ours.get((deletion, "written_kb")), 10)
    reads = {when: figures.median(LOOK_UP, when, "requests") for when in (BEFORE, AFTER, COMPACTED)}
    yield Goal(4, f"requests {AFTER}, to before", quotient(reads[AFTER], reads[BEFORE]), 2)
    yield Goal(4, f"requests {COMPACTED}, to before", quotient(reads[COMPACTED], reads[BEFORE]), 1)
    latest, all_rows = (
        figures.median(COMPACTION, f"dormouse, {name}", "cpu_ms") for name in ("rows", "appended")
    )
    yield Goal(5, "compaction: CPU to that of appended rows", quotient(latest, all_rows), 1.15)
    yield from _small(figures)


def _small(figures: Figures) -> Iterator[Goal]:
    """Yield the goals of small commits, beside those of DuckLake, which inlines them."""

    def to_ducklake(name: str) -> float | None:
        ours, theirs = (figures.median(SMALL, of, name) for of in ("dormouse", "ducklake"))
        return quotient(ours, theirs)

    yield Goal(6, f"{SMALL}: rate to DuckLake's", to_ducklake("commits_s"), 1.5, at_least=True)
    yield Goal(6, f"{SMALL}: CPU to DuckLake's", to_ducklake("cpu_ms"), 0.7)
    yield Goal(6, f"{SMALL}: more files", figures.median(SMALL, "dormouse", "files"), 5)
    yield Goal(6, f"{SMALL}: aggregate to DuckLake's", to_ducklake("aggregate_ms"), 2)


def steps(folder: Path, is_quick: bool) -> Iterator[Step]:
    rows, upserted = (QUICK_ROWS, QUICK_UPSERTS) if is_quick else (ROWS, UPSERTS)
    file, upserts, other = (
        f"{folder}/{name}" for name in ("rows.parquet", "upserts.parquet", "env")
    )
    yield Step("upserts.systems:make", (file, rows, upserts, upserted))
    yield Step("upserts.systems:install", (other,))

    def step(system: str, function: str, *arguments: object) -> Step:
        if system == "ducklake":
            return Step("upserts.systems:within", (other, function, [system, *arguments]))
        return Step(f"upserts.systems:{function}", (system, *arguments))

    for system in ("dormouse", "ducklake"):
        yield step(system, "commits", SMALL, f"{folder}/{system}-small")
    for system in SYSTEMS:
        yield step(system, "fill", file, f"{folder}/{system}")
    ours = f"{folder}/dormouse"
    for what in CHANGES:
        for system in SYSTEMS if what != CHANGES[-1] else (n for n in SYSTEMS if n != "pyiceberg"):
            yield step(system, "change", what, f"{folder}/{system}", upserts, rows)
    yield Step("upserts.systems:appended", (CHANGES[-1], ours, file, upserts))
    for name in ("rows", "appended"):
        yield Step("upserts.systems:compact", (COMPACTION, ours, name))
    # of one shard, as it will be: the rows of the first file are so alike that they take a quarter
    yield _look_up(ours, BEFORE, rows)
    yield _look_up(ours, AFTER, rows, 1)
    yield _look_up(ours, "after 10,000 more in 100 frames", rows, 100)
    yield Step("upserts.systems:compact", ("compaction of 20,000 upserts", ours, "rows"))
    yield _look_up(ours, COMPACTED, rows)


def _look_up(folder: str, when: str, rows: int, frames: int = 0) -> Step:
    return Step("upserts.systems:look_ups", (LOOK_UP, folder, when, rows, frames))


if __name__ == "__main__":
    asked = options(__doc__, f"{QUICK_ROWS:,} rows")
    sys.exit(benchmark("bench-upserts", asked.parse_args(), steps, report))
