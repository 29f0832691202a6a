"""``make crash-points``: tries every point of every operation with both stores, and prints a table.

Of each operation some points are tried with a second death in the recovery, by a seed.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tests.simulation.crash_heavy import OPERATIONS
from tests.simulation.crash_points import ground, sampled

STORES = ("s3", "dynamodb", "folder")
FORM = "{:<30} {:<9} {:>6} {:>7} {:>6} {:>7} {:>8}"


@dataclass(frozen=True)
class Tried:
    """What became of one operation with one store; `failures` have the point and what was wrong."""

    name: str
    store: str
    calls: int
    points: int
    twice: int
    seconds: float
    failures: tuple[str, ...]


def tried(name: str, store: str, twice: int, seed: int) -> Tried:
    """Try every point of an operation, and so many with a second death."""
    operation = next(each for each in OPERATIONS if each.name == name)
    begun = time.process_time()
    with TemporaryDirectory() as folder:
        cut_off = ground(operation, Path(folder), store)
        points = list(cut_off.distinct())
        random = Random(f"{name} {store} {seed}")
        failures = []
        for point in sampled(points, len(points), random, twice):
            try:
                wrong = cut_off.attempt(point)
            except Exception as error:  # whatever it was, it is a finding
                wrong = [repr(error)]
            failures += [f"{name}, {store}: {point}: {problem}" for problem in wrong]
    seconds = time.process_time() - begun
    return Tried(name, store, len(cut_off.calls), len(points), twice, seconds, tuple(failures))


def main() -> int:
    """Print the table, and the events of each failure; 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="operations whose name contains this")
    parser.add_argument("--twice", type=int, default=10, help="second deaths for each operation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    names = [each.name for each in OPERATIONS if options.only in each.name]
    print(FORM.format("operation", "store", "calls", "points", "twice", "passed", "CPU s"))
    results = []
    with ProcessPoolExecutor(options.processes) as pool:
        asked = [
            pool.submit(tried, name, store, options.twice, options.seed)
            for name in names
            for store in STORES
        ]
        for each in asked:
            found = each.result()
            results.append(found)
            total = found.points + found.twice
            passed = total - len({failure.rsplit(": ", 1)[0] for failure in found.failures})
            row = (found.name, found.store, found.calls, found.points, found.twice, passed)
            print(FORM.format(*row, f"{found.seconds:.1f}"), flush=True)
    failures = [failure for found in results for failure in found.failures]
    sums = [sum(getattr(f, what) for f in results) for what in ("calls", "points", "twice")]
    seconds = sum(found.seconds for found in results)
    print(FORM.format(f"{len(names)} operations", "", *sums, "", f"{seconds:.1f}"))
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
