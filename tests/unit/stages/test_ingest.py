"""ingest: what becomes of rows by the table's own rules, and in how many shards."""

from __future__ import annotations

from pathlib import Path

import pytest

from dormouse.messages import IngestJob
from tests.support.world import World, letters


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_rows_that_do_not_count_are_not_written_and_the_record_tells_both_numbers(
    world: World,
) -> None:
    table = world.create(filters="where(letter < 'c')")
    world.drop("letters/1.parquet", letters("dacb"))
    job = world.queue[0].message
    assert isinstance(job, IngestJob)
    world.settle()
    assert [row["letter"] for row in world.rows(table)] == ["a", "b"]
    (shard,) = world.state(table).shards.values()
    assert (shard.rows, shard.max_key) == (2, ("b",))
    record = world.tracker.get(table.id, job.job_id)
    assert record is not None
    assert (record.state, record.rows_read, record.rows) == ("finished", 4, 2)


def test_a_job_none_of_whose_rows_count_is_done_and_not_repeated(world: World) -> None:
    table = world.create(filters="where(letter < 'a')", splits=[("m",)])
    source = world.drop("letters/1.parquet", letters("xyz"))
    world.settle(twice=True)
    state = world.state(table)
    assert not len(state.shards)
    assert state.has_ingested(source.id, world.clock.now_ms())
    assert world.rows(table) == []
    assert not world.shard_objects(table)
