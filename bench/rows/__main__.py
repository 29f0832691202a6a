"""Measure the row engine: compaction, ingest, look-ups and memory, beside a floor and peers.

Systems take turns, round by round. ``--original`` builds the original's plan, in Rust, as a peer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.figures import Figures
from bench.rows import look_ups, work
from bench.rows.function import function
from bench.rows.make import CASES
from bench.rows.report import ON_S3, WORST_CASES, report
from bench.rows.work import FLOOR, GROUPS_FLOOR, LEAVES, ORIGINALS, PLAIN_FLOOR, SYSTEMS
from bench.runner import OUT, Step, benchmark, options

COMPACTIONS = ((10, "large", "narrow"), (50, "small", "narrow"), (10, "wide", "wide"))
FOUR = (4, "four", "narrow")
SLOWNESS = ((0, 0), (15, 0), (30, 0), (100, 0), (0, 75), (30, 75))
"""Of the local S3: ms before each answer, and MB a second in all, 0 for no limit."""
CORE = ("dormouse", FLOOR, PLAIN_FLOOR, GROUPS_FLOOR)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured, and how often; peers and delays of S3 may be less often."""

    large: int
    small: int
    wide: int
    ingest: int
    rounds: int
    rounds_of_peers: int
    rounds_on_s3: int


FULL = Scale(2_000_000, 200_000, 600_000, 5_000_000, 3, 2, 2)
QUICK = Scale(200_000, 20_000, 60_000, 500_000, 2, 1, 1)


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
    for number in range(max(scale.rounds, scale.rounds_of_peers, scale.rounds_on_s3)):
        if number < scale.rounds:
            yield from _local(folder, scale, number, peers)
        if number < scale.rounds_on_s3:
            yield from _on_s3(folder, scale, number)
    for number, (name, case) in enumerate(CASES.items()):
        given = (WORST_CASES, name, 0, case.kind, f"{folder}/worst-{number}", OUT)
        yield Step("rows.stages:compaction", given, True, _environment("compaction"))


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

    def systems(all_systems: Iterable[str]) -> list[str]:
        peers = number < scale.rounds_of_peers
        return [s for s in all_systems if s not in left_out and (peers or s in CORE)]

    for part, stage, kind, inputs in _work(folder, scale):
        for system in systems(SYSTEMS[stage]) if "/four-" not in inputs else ():
            given: tuple[object, ...] = (part, system, number, stage, kind, inputs, OUT)
            environment = _environment(stage) if system == "dormouse" else {}
            yield Step("rows.stages:measure", given, environment=environment)
    wide = ("look-up, one key of wide rows", "dormouse", number, "one_key", "wide-")
    for *asked, kind in (
        *(
            (part, system, number, what, "")
            for what, part in look_ups.PARTS.items()
            for system in systems(look_ups.SYSTEMS)
        ),
        wide,
    ):
        tables = (f"{folder}/{kind}leaves-table/data", f"{folder}/tiny-table")
        yield Step("rows.look_ups:measure", (*asked, *tables, f"{folder}/{kind}answers"))


def _on_s3(folder: Path, scale: Scale, number: int) -> Iterator[Step]:
    """Yield a round on the local S3, whose delays alternate."""
    for part, stage, kind, inputs in _work(folder, scale):
        for slowness in SLOWNESS:
            given = (f"{part}{ON_S3}", stage, number, kind, inputs, OUT, *slowness)
            yield Step("rows.stages:on_s3", given, environment=_environment(stage))
    for what in ("one_key", "keys_100"):
        for delay_ms, _ in (each for each in SLOWNESS if not each[1]):
            yield look_up_on_s3(folder, number, what, delay_ms, f"{look_ups.PARTS[what]}{ON_S3}")


def look_up_on_s3(folder: Path, number: int, what: str, delay_ms: int, part: str) -> Step:
    tables = (f"{folder}/leaves-table/data", f"{folder}/tiny-table", f"{folder}/answers")
    return Step("rows.look_ups:on_s3", (part, number, what, *tables, OUT, delay_ms))


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
    scale = QUICK if given.quick else FULL
    missing = work.built() if given.original else "it was not asked for (--original)"
    built = [] if missing else [*ORIGINALS]
    notes = [f"{work.ORIGINAL.capitalize()} is left out: {missing}."] if missing else []
    cores = sorted(os.sched_getaffinity(0))[: function("compact").cores]
    os.sched_setaffinity(0, cores)  # of this process and of those it starts
    notes.append(
        f"All ran on {len(cores)} cores, as the functions do; Dormouse in their environment, with "
        "their memory."
    )

    def shown(figures: Figures) -> Iterator[str]:
        return report(figures, quick=given.quick, notes=notes)

    return benchmark("bench-rows", given, lambda f: steps(f, scale, given.only, built), shown)


if __name__ == "__main__":
    sys.exit(main())
