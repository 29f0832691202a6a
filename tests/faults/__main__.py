"""Plant faults one at a time, and see that the tests named with each notice: ``make faults``.

Each process works on a copy of the project of its own. First the tests named are run without any
fault: they must pass. A fault is noticed if its tests fail; if they cannot even be collected, the
fault is broken code instead of a fault, and counts as neither. The run fails if any fault lives
that no reason is given for, or if fewer than 95 of 100 are noticed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

from tests.faults.plants import ROOT, Fault, all_faults

COPIED = ("shared", "cli", "spark", "functions", "tests", "events", "docs", "bench", "tools")
FILES = (
    "pyproject.toml",
    "template.yaml",
    "samconfig.toml",
    "Makefile",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "mkdocs.yml",
)
SECONDS = 900
"""A fault may make a loop endless: tests that have not ended by then are stopped, and noticed."""
NOTICED, LIVED, BROKEN, EXPLAINED = "noticed", "lived", "broken", "explained"
VERDICTS = (NOTICED, LIVED, BROKEN, EXPLAINED)
LEAST_NOTICED = 0.95
"""Of the faults planted and explained; an explanation is an exception, and no way out."""


def main() -> int:
    """Plant the faults asked for; return 0 if they are noticed, 1 if not."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--only", default="", help="faults whose area or name holds this text")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    chosen = [f for f in all_faults() if asked.only in f.area or asked.only in f.name]
    faults = [fault for fault in chosen if not fault.unnoticed]
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        copies: Queue[Path] = Queue()
        for number in range(asked.processes):
            copies.put(_copy(Path(folder) / str(number)))
        if not _is_sound(copies, faults):
            return 1
        verdicts = _try_all(faults, copies, asked.processes)
    verdicts |= {fault: EXPLAINED for fault in chosen if fault.unnoticed}
    for line in summary(verdicts):
        print(line)
    return int(not is_good(verdicts, whole=not asked.only))


def is_good(verdicts: Mapping[Fault, str], *, whole: bool) -> bool:
    """Return whether no fault lived or was broken and, of the whole, enough were noticed."""
    counts = Counter(verdicts.values())
    enough = not whole or counts[NOTICED] >= LEAST_NOTICED * len(verdicts)
    return enough and not counts[LIVED] and not counts[BROKEN]


def summary(verdicts: Mapping[Fault, str]) -> Iterator[str]:
    """Yield what became of the faults, for people: those not noticed, and a table by area."""
    for fault, verdict in verdicts.items():
        if verdict != NOTICED:
            why = f": {fault.unnoticed}" if fault.unnoticed else ""
            yield f"{verdict} {fault.area}: {fault.name}{why}"
    rows: dict[str, Counter[str]] = {}
    for fault, verdict in verdicts.items():
        rows.setdefault(fault.area, Counter())[verdict] += 1
    rows["all"] = Counter(verdicts.values())
    yield f"{'area':12}{'planted':>9}" + "".join(f"{verdict:>11}" for verdict in VERDICTS)
    for area, counts in rows.items():
        cells = "".join(f"{counts[verdict]:11}" for verdict in VERDICTS)
        yield f"{area:12}{counts.total():9}{cells}{counts[NOTICED] / max(1, counts.total()):8.1%}"


def _copy(target: Path) -> Path:
    for name in COPIED:
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (*FILES, *(path.name for path in ROOT.glob("requirements*.txt"))):
        shutil.copy2(ROOT / name, target / name)
    return target


def _is_sound(copies: Queue[Path], faults: Sequence[Fault]) -> bool:
    """Run all tests named, without a fault; return whether they pass."""
    copy = copies.get()
    tests = sorted({test for fault in faults for test in fault.tests})
    code, output = _pytest(copy, tests)
    copies.put(copy)
    if code:
        print(output[-4000:])
        print("without any fault these tests fail already: repair that first")
    return code == 0


def _try_all(faults: Sequence[Fault], copies: Queue[Path], processes: int) -> dict[Fault, str]:
    """Plant each fault; return the verdicts, and print each as soon as it is known."""

    def one(fault: Fault) -> str:
        copy, begun = copies.get(), time.monotonic()
        try:
            verdict = _try(fault, copy)
        finally:
            copies.put(copy)
        seconds = time.monotonic() - begun
        print(f"{verdict:9}{seconds:5.0f} s  {fault.area}: {fault.name}", flush=True)
        return verdict

    print(f"{len(faults)} faults are planted, one at a time in each of {processes} processes")
    with ThreadPoolExecutor(processes) as threads:
        return dict(zip(faults, threads.map(one, faults), strict=True))


def _try(fault: Fault, copy: Path) -> str:
    path = copy / fault.file
    sound = path.read_text()
    try:
        fault.plant(copy)
        code, _ = _pytest(copy, fault.tests)
    finally:
        path.write_text(sound)
    return {0: LIVED, 1: NOTICED, -1: NOTICED}.get(code, BROKEN)


def _pytest(copy: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Run tests in a copy; return pytest's exit code, or -1 if they did not end, and the output."""
    paths = [str(copy / part) for part in ("shared", "cli", "spark", ".")]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        run = subprocess.run(
            command,
            cwd=copy,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return -1, str(error.output or "")
    return run.returncode, run.stdout


if __name__ == "__main__":
    sys.exit(main())
