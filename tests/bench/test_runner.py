from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from bench.runner import Step, benchmark


def test_a_page_without_marks_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Figures\n")
    begun: list[Path] = []

    def steps(folder: Path) -> list[Step]:
        begun.append(folder)
        return []

    with pytest.raises(ValueError, match="the page has no"):
        benchmark("bench-x", Namespace(page=page), steps, lambda figures: [])
    assert not begun and page.read_text() == "# Figures\n"
