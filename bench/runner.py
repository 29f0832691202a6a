"""Runs the measurements of a benchmark, each in a process of its own, and shows their figures.

Systems take turns, so whatever slows the machine for a while slows all of them. What else the
machine did meanwhile is counted: figures of a busy machine are not to be trusted.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.progress import track

from bench.figures import Figure, Figures, page_with, parsed
from bench.measure import PATHS, ROOT, TICKS, command, cpu_seconds

IN_MEMORY = Path("/dev/shm")
"""Outputs go here if the folder exists: then no disk is measured."""
ABSENT = ROOT / "bench" / "absent"
"""Modules in the place of packages that the layers of the functions do not have."""
LONGEST_SECONDS = 3600
OUT = "OUT"
"""An argument that is replaced by a new folder for the output of a step."""
FUNCTIONS_SETTING = "DORMOUSE_MEMORY_BYTES"
"""A step with this setting runs as a function does, with its packages."""
MOST_LOAD = 0.7
"""With more load from others than this, in cores, figures are marked as unfit."""


@dataclass(frozen=True, slots=True)
class Step:
    """A function below `bench` to call with arguments, such as ``rows.stages:on_s3``.

    `on_disk` keeps its output off a file system in memory, where mapped files would count as
    memory of the process. `environment` is added to that of this process.
    """

    function: str
    arguments: tuple[object, ...]
    on_disk: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


class Load:
    def __init__(self) -> None:
        self.cores: list[float] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note what is measured in the block, by a process that is waited for."""
        before = _now()
        yield
        self.add(*(after - then for then, after in zip(before, _now(), strict=True)))

    def add(self, seconds: float, busy_seconds: float, own_seconds: float) -> None:
        """Note a measurement: how long it took, and what all processes and its own did in it."""
        if seconds > 0:
            self.cores.append(max(0.0, busy_seconds - own_seconds) / seconds)

    def sentence(self) -> str:
        """Return what was seen, and whether the figures are fit to be quoted."""
        if not self.cores:
            return "Nothing was measured."
        mean, most = fmean(self.cores), max(self.cores)
        said = (
            f"While measuring, other processes kept {mean:.2f} cores busy, {most:.2f} in the "
            "measurement with the most."
        )
        if mean > MOST_LOAD:
            return (
                f"**UNFIT: the machine was not quiet.** {said} Figures are fit up to {MOST_LOAD}."
            )
        return said


def _now() -> tuple[float, float, float]:
    return time.monotonic(), busy_seconds(Path("/proc/stat").read_text()), cpu_seconds()


def busy_seconds(stat: str) -> float:
    """Return the time that all cores were busy or not the machine's own, from ``/proc/stat``."""
    user, nice, system, _idle, _wait, irq, softirq, stolen = map(int, stat.split()[1:9])
    return (user + nice + system + irq + softirq + stolen) / TICKS


class Runner:
    def __init__(self, folder: Path) -> None:
        self._on_disk = self._outputs = folder / "outputs"
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
        paths = os.pathsep.join(map(str, (*hidden, *PATHS)))
        program = command(step.function, *arguments)
        variables = {**os.environ, "PYTHONPATH": paths, **step.environment}
        given: Any = {"capture_output": True, "text": True, "timeout": LONGEST_SECONDS}
        try:
            with self.load.watched():
                done = subprocess.run(program, check=False, env=variables, **given)
        finally:
            shutil.rmtree(parent)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or [f"ended with {done.returncode}"]
            self.failures.append(f"{step.function} {step.arguments[:2]}: {last[0]}")
            return []
        return parsed(done.stdout)

    def run_all(self, steps: Sequence[Step], console: Console) -> Figures:
        figures: list[Figure] = []
        try:
            for step in track(steps, "measuring", console=console):
                figures += self.run(step)
        except KeyboardInterrupt:
            self.failures.append("interrupted: not everything was measured")
        return Figures(figures)


def options(description: str | None, quick: str) -> argparse.ArgumentParser:
    """Return the options that every benchmark has; `quick` says what ``--quick`` measures."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_const", const=quick, default="", help=quick)
    parser.add_argument("--page", type=Path, help="replace the tables of this page by these")
    return parser


def benchmark(
    name: str,
    given: argparse.Namespace,
    steps: Callable[[Path, bool], Iterable[Step]],
    report: Callable[[Figures], Iterable[str]],
) -> int:
    """Run the steps made for a folder and show the report; return 1 if a step failed, else 0.

    `name` is the target of make, which marks the figures in a page. `steps` takes whether the run
    is a quick one. Sources are compiled first, as the installation of a package does: where Python
    writes no compiled modules, each process would compile all that it imports, which takes longer
    than many of the measurements.
    """
    console = Console(stderr=True)
    if given.page:
        page_with(given.page.read_text(), name, "")  # a page without marks is refused at once
    parent = ROOT / "build" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    for path in (ROOT / "bench", *PATHS[1:]):
        compileall.compile_dir(path, quiet=1)
    with TemporaryDirectory(dir=parent) as folder:
        runner = Runner(Path(folder))
        figures = runner.run_all([*steps(Path(folder), bool(given.quick))], console)
    note = f"A quick run, of {given.quick}: goals are meant for full ones." if given.quick else ""
    text = "\n\n".join(filter(None, (note, *report(figures), runner.load.sentence())))
    print(text)
    if given.page:
        given.page.write_text(page_with(given.page.read_text(), name, text))
    for failure in runner.failures:
        console.print(f"failed: {failure}", markup=False)
    return 1 if runner.failures else 0
