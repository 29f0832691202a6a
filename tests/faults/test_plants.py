"""The planted faults fit the code: each still changes it, and names tests that are there."""

from __future__ import annotations

import ast

import pytest

from tests.faults.plants import ROOT, Fault, all_faults


@pytest.mark.parametrize("fault", all_faults(), ids=lambda fault: f"{fault.area}: {fault.name}")
def test_a_fault_changes_its_file_and_names_tests(fault: Fault) -> None:
    ast.parse(fault.changed((ROOT / fault.file).read_text()))
    assert bool(fault.tests) != bool(fault.unnoticed), "either tests notice it, or say why none can"
    for test in fault.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists(), path
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), test


def test_faults_have_names_of_their_own() -> None:
    names = [(fault.area, fault.name) for fault in all_faults()]
    assert len(set(names)) == len(names)
