"""Every engine returns for published tables just what Dormouse does, or refuses them by name; run
by ``make test-engines``, whose results are in bench/results/iceberg-engines.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.comparison import task_of
from tests.engines.environment import LARGE, run, why_left_out
from tests.engines.expectations import GROUPS, check_group
from tests.engines.install import BUILT
from tests.engines.published_tables import Version, publish_all
from tests.engines.row_lineage import check_row_lineage

ENGINES = ("pyiceberg", "duckdb", "polars", *LARGE)


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Version]:
    return {v.name: v for v in publish_all(tmp_path_factory.mktemp("published"))}


@pytest.fixture(scope="module", params=ENGINES)
def found(
    request: pytest.FixtureRequest,
    versions: dict[str, Version],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, Path, set[str]]]:
    """Yield an engine, the folder with what it found, and the set of groups that passed."""
    engine = request.param
    if engine in LARGE and (reason := why_left_out(engine)):
        pytest.skip(f"left out {engine}: {reason}")
    passed: set[str] = set()
    folder = run(engine, task_of(versions.values()), tmp_path_factory.mktemp(engine))
    yield engine, folder, passed
    (BUILT / f"{engine}.found.json").write_text(json.dumps(sorted(passed)))


@pytest.mark.parametrize("engine", ["duckdb", "spark-1.11", "spark-1.10"])
def test_rows_have_the_same_ids_before_and_after_compactions(engine: str, tmp_path: Path) -> None:
    if engine in LARGE and (reason := why_left_out(engine)):
        pytest.skip(f"left out {engine}: {reason}")
    check_row_lineage(engine, tmp_path)


@pytest.mark.parametrize("group", GROUPS)
def test_an_engine_reads_what_dormouse_reads(
    group: str, found: tuple[str, Path, set[str]], versions: dict[str, Version]
) -> None:
    engine, folder, passed = found
    check_group(group, engine, folder, versions)
    passed.add(group)
