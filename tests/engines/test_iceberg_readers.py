"""PyIceberg, DuckDB and Polars return for published tables just what Dormouse does, row by row.

Each engine runs once, in an environment of its own, and reads all tables.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pytest

from tests.engines.environment import run
from tests.engines.published_tables import CONDITIONS, KINDS, Version, publish_all

ENGINES = ("duckdb", "pyiceberg", "polars")
NAMES = [name for name, *_ in KINDS]

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CANNOT = {("duckdb", "every-type-v3"): "Unrecognized primitive type: timestamptz_ns"}
"""What an engine cannot read, and how it says so."""


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Version]:
    return {v.name: v for v in publish_all(tmp_path_factory.mktemp("published"))}


@pytest.fixture(scope="module", params=ENGINES)
def found(
    request: pytest.FixtureRequest,
    versions: dict[str, Version],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, Path]:
    task = [
        {"name": v.name, "metadata": v.metadata, "snapshot": v.snapshot, "where": v.where}
        for v in versions.values()
    ]
    return request.param, run(request.param, task, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("name", NAMES)
def test_an_engine_reads_what_dormouse_reads(
    name: str, found: tuple[str, Path], versions: dict[str, Version]
) -> None:
    check(versions[name], *found)


@pytest.mark.parametrize("name", CONDITIONS)
def test_no_row_is_lost_to_the_bounds_of_shards(
    name: str, found: tuple[str, Path], versions: dict[str, Version]
) -> None:
    version = versions[f"{name}-where"]
    assert version.rows
    check(version, *found)


def test_every_listed_version_is_read_as_it_was(
    found: tuple[str, Path], versions: dict[str, Version]
) -> None:
    history = [version for version in versions.values() if version.snapshot is not None]
    assert len(history) > 3
    for version in history:
        check(version, *found)


def check(version: Version, engine: str, folder: Path) -> None:
    error = folder / f"{version.name}.error"
    if (engine, version.name) in CANNOT:
        assert CANNOT[engine, version.name] in error.read_text()
        return
    assert not error.exists(), error.read_text()
    table = feather.read_table(folder / f"{version.name}.arrow")
    read = comparable(rows_of(table))
    assert read == comparable(version.rows), f"{engine} reads {version.name} differently"


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows with nanoseconds as counts, which Python's times do not have."""
    for number, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            column = table.column(number).cast(pa.int64())
            table = table.set_column(number, field.name, column)
    return table.to_pylist()


def comparable(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr({name: plain(value) for name, value in row.items()}) for row in rows)


def plain(value: Any) -> Any:
    """Return a value in the one form in which all engines' values are compared."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case _ if type(value).__name__ == "Timestamp":  # of pandas: nanoseconds
            return value.value
        case dt.datetime() if value.tzinfo:
            return value.astimezone(dt.UTC).isoformat()
        case {"key": key, "value": inner, **rest} if not rest:  # an entry of a map
            return (plain(key), plain(inner))
        case dict():
            return {name: plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return type(value)(map(plain, value))
        case str() if _UUID.fullmatch(value):
            return bytes.fromhex(value.replace("-", ""))
        case _ if type(value).__name__ == "UUID":
            return value.bytes
    return value
