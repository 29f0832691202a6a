"""One local stack for all system tests: the template's own functions, queues and buckets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dormouse.client.instance import Instance
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
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    folder = tmp_path_factory.mktemp("stack")
    parameters = {"Instance": "local", "BatchWindowSeconds": "1"}
    with LocalStack(ROOT / "template.yaml", parameters, folder) as stack:
        yield stack


@pytest.fixture(scope="module")
def system(running: LocalStack) -> Iterator[System]:
    """Yield the stack with its variables set, for one file: others may run in this process."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in running.environment.items():
            environment.setenv(name, value)
        yield System(running, Instance.connect())
