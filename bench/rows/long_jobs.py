"""Jobs of half a minute and more on an S3 that takes its time: fixed costs no longer count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.common.runner import OUT, Step
from bench.rows.goals import ON_S3
from bench.rows.ingest import LEAVES

SLOWNESS = ((0, 0), (30, 0), (100, 0))
"""Of the local S3: ms before each answer, and no limit of MB a second in all."""


@dataclass(frozen=True, slots=True)
class LongJob:
    """A job over `files` of `rows` each, which lie in the folder `name`."""

    stage: str
    name: str
    kind: str
    files: int
    rows: int

    @property
    def part(self) -> str:
        """The name of the job in figures."""
        if self.stage == "compaction":
            return f"compaction of {self.files} x {self.rows:,} {self.kind} rows{ON_S3}"
        return f"ingest of {self.rows:,} {self.kind} rows into {LEAVES} leaves{ON_S3}"


JOBS = (
    LongJob("compaction", "long", "narrow", 10, 15_000_000),
    LongJob("compaction", "long-wide", "wide", 10, 4_000_000),
    LongJob("ingest", "long-one", "narrow", 1, 100_000_000),
    LongJob("ingest", "long-wide-one", "wide", 1, 30_000_000),
)


def made(folder: Path, divisor: int) -> Iterator[Step]:
    """Return the steps that make sources and tables of a fraction of the rows."""
    for job in JOBS:
        sources, rows = f"{folder}/{job.name}", str(job.rows // divisor)
        yield Step("rows.make", ("sources", sources, job.kind, str(job.files), rows))
        if job.stage == "compaction":
            given = ("table", f"{folder}/{job.name}-table", job.kind, sources, "1", str(job.files))
            yield Step("rows.make", given)


def measured(
    folder: Path, rounds: int, environment: Callable[[str], Mapping[str, str]]
) -> Iterator[Step]:
    """Return the steps that measure, round by round; delays alternate within one."""
    for number in range(rounds):
        for job in JOBS:
            is_merge = job.stage == "compaction"
            inputs = f"{job.name}-table/data" if is_merge else f"{job.name}/000.parquet"
            given = (job.part, job.stage, str(number), job.kind, f"{folder}/{inputs}", OUT)
            for slowness in SLOWNESS:
                of_function = environment("compact" if is_merge else "ingest")
                slow = tuple(map(str, slowness))
                yield Step("rows.on_s3", given + slow, environment=of_function)
