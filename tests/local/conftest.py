"""One running stack for the tests that need one: starting it takes longer than most of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dormouse_cli.local.event_sources import Batch
from dormouse_cli.local.stack import LocalStack

TEMPLATE = Path(__file__).parent / "stack" / "template.yaml"


@pytest.fixture(scope="session")
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stack")


@pytest.fixture(scope="session")
def batches() -> list[Batch]:
    """What the functions of the stack have been given, and what became of it."""
    return []


@pytest.fixture(scope="session")
def stack(state_folder: Path, batches: list[Batch]) -> Iterator[LocalStack]:
    with LocalStack(TEMPLATE, {"WithSpare": "yes"}, state_folder, watch=batches.append) as running:
        yield running
