"""One local stack for all system tests: the template's own functions, queues and buckets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dormouse.client import Instance
from dormouse_cli.local.stack import LocalStack
from tests.support.waiting import LIMIT_SECONDS

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class System:
    """A running instance, as a person and as a program sees it."""

    stack: LocalStack
    instance: Instance

    def dormouse(self, *arguments: str, code: int = 0) -> str:
        """Run the command line in a process of its own; give what it prints."""
        done = subprocess.run(
            [sys.executable, "-c", "from dormouse_cli.main import main; main()", *arguments],
            env={**os.environ, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        assert done.returncode == code, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("stack")
    parameters = {"Instance": "local", "BatchWindowSeconds": "1"}
    before = dict(os.environ)
    with LocalStack(ROOT / "template.yaml", parameters, folder) as stack:
        os.environ.update(stack.environment)
        try:
            yield System(stack, Instance.connect())
        finally:
            os.environ.clear()
            os.environ.update(before)
