"""What `tests/conftest.py` says of the tests is true of those that there are."""

from __future__ import annotations

import pytest

from tests.architecture.test_waiting import ROOT
from tests.conftest import APART, GUIDE, LONGEST, TOGETHER, group_of, place_of


@pytest.mark.parametrize("path", sorted({*LONGEST, *TOGETHER, *APART}))
def test_what_is_said_of_a_place_is_said_of_one_that_is_there(path: str) -> None:
    assert (ROOT / path).exists()


def test_files_that_share_a_stack_go_together_and_tests_that_share_nothing_alone() -> None:
    assert group_of("tests/system/test_demo.py::a") == group_of("tests/system/test_verbs.py::b")
    assert group_of("tests/system/test_demo.py::a") != group_of(f"{GUIDE}::b")
    assert group_of("tests/unit/test_x.py::a[b::c]") == group_of("tests/unit/test_x.py::d")
    assert group_of("tests/simulation/test_x.py::a[1]") != group_of("tests/simulation/test_x.py::a")


def test_what_takes_longest_begins_first() -> None:
    ids = ["tests/unit/test_x.py::a", "tests/spark/test_x.py::a", f"{GUIDE}::a"]
    assert sorted(ids, key=place_of) == ids[::-1]
