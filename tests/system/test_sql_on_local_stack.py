"""SQL over a deployment: rows in S3 are selected, streamed and computed as those of a folder."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from dormouse.errors import NotFoundError
from tests.system.conftest import System

ROWS = 40_000


@pytest.fixture(scope="module")
def meters(system: System) -> System:
    table = system.instance.create_table(
        "meters",
        "id:long, watts:double, kind:string",
        row_keys=["id"],
        split_points=[10_000, 30_000],
    )
    kinds = [("grid", "solar")[n % 2] for n in range(ROWS)]
    watts = [n / 2 for n in range(ROWS)]
    table.ingest(pa.table({"id": list(range(ROWS)), "watts": watts, "kind": kinds}))
    system.instance.wait()
    return system


def test_a_statement_in_python_reads_s3(meters: System) -> None:
    text = (
        "SELECT a.kind, count(*) AS n, sum(b.watts) AS watts FROM meters a "
        "JOIN meters b ON a.id = b.id WHERE a.id >= $1 GROUP BY a.kind ORDER BY a.kind"
    )
    found = meters.instance.sql(text, [ROWS - 1_000])
    rows = found.to_arrow().to_pylist()
    assert [(row["kind"], row["n"]) for row in rows] == [("grid", 500), ("solar", 500)]
    assert sum(row["watts"] for row in rows) == sum(n / 2 for n in range(ROWS - 1_000, ROWS))
    assert found.reads.requests > 0
    assert found.reads.size_bytes > 0


def test_explain_names_the_requests_and_bytes_of_each_table(meters: System) -> None:
    text = "EXPLAIN SELECT watts FROM meters WHERE id < 100 AND kind = 'grid'"
    found = meters.instance.sql(text)
    read, *_ = found.to_arrow().to_pylist()
    assert (read["step"], read["partitions"]) == ("read meters", 1)
    assert read["requests"] > 0 and read["bytes"] > 0
    assert "ranges: ..id=100" in read["plan"]


def test_the_command_reads_s3_and_explains(meters: System) -> None:
    text = "SELECT kind, max(id) AS last FROM meters GROUP BY kind ORDER BY kind"
    lines = meters.dormouse("sql", text, "--format", "json").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"kind": "grid", "last": ROWS - 2},
        {"kind": "solar", "last": ROWS - 1},
    ]
    assert "read meters: version" in meters.dormouse("sql", f"EXPLAIN {text}")


def test_errors_are_those_of_a_folder(meters: System) -> None:
    with pytest.raises(NotFoundError, match="there is no table 'meter'"):
        meters.instance.sql("SELECT * FROM meter")
