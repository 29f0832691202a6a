"""A condition finds the same rows at every door: held to Python, where NaN and infinity are named
and where casts lose.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from dormouse.arrow.types import arrow_schema
from dormouse.client.instance import Instance
from dormouse.schema.schema import parse_schema
from dormouse_cli.main import app
from dormouse_cli.session import Session
from tests.unit.features.http.conftest import Api

INF, NAN = math.inf, math.nan
SCHEMA = parse_schema("id: long, n: long?, price: decimal(5, 2)?, d: double?, f: float?", ["id"])
FLOATS = [0.0, -0.0, 1.5, NAN, INF, -INF, 16777216.0, None]
NUMBERS = [0, 1, -1, 2**32 + 5, 2**63 - 1, -(2**63), 5, None]
PRICES = [0, 1900, 1950, 2000, -1950, -50, 99999, None]
ROWS: list[dict[str, Any]] = [
    {"id": id_, "n": n, "price": None if p is None else Decimal(p) / 100, "d": d, "f": d}
    for id_, (n, p, d) in enumerate(zip(NUMBERS, PRICES, FLOATS, strict=True))
]


def as_int(value: Any) -> int | None:
    """Return what TRY_CAST makes an INT of."""
    if not math.isfinite(value) or not -(2**31) <= int(value) < 2**31:
        return None
    return int(value)


def above(value: int | None, least: int) -> bool:
    return value is not None and value > least


CONDITIONS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "d = 'NaN'": lambda row: math.isnan(row["d"]),
    "f <> '-nan'": lambda row: not math.isnan(row["f"]),
    "d = CAST('nan' AS REAL)": lambda row: math.isnan(row["d"]),
    "NOT isnan(f)": lambda row: not math.isnan(row["f"]),
    "d > '+Infinity'": lambda row: math.isnan(row["d"]),
    "f BETWEEN '-inf' AND 'INF'": lambda row: not math.isnan(row["f"]),
    "d IN ('NaN', '-INF', 0)": lambda row: not (row["d"] > 0),
    "TRY_CAST(price AS INT) > 19": lambda row: above(as_int(row["price"]), 19),
    "TRY_CAST(price AS INT) = 0": lambda row: as_int(row["price"]) == 0,
    "TRY_CAST(n AS INT) > 0": lambda row: above(as_int(row["n"]), 0),
    "TRY_CAST(d AS INT) >= 1": lambda row: above(as_int(row["d"]), 0),
    "id > 1.5 AND n < 9223372036854775807.5": lambda row: row["id"] >= 2,
}


def expected(condition: str) -> list[int]:
    return [r["id"] for r in ROWS if r["d"] is not None and CONDITIONS[condition](r)]


Door = Callable[[Instance, str], list[int]]


def by_query(instance: Instance, where: str) -> list[int]:
    return list(instance.table("t").query(where=where).read_all()["id"].to_pylist())


def by_export(instance: Instance, where: str) -> list[int]:
    assert instance.folder is not None
    made = instance.table("t").export(to="out", where=where)
    made.wait()
    folder = instance.folder.layout.root / "exports" / "out"
    return [n for file in folder.glob("*.parquet") for n in pq.read_table(file)["id"].to_pylist()]


def by_command(instance: Instance, where: str) -> list[int]:
    command = ["query", "t", "--where", where, "--format", "json"]
    done = CliRunner().invoke(app, command, obj=Session(instance=instance), catch_exceptions=False)
    return [json.loads(line)["id"] for line in done.stdout.splitlines()]


def by_http(instance: Instance, where: str) -> list[int]:
    found = Api(instance).found("POST", "/tables/t/query", {"where": where})
    return [row["id"] for row in found["rows"]]


def by_later_answers(instance: Instance, where: str) -> list[int]:
    assert instance.folder is not None
    api = Api(instance)
    asked = api.ask("POST", "/tables/t/query", {"where": where}, prefer="respond-async")
    while instance.folder.worker.step(("queries",)):
        pass
    files = api.get(asked.headers["location"])["files"]
    lines = [line for f in files for line in api.ask("GET", f["url"]).whole.splitlines()]
    return [json.loads(line)["id"] for line in lines]


def by_spark(instance: Instance, where: str) -> list[int]:
    """Read as the tasks of Spark do, without Spark."""
    from dormouse_spark.datasource import DormouseSource

    assert instance.folder is not None
    root = str(instance.folder.layout.root)
    source = DormouseSource({"instance": root, "table": "t", "where": where})
    reader = source.reader(source.schema())
    read = (batch for part in reader.partitions() for batch in reader.read(part))
    return [id_ for batch in read for id_ in batch["id"].to_pylist()]


DOORS: list[Door] = [by_query, by_command, by_http, by_later_answers, by_spark]


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    root = tmp_path_factory.mktemp("doors") / "mice"
    with closing(Instance.open(root, background=False)) as opened:
        table = opened.create_table("t", SCHEMA)
        table.ingest(pa.Table.from_pylist(ROWS, arrow_schema(SCHEMA)))
        opened.wait()
        yield opened


@pytest.mark.parametrize("door", DOORS)
def test_a_condition_means_the_same_at_every_door(instance: Instance, door: Door) -> None:
    found = {condition: door(instance, condition) for condition in CONDITIONS}
    assert found == {condition: expected(condition) for condition in CONDITIONS}


def test_counts_and_exports_are_of_the_rows_that_queries_return(instance: Instance) -> None:
    counts = {where: instance.table("t").count(where=where) for where in CONDITIONS}
    assert counts == {where: len(expected(where)) for where in CONDITIONS}
    where = " OR ".join(f"({each})" for each in list(CONDITIONS)[0::7])
    wanted = {id_ for each in list(CONDITIONS)[0::7] for id_ in expected(each)}
    assert by_export(instance, where) == sorted(wanted)


def test_a_purge_removes_what_a_query_returns(tmp_path: Path) -> None:
    where = "d = 'NaN' OR TRY_CAST(price AS INT) > 19"
    with closing(Instance.open(tmp_path / "mice", background=False)) as opened:
        table = opened.create_table("t", SCHEMA)
        table.ingest(pa.Table.from_pylist(ROWS, arrow_schema(SCHEMA)))
        opened.wait()
        found = set(by_query(opened, where))
        assert found == {3, 6}
        table.purge(where=where)
        opened.wait()
        assert by_query(opened, "id >= 0") == [r["id"] for r in ROWS if r["id"] not in found]
