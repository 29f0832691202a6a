"""Random histories of tables that change, at every door, beside SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.depth import examples
from tests.unit.features.latest.histories import MODES, run


@pytest.mark.parametrize("seed", range(len(MODES)))
def test_every_reader_sees_the_latest_rows_at_every_version(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path, steps=examples(20))
