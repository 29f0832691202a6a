"""One running stack for the tests that need one: starting it takes longer than most of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dormouse_cli.local.stack import LocalStack

TEMPLATE = Path(__file__).parent / "stack" / "template.yaml"


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    with LocalStack(TEMPLATE, {"WithSpare": "yes"}, tmp_path_factory.mktemp("stack")) as running:
        yield running
