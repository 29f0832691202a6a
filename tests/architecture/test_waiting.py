"""No test depends on the speed of its machine: waits are bounded in one place, nothing sleeps."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PROGRAMS = ("chaos", "faults", "fuzz", "simulation")
"""What `make` runs for as long as it is given, beside the tests of it."""
WAITS = TESTS / "support" / "waiting.py"
HANGING = TESTS / "local" / "stack"
"""Functions and jobs that hang, for a test that they are killed."""
CLOCKS = {"time.sleep", "time.time", "time.monotonic", "time.perf_counter"}
LIMITS = {"timeout", "timeout_seconds"}


def is_test(path: Path) -> bool:
    program = path.relative_to(TESTS).parts[0] in PROGRAMS and not path.name.startswith("test_")
    return not program and path != WAITS and HANGING not in path.parents


FILES = [path for path in sorted(TESTS.rglob("*.py")) if is_test(path)]


def breaches(source: str) -> Iterator[str]:
    """Yield the lines that sleep, look at a real clock, or limit what is waited for by a number."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            limits = [word.value for word in node.keywords if word.arg in LIMITS]
            is_limited = any(isinstance(limit, ast.Constant) and limit.value for limit in limits)
            if is_limited or ast.unparse(node.func) in CLOCKS:
                yield f"{node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_a_test_waits_as_all_do(path: Path) -> None:
    assert list(breaches(path.read_text())) == [], "wait by tests.support.waiting"


@pytest.mark.parametrize(
    "line",
    [
        "time.sleep(1)",
        "assert time.monotonic() < end",
        "subprocess.run(command, timeout=60)",
        "polling.until_nothing(left, timeout_seconds=5.0)",
    ],
)
def test_a_wait_of_its_own_is_found(line: str) -> None:
    assert list(breaches(line))
