"""The environments of the engines, which need other packages than the project has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.engines.install import BUILT, JARS, LARGE_PYTHON, ROOT, TRINO
from tests.support.waiting import LIMIT_SECONDS

READER = Path(__file__).parent / "reader.py"
PYTHON = Path(sys.prefix) / "engines" / "bin" / "python"
LARGE = ("spark-1.11", "spark-1.10", "trino", "clickhouse")
"""The engines that ``make test-engines`` installs: some hundred megabytes each."""


def run(engine: str, task: Any, folder: Path, reader: Path = READER) -> Path:
    """Let an engine do a task; return the folder with what it found."""
    assert PYTHON.exists(), "the engines are not installed: make .venv/engines/.installed"
    (folder / "task.json").write_text(json.dumps(task))
    done = subprocess.run(
        [python_of(engine), reader, engine.partition("-")[0], folder / "task.json", folder],
        capture_output=True,
        text=True,
        env={**os.environ, **variables_of(engine)},
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return folder


def python_of(engine: str) -> Path:
    """Return the interpreter of the environment that an engine is in."""
    if engine in ("trino", "clickhouse"):
        return LARGE_PYTHON
    return Path(sys.executable) if engine in JARS else PYTHON


def variables_of(engine: str) -> dict[str, str]:
    """Return the variables that say where an engine is."""
    if engine in JARS:
        return {"DORMOUSE_ICEBERG_JAR": str(BUILT / JARS[engine].file)}
    if engine == "trino":
        return {"DORMOUSE_TRINO": str(TRINO), "PYTHONPATH": str(ROOT)}
    return {}


def why_left_out(engine: str) -> str | None:
    """Return why an engine is not installed; None if it is."""
    said = BUILT / "left-out.json"
    if not said.exists():
        return "make test-engines installs it"
    reason = json.loads(said.read_text()).get(engine)
    return None if reason is None else str(reason)
