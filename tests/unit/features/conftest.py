"""Fixtures of more than one file of tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.world import World
from tests.unit.features.heavy import KINDS, Heavy


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def heavy(request: pytest.FixtureRequest, tmp_path: Path) -> Heavy:
    made: Heavy = request.param(World(tmp_path))
    return made
