"""One local stack for all system tests: the template's own functions, queues and buckets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dormouse.client import Instance
from dormouse_cli.local.stack import LocalStack
from dormouse_cli.main import app

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class System:
    """A running instance, as a person and as a program sees it."""

    stack: LocalStack
    instance: Instance

    def dormouse(self, *arguments: str, code: int = 0) -> str:
        """Run the command line over connections of its own; return what it prints.

        It runs in this process: `test_guide` runs commands as they are typed.
        """
        done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}, catch_exceptions=False)
        assert done.exit_code == code, f"{arguments}: {done.stdout}\n{done.stderr}"
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
