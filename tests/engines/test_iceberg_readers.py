"""PyIceberg, DuckDB and Polars return for published tables just what Dormouse does, row by row.

Each engine runs once, in an environment of its own, and reads all tables. Others are as large as
these are small, and run with ``make test-engines``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.comparison import task_of
from tests.engines.environment import run
from tests.engines.expectations import GROUPS, check_group
from tests.engines.published_tables import Version, publish_all
from tests.engines.row_lineage import check_row_lineage

ENGINES = ("duckdb", "pyiceberg", "polars")


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Version]:
    return {v.name: v for v in publish_all(tmp_path_factory.mktemp("published"))}


@pytest.fixture(scope="module", params=ENGINES)
def found(
    request: pytest.FixtureRequest,
    versions: dict[str, Version],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, Path]:
    task = task_of(versions.values())
    return request.param, run(request.param, task, tmp_path_factory.mktemp(request.param))


def test_rows_have_the_same_ids_in_duckdb_before_and_after_compactions(tmp_path: Path) -> None:
    check_row_lineage("duckdb", tmp_path)


@pytest.mark.parametrize("group", GROUPS)
def test_an_engine_reads_what_dormouse_reads(
    group: str, found: tuple[str, Path], versions: dict[str, Version]
) -> None:
    check_group(group, *found, versions)
