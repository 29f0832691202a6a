"""Measure the row engine: compaction, ingest, look-ups and memory, beside a floor and peers.

Run by ``make bench-rows``, since the repository must be on the path; ``ARGS=--quick`` takes a tenth
of the rows and about a minute. Every measurement is a process of its own; systems take turns, round
by round. Tables go to standard output, with ``--page FILE`` also between the marks of a page;
``--json FILE`` keeps all figures.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import rows_compaction
import rows_ingest
import rows_look_ups
from figures import Figure, Figures, parsed
from pages import page_with
from rows_report import report
from rows_rounds import FLOOR, PLAIN_FLOOR

HERE = Path(__file__).parent
ROOT = HERE.parent
IN_MEMORY = Path("/dev/shm")
"""Where outputs go if there is such a folder: no disk is measured."""
LONGEST_SECONDS = 900
CORE = ("dormouse", FLOOR, PLAIN_FLOOR)


@dataclass(frozen=True, slots=True)
class Step:
    """A script to run; ``OUT`` among its arguments stands for a new folder for its output."""

    script: str
    arguments: tuple[str, ...]

    @property
    def what(self) -> str:
        """Name the step for people."""
        return " ".join(self.arguments[:2])

    def makes(self, path: str) -> bool:
        """Return whether a path is the folder that the step makes, or in it."""
        return f"{path}/".startswith(f"{self.arguments[1]}/")


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
        return Step("rows_make.py", given)

    def table(name: str, kind: str, of: str, leaves: int, jobs: int) -> Step:
        given = ("table", f"{folder}/{name}", kind, f"{folder}/{of}", str(leaves), str(jobs))
        return Step("rows_make.py", given)

    yield sources("large", "narrow", 10, scale.large)
    yield table("large-table", "narrow", "large", 1, 10)
    yield table("leaves-table", "narrow", "large", rows_ingest.LEAVES, 1)
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
            for system in rows_compaction.SYSTEMS if peers else CORE:
                part = f"compaction of {files} x {rows} {kind} rows"
                given = (part, system, str(number), kind, f"{folder}/{name}-table/data", "OUT")
                yield Step("rows_compaction.py", given)
        for source, kind, rows in (("one", "narrow", scale.ingest), ("wide", "wide", scale.wide)):
            for system in rows_ingest.SYSTEMS if peers else CORE:
                part = f"ingest of {rows:,} {kind} rows into {rows_ingest.LEAVES} leaves"
                given = (part, system, str(number), kind, f"{folder}/{source}/000.parquet", "OUT")
                yield Step("rows_ingest.py", given)
        for stage, given in (("compaction", "large-table/data"), ("ingest", "one/000.parquet")):
            part = f"steps of {'a compaction' if stage == 'compaction' else 'an ingest'}"
            inputs = (str(number), "narrow", f"{folder}/{given}", "OUT")
            yield Step("rows_parts.py", (part, stage, *inputs))
        for what, part in rows_look_ups.PARTS.items():
            for system in rows_look_ups.SYSTEMS if peers else CORE[:1]:
                given = (part, system, str(number), what, f"{folder}/leaves-table/data")
                rest = (f"{folder}/tiny-table", f"{folder}/large/keys.json")
                yield Step("rows_look_ups.py", given + rest)
    for stage in ("compaction", "ingest"):
        given = ("memory", stage, "0", "wide", f"{folder}/wide", f"{folder}/wide-table/data")
        yield Step("rows_memory.py", (*given, "OUT", str(scale.memory_bytes)))


class Runner:
    """Runs steps one after the other, each in a process and an output folder of its own."""

    def __init__(self, folder: Path) -> None:
        """Put outputs in memory if there is such a folder, else below `folder`."""
        self._on_disk = folder / "outputs"
        self._outputs = self._on_disk
        if IN_MEMORY.is_dir():
            self._outputs = IN_MEMORY / f"dormouse-bench-{os.getpid()}"
        self.failures: list[str] = []

    def run(self, step: Step) -> list[Figure]:
        """Return the figures of a step; none, and a note of it, if it failed."""
        # Files in memory that are mapped would count as memory of the process.
        parent = self._on_disk if step.script == "rows_memory.py" else self._outputs
        out, scratch = parent / "out", parent / "scratch"
        for folder in (out, scratch):
            folder.mkdir(parents=True)
        arguments = [str(out) if a == "OUT" else a for a in step.arguments]
        try:
            done = subprocess.run(
                [sys.executable, str(HERE / step.script), *arguments],
                capture_output=True,
                text=True,
                timeout=LONGEST_SECONDS,
            )
        finally:
            shutil.rmtree(parent)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or [f"ended with {done.returncode}"]
            self.failures.append(f"{step.what}: {last[0]}")
            return []
        return [parsed(line) for line in done.stdout.splitlines()]


def run_all(folder: Path, scale: Scale, only: str, console: Console) -> tuple[Figures, list[str]]:
    """Make all, and measure the parts whose names hold `only`; give the figures, and what failed.

    Interrupted, it gives what was measured so far.
    """
    runner = Runner(folder)
    steps = [step for step in measured(folder, scale) if only in step.arguments[0]]
    for step in reversed([*made(folder, scale)]):  # from the last, which may need earlier ones
        if any(step.makes(argument) for later in steps for argument in later.arguments):
            steps.insert(0, step)
    found: list[Figure] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(steps))
        try:
            for step in steps:
                progress.update(task, description=step.what)
                found += runner.run(step)
                progress.advance(task)
        except KeyboardInterrupt:
            runner.failures.append("interrupted: not everything was measured")
    return Figures(found), runner.failures


def main() -> int:
    """Measure everything and show it; give 1 if something failed."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--quick", action="store_true", help="a tenth of the rows")
    asked.add_argument("--only", default="", help="measure the parts with this in their names")
    asked.add_argument("--rounds", type=int, help="how often all is measured, peers included")
    asked.add_argument("--json", type=Path, help="where to keep all figures")
    asked.add_argument("--page", type=Path, help="the page whose tables are to be these")
    given = asked.parse_args()
    scale = QUICK if given.quick else FULL
    if given.rounds:
        scale = replace(scale, rounds=given.rounds, rounds_of_peers=given.rounds)
    console = Console(stderr=True)
    parent = ROOT / "build" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=parent) as folder:
        figures, failures = run_all(Path(folder), scale, given.only, console)
    text = report(figures, quick=given.quick)
    print(text)
    if given.json:
        keys = ("part", "of", "at", "figure")
        lines = [dict(zip(keys, key, strict=True), value=v) for key, v in figures.all.items()]
        given.json.write_text(json.dumps(lines, indent=1))
    if given.page:
        given.page.write_text(page_with(given.page.read_text(), "bench-rows", text))
    for failure in failures:
        console.print(f"failed: {failure}", markup=False)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
