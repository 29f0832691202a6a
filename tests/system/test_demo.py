"""The demo runs to its end and finds every row exactly once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import LIMIT_SECONDS
from tests.system.conftest import System


def test_the_demo_finds_every_flight_exactly_once(system: System, tmp_path: Path) -> None:
    page = tmp_path / "flights.html"
    demo = subprocess.run(
        [sys.executable, "-m", "tools.demo", str(page)],
        env={**os.environ, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "336,776 rows read back" in demo.stdout
    assert "every row is there, exactly once" in demo.stdout
    assert "342 rows of carrier HA removed" in demo.stdout
    assert "<h1>flights</h1>" in page.read_text()
