"""A table to publish, in each format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.published import SCHEMA, PublishedTable


@pytest.fixture(params=[2, 3])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> PublishedTable:
    return PublishedTable(tmp_path, SCHEMA, format_version=request.param)
