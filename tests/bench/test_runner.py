from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from bench.measure import tree
from bench.runner import Step, benchmark


def test_a_page_without_marks_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Figures\n")
    begun: list[Path] = []

    def steps(folder: Path, is_quick: bool) -> list[Step]:
        begun.append(folder)
        return []

    with pytest.raises(ValueError, match="the page has no"):
        benchmark("bench-x", Namespace(page=page, quick=""), steps, lambda figures: [])
    assert not begun and page.read_text() == "# Figures\n"


def test_what_a_process_lets_others_do_counts_as_its_own() -> None:
    """`serve` answers in a child, whose CPU time and memory were in no figure."""
    begins_another = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'input()']); "
        "print(p.pid, flush=True); p.wait()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", begins_another], text=True, **pipes) as parent:
        assert parent.stdin and parent.stdout
        child = int(parent.stdout.readline())
        found = set(tree(parent.pid))
        parent.stdin.write("\n")
        parent.stdin.close()
    assert found == {parent.pid, child}
