"""Runs the measurements of a benchmark, each in a process of its own, and shows their figures.

A measurement is a module below `bench` that prints its figures as `figures.emit` does. Systems take
turns, so whatever slows the machine for a while slows all of them.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.common.figures import Figure, Figures, parsed
from bench.common.load import Load
from bench.common.pages import page_with
from bench.common.places import ABSENT, ROOT, SOURCES

IN_MEMORY = Path("/dev/shm")
"""Outputs go here if the folder exists: then no disk is measured."""
LONGEST_SECONDS = 3600
OUT = "OUT"
"""An argument that is replaced by a new folder for the output of a step."""
FUNCTIONS_SETTING = "DORMOUSE_MEMORY_BYTES"
"""A step with this setting runs as a function does, with its packages."""


@dataclass(frozen=True, slots=True)
class Step:
    """A module below `bench` to run with arguments.

    `on_disk` keeps its output off a file system in memory, where mapped files would count as
    memory of the process. `environment` is added to that of this process.
    """

    module: str
    arguments: tuple[str, ...]
    on_disk: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def what(self) -> str:
        """Return the step's name for people."""
        return " ".join((self.module.rpartition(".")[2], *self.arguments[:2]))


class Runner:
    """Runs steps one after the other, each with an output folder of its own."""

    def __init__(self, folder: Path) -> None:
        """Put outputs in memory if there is such a folder, else below `folder`."""
        self._on_disk = folder / "outputs"
        self._outputs = self._on_disk
        if IN_MEMORY.is_dir():
            self._outputs = IN_MEMORY / f"dormouse-bench-{os.getpid()}"
        self.failures: list[str] = []
        self.load = Load()

    def run(self, step: Step) -> list[Figure]:
        """Return the figures of a step; none, and a note in `failures`, if it failed."""
        parent = self._on_disk if step.on_disk else self._outputs
        out, scratch = parent / "out", parent / "scratch"
        for folder in (out, scratch):
            folder.mkdir(parents=True)
        arguments = [str(out) if a == OUT else a for a in step.arguments]
        hidden = (ABSENT,) if FUNCTIONS_SETTING in step.environment else ()
        paths = (ROOT, *hidden, *(ROOT / name for name in ("shared", "cli", "spark")))
        self.load.begin()
        try:
            done = subprocess.run(
                [sys.executable, "-m", f"bench.{step.module}", *arguments],
                capture_output=True,
                check=False,
                text=True,
                timeout=LONGEST_SECONDS,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(map(str, paths)),
                    **step.environment,
                },
            )
        finally:
            self.load.end()
            shutil.rmtree(parent)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or [f"ended with {done.returncode}"]
            self.failures.append(f"{step.what}: {last[0]}")
            return []
        return [parsed(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def run_all(self, steps: Sequence[Step], console: Console) -> Figures:
        """Return the figures of all steps; interrupted, those measured so far."""
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
                    found += self.run(step)
                    progress.advance(task)
            except KeyboardInterrupt:
                self.failures.append("interrupted: not everything was measured")
        return Figures(found)


def options(description: str | None, quick: str) -> argparse.ArgumentParser:
    """Return the options that every benchmark has; `quick` says what ``--quick`` does."""
    asked = argparse.ArgumentParser(description=description)
    asked.add_argument("--quick", action="store_true", help=quick)
    asked.add_argument("--json", type=Path, help="write all figures to this file")
    asked.add_argument("--page", type=Path, help="replace the tables of this page by these")
    return asked


def compile_sources() -> None:
    """Compile modules, as the installation of a package does: those of the peers are compiled.

    Where the environment says that Python writes no compiled modules, each process would compile
    all that it imports, which takes longer than many of the measurements.
    """
    for folder in SOURCES:
        compileall.compile_dir(folder, quiet=1)


def benchmark(
    name: str,
    given: argparse.Namespace,
    steps: Callable[[Path], Sequence[Step]],
    report: Callable[[Figures], str],
) -> int:
    """Run the steps made for a folder and show the report; return 1 if a step failed, else 0.

    `name` is the target of make, which marks the figures in a page.
    """
    console = Console(stderr=True)
    if given.page:
        page_with(given.page.read_text(), name, "")  # a page without marks is refused at once
    parent = ROOT / "build" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    compile_sources()
    with TemporaryDirectory(dir=parent) as folder:
        runner = Runner(Path(folder))
        figures = runner.run_all(steps(Path(folder)), console)
    text = f"{report(figures)}\n\n{runner.load.sentence()}"
    print(text)
    if given.json:
        keys = ("part", "of", "at", "figure")
        lines = [dict(zip(keys, key, strict=True), value=v) for key, v in figures.all.items()]
        given.json.write_text(json.dumps(lines, indent=1))
    if given.page:
        given.page.write_text(page_with(given.page.read_text(), name, text))
    for failure in runner.failures:
        console.print(f"failed: {failure}", markup=False)
    return 1 if runner.failures else 0
