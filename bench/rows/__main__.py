"""Metric the row engine: compaction, ingest, look-ups and memory, beside a floor and peers.

Run by ``make bench-rows``; ``ARGS=--quick`` takes a tenth of the rows and about a minute. Systems
take turns, round by round. Tables go to standard output, with ``--page FILE`` also between the
marks of a page; ``--json FILE`` keeps all figures.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bench.common.figures import Figures
from bench.common.runner import OUT, Step, benchmark, options
from bench.rows import compaction, ingest, look_ups
from bench.rows.report import report
from bench.rows.rounds import FLOOR, PLAIN_FLOOR

CORE = ("dormouse", FLOOR, PLAIN_FLOOR)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured, and how often; peers, which nothing hangs on, may be less often."""

    large: int
    small: int
    wide: int
    ingest: int
    memory_bytes: int
    rounds: int
    rounds_of_peers: int


FULL = Scale(2_000_000, 200_000, 600_000, 5_000_000, 128 * 1024**2, 3, 2)
QUICK = Scale(200_000, 20_000, 60_000, 500_000, 16 * 1024**2, 2, 1)


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
    yield sources("small", "narrow", 50, scale.small)
    yield table("small-table", "narrow", "small", 1, 50)
    yield sources("wide", "wide", 10, scale.wide)
    yield table("wide-table", "wide", "wide", 1, 10)
    yield sources("one", "narrow", 1, scale.ingest)
    yield sources("tiny", "narrow", 1, 1000)
    yield table("tiny-table", "narrow", "tiny", 1, 1)


def measured(folder: Path, scale: Scale) -> Iterator[Step]:
    """Return the steps that measure, round by round."""
    for number in range(scale.rounds):
        peers = number < scale.rounds_of_peers
        for files, name, kind in (
            ("10", "large", "narrow"),
            ("50", "small", "narrow"),
            ("10", "wide", "wide"),
        ):
            rows = f"{getattr(scale, name):,}"
            for system in compaction.SYSTEMS if peers else CORE:
                part = f"compaction of {files} x {rows} {kind} rows"
                given = (part, system, str(number), kind, f"{folder}/{name}-table/data", OUT)
                yield Step("rows.compaction", given)
        for source, kind, rows in (("one", "narrow", scale.ingest), ("wide", "wide", scale.wide)):
            for system in ingest.SYSTEMS if peers else CORE:
                part = f"ingest of {rows:,} {kind} rows into {ingest.LEAVES} leaves"
                given = (part, system, str(number), kind, f"{folder}/{source}/000.parquet", OUT)
                yield Step("rows.ingest", given)
        for stage, given in (("compaction", "large-table/data"), ("ingest", "one/000.parquet")):
            part = f"steps of {'a compaction' if stage == 'compaction' else 'an ingest'}"
            inputs = (str(number), "narrow", f"{folder}/{given}", OUT)
            yield Step("rows.parts", (part, stage, *inputs))
        for what, part in look_ups.PARTS.items():
            for system in look_ups.SYSTEMS if peers else CORE[:1]:
                given = (part, system, str(number), what, f"{folder}/leaves-table/data")
                rest = (f"{folder}/tiny-table", f"{folder}/large/keys.json")
                yield Step("rows.look_ups", given + rest)
    for stage in ("compaction", "ingest"):
        given = ("memory", stage, "0", "wide", f"{folder}/wide", f"{folder}/wide-table/data")
        yield Step("rows.memory", (*given, OUT, str(scale.memory_bytes)), on_disk=True)


def steps(folder: Path, scale: Scale, only: str) -> list[Step]:
    """Return the measurements whose parts have `only` in their names, after what makes their input.

    From the last maker, which may need what earlier ones make.
    """
    wanted = [step for step in measured(folder, scale) if only in step.arguments[0]]
    for step in reversed([*made(folder, scale)]):
        made_folder = f"{step.arguments[1]}/"
        if any(f"{a}/".startswith(made_folder) for later in wanted for a in later.arguments):
            wanted.insert(0, step)
    return wanted


def main() -> int:
    """Metric everything and show it; return 1 if something failed."""
    asked = options(__doc__, "a tenth of the rows")
    asked.add_argument("--only", default="", help="measure the parts with this in their names")
    asked.add_argument("--rounds", type=int, help="how often all is measured, peers included")
    given = asked.parse_args()
    scale = QUICK if given.quick else FULL
    if given.rounds:
        scale = replace(scale, rounds=given.rounds, rounds_of_peers=given.rounds)

    def shown(figures: Figures) -> str:
        return report(figures, quick=given.quick)

    return benchmark("bench-rows", given, lambda f: steps(f, scale, given.only), shown)


if __name__ == "__main__":
    sys.exit(main())
