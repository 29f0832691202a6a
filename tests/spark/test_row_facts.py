"""Row tags and origins through bulk imports and compactions by Spark."""

from __future__ import annotations

import pytest
from pyspark import SparkContext

import dormouse_spark.bulk_import
from dormouse.features.ingest import ingest
from dormouse.messages.stages import CompactionJob, IngestJob
from dormouse.schema.row_tags import with_tags
from dormouse.state.sources import job_id_of
from dormouse.state.state import AssignJob
from dormouse.tables.table import Table
from dormouse_spark.bulk_import import bulk_import
from dormouse_spark.compact import compact
from tests.support.instances import InMemory
from tests.support.spark_access import WorldAccess
from tests.support.world import World, letters, letters_file

COLUMNS = ["letter", "_file", "_row", "_version"]


def found(world: World, where: str | None = None) -> list[tuple[object, ...]]:
    table = InMemory.over(world).instance.table("letters")
    rows = table.query(where=where, columns=COLUMNS).read_all().to_pylist()
    return sorted(tuple(row[name] for name in COLUMNS) for row in rows)


def row_ids(world: World) -> list[tuple[str, int]]:
    table = InMemory.over(world).instance.table("letters")
    rows = table.query(columns=["letter", "_row_id"]).read_all().to_pylist()
    return sorted((row["letter"], row["_row_id"]) for row in rows)


def job_of(world: World, table: Table, prefix: str) -> IngestJob:
    sources = tuple(
        world.sources.drop(
            with_tags(f"letters/{prefix}{n}.parquet", {"n": str(n)} if n else {}),
            letters_file(letters(text, at=100 * n)),
        )
        for n, text in enumerate(("dca", "be", "f"))
    )
    return IngestJob(table.id, 0, job_id_of(sources), sources)


def test_imports_and_compactions_by_spark_keep_tags_and_origins(
    spark: SparkContext, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dormouse_spark.bulk_import, "max_task_rows", lambda *_: 1)
    table = world.create(splits=[("c",)], row_origin="ids", compaction_files=100)
    bulk_import(spark, WorldAccess(world), world.services, job_of(world, table, "x"))
    (version,) = {row[3] for row in found(world)}
    wanted = [
        ("a", "letters/x0.parquet", 3, version),
        ("b", "letters/tag.n=1/x1.parquet", 1, version),
        ("c", "letters/x0.parquet", 2, version),
        ("d", "letters/x0.parquet", 1, version),
        ("e", "letters/tag.n=1/x1.parquet", 2, version),
        ("f", "letters/tag.n=2/x2.parquet", 1, version),
    ]
    assert found(world) == wanted
    ingest(world.services, job_of(world, table, "y"))
    later = [row[:3] for row in found(world)]
    assert len(later) == 12
    ids = row_ids(world)
    assert len({row_id for _, row_id in ids}) == 12
    store = world.new_store(table)
    for leaf in store.current().partitions.leaves():
        inputs = tuple(r.shard for r in store.current().references_in(leaf.id))
        store.commit(AssignJob(f"job-{leaf.id}", leaf.id, inputs), generation=0)
        message = CompactionJob(table.id, 0, f"job-{leaf.id}")
        compact(spark, WorldAccess(world), world.services, message)
    assert [row[:3] for row in found(world)] == later
    assert row_ids(world) == ids
    assert found(world, f"_version = {version}") == wanted
    assert [row[0] for row in found(world, "tag('n') = '1'")] == list("bbee")
    assert [row[0] for row in found(world, "tag('n') IS NULL")] == list("aaccdd")
