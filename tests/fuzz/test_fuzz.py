"""A little of what `make fuzz` does at length: any invalid input is refused with an error."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import strategies as st

from tests.fuzz import one
from tests.fuzz.targets import Target, all_targets
from tests.support.depth import examples

TARGETS = all_targets()
NATIVE = [name for name, target in TARGETS.items() if target.native]


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in NATIVE])
def test_what_comes_from_outside_is_taken_or_refused_with_a_reason(name: str) -> None:
    assert one.run_examples(TARGETS[name], examples(TARGETS[name].quick))


def test_the_process_takes_the_same_examples_each_time_unless_another_seed_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int | None]] = []

    def asked_for(target: Target, examples: int, start: int | None = None) -> int:
        asked.append((examples, start))
        return examples

    monkeypatch.setattr(one.resource, "setrlimit", lambda *_: None)
    with monkeypatch.context() as patched:
        patched.setattr(one, "run_examples", asked_for)
        for seed in ([], ["--seed", "5"]):
            patched.setattr(sys, "argv", ["one", "types", *seed])
            one.main()
    assert asked == [(TARGETS["types"].quick, 0), (TARGETS["types"].quick, 5)]
    assert examples_of(7) == examples_of(7) != examples_of(8)


def examples_of(start: int) -> list[int]:
    found: list[int] = []
    one.run_examples(Target(st.integers(), found.append), 20, start)
    return found


def test_no_file_ends_the_process_that_reads_it() -> None:
    """In another process: whatever native code does with a bad file is reported here."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz.one", *NATIVE]
        + ["--percent", str(examples(100))],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
    assert [line.partition(": ")[0] for line in done.stdout.splitlines()] == NATIVE
