"""What each engine is expected to read of each kind of table, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

from tests.engines.comparison import EQUAL, verdict
from tests.engines.published_tables import Version

GROUPS: Mapping[str, tuple[str, ...]] = {
    "plain": ("plain",),
    "plain, format 3": ("plain-v3",),
    "empty, formats 2 and 3": ("empty", "empty-v3"),
    "columns renamed, dropped, added again": ("altered", "altered-alone"),
    "types that widened, members of structs changed": ("evolved", "evolved-where"),
    "the same, format 3": ("evolved-v3",),
    "the same, the version before": ("evolved-history-*",),
    "split": ("split",),
    "dead rows (head, middle, tail)": ("half-dead",),
    "dead rows, format 3": ("half-dead-v3",),
    "deletions by conditions": ("deleted", "deleted-where"),
    "deletions by conditions, format 3": ("deleted-v3",),
    "latest rows of each key": ("latest", "latest-where"),
    "latest rows of each key, format 3": ("latest-v3", "latest-v3-where"),
    "nested columns, dead rows": ("nested",),
    "nested columns, dead rows, format 3": ("nested-v3",),
    "long keys that begin alike": ("long-keys",),
    "all types but time of day, nanoseconds": ("common-types",),
    "the same, written with iceberg=on": ("common-types-on",),
    "quick encodings, not said": ("quick-unsaid",),
    "time of day": ("every-type",),
    "nanoseconds, format 3": ("every-type-v3",),
    "a condition on the key": ("plain-where", "half-dead-where", "long-keys-where"),
    "a condition on the key, dead rows, format 3": ("half-dead-v3-where",),
    "earlier versions by id": ("history-snapshot-*",),
    "earlier versions by tag": ("history-tag-*",),
    "earlier versions by time": ("history-time_ms-*",),
    "rows ingested since a version": ("changes-*",),
}
"""Kinds of tables and questions, with the versions that are read for each."""

NO_WAY = "no way to ask"
_PUFFIN = "Unexpected PUFFIN file format"
_NOT_PARQUET = "Position deletes are supported only for parquet format"
_VECTORIZED = "Cannot support vectorized reads for column"
REFUSALS: Mapping[tuple[str, str], str] = {
    ("duckdb", "nanoseconds, format 3"): "Unrecognized primitive type: timestamptz_ns",
    ("duckdb", "earlier versions by tag"): NO_WAY,
    ("polars", "earlier versions by tag"): NO_WAY,
    ("polars", "earlier versions by time"): NO_WAY,
    ("clickhouse", "earlier versions by tag"): NO_WAY,
    ("clickhouse", "dead rows, format 3"): _NOT_PARQUET,
    ("clickhouse", "nested columns, dead rows, format 3"): _NOT_PARQUET,
    ("clickhouse", "a condition on the key, dead rows, format 3"): _NOT_PARQUET,
    ("clickhouse", "deletions by conditions, format 3"): _NOT_PARQUET,
    ("clickhouse", "latest rows of each key, format 3"): _NOT_PARQUET,
    ("trino", "deletions by conditions, format 3"): _PUFFIN,
    ("trino", "latest rows of each key, format 3"): _PUFFIN,
    ("trino", "dead rows, format 3"): _PUFFIN,
    ("trino", "nested columns, dead rows, format 3"): _PUFFIN,
    ("trino", "a condition on the key, dead rows, format 3"): _PUFFIN,
    ("trino", "nanoseconds, format 3"): "Unsupported Iceberg type: TIMESTAMP_NANO",
    ("spark-1.10", "quick encodings, not said"): _VECTORIZED,
    **{
        (engine, group): text
        for engine in ("spark-1.11", "spark-1.10")
        for group, text in {
            "time of day": "Spark does not support time fields",
            "nanoseconds, format 3": "Cannot convert unsupported type to Spark: timestamptz_ns",
        }.items()
    },
    **{
        (engine, "rows ingested since a version"): NO_WAY
        for engine in ("duckdb", "pyiceberg", "polars", "trino", "clickhouse")
    },
}
"""What an engine cannot read, and how it says so."""

REMARKS: Mapping[tuple[str, str], str] = {
    ("clickhouse", "time of day"): "in whole seconds",
    ("pyiceberg", "nested columns, dead rows"): "null as empty",
    ("pyiceberg", "nested columns, dead rows, format 3"): "null as empty",
    **{
        ("clickhouse", group): "null as empty"
        for group in (
            "nested columns, dead rows",
            "all types but time of day, nanoseconds",
            "the same, written with iceberg=on",
        )
    },
}
"""How an engine's values differ by nature, for the page."""


def check_group(group: str, engine: str, folder: Path, versions: Mapping[str, Version]) -> None:
    """Check that an engine found the rows of all versions of a group, or refused as expected."""
    named = [v for v in versions.values() if any(fnmatch(v.name, n) for n in GROUPS[group])]
    assert named
    refusal = REFUSALS.get((engine, group))
    for version in named:
        said = verdict(version, engine, folder)
        if refusal is None:
            assert said == EQUAL, f"{engine} reads {version.name} differently: {said}"
        else:
            assert refusal in said, f"{engine} reads {version.name}, and should not: {said}"
