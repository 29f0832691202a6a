"""Heavy compactions: cut by key, merged side by side, committed at once, the same every time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark import SparkContext

from dormouse.features import compaction_steps
from dormouse.features.compaction import Compaction, Merged
from dormouse.features.compaction import compact as compact_here
from dormouse.features.compaction_steps import MAX_CELLS, Step
from dormouse.features.rebuild import preview_rebuild
from dormouse.keys import KeyRange
from dormouse.messages.stages import CompactionJob, OutboundMessage, SparkRunChanged
from dormouse.ports import Objects, Services
from dormouse.shards import footer, parquet
from dormouse.shards.footer import ShardIndex
from dormouse.state.partitions import Shard
from dormouse.state.state import AssignJob, ReleaseJob
from dormouse.stored.paths import PART_NUMBERS, RUN_MARKERS, run_of_shard, shard_path
from dormouse.tables.table import Table
from dormouse_spark.compact import FIRST_PART, _merge, compact
from tests.support.spark_access import WorldAccess
from tests.support.world import Crash, World, letters

TEXT = "".join(chr(0x4E00 + 7 * i % 500) for i in range(400))


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_steps, "MIN_MERGE_TASK_BYTES", 4096)
    monkeypatch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", 16)


def table_with_job(
    world: World, files: int = 3, job: str = "", **properties: object
) -> tuple[Table, str]:
    """Return a table of a few shards, all inputs of a job that is to be run."""
    table = world.create(**properties)
    for i in range(files):
        world.drop(f"letters/{i}.parquet", letters(TEXT, at=1000 * i))
    while world.queue:
        outgoing = world.queue.popleft()
        if outgoing.queue == "ingest-jobs":
            world.deliver(outgoing)
    store = world.new_store(table)
    job = job or world.ids.new()
    store.commit(AssignJob(job, "root", tuple(store.current().shards)), generation=0)
    return table, job


def run(spark: SparkContext, world: World, table: Table, job: str) -> None:
    message = CompactionJob(table.id, 0, job)
    compact(spark, WorldAccess(world), world.services, message)


def test_tasks_of_one_process_read_each_footer_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, job = table_with_job(world)
    found: list[Compaction] = []

    def merge(_: Services, compaction: Compaction) -> Merged:
        found.append(compaction)
        raise Crash

    with pytest.raises(Crash):
        compact_here(world.services, CompactionJob(table.id, 0, job), merge)
    sent = replace(found[0], keys=(), read=None)
    read, read_index = [], footer.read_index

    def counting(
        objects: Objects, table_id: str, shard: Shard, *given: Any, **how: Any
    ) -> ShardIndex:
        read.append(shard.id)
        return read_index(objects, table_id, shard, *given, **how)

    monkeypatch.setattr(footer, "read_index", counting)
    access = WorldAccess(world).access
    middle = chr(0x4E00 + 250)
    spans = KeyRange(max=(middle,)), KeyRange((middle,))
    merged = [_merge(access, sent, span, FIRST_PART + n) for n, span in enumerate(spans)]
    assert sorted(read) == sorted(shard.id for shard in sent.inputs)
    assert sum(new.shard.rows for part in merged for new in part.outputs) == len(world.rows(table))


def test_a_job_becomes_disjoint_shards_of_about_equal_rows_in_key_order(
    spark: SparkContext, world: World
) -> None:
    table, job = table_with_job(world)
    before = world.rows(table)
    message = CompactionJob(table.id, 0, job)
    assert world.deliver(OutboundMessage("spark-jobs", message)) == []
    (run_id,) = world.spark.runs
    run(spark, world, table, job)
    state = world.state(table)
    assert world.rows(table) == before
    outputs = sorted((state.shards[r.shard] for r in state.references_in("root")), key=_number)
    assert len(outputs) >= 3
    assert all(run_of_shard(shard.id)[0] == job for shard in outputs)
    assert all(a.max_key < b.min_key for a, b in zip(outputs, outputs[1:], strict=False))
    assert max(s.rows for s in outputs) <= 2 * len(before) / len(outputs)
    assert not len(state.jobs)
    world.spark.ended[run_id] = (
        "succeeded",
        "",
    )  # a driver sends nothing; track_spark announces its garbage
    world.queue += world.deliver(
        OutboundMessage("spark-runs", SparkRunChanged(run_id))
    )  # by track_spark
    world.settle()
    assert world.shard_objects(table) == {shard.id for shard in outputs}
    assert world.rows(table) == before


def _number(shard: object) -> int:
    return run_of_shard(shard.id)[1]  # type: ignore[attr-defined]


def test_a_run_that_died_before_its_commit_is_adopted_by_the_next(
    spark: SparkContext, world: World
) -> None:
    table, job = table_with_job(world)
    before = world.rows(table)
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        run(spark, world, table, job)
    written = world.shard_objects(table)
    assert world.rows(table) == before
    assert preview_rebuild(world.services, table).state.rows == len(before)
    first = min(shard for shard in written if shard is not None and run_of_shard(shard)[0] == job)
    world.storage.delete([shard_path(table.id, first)])  # as if it had died earlier
    world.clock.advance(seconds=60)
    run(spark, world, table, job)
    assert world.shard_objects(table) == written
    assert world.rows(table) == before
    run(spark, world, table, job)
    assert world.rows(table) == before


def test_a_rebuild_counts_each_row_of_a_heavy_compaction_once_at_any_time(
    spark: SparkContext, world: World
) -> None:
    table, job = table_with_job(world)
    before = world.rows(table)
    run(spark, world, table, job)
    for _ in range(3):
        assert preview_rebuild(world.services, table).state.rows == len(before)
        world.settle()
        world.clock.advance(seconds=40 * 24 * 3600)
        world.age_objects(seconds=0)
        world.sweep(audit=True)
    assert len(list(world.storage.list(RUN_MARKERS.prefix(table.id)))) == 1


def left_by_a_crash(world: World, table: Table, job: str) -> str:
    """Have a function crash before it commits a job; return the path of the shard it wrote."""
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        compact_here(world.services, CompactionJob(table.id, 0, job))
    return shard_path(table.id, f"{job}-0")


@pytest.mark.parametrize("part", [FIRST_PART, FIRST_PART + 8])
def test_shards_of_a_run_that_cut_the_job_differently_give_the_job_back(
    spark: SparkContext, world: World, part: int
) -> None:
    table, job = table_with_job(world)
    before = world.rows(table)
    path = left_by_a_crash(world, table, job)
    shard = f"{job}-{part * PART_NUMBERS}"
    world.storage.put(shard_path(table.id, shard), world.storage.get(path))
    run(spark, world, table, job)
    state = world.state(table)
    assert not len(state.jobs)
    assert world.shard_objects(table) == set(state.shards), "what both runs wrote is deleted"
    assert world.rows(table) == before
    record = world.tracker.get(table.id, job)
    assert record is not None
    found = "differs from what job" if part == FIRST_PART else "divided it differently"
    assert found in record.reason


@pytest.mark.parametrize("step", [None, Step(0, 1), Step(MAX_CELLS - 1, MAX_CELLS)], ids=str)
def test_what_functions_wrote_is_discarded_and_the_job_is_done(
    spark: SparkContext, world: World, step: Step | None
) -> None:
    """Spark was switched on when the job, or one of its steps, was written but not committed."""
    table, job = table_with_job(world)
    before = world.rows(table)
    path = left_by_a_crash(world, table, job)
    body = world.storage.get(path)
    if step is not None:
        path = shard_path(table.id, f"{job}-{step.part * PART_NUMBERS}")
        world.storage.put(path, body)
    run(spark, world, table, job)
    numbers = [
        run_of_shard(shard)[1]
        for shard in world.state(table).shards
        if run_of_shard(shard)[0] == job
    ]
    assert numbers and min(numbers) >= FIRST_PART * PART_NUMBERS
    assert path not in {shard_path(table.id, shard) for shard in world.shard_objects(table)}
    assert world.rows(table) == before
    assert preview_rebuild(world.services, table).state.rows == len(before)


def test_rules_hold_and_a_purge_may_leave_whole_ranges_without_rows(
    spark: SparkContext, world: World
) -> None:
    table, _ = table_with_job(world, job="held", aggregations="last(note)")
    before = world.rows(table)
    purge = world.purge(table, f"letter < '{chr(0x4E00 + 300)}'")
    store = world.new_store(table)
    store.commit(ReleaseJob("held"), generation=0)
    job = "p1"
    inputs = tuple(store.current().shards)
    store.commit(AssignJob(job, "root", inputs, purge_id=purge), generation=0)
    run(spark, world, table, job)
    assert world.rows(table) == [row for row in before if str(row["letter"]) >= chr(0x4E00 + 300)]
