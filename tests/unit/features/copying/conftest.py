"""The instance that tables are copied to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.world import World


@pytest.fixture
def there(tmp_path: Path) -> World:
    return World(tmp_path / "there")
