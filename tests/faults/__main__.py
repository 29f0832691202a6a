"""Plant faults one at a time, and see that the tests named with each notice: ``make faults``.

Each process works on a copy of the project of its own. First the tests named are run without any
fault: they must pass. A fault is noticed if one of its tests fails or does not end; if they cannot
even be collected, the fault is broken code instead of a fault. The run fails if any fault lives
that no reason is given for, if any is broken, or if fewer than 95 of 100 are noticed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from queue import Queue

from tests.faults.code import ROOT, Code
from tests.faults.copies import Copy, Run
from tests.faults.plants import Fault, all_faults
from tests.faults.since import faults_since

SOUND_SECONDS = 3600
NOTICED, LIVED, BROKEN, EXPLAINED = "noticed", "lived", "broken", "explained"
LEAST_NOTICED = 0.95
"""Of the faults planted and explained; an explanation is an exception, and no way out."""


def main() -> int:
    """Plant the faults asked for; return 0 if they are noticed, 1 if not."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--only", default="", help="faults whose area or text holds this")
    parser.add_argument("--since", default="", help="faults that changes since a revision concern")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--record", type=Path, help="a file for the verdicts, as lines of JSON")
    asked = parser.parse_args()
    code = Code(ROOT)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-")))
        chosen = [fault for fault in all_faults() if asked.only in f"{fault} {fault.tests}"]
        if asked.since:
            chosen = faults_since(asked.since, code, chosen, folder / "before")
        faults = [fault for fault in chosen if not fault.unnoticed]
        processes = max(1, min(asked.processes, len(faults)))
        copies: Queue[Copy] = Queue()
        for number in range(processes):
            copies.put(stack.enter_context(closing(Copy(folder / str(number)))))
        runner = Runner(code, copies, processes, asked.record)
        if not runner.is_sound(faults):
            return 1
        verdicts = runner.try_all(faults)
    verdicts |= {fault: EXPLAINED for fault in chosen if fault.unnoticed}
    for line in summary(verdicts):
        print(line)
    return int(not is_good(verdicts, whole=not asked.only and not asked.since))


def is_good(verdicts: Mapping[Fault, str], *, whole: bool) -> bool:
    """Return whether no fault lived or was broken and, of the whole, enough were noticed."""
    counts = Counter(verdicts.values())
    enough = not whole or counts[NOTICED] >= LEAST_NOTICED * len(verdicts)
    return enough and not counts[LIVED] and not counts[BROKEN]


def summary(verdicts: Mapping[Fault, str]) -> Iterator[str]:
    """Yield what became of the faults, for people: those not noticed, and how many were."""
    for fault, verdict in verdicts.items():
        if verdict != NOTICED:
            yield f"{verdict} {fault}" + (f": {fault.unnoticed}" if fault.unnoticed else "")
    yield f"{Counter(verdicts.values())[NOTICED]} of {len(verdicts)} noticed"


class Runner:
    """Runs tests in copies of the project, each in one process at a time."""

    def __init__(
        self, code: Code, copies: Queue[Copy], processes: int, record: Path | None = None
    ) -> None:
        self._code = code
        self._copies = copies
        self._processes = processes
        self._record = record

    def is_sound(self, faults: Sequence[Fault]) -> bool:
        """Run all tests named, folder by folder, without a fault; return whether they pass."""
        folders: dict[str, set[str]] = {}
        for test in {test for fault in faults for test in self._tests(fault)}:
            folders.setdefault(test.partition("::")[0].rpartition("/")[0], set()).add(test)
        print(f"first the tests of {len(folders)} folders without any fault", flush=True)

        def passes(tests: set[str]) -> bool:
            with self._copy() as copy:
                run = copy.run(sorted(tests), SOUND_SECONDS)
                if run.code:
                    print(copy.output.read_text()[-4000:])
                return not run.code

        with ThreadPoolExecutor(self._processes) as threads:
            sound = all(list(threads.map(passes, sorted(folders.values(), key=len, reverse=True))))
        if not sound:
            print("without any fault these tests fail already: repair that first")
        return sound

    def try_all(self, faults: Sequence[Fault]) -> dict[Fault, str]:
        """Plant each fault; return the verdicts, and print each as soon as it is known."""
        print(f"then {len(faults)} faults, one at a time in each of {self._processes} processes")
        with ThreadPoolExecutor(self._processes) as threads:
            return dict(zip(faults, threads.map(self._try, faults), strict=True))

    def _try(self, fault: Fault) -> str:
        path, text = fault.planted(self._code)
        with self._copy() as copy, copy.planted(path.relative_to(self._code.root), text):
            begun = time.monotonic()
            run = copy.run(self._tests(fault))
            seconds = time.monotonic() - begun
        verdict = verdict_of(run)
        print(f"{verdict:9}{seconds:6.1f} s  {fault}", flush=True)
        if self._record:
            ended = {"verdict": verdict, "failed": run.failed, "seconds": round(seconds, 2)}
            with self._record.open("a") as file:
                print(json.dumps({**asdict(fault), **ended}), file=file)
        return verdict

    def _tests(self, fault: Fault) -> list[str]:
        return [self._code.test(test) for test in fault.tests]

    @contextmanager
    def _copy(self) -> Iterator[Copy]:
        copy = self._copies.get()
        try:
            yield copy
        finally:
            self._copies.put(copy)


def verdict_of(run: Run) -> str:
    """Return what the end of its tests says of a fault."""
    if run.stopped:
        return NOTICED
    return {0: LIVED, 1: NOTICED}.get(run.code, BROKEN)


if __name__ == "__main__":
    sys.exit(main())
