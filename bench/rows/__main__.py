"""Measure the row engine: compaction, ingest, look-ups and memory, beside a floor and peers.

Run by ``make bench-rows``; ``ARGS=--quick`` takes a tenth of the rows and some minutes. Systems
take turns, round by round. ``--original`` builds the original's plan, in Rust, as a peer.
``--long`` takes jobs of half a minute and more on the slow S3, and nothing else: about an hour, and
20 GB of disk. Tables go to standard output, with ``--page FILE`` also between the marks of a page;
``--json FILE`` keeps all figures.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from bench.common.figures import Figures
from bench.common.runner import OUT, Step, benchmark, options
from bench.rows import compaction, ingest, long_jobs, look_ups, original_plan, worst_cases
from bench.rows.function import function
from bench.rows.goals import ON_S3
from bench.rows.report import report
from bench.rows.rounds import FLOOR, GROUPS_FLOOR, PLAIN_FLOOR

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
    memory_bytes: int
    rounds: int
    rounds_of_peers: int
    rounds_on_s3: int


FULL = Scale(2_000_000, 200_000, 600_000, 5_000_000, 128 * 1024**2, 3, 2, 2)
QUICK = Scale(200_000, 20_000, 60_000, 500_000, 16 * 1024**2, 2, 1, 1)


def made(folder: Path, scale: Scale) -> Iterator[Step]:
    """Return the steps that make sources and tables."""

    def sources(name: str, kind: str, files: int, rows: int) -> Step:
        given = ("sources", f"{folder}/{name}", kind, str(files), str(rows))
        return Step("rows.make", given)

    def table(name: str, kind: str, of: str, leaves: int, jobs: int) -> Step:
        given = ("table", f"{folder}/{name}", kind, f"{folder}/{of}", str(leaves), str(jobs))
        return Step("rows.make", given)

    yield sources("large", "narrow", 10, scale.large)
    yield table("large-table", "narrow", "large", 1, 10)
    yield table("leaves-table", "narrow", "large", ingest.LEAVES, 1)
    yield Step("rows.make", ("answers", f"{folder}/answers", f"{folder}/large"))
    yield sources("four", "narrow", 4, scale.large)
    yield table("four-table", "narrow", "four", 1, 4)
    yield sources("small", "narrow", 50, scale.small)
    yield table("small-table", "narrow", "small", 1, 50)
    yield sources("wide", "wide", 10, scale.wide)
    yield table("wide-table", "wide", "wide", 1, 10)
    yield table("wide-leaves-table", "wide", "wide", ingest.LEAVES, 1)
    yield Step("rows.make", ("answers", f"{folder}/wide-answers", f"{folder}/wide"))
    yield sources("one", "narrow", 1, scale.ingest)
    yield sources("tiny", "narrow", 1, 1000)
    yield table("tiny-table", "narrow", "tiny", 1, 1)
    for number, name in enumerate(worst_cases.CASES):
        yield Step("rows.worst_cases", ("make", f"{folder}/worst-{number}", name))


def measured(folder: Path, scale: Scale, peers: Sequence[str] = ()) -> Iterator[Step]:
    """Return the steps that measure, round by round; `peers` are those that had to be built."""
    for number in range(max(scale.rounds, scale.rounds_of_peers, scale.rounds_on_s3)):
        if number < scale.rounds:
            yield from _local(folder, scale, number, peers)
        if number < scale.rounds_on_s3:
            yield from _on_s3(folder, scale, number)
    for stage in ("compaction", "ingest"):
        given = ("memory", stage, "0", "wide", f"{folder}/wide", f"{folder}/wide-table/data")
        rest = (OUT, str(scale.memory_bytes))
        environment = _environment("compact" if stage == "compaction" else "ingest")
        yield Step("rows.memory", given + rest, on_disk=True, environment=environment)
    for number, name in enumerate(worst_cases.CASES):
        given = (worst_cases.PART, name, "0", f"{folder}/worst-{number}", OUT)
        environment = _environment("compact")
        yield Step("rows.worst_cases", given, on_disk=True, environment=environment)


def _local(folder: Path, scale: Scale, number: int, built: Sequence[str]) -> Iterator[Step]:
    """Return a round on a local disk; peers run as they are best, without our environment."""
    peers = number < scale.rounds_of_peers

    def systems(all_systems: Iterable[str]) -> list[str]:
        left_out = {*original_plan.NAMES} - set(built)
        return [s for s in all_systems if s not in left_out and (peers or s in CORE)]

    for files, name, kind in COMPACTIONS:
        for system in systems(compaction.SYSTEMS):
            part = compaction_part(files, getattr(scale, name), kind)
            given = (part, system, str(number), kind, f"{folder}/{name}-table/data", OUT)
            yield Step("rows.compaction", given, environment=_environment("compact", system))
    for source, kind, rows in (("one", "narrow", scale.ingest), ("wide", "wide", scale.wide)):
        for system in systems(ingest.SYSTEMS):
            part = f"ingest of {rows:,} {kind} rows into {ingest.LEAVES} leaves"
            given = (part, system, str(number), kind, f"{folder}/{source}/000.parquet", OUT)
            yield Step("rows.ingest", given, environment=_environment("ingest", system))
    for stage, name in (("compaction", "large-table/data"), ("ingest", "one/000.parquet")):
        part = f"steps of {'a compaction' if stage == 'compaction' else 'an ingest'}"
        inputs = (part, stage, str(number), "narrow", f"{folder}/{name}", OUT)
        function_of = "compact" if stage == "compaction" else "ingest"
        yield Step("rows.parts", inputs, environment=_environment(function_of))
    yield from _look_ups(folder, number, systems(look_ups.SYSTEMS))


def _look_ups(folder: Path, number: int, systems: Sequence[str]) -> Iterator[Step]:
    for what, part in look_ups.PARTS.items():
        for system in systems:
            given = (part, system, str(number), what, f"{folder}/leaves-table/data")
            yield Step("rows.look_ups", (*given, f"{folder}/tiny-table", f"{folder}/answers"))
    given = ("look-up, one key of wide rows", "dormouse", str(number), "one_key")
    rest = (f"{folder}/wide-leaves-table/data", f"{folder}/tiny-table", f"{folder}/wide-answers")
    yield Step("rows.look_ups", given + rest)


def _on_s3(folder: Path, scale: Scale, number: int) -> Iterator[Step]:
    """Return a round on the local S3, whose delays alternate."""
    for files, name, kind in (*COMPACTIONS, FOUR):
        part = compaction_part(files, getattr(scale, "large" if name == "four" else name), kind)
        for slowness in SLOWNESS:
            given = (f"{part}{ON_S3}", "compaction", str(number), kind)
            rest = (f"{folder}/{name}-table/data", OUT, *map(str, slowness))
            yield Step("rows.on_s3", given + rest, environment=_environment("compact"))
    for source, kind, rows in (("one", "narrow", scale.ingest), ("wide", "wide", scale.wide)):
        part = f"ingest of {rows:,} {kind} rows into {ingest.LEAVES} leaves"
        for slowness in SLOWNESS:
            given = (f"{part}{ON_S3}", "ingest", str(number), kind)
            rest = (f"{folder}/{source}/000.parquet", OUT, *map(str, slowness))
            yield Step("rows.on_s3", given + rest, environment=_environment("ingest"))
    for what in ("one_key", "keys_100"):
        for delay_ms, _ in (each for each in SLOWNESS if not each[1]):
            given = (f"{look_ups.PARTS[what]}{ON_S3}", str(number), what)
            tables = (f"{folder}/leaves-table/data", f"{folder}/tiny-table", f"{folder}/answers")
            yield Step("rows.look_ups_on_s3", (*given, *tables, OUT, str(delay_ms)))


def compaction_part(files: int, rows: int, kind: str) -> str:
    """Return the name of a compaction in figures."""
    return f"compaction of {files} x {rows:,} {kind} rows"


@cache
def _environment(stage: str, system: str = "dormouse") -> Mapping[str, str]:
    return function(stage).environment if system == "dormouse" else {}


def steps(folder: Path, scale: Scale, only: str, built: Sequence[str] = ()) -> list[Step]:
    """Return the measurements whose parts have `only` in their names, after what makes their
    input.
    """
    return _chosen([*made(folder, scale)], measured(folder, scale, built), only)


def long_steps(folder: Path, scale: Scale, only: str) -> list[Step]:
    """Return, in the same way, the measurements of jobs of half a minute and more."""
    divisor = FULL.large // scale.large
    work = long_jobs.measured(folder, scale.rounds_on_s3, _environment)
    return _chosen([*long_jobs.made(folder, divisor)], work, only)


def _chosen(makers: Sequence[Step], measurements: Iterable[Step], only: str) -> list[Step]:
    """From the last maker, which may need what earlier ones make."""
    wanted = [step for step in measurements if only in step.arguments[0]]
    for step in reversed(makers):
        made_folder = f"{step.arguments[1]}/"
        if any(f"{a}/".startswith(made_folder) for later in wanted for a in later.arguments):
            wanted.insert(0, step)
    return wanted


def main() -> int:
    """Measure everything and show it; return 1 if something failed."""
    asked = options(__doc__, "a tenth of the rows")
    asked.add_argument("--only", default="", help="measure the parts with this in their names")
    asked.add_argument("--rounds", type=int, help="how often all is measured, peers included")
    asked.add_argument("--original", action="store_true", help="build the original's plan, in Rust")
    asked.add_argument("--long", action="store_true", help="long jobs on S3, and nothing else")
    given = asked.parse_args()
    scale = QUICK if given.quick else FULL
    if given.rounds:
        times = given.rounds
        scale = replace(scale, rounds=times, rounds_of_peers=times, rounds_on_s3=times)
    missing = original_plan.built() if given.original else "it was not asked for (--original)"
    built = [] if missing else [*original_plan.NAMES]
    notes = [f"{original_plan.NAME.capitalize()} is left out: {missing}."] if missing else []
    cores = sorted(os.sched_getaffinity(0))[: function("compact").cores]
    os.sched_setaffinity(0, cores)  # of this process and of those it starts
    notes.append(
        f"All ran on {len(cores)} cores, as the functions do; Dormouse in their environment, with "
        "their memory."
    )

    def shown(figures: Figures) -> str:
        return report(figures, quick=given.quick, notes=notes)

    def chosen(folder: Path) -> list[Step]:
        if given.long:
            return long_steps(folder, scale, given.only)
        return steps(folder, scale, given.only, built)

    return benchmark("bench-rows", given, chosen, shown)


if __name__ == "__main__":
    sys.exit(main())
