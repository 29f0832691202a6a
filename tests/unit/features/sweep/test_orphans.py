"""Which shards that nobody committed go: those that no commit, past or to come, can need."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from dormouse.features.garbage import orphans
from dormouse.features.sweep import MAX_CLOCK_SKEW_MS
from dormouse.messages.requests import ReinitialiseTable
from dormouse.ports import StoredObject
from dormouse.state.partitions import Job
from dormouse.state.state import TableState
from dormouse.stored.paths import data_prefix, shard_path
from dormouse.tables.table import Table
from tests.support.world import World, letters

MINUTE_MS = 60 * 1000
DELAY_SECONDS = 600


def put_orphan(world: World, table: Table, time_ms: int) -> str:
    """Put a shard that nobody committed, as of a time."""
    shard = f"{world.ids.new()}-0"
    path = shard_path(table.id, shard)
    world.storage.put(path, b"of a run that died")
    os.utime(world.folder / "data" / path, (time_ms / 1000, time_ms / 1000))
    return shard


def emptied(world: World) -> tuple[Table, int]:
    """Return a table that was reset just now, and when."""
    world.create(gc_delay_seconds=DELAY_SECONDS)
    world.clock.advance(seconds=3600)
    world.administer(ReinitialiseTable("empty", "letters"))
    world.queue.clear()
    table = world.tables.named("letters")
    assert table is not None
    return table, world.clock.now_ms()


def test_the_outputs_of_a_job_still_assigned_are_needed_however_old_they_are() -> None:
    state = TableState()
    state = TableState(jobs=state.jobs.insert("running", Job("running", "root", (), 0)))
    assert orphans(state, {"running-0": 1, "died-0": 1}, 1_000) == ["died-0"]


def test_a_run_goes_as_a_whole_and_not_before_its_youngest_shard_is_old() -> None:
    modified_ms = {"slow-0": 1, "slow-1": 1_001, "old-0": 999, "old-1": 1_000}
    assert orphans(TableState(), modified_ms, 1_000) == ["old-0", "old-1"]


def test_a_shard_younger_than_the_table_says_is_kept(world: World) -> None:
    table = world.create(orphan_age_seconds=3600)
    now_ms = world.clock.now_ms()
    young = put_orphan(world, table, now_ms - 59 * MINUTE_MS)
    put_orphan(world, table, now_ms - 60 * MINUTE_MS)
    world.sweep(audit=True)
    assert world.shard_objects(table) == {young}


def test_a_shard_that_is_committed_while_an_audit_lists_is_no_orphan(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, whole = world.create(), world.storage.list
    put_orphan(world, table, 0)
    hooks: list[Callable[[], None]] = []

    def commits() -> None:
        world.drop("letters/0.parquet", letters("ab"))
        world.settle()
        world.age_objects(seconds=30 * 24 * 3600)  # by a clock that is far apart

    def listing(prefix: str) -> Iterator[StoredObject]:
        if prefix == data_prefix(table.id) and hooks:
            hooks.pop()()
        return whole(prefix)

    hooks.append(commits)
    monkeypatch.setattr(world.storage, "list", listing)
    world.sweep(audit=True)
    assert not hooks
    assert world.names(table) == "ab"


def test_shards_from_before_a_reset_are_kept_for_queries_that_began_before_it(world: World) -> None:
    table, reset_ms = emptied(world)
    put_orphan(world, table, reset_ms - 60 * MINUTE_MS)
    world.clock.advance(seconds=DELAY_SECONDS - 1)
    world.sweep(audit=True)
    assert len(world.shard_objects(table)) == 1
    world.clock.advance(seconds=1)
    world.sweep(audit=True)
    assert not world.shard_objects(table)


def test_shards_written_around_a_reset_may_belong_to_a_commit_to_come(world: World) -> None:
    table, reset_ms = emptied(world)
    put_orphan(world, table, reset_ms - MAX_CLOCK_SKEW_MS)
    late = put_orphan(world, table, reset_ms - MAX_CLOCK_SKEW_MS + 1000)
    world.clock.advance(seconds=DELAY_SECONDS)
    world.sweep(audit=True)
    assert world.shard_objects(table) == {late}
