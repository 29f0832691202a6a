"""Measure the row engine: compaction, ingest, look-ups and memory, beside a floor and peers.

Systems take turns, round by round. ``--original`` builds the original's plan, in Rust, as a peer.
Goals are numbered: 1 S3, 2 rate and CPU, 3 memory, 4 look-ups.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from bench.figures import Figures, Goal, measured_on, section, table, table_of, table_of_goals
from bench.rows import look_ups, stages
from bench.rows.function import function
from bench.rows.make import CASES
from bench.rows.stages import FLOOR, LEAVES, ORIGINAL, ORIGINALS, PLAIN_FLOOR, SYSTEMS, name_of
from bench.runner import OUT, Step, benchmark, options

RATE, CPU = "rows_per_second", "cpu_seconds_per_million"
PACKAGES = ("pyarrow", "datafusion", "polars", "duckdb", "deltalake")
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


def report(figures: Figures, notes: Sequence[str] = ()) -> Iterator[str]:
    yield measured_on(
        "; " + ", ".join(f"{name} {version(name)}" for name in PACKAGES if find_spec(name))
    )
    yield from notes
    for part in figures.parts():
        columns = [columns for begin, columns in COLUMNS.items() if part.startswith(begin)]
        if columns:
            asked = {"requests": "requests", "dollars": "$ / million"}
            more = asked if "look-up" in part and ON_S3 in part else {}
            yield section(part, table_of(figures, part, {**columns[0], **more}))
        elif part.endswith(ON_S3):
            yield section(part, table_of(figures, part, _S3))
        else:
            yield section(part, _work_table(figures, part))
    yield section("goals", table_of_goals(goals(figures)))


def _work_table(figures: Figures, part: str) -> str:
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
        yield from _goals_on_s3(figures, part)
    elif part == WORST_CASES:
        for case in figures.subjects(part):
            peak = figures.median(part, case, "peak_rss_mb")
            most = 350 if "columns" in case else 300
            yield Goal(3, f"compaction of {case}: peak of memory, MB", peak, most)
    elif part.startswith(("compaction", "ingest")):
        yield from _rates(figures, part)


def _goals_on_s3(figures: Figures, part: str) -> Iterator[Goal]:
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
        bound = 0.9 if peer == ORIGINAL and "wide" in part else 1
        yield Goal(2, f"{part}: rows/s to those of {peer}", to(peer, RATE), bound, at_least=True)
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
    if part.endswith(ON_S3):
        quick, slow = (middle(f"{name_of(ms)}, cold", "ms") for ms in (0, DELAYS_MS[0]))
        trips = None if quick is None or slow is None else (slow - quick) / DELAYS_MS[0]
        yield Goal(4, f"{part}, cold: round trips", trips, 3 if "100 keys" in part else 2)
    elif part.startswith("look-up, one key"):
        most_kb = 200 if "wide" in part else 100
        yield Goal(4, f"{part}, cold: KB read", middle("dormouse, cold", "read_kb"), most_kb)
        if "wide" not in part:
            yield Goal(4, f"{part}, warm: ms", middle("dormouse, warm", "ms"), 1)
    elif part == "look-up, 100 keys":
        for figure, what, bound in (("ms", "ms", 1.0), ("read_kb", "KB read", 0.5)):
            ratio = figures.ratio(part, "dormouse, cold", "duckdb, cold", figure)
            yield Goal(4, f"{part}, cold: {what} to DuckDB's", ratio, bound)


COMPACTIONS = ((10, "large", "narrow"), (50, "small", "narrow"), (10, "wide", "wide"))
FOUR = (4, "four", "narrow")
SLOWNESS = ((0, 0), (15, 0), (30, 0), (100, 0), (0, 75), (30, 75))
"""Of the local S3: ms before each answer, and MB a second in all, 0 for no limit."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How many rows are measured, and how often."""

    large: int
    small: int
    wide: int
    ingest: int
    rounds: int


FULL = Scale(2_000_000, 200_000, 600_000, 5_000_000, 2)
QUICK = Scale(200_000, 20_000, 60_000, 500_000, 1)


def made(folder: Path, scale: Scale) -> Iterator[Step]:
    def sources(name: str, kind: str, files: int, rows: int) -> Step:
        return Step("rows.make:sources", (f"{folder}/{name}", kind, files, rows))

    def table(name: str, kind: str, of: str, leaves: int, jobs: int) -> Step:
        return Step("rows.make:table", (f"{folder}/{name}", kind, f"{folder}/{of}", leaves, jobs))

    def answers(name: str, of: str) -> Step:
        return Step("rows.look_ups:save_answers", (f"{folder}/{name}", f"{folder}/{of}"))

    yield sources("large", "narrow", 10, scale.large)
    yield table("large-table", "narrow", "large", 1, 10)
    yield table("leaves-table", "narrow", "large", LEAVES, 1)
    yield answers("answers", "large")
    yield sources("four", "narrow", 4, scale.large)
    yield table("four-table", "narrow", "four", 1, 4)
    yield sources("small", "narrow", 50, scale.small)
    yield table("small-table", "narrow", "small", 1, 50)
    yield sources("wide", "wide", 10, scale.wide)
    yield table("wide-table", "wide", "wide", 1, 10)
    yield table("wide-leaves-table", "wide", "wide", LEAVES, 1)
    yield answers("wide-answers", "wide")
    yield sources("one", "narrow", 1, scale.ingest)
    yield sources("tiny", "narrow", 1, 1000)
    yield table("tiny-table", "narrow", "tiny", 1, 1)
    for number, name in enumerate(CASES):
        yield Step("rows.make:worst_case", (f"{folder}/worst-{number}", name))


def measured(folder: Path, scale: Scale, peers: Sequence[str] = ()) -> Iterator[Step]:
    """Yield the steps that measure, round by round; `peers` are those that had to be built."""
    for number in range(scale.rounds):
        yield from _local(folder, scale, number, peers)
        yield from _on_s3(folder, scale, number)
    for number, (name, case) in enumerate(CASES.items()):
        yield compaction(WORST_CASES, name, 0, case.kind, f"{folder}/worst-{number}")


def compaction(part: str, of: str, number: int, kind: str, table: str) -> Step:
    """Return the compaction of all shards of a table by a function, on disk."""
    given = (part, of, number, "dormouse", "compaction", kind, f"{table}/data", OUT)
    return Step("rows.stages:measure", given, True, _environment("compaction"))


def _work(folder: Path, scale: Scale) -> Iterator[tuple[str, str, str, str]]:
    """Yield what is measured locally and on S3: its part, stage, kind of rows and input."""
    for files, name, kind in (*COMPACTIONS, FOUR):
        rows = getattr(scale, "large" if name == "four" else name)
        part = f"compaction of {files} x {rows:,} {kind} rows"
        yield part, "compaction", kind, f"{folder}/{name}-table/data"
    for name, kind, rows in (("one", "narrow", scale.ingest), ("wide", "wide", scale.wide)):
        part = f"ingest of {rows:,} {kind} rows into {LEAVES} leaves"
        yield part, "ingest", kind, f"{folder}/{name}/000.parquet"


def _local(folder: Path, scale: Scale, number: int, built: Sequence[str]) -> Iterator[Step]:
    """Yield a round on a local disk; peers run as they are best, without our environment."""
    left_out = {*ORIGINALS} - set(built)
    for part, stage, kind, inputs in _work(folder, scale):
        for system in SYSTEMS[stage] if "/four-" not in inputs else ():
            if system not in left_out:
                given = (part, system, number, system, stage, kind, inputs, OUT)
                environment = _environment(stage) if system == "dormouse" else {}
                yield Step("rows.stages:measure", given, environment=environment)
    asked = [(part, s, what, "") for what, part in look_ups.PARTS.items() for s in look_ups.SYSTEMS]
    wide = ("look-up, one key of wide rows", "dormouse", "one_key", "wide-")
    for part, system, what, kind in (*asked, wide):
        tables = (f"{folder}/{kind}leaves-table/data", f"{folder}/tiny-table")
        answers = f"{folder}/{kind}answers"
        yield Step("rows.look_ups:measure", (part, system, number, what, *tables, answers))


def _on_s3(folder: Path, scale: Scale, number: int) -> Iterator[Step]:
    """Yield a round on the local S3, whose delays alternate."""
    for part, stage, kind, inputs in _work(folder, scale):
        for slowness in SLOWNESS:
            given = (f"{part}{ON_S3}", stage, number, kind, inputs, OUT, *slowness)
            yield Step("rows.stages:on_s3", given, environment=_environment(stage))
    tables = (f"{folder}/leaves-table/data", f"{folder}/tiny-table", f"{folder}/answers")
    for what in ("one_key", "keys_100"):
        for delay_ms, mb_per_second in SLOWNESS:
            if not mb_per_second:
                asked = (f"{look_ups.PARTS[what]}{ON_S3}", number, what, *tables, OUT, delay_ms)
                yield Step("rows.look_ups:on_s3", asked)


@cache
def _environment(stage: str) -> Mapping[str, str]:
    return function("compact" if stage == "compaction" else "ingest").environment


def steps(folder: Path, scale: Scale, only: str, built: Sequence[str] = ()) -> list[Step]:
    """Return the measurements whose parts have `only` in their names, after what makes their
    input: from the last maker, which may need what earlier ones make.
    """
    chosen = [s for s in measured(folder, scale, built) if only in str(s.arguments[0])]
    for step in reversed([*made(folder, scale)]):
        made_folder = f"{step.arguments[0]}/"
        if any(f"{a}/".startswith(made_folder) for later in chosen for a in later.arguments):
            chosen.insert(0, step)
    return chosen


def main() -> int:
    parser = options(__doc__, "a tenth of the rows")
    parser.add_argument("--only", default="", help="measure the parts with this in their names")
    parser.add_argument(
        "--original", action="store_true", help="build the original's plan, in Rust"
    )
    given = parser.parse_args()
    missing = stages.built() if given.original else "it was not asked for (--original)"
    built = [] if missing else [*ORIGINALS]
    notes = [f"{stages.ORIGINAL.capitalize()} is left out: {missing}."] if missing else []
    cores = sorted(os.sched_getaffinity(0))[: function("compact").cores]
    os.sched_setaffinity(0, cores)  # of this process and of those it starts
    notes.append(
        f"All ran on {len(cores)} cores, as the functions do; Dormouse in their environment, with "
        "their memory."
    )

    def asked_steps(folder: Path, is_quick: bool) -> list[Step]:
        return steps(folder, QUICK if is_quick else FULL, given.only, built)

    return benchmark("bench-rows", given, asked_steps, lambda figures: report(figures, notes))


if __name__ == "__main__":
    sys.exit(main())
