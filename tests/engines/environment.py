"""The environment of the engines, which need other packages than the project has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.waiting import LIMIT_SECONDS

READER = Path(__file__).parent / "reader.py"
PYTHON = Path(sys.prefix) / "engines" / "bin" / "python"


def run(engine: str, task: Any, folder: Path, reader: Path = READER) -> Path:
    """Let an engine do a task; return the folder with what it found."""
    assert PYTHON.exists(), "the engines are not installed: make .venv/engines/.installed"
    (folder / "task.json").write_text(json.dumps(task))
    done = subprocess.run(
        [PYTHON, reader, engine, folder / "task.json", folder],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return folder
