"""Filters and aggregations from the dropped file to the answer, and rows leaving storage by age."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from dormouse.errors import InvalidRequestError
from dormouse.messages.stages import CompactionJob
from dormouse.schema.schema import Schema
from dormouse.stored.paths import run_of_shard
from dormouse.tables.table import Table
from tests.support.world import Crash, World, letters

HOUR = 60 * 60
DAY = 24 * HOUR
AGING = f"ageOff(at, {DAY * 1000})"
COUNTS = Schema.from_json(
    {
        "rowKeyFields": [{"name": "letter", "type": "StringType"}],
        "sortKeyFields": [],
        "valueFields": [{"name": "count", "type": "LongType"}],
    }
)


def stored_rows(world: World, table: Table) -> int:
    """Count the rows in all objects of the table, referenced or not."""
    data = world.folder / "data" / table.id / "data"
    return sum(pq.read_metadata(path).num_rows for path in data.rglob("*.parquet"))


def test_rows_that_aged_off_are_no_answer_any_more_and_leave_storage_with_nothing_ingested(
    world: World,
) -> None:
    table = world.create(splits=[("m",)], filters=AGING, gc_delay_seconds=HOUR)
    world.drop("letters/1.parquet", letters("abz", at=world.clock.now_ms()))
    world.settle()
    world.clock.advance(seconds=DAY / 2)
    world.drop("letters/2.parquet", letters("abz", at=world.clock.now_ms()))
    world.settle()
    assert len(world.rows(table)) == 6
    world.clock.advance(seconds=DAY / 2 + 1)
    assert len(world.rows(table)) == 3
    assert stored_rows(world, table) == 6
    world.sweep()
    world.settle()
    assert len(world.rows(table)) == 3
    assert stored_rows(world, table) == 3
    world.clock.advance(seconds=DAY)
    world.sweep()
    world.settle()
    assert world.rows(table) == []
    assert world.shard_objects(table) == set()


def test_sweeps_find_nothing_to_rewrite_twice_in_an_age(world: World) -> None:
    table = world.create(filters=AGING, gc_delay_seconds=60)
    future = world.clock.now_ms() + 10 * DAY * 1000
    world.drop("letters/1.parquet", letters("ab", at=world.clock.now_ms()))
    world.settle()
    world.drop("letters/2.parquet", letters("ab", at=future))
    world.settle()
    world.clock.advance(seconds=DAY + 1)
    world.sweep()
    world.settle()
    rewritten = world.shard_objects(table)
    assert stored_rows(world, table) == 2
    for _ in range(3):
        world.clock.advance(seconds=DAY / 4)
        world.sweep()
        world.settle()
        assert world.shard_objects(table) == rewritten


def test_a_compaction_that_runs_again_later_makes_the_same_though_rows_aged_off_meanwhile(
    world: World,
) -> None:
    table = world.create(filters=AGING, gc_delay_seconds=60)
    almost_aged = world.clock.now_ms() - (DAY - 10) * 1000
    for i in range(2):
        world.drop(f"letters/{i}.parquet", letters("ab", at=almost_aged + i))
        world.drop(f"letters/new{i}.parquet", letters("cd", at=world.clock.now_ms()))
    while not isinstance(world.queue[0].message, CompactionJob):
        world.queue += world.deliver(world.queue.popleft())
    job = world.queue.popleft()
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        world.deliver(job)
    world.clock.advance(seconds=HOUR)
    world.queue += world.deliver(job)
    assert isinstance(job.message, CompactionJob)
    assert job.message.job_id in {run_of_shard(shard)[0] for shard in world.state(table).shards}
    world.settle()
    assert {row["letter"] for row in world.rows(table)} == {"c", "d"}


def test_rows_a_condition_leaves_out_are_not_stored_and_their_file_is_done(world: World) -> None:
    table = world.create(filters="where(letter < 'm' AND note IS NOT NULL)")
    source = world.drop("letters/1.parquet", letters("xyz"))
    world.drop("letters/2.parquet", letters("axb"))
    world.settle()
    assert [row["letter"] for row in world.rows(table)] == ["a", "b"]
    assert stored_rows(world, table) == 2
    assert source.id in world.state(table).sources


@pytest.mark.parametrize("twice", [False, True])
def test_the_last_version_of_a_key_is_what_a_query_gives_before_and_after_compactions(
    world: World, twice: bool
) -> None:
    table = world.create(aggregations="last(note)", gc_delay_seconds=60, compaction_files=2)
    for at in (5, 9, 7):
        world.drop(f"letters/{at}.parquet", [*letters("a", at=at), *letters("b", at=at + 1)])
        world.queue += world.deliver(world.queue.popleft())  # not compacted yet
    newest = [*letters("a", at=9), *letters("b", at=10)]
    assert world.rows(table) == newest
    world.settle(twice=twice)
    assert world.rows(table) == newest
    for at in (3, 4, 2, 1):
        world.drop(f"letters/{at}.parquet", letters("ab", at=at))
        world.settle(twice=twice)
        assert world.rows(table) == newest


def test_sums_add_up_over_files_and_merges(world: World) -> None:
    table = world.create("counts", COUNTS, aggregations="sum(count)", gc_delay_seconds=60)
    for i in range(9):
        lines = [f'{{"letter": "{c}", "count": {i}}}' for c in "abab"]
        world.drop(f"counts/{i}.json", "\n".join(lines).encode())
        world.settle(twice=True)
    assert world.rows(table) == [{"letter": c, "count": 72} for c in "ab"]
    assert stored_rows(world, table) < 2 * 9


@pytest.mark.parametrize(
    "properties",
    [
        {"filters": "ageOff(letter, 1000)"},
        {"filters": "where(nobody = 1)"},
        {"aggregations": "sum(note)"},
        {"aggregations": "last(note)", "filters": "where(note IS NULL)"},
    ],
)
def test_a_table_with_rules_that_make_no_sense_is_not_created(
    world: World, properties: dict[str, object]
) -> None:
    with pytest.raises(InvalidRequestError):
        world.create(**properties)  # type: ignore[arg-type]
    assert world.tables.all() == []


def test_what_filters_drop_at_ingest_is_recorded(world: World) -> None:
    table = world.create(filters=AGING)
    now_ms = world.clock.now_ms()
    for name, at in (("new", now_ms), ("seconds", now_ms // 1000)):
        world.drop(f"letters/{name}.parquet", letters("ab", at=at))
        world.settle()
    reasons = {each.subject: each.reason for each in world.tracker.records(table.id)}
    assert reasons["letters/new.parquet"] == ""
    told = reasons["letters/seconds.parquet"]
    assert told.startswith("2 rows read, 0 kept: those left out are older than ageOff")
    assert "milliseconds" in told and "'at'" in told
