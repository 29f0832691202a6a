"""The planted faults fit the code: each still changes it, and names tests that are there."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.__main__ import BROKEN, EXPLAINED, LIVED, NOTICED, is_good, summary
from tests.faults.plants import ROOT, Fault, all_faults


def verdicts(**counts: int) -> dict[Fault, str]:
    """Return as many faults of each verdict."""
    return {
        Fault(verdict, f"fault {number}", "file", "find", "replace"): verdict
        for verdict, count in counts.items()
        for number in range(count)
    }


@pytest.mark.parametrize("fault", all_faults(), ids=lambda fault: f"{fault.area}: {fault.name}")
def test_a_fault_changes_its_file_and_names_tests(fault: Fault) -> None:
    changed = fault.changed((ROOT / fault.file).read_text())
    if fault.file.endswith(".py"):
        ast.parse(changed)
    assert bool(fault.tests) != bool(fault.unnoticed), "either tests notice it, or say why none can"
    for test in fault.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists(), path
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), test


def test_faults_have_names_of_their_own() -> None:
    names = [(fault.area, fault.name) for fault in all_faults()]
    assert len(set(names)) == len(names)


def test_a_fault_is_no_broken_code_that_any_test_would_notice(tmp_path: Path) -> None:
    for number, fault in enumerate(all_faults()):
        changed = fault.changed((ROOT / fault.file).read_text())
        if not fault.file.endswith(".py"):
            continue
        (tmp_path / f"fault_{number}.py").write_text(f"# {fault.area}: {fault.name}\n{changed}")
    undefined = ["--isolated", "--no-cache", "--select", "F821,F823", str(tmp_path)]
    found = subprocess.run(
        [sys.executable, "-m", "ruff", "check", *undefined],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout


def test_one_fault_that_lived_or_was_broken_fails_the_whole() -> None:
    assert is_good(verdicts(noticed=95, explained=5), whole=True)
    assert not is_good(verdicts(noticed=99, lived=1), whole=True)
    assert not is_good(verdicts(noticed=99, broken=1), whole=True)


def test_explanations_do_not_take_the_place_of_tests() -> None:
    assert not is_good(verdicts(noticed=94, explained=6), whole=True)
    assert is_good(verdicts(explained=1), whole=False)


def test_the_table_counts_each_fault_once_and_names_those_not_noticed() -> None:
    lines = list(summary(verdicts(**{NOTICED: 3, LIVED: 1, BROKEN: 0, EXPLAINED: 1})))
    assert lines[:2] == ["lived lived: fault 0", "explained explained: fault 0"]
    assert lines[-1].split() == ["all", "5", "3", "1", "0", "1", "60.0%"]
