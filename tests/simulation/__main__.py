"""``make sim``: many seeds, over some processes, with a line for each that fails and for all.

python -m tests.simulation --seed 1 --seeds 1000 --steps 700 --processes 2
"""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stdout
from dataclasses import dataclass, field

from tests.simulation.event_log import Violation
from tests.simulation.run import run
from tests.simulation.simulation import SHORT_STEPS

SEEDS_A_LINE = 100


@dataclass
class Outcome:
    """What became of some seeds; `faults` are counted by kind, `calls` by service."""

    seeds: int = 0
    steps: int = 0
    cpu_seconds: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)

    def add(self, other: Outcome) -> None:
        """Count others in."""
        self.seeds += other.seeds
        self.steps += other.steps
        self.cpu_seconds += other.cpu_seconds
        self.calls += other.calls
        self.faults += other.faults
        self.failures |= other.failures

    def __str__(self) -> str:
        """Return it as a line."""
        return (
            f"{self.seeds} seeds, {len(self.failures)} failed; {self.steps} steps, "
            f"{self.calls.total()} calls, {self.faults.total()} faults, "
            f"{self.cpu_seconds:.0f} s CPU"
        )


def outcome_of(seed: int, steps: int, in_folder: bool = False) -> Outcome:
    """Run a seed."""
    begun = time.process_time()
    outcome = Outcome(seeds=1)
    try:
        with redirect_stdout(io.StringIO()):  # drivers of Spark print what their logs are to hold
            simulation = run(seed, steps, in_folder=in_folder)
        outcome.steps, outcome.calls = simulation.step, simulation.calls
        outcome.faults = simulation.faults
    except Violation as violation:
        outcome.failures[seed] = str(violation)
    outcome.cpu_seconds = time.process_time() - begun
    return outcome


def outcomes(
    seeds: Sequence[int], steps: int, processes: int, in_folder: bool = False
) -> Iterator[Outcome]:
    """Run seeds, each in one of some processes; return outcomes as they come."""
    if processes == 1:
        yield from (outcome_of(seed, steps, in_folder) for seed in seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        submitted = [pool.submit(outcome_of, seed, steps, in_folder) for seed in seeds]
        for done in as_completed(submitted):
            yield done.result()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds; 0 if all went well."""
    parser = argparse.ArgumentParser(prog="make sim")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument(
        "--steps", type=int, default=SHORT_STEPS, help="before fault injection stops"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--folder", action="store_true", help="with the state of a folder")
    given = parser.parse_args(arguments)
    total = Outcome()
    seeds = range(given.seed, given.seed + given.seeds)
    for outcome in outcomes(seeds, given.steps, given.processes, given.folder):
        for text in outcome.failures.values():
            print(f"\n{text}\n", flush=True)
        total.add(outcome)
        if total.seeds % SEEDS_A_LINE == 0:
            print(total, flush=True)
    print(total)
    for name, counts in (("calls", total.calls), ("faults", total.faults)):
        print(f"{name}: " + ", ".join(f"{what} {count}" for what, count in counts.most_common()))
    if total.failures:
        print(f"failed: {sorted(total.failures)}")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
