"""No test depends on the speed of its machine: waits are bounded in one place, nothing sleeps."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.architecture.sources import ROOT as ROOT
from tests.architecture.sources import Source, fail_for, sources

PROGRAMS = ("chaos", "faults", "fuzz", "simulation")
"""What `make` runs for as long as it is given, beside the tests of it."""
WAITS = "tests/support/waiting.py"
HANGING = "tests/local/stack/"
"""Functions and jobs that hang, for a test that they are killed."""
CLOCKS = {"time.sleep", "time.time", "time.monotonic", "time.perf_counter"}
LIMITS = {"timeout", "timeout_seconds"}
_LIMITED = re.compile(r"timeout(?:_seconds)?=\s*[\d.'\"T]")


def is_test(place: str) -> bool:
    parts = place.split("/")
    is_program = parts[1] in PROGRAMS and not parts[-1].startswith("test_")
    return not is_program and place != WAITS and not place.startswith(HANGING)


def breaches(source: Source) -> Iterator[str]:
    """Yield the lines that sleep, look at a real clock, or limit what is waited for by a number."""
    is_suspect = _LIMITED.search(source.text) or any(clock in source.text for clock in CLOCKS)
    if not is_suspect:  # it need not be parsed
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            limits = [word.value for word in node.keywords if word.arg in LIMITS]
            is_limited = any(isinstance(limit, ast.Constant) and limit.value for limit in limits)
            if is_limited or ast.unparse(node.func) in CLOCKS:
                yield f"{source.place}:{node.lineno}: {ast.unparse(node)}"


def test_a_test_waits_as_all_do() -> None:
    tests = [source for source in sources("tests") if is_test(source.place)]
    fail_for(
        f"{line}: wait by tests.support.waiting" for source in tests for line in breaches(source)
    )


def test_a_wait_of_its_own_is_found() -> None:
    for line in (
        "time.sleep(1)",
        "assert time.monotonic() < end",
        "subprocess.run(command, timeout=60)",
        "polling.until_nothing(left, timeout_seconds=5.0)",
    ):
        assert list(breaches(Source("tests/test_x.py", line))), line
