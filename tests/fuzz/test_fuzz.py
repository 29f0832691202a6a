"""A little of what `make fuzz` does at length: what comes from outside is told, whatever it is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.fuzz.one import run_examples
from tests.fuzz.targets import all_targets

TARGETS = all_targets()
NATIVE = [name for name, target in TARGETS.items() if target.native]


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in NATIVE])
def test_what_comes_from_outside_is_taken_or_refused_with_a_reason(name: str) -> None:
    assert run_examples(TARGETS[name], TARGETS[name].quick)


def test_no_file_ends_the_process_that_reads_it() -> None:
    """In another process: what native code does over a bad file is told here, whatever it is."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz.one", *NATIVE],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
    assert [line.partition(": ")[0] for line in done.stdout.splitlines()] == NATIVE
