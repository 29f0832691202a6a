"""Faults planted in what the last commits changed are noticed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.faults.code import ROOT

SINCE = "HEAD~10"
"""What ten slices of all tests, one for each commit, have not seen yet."""


def test_faults_in_what_the_last_commits_changed_are_noticed() -> None:
    known = subprocess.run(["git", "rev-parse", "--verify", SINCE], cwd=ROOT, capture_output=True)
    if known.returncode:
        pytest.skip(f"this clone does not have {SINCE}")
    command = [sys.executable, "-m", "tests.faults", "--since", SINCE, "--processes", "1"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr
