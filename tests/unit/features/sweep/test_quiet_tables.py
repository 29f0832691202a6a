"""Tables that nobody changes cost little: they are swept once an hour, and publish no metrics."""

from __future__ import annotations

import pytest

from dormouse.features.measure import QUIET_MS, measure
from dormouse.features.sweep import sweep_in_turn
from dormouse.jobs import SWEEP_SECONDS
from dormouse.state.jobs import Metric
from dormouse.state.state import AssignJob, DisputeReason, DisputeShards
from dormouse.tables.table import Table
from tests.support.world import World, letters


@pytest.fixture
def table(world: World) -> Table:
    made = world.create()
    world.drop("letters/1.parquet", letters("abc"))
    world.settle()
    return made


def sweeps(world: World, table: Table, hours: int) -> int:
    """Return in how many of the sweeps of some hours the table was swept."""
    count = 0
    for _ in range(hours * 3600 // SWEEP_SECONDS):
        count += any(sweep_in_turn(world.services, table))
        world.clock.advance(seconds=SWEEP_SECONDS)
    return count


def test_a_quiet_table_is_swept_once_an_hour_and_one_that_changes_each_time(
    world: World, table: Table
) -> None:
    assert sweeps(world, table, 1) == 12
    assert sweeps(world, table, 5) == 5
    world.drop("letters/2.parquet", letters("d"))
    world.settle()
    assert sweeps(world, table, 1) == 12


def test_a_table_with_jobs_is_swept_each_time_and_an_audit_leaves_none_out(
    world: World, table: Table
) -> None:
    world.clock.advance(seconds=7200)
    assert all(any(sweep_in_turn(world.services, table, audit=True)) for _ in range(3))
    (leaf,) = world.state(table).partitions.leaves()
    shards = tuple(r.shard for r in world.state(table).references_in(leaf.id))
    world.services.store(table).commit(AssignJob("job", leaf.id, shards), generation=0)
    world.clock.advance(seconds=7200)
    assert sweeps(world, table, 1) == 12


def test_a_quiet_table_publishes_metrics_only_while_something_is_to_be_done(
    world: World, table: Table
) -> None:
    def published() -> bool:
        world.metrics.emitted.clear()
        measure(world.services, table)
        return bool(world.metrics.emitted)

    assert published()
    world.clock.advance(seconds=QUIET_MS // 1000 + 1)
    assert not published()
    shard = next(iter(world.state(table).shards))
    disputed = DisputeShards((shard,), DisputeReason.BYTES_DAMAGED, "job")
    world.services.store(table).commit(disputed, generation=0)
    world.clock.advance(seconds=QUIET_MS // 1000 + 1)
    assert published()
    assert world.metrics.emitted[0][1][Metric.DISPUTED_SHARDS] == 1
