"""Tables that keep the latest rows: Spark writes and reads them as functions do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from dormouse.access import AccessRule
from dormouse.client.instance import Instance
from dormouse.features import compaction_steps
from dormouse.features.administration import administer
from dormouse.features.compaction import compact as compact_here
from dormouse.features.ingest import ingest
from dormouse.messages.requests import DeleteRows
from dormouse.messages.stages import CompactionJob, SelectionMessage
from dormouse.schema.schema import parse_schema
from dormouse.state.sources import Source
from dormouse.state.state import AssignJob
from dormouse.stored.paths import data_prefix
from dormouse.tables.table import Table
from dormouse_spark.bulk_import import bulk_import
from dormouse_spark.compact import compact
from dormouse_spark.datasource import register
from tests.spark.test_bulk_import import job_of
from tests.spark.test_statement import WHO, begun, run
from tests.support.spark_access import WorldAccess
from tests.support.world import World
from tests.unit.features.asking import result

SCHEMA = parse_schema("id:long, o:long, v:string?", ["id"])
BY = pytest.mark.parametrize("by", ["", "o"])
KEYS = 300


def table_of(world: World, name: str, by: str, **properties: object) -> Table:
    given = {"keep": "latest", "latest_by": by, **properties}
    return world.create(name, SCHEMA, splits=[(100,), (200,)], **given)


def files(world: World, name: str, by: str) -> tuple[Source, ...]:
    """Drop files of upserts and deletes; most keys are in several of them, some twice in one."""
    random = Random(3)
    return tuple(
        world.sources.drop(f"{name}/{n}.jsonl", "\n".join(lines(random, by)).encode())
        for n in range(6)
    )


def lines(random: Random, by: str) -> list[str]:
    found = []
    for _ in range(KEYS):
        row: dict[str, object] = {"id": random.randrange(KEYS), "o": random.randrange(20)}
        if random.random() < 0.3:
            row |= {"_change": "delete", "o": row["o"] if by else None}
        else:
            row |= {"v": f"v{random.random()}"}
        found.append(json.dumps(row))
    return found


def stored(world: World, table: Table) -> list[dict[str, object]]:
    """Return what shards have of each key: its row or tombstone, whose times are its own."""
    names = ["id", "o", "v", "_tombstone"]
    shards = {f"{each}.parquet" for each in world.state(table).shards}
    tables = [
        pq.read_table(world.folder / "data" / each.path, columns=names)
        for each in world.storage.list(data_prefix(table.id))
        if each.path.rpartition("/")[2] in shards
    ]
    rows = pa.concat_tables(tables).to_pylist()
    told = [{**row, "_tombstone": row["_tombstone"] is not None} for row in rows]
    return sorted(told, key=lambda row: row["id"])


@BY
def test_a_bulk_import_of_changes_leaves_what_an_ingest_leaves(
    spark: SparkContext, world: World, by: str
) -> None:
    here, there = table_of(world, "here", by), table_of(world, "there", by)
    ingest(world.services, job_of(here, files(world, "here", by)))
    job = job_of(there, files(world, "there", by))
    bulk_import(spark, WorldAccess(world), world.services, job)
    assert world.rows(there) == world.rows(here)
    assert stored(world, there) == stored(world, here)
    assert 0 < len(world.rows(here)) < len(stored(world, here)), "there are tombstones, too"


def assigned(world: World, table: Table, shards: Sequence[str]) -> CompactionJob:
    """Assign a compaction of some shards of the table's only leaf."""
    job = world.ids.new()
    world.new_store(table).commit(AssignJob(job, "root", tuple(shards)), generation=0)
    return CompactionJob(table.id, 0, job)


@BY
@pytest.mark.parametrize("takes_all", [True, False])
def test_a_heavy_compaction_leaves_what_one_in_a_function_leaves(
    spark: SparkContext,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    by: str,
    takes_all: bool,  # noqa: FBT001  # a parameter
) -> None:
    monkeypatch.setattr(compaction_steps, "MIN_MERGE_TASK_BYTES", 1000)
    tables = []
    for name in ("here", "there"):
        given = {"keep": "latest", "latest_by": by, "tombstone_age_seconds": 60}
        table = world.create(name, SCHEMA, **given)
        for source in files(world, name, by):
            ingest(world.services, job_of(table, (source,)))
        world.clock.advance(seconds=120)
        where = SelectionMessage(where="id % 7 = 3")
        administer(world.services, DeleteRows(f"delete-{name}", name, where))
        tables.append(table)
    here, there = tables
    before = world.rows(here)
    shards = [sorted(world.state(each).shards, key=of(world, each)) for each in tables]
    few = [each if takes_all else each[1:4] for each in shards]
    compact_here(world.services, assigned(world, here, few[0]))
    message = assigned(world, there, few[1])
    compact(spark, WorldAccess(world), world.services, message)
    assert world.rows(here) == world.rows(there) == before
    assert stored(world, there) == stored(world, here)
    assert len(world.state(there).shards) > len(world.state(here).shards), "many tasks merged"


def of(world: World, table: Table) -> object:
    """Return the order in which shards were ingested."""
    state = world.state(table)
    return lambda shard: state.shards[shard].sequence


def test_a_data_frame_has_the_latest_rows_of_a_version(spark: SparkContext, tmp_path: Path) -> None:
    session = SparkSession(spark)
    register(session)
    with Instance.open(tmp_path / "mice", background=False) as instance:
        table = instance.create_table("t", SCHEMA, {"keep": "latest", "latest_by": "o"})
        columns = pa.schema([*pa.schema(table.query().schema), ("_change", pa.string())])

        def write(*rows: dict[str, object]) -> None:
            table.ingest(pa.Table.from_pylist(list(rows), columns)).wait()

        write(*({"id": n, "o": 5, "v": "old"} for n in range(6)))
        version = table.state().version
        write(
            {"id": 1, "o": 4, "v": "late"},
            {"id": 2, "o": 6, "v": "new"},
            {"id": 3, "o": 6, "_change": "delete"},
        )
        table.delete("id = 4")

        def rows(**options: str) -> dict[int, str]:
            frame = session.read.format("dormouse").option("instance", str(tmp_path / "mice"))
            found = frame.option("table", "t").options(**options).load()
            assert found.columns == ["id", "o", "v"]
            assert found.count() == len(found.collect())
            return {row["id"]: row["v"] for row in found.collect()}

        assert rows() == {0: "old", 1: "old", 2: "new", 5: "old"}
        assert rows(where="v = 'old'") == {0: "old", 1: "old", 5: "old"}
        assert rows(where="o = 5") == {0: "old", 1: "old", 5: "old"}
        assert rows(as_of=str(version)) == dict.fromkeys(range(6), "old")


def test_a_statement_sees_the_latest_rows(spark: SparkContext, world: World) -> None:
    table = table_of(world, "t", "o", gc_delay_seconds=3600)
    sources = files(world, "t", "o")
    for source in sources:
        ingest(world.services, job_of(table, (source,)))
    administer(world.services, DeleteRows("r", "t", SelectionMessage(where="id % 7 = 3")))
    world.tables.change_access_rules(lambda _: (AccessRule(WHO, "t", ("read",)),))
    sql = "SELECT id, o, v FROM t WHERE o > 10 ORDER BY id"
    run(spark, world, begun(world, sql))
    wanted = [row for row in world.rows(table) if row["o"] > 10]  # type: ignore[operator]
    assert result(world).to_pylist() == wanted
