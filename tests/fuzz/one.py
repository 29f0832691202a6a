"""Run some targets in this process, which they may end: ``python -m tests.fuzz.one``."""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, seed, settings

from tests.fuzz.targets import Target, all_targets

MEMORY_BYTES = 8 * 1024**3
"""What a process may map: far more than any target needs."""


def run_examples(target: Target, examples: int, start: int | None = None) -> int:
    """Run so many examples of a target, the same ones for a `start`; return how many ran."""
    ran = 0

    def check(given_one: Any) -> None:
        nonlocal ran
        ran += 1
        target.check(given_one)

    test: Callable[..., None] = check if start is None else seed(start)(check)
    given(target.strategy)(
        settings(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )(test)
    )()
    return ran


def main() -> None:
    """Run the targets named, each for some examples or so many seconds; fail at the first finding.

    The seed says which examples.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--percent", type=int, default=100, help="of the examples of a target")
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    targets = all_targets()
    for name in asked.names:
        print(f"{name}: ", end="", flush=True)
        if not asked.seconds:
            some = max(1, targets[name].quick * asked.percent // 100)
            print(run_examples(targets[name], some, asked.seed), flush=True)
            continue
        ran, end, start = 0, time.monotonic() + asked.seconds, asked.seed
        while time.monotonic() < end:
            start += 1
            ran += run_examples(targets[name], targets[name].quick, start)
        print(ran, flush=True)


if __name__ == "__main__":
    main()
