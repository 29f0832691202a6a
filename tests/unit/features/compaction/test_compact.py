"""compact: outputs of any number, runs broken off and repeated, and outputs that do not fit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from msgspec import structs

from dormouse.arrow.order import OrderCheck
from dormouse.arrow.types import arrow_schema
from dormouse.errors import UnavailableError, UnsortedRowsError
from dormouse.features.compaction import compact
from dormouse.features.rebuild import preview_rebuild
from dormouse.keys import encode_key
from dormouse.messages.stages import CompactionJob, OutboundMessage, TableChanged
from dormouse.shards import parquet
from dormouse.shards.writer import ShardContext, write_shards
from dormouse.state.partitions import NewShard
from dormouse.state.state import AddShards, AssignJob, ReleaseJob, SplitPartition
from dormouse.stored.paths import run_of_shard, shard_id_of, shard_path
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.world import Crash, World, letters

WORDS = "thequickbrownfoxjumps"


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", 4)


@made_once
def table_with_job(world: World, files: int = 2, **properties: object) -> tuple[Table, str]:
    """Return a table of a few shards, all inputs of a job that is to be run."""
    table = world.create(**{"shard_target_bytes": 1, **properties})
    for i in range(files):
        world.drop(f"letters/{i}.parquet", letters(WORDS, at=100 * i))
    while world.queue:
        outgoing = world.queue.popleft()
        if outgoing.queue == "ingest-jobs":
            world.deliver(outgoing)
    store = world.new_store(table)
    job = world.ids.new()
    store.commit(AssignJob(job, "root", tuple(store.current().shards)), generation=0)
    return table, job


def run(world: World, table: Table, job: str) -> list[OutboundMessage]:
    return compact(world.services, CompactionJob(table.id, 0, job))


def in_order(world: World, files: int = 2) -> list[dict[str, object]]:
    rows = [row for i in range(files) for row in letters(WORDS, at=100 * i)]
    return sorted(rows, key=lambda row: (str(row["letter"]), int(str(row["at"]))))


def test_an_output_is_cut_at_the_target_size_and_is_not_compacted_again(world: World) -> None:
    table, job = table_with_job(world)
    world.queue += run(world, table, job)
    world.settle()
    state = world.state(table)
    assert len(state.shards) > 3
    assert {shard.rpartition("-")[0] for shard in state.shards} == {job}
    assert world.rows(table) == in_order(world)
    assert world.shard_objects(table) == set(state.shards)


def test_a_run_that_died_between_two_outputs_is_completed_by_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, job = table_with_job(world)
    upload = world.storage.upload
    uploaded: list[str] = []

    def dies(path: str, local: Path) -> bool:
        if run_of_shard(shard_id_of(path) or "")[1] >= 2:
            raise Crash
        uploaded.append(path)
        return upload(path, local)

    with monkeypatch.context() as patch:
        patch.setattr(world.storage, "upload", dies)
        with pytest.raises(Crash):
            run(world, table, job)
    reasons = dict(preview_rebuild(world.services, table).left_out)
    assert set(reasons) == {f"{job}-0", f"{job}-1"}, "a rebuild must not take half of the rows"
    world.clock.advance(seconds=3600)
    run(world, table, job)
    assert world.rows(table) == in_order(world)
    assert set(uploaded) <= {shard_path(table.id, shard) for shard in world.state(table).shards}
    assert not preview_rebuild(world.services, table).left_out


def test_outputs_that_differ_from_what_the_job_would_write_are_deleted_and_the_job_is_planned_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, job = table_with_job(world, files=4)
    world.before_next_commit(world.crash)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", 7)
        run(world, table, job)
    before = world.shard_objects(table)
    assert run(world, table, job) == [OutboundMessage("table-changes", TableChanged(table.id))]
    state = world.state(table)
    assert world.shard_objects(table) == set(state.shards) < before
    assert not len(state.jobs)
    record = world.tracker.get(table.id, job)
    assert record is not None
    assert record.state == "failed"
    assert "differs from what job" in record.reason
    world.queue.append(OutboundMessage("table-changes", TableChanged(table.id)))
    world.settle()
    assert world.rows(table) == in_order(world, files=4)
    assert {shard.rpartition("-")[0] for shard in world.state(table).shards}.isdisjoint({job})
    assert world.shard_objects(table) == set(world.state(table).shards)


def test_outputs_that_another_run_commits_just_then_are_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, job = table_with_job(world)
    world.before_next_commit(world.crash)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", 7)
        run(world, table, job)

    def other_run_commits() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", 7)
            run(world, table, job)

    world.before_next_commit(other_run_commits)
    run(world, table, job)
    record = world.tracker.get(table.id, job)
    assert record is not None and (record.state, record.reason) == ("finished", "")
    assert set(world.state(table).shards) <= world.shard_objects(table)
    assert world.rows(table) == in_order(world)


def test_a_result_that_comes_too_late_is_reported_as_failed_and_changes_nothing(
    world: World,
) -> None:
    table, job = table_with_job(world)
    store = world.new_store(table)
    world.before_next_commit(lambda: store.commit(ReleaseJob(job), generation=0))
    assert run(world, table, job) == [OutboundMessage("table-changes", TableChanged(table.id))]
    record = world.tracker.get(table.id, job)
    assert record is not None
    assert record.state == "failed"
    assert "too late to be committed" in record.reason
    assert not set(world.state(table).shards) & {f"{job}-{n}" for n in range(99)}
    assert world.rows(table) == in_order(world)


def test_a_result_whose_leaves_are_gone_is_deleted_and_its_job_planned_again(world: World) -> None:
    """Each repeat of the job would be rejected: two splits make the tree balance itself anew."""
    table, job = table_with_job(world)
    store = world.new_store(table)
    store.commit(SplitPartition("root", encode_key(("m",))), generation=0)

    def split_the_last_leaf_twice() -> None:
        for letter in "pt":
            *_, last = store.current().partitions.leaves()
            store.commit(SplitPartition(last.id, encode_key((letter,))), generation=0)

    world.before_next_commit(split_the_last_leaf_twice)
    run(world, table, job)
    assert not len(world.state(table).jobs)
    assert world.shard_objects(table) == set(world.state(table).shards)
    record = world.tracker.get(table.id, job)
    assert record is not None
    assert record.state == "failed"
    assert "there is no such partition" in record.reason
    world.queue.append(OutboundMessage("table-changes", TableChanged(table.id)))
    world.settle()
    assert not len(world.state(table).jobs)
    assert world.rows(table) == in_order(world)


def test_a_job_whose_run_died_just_after_its_commit_is_announced_by_the_next(world: World) -> None:
    table, job = table_with_job(world)
    world.after_next_commit(world.crash)
    with pytest.raises(Crash):
        run(world, table, job)
    assert run(world, table, job) == [OutboundMessage("table-changes", TableChanged(table.id))]


def test_an_upload_that_fails_leaves_the_job_to_be_run_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, job = table_with_job(world)

    def fails(path: str, local: Path) -> bool:
        raise UnavailableError("no answer")

    with monkeypatch.context() as patch, pytest.raises(UnavailableError):
        patch.setattr(world.storage, "upload", fails)
        run(world, table, job)
    assert not list((world.folder / "scratch").iterdir())
    run(world, table, job)
    assert world.rows(table) == in_order(world)


def test_a_shard_that_lies_about_its_order_stops_the_job_and_harms_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = table_with_job(world, shard_target_bytes=10**9)
    rows = pa.RecordBatch.from_pylist(letters("zyxa"), arrow_schema(table.schema))
    context = ShardContext(table.id, table.schema, "lie")
    leaves = list(world.state(table).partitions.leaves())
    with monkeypatch.context() as patch:
        patch.setattr(OrderCheck, "see", lambda *_: None)
        lies = [
            new
            for number in range(2)
            for new in write_shards(
                world.storage,
                [rows],
                context,
                leaves,
                lambda _, number=number: f"lie{number}-0",
                scratch=world.folder / "scratch",
            )
        ]
    # the state has their keys right: the order of the rows is wrong
    low, high = encode_key(("a",)), encode_key(("z",))
    found = [
        NewShard(structs.replace(new.shard, low=low, high=high), new.rows_by_partition)
        for new in lies
    ]
    store = world.new_store(table)
    store.commit(
        AddShards("lies", (), tuple(found)),
        AssignJob("job", "root", tuple(new.shard.id for new in found)),
        generation=0,
    )
    before = world.state(table)
    with pytest.raises(UnsortedRowsError, match="rows are not sorted"):
        run(world, table, "job")
    assert world.state(table) == before
    assert world.shard_objects(table) == set(before.shards)
    assert not list((world.folder / "scratch").iterdir())
