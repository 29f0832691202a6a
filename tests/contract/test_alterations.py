"""Types widened and members changed at every door, and read at every door."""

from __future__ import annotations

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
from dormouse.features.checking import check
from dormouse.messages.requests import AlterSchema
from dormouse.messages.stages import OutboundMessage
from dormouse.schema.schema import Field, Primitive, parse_schema
from dormouse.statements import running
from dormouse_cli.main import app
from dormouse_cli.session import Session
from tests.unit.features.http.conftest import Api

SCHEMA = parse_schema(
    "k:int, n:int, d:decimal(4,2)?, p:struct<a:int?,b:string?>?, l:list<struct<x:float?>>?", ["k"]
)
OLD: list[dict[str, Any]] = [
    {"k": k, "n": k, "d": Decimal(k) / 4, "p": {"a": k, "b": "x"}, "l": [{"x": 0.5}]}
    for k in range(3)
]
NEW: list[dict[str, Any]] = [
    {"k": 2**40, "n": 2**40, "d": Decimal(10) ** 12, "p": {"z": 2**40, "c": "new"}, "l": None}
]
EXPECTED = [row | {"p": {"z": row["k"], "c": None}} for row in OLD] + NEW
TYPES = {"k": "long", "n": "long", "d": "decimal(20,2)", "p.a": "long", "l.element.x": "double"}
ADDED = Field("p.c", Primitive.STRING, nullable=True)
Door = Callable[[Instance], None]


def by_client(instance: Instance) -> None:
    instance.table("t").alter(types=TYPES, add=[ADDED], drop=["p.b"], rename={"p.a": "z"})


def by_command(instance: Instance) -> None:
    types = [part for path, kind in TYPES.items() for part in ("--type", f"{path}:{kind}")]
    changes = ["--add-field", "p.c:string", "--drop-field", "p.b", "--rename-field", "p.a=z"]
    done = CliRunner().invoke(
        app, ["table", "alter", "t", *types, *changes], obj=Session(instance=instance)
    )
    assert done.exit_code == 0, done.output


def by_http(instance: Instance) -> None:
    body = {"types": TYPES, "add": [ADDED.to_json()], "drop": ["p.b"], "rename": {"p.a": "z"}}
    assert Api(instance).request("PATCH", "/tables/t", body)["state"] == "finished"


def by_message(instance: Instance) -> None:
    request = AlterSchema("a", "t", (ADDED.to_json(),), ("p.b",), {"p.a": "z"}, {}, dict(TYPES))
    instance.queues.send([OutboundMessage("admin", request)])
    instance.wait()


def by_declarations(instance: Instance) -> None:
    declared = parse_schema(
        "k:long, n:long, d:decimal(20,2)?, p:struct<a:long?,c:string?>?, "
        "l:list<struct<x:double?>>?",
        ["k"],
    )
    (change,) = instance.plan_declared({"tables": [{"name": "t", "schema": declared.to_json()}]})
    instance.apply(change)
    assert not instance.plan_declared({"tables": [{"name": "t", "schema": declared.to_json()}]})
    instance.table("t").alter(drop=["p.b"], rename={"p.a": "z"})


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with closing(Instance.open(tmp_path / "mice", background=False)) as opened:
        table = opened.create_table("t", SCHEMA)
        table.ingest(pa.Table.from_pylist(OLD, arrow_schema(SCHEMA)))
        opened.wait()
        yield opened


@pytest.mark.parametrize("door", [by_client, by_command, by_http, by_message, by_declarations])
def test_an_alteration_means_the_same_at_every_door(
    instance: Instance, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LEAST_BYTES", 0)  # so that DuckDB reads files as they are
    version = instance.table("t").status().version
    door(instance)
    table = instance.table("t").latest()
    table.ingest(pa.Table.from_pylist(NEW, arrow_schema(table.schema)))
    instance.wait()
    columns = [field.name for field in table.schema.fields]
    assert table.query(as_of=version).read_all().to_pylist() == EXPECTED[:-1]
    assert table.changes(version).read_all().to_pylist() == EXPECTED[-1:]
    for _ in ("as ingested", "merged"):
        assert table.query().read_all().to_pylist() == EXPECTED
        found = instance.sql("SELECT *, p.z AS z FROM t WHERE n >= 2 ORDER BY k").read_all()
        assert found.select(columns).to_pylist() == EXPECTED[2:]
        assert found["z"].to_pylist() == [2, 2**40]
        assert Api(instance).found("POST", "/tables/t/query", {"where": "p['z'] = 2"})
        instance.compact("t", everything=True)
        instance.wait()
    assert instance.folder is not None
    table.export(to="out", as_of=version).wait()
    folder = instance.folder.layout.root / "exports" / "out"
    (file,) = folder.glob("*.parquet")
    assert pq.read_table(file).to_pylist() == EXPECTED[:-1]
    beside = instance.table(instance.copy_table(table, "beside").table.name)
    assert beside.query().read_all().to_pylist() == EXPECTED
    table.rebuild()
    assert table.latest().query().read_all().to_pylist() == EXPECTED
    assert check(instance.services, table.current()).findings == ()


def test_a_version_from_before_is_restored_in_the_present_types(instance: Instance) -> None:
    table = instance.table("t")
    version = table.status().version
    by_client(instance)
    table = table.latest()
    table.ingest(pa.Table.from_pylist(NEW, arrow_schema(table.schema)))
    instance.wait()
    table.restore(version)
    instance.wait()
    assert table.query().read_all().to_pylist() == EXPECTED[:-1]
    table.ingest(pa.Table.from_pylist(NEW, arrow_schema(table.schema)))
    instance.wait()
    assert table.query().read_all().to_pylist() == EXPECTED


def test_spark_reads_earlier_rows_in_the_present_types(instance: Instance) -> None:
    from dormouse_spark.datasource import DormouseSource

    by_client(instance)
    assert instance.folder is not None
    root = str(instance.folder.layout.root)
    source = DormouseSource({"instance": root, "table": "t", "where": "p['z'] > 0"})
    reader = source.reader(source.schema())
    read = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert pa.Table.from_batches(read).to_pylist() == EXPECTED[1:-1]
