"""The metrics of tables and their jobs."""

from __future__ import annotations

import pytest

from dormouse.errors import UnavailableError
from dormouse.features.measure import measure
from dormouse.ports import NO_TABLE
from dormouse.state.jobs import Metric
from tests.support.world import World, letters


def current_metrics(world: World) -> dict[Metric, float]:
    world.metrics.emitted.clear()
    for table in world.tables.all():
        assert measure(world.services, table) == []
    ((name, values),) = world.metrics.emitted
    assert name == "letters"
    return values


def test_a_table_is_measured_as_its_state_is(world: World) -> None:
    table = world.create(splits=[("m",)], compaction_strategy="batch", compaction_files=2)
    for number in range(2):
        world.drop(f"letters/{number}.parquet", letters("amz", at=number))
    for _ in range(2):
        world.queue += world.deliver(world.queue.popleft())
    found = current_metrics(world)
    state = world.state(table)
    assert found[Metric.ROWS] == 6
    assert found[Metric.SHARDS] == len(state.shards)
    assert (found[Metric.PARTITIONS], found[Metric.LEAF_PARTITIONS]) == (3, 2)
    assert found[Metric.REFERENCES_PER_LEAF] == state.reference_count / 2
    assert found[Metric.LOG_LENGTH] == state.version
    assert (found[Metric.JOBS_ASSIGNED], found[Metric.OLDEST_JOB_AGE_SECONDS]) == (0, 0)


def test_jobs_grow_old_until_they_are_run_and_leave_garbage(world: World) -> None:
    world.create(compaction_strategy="batch", compaction_files=2)
    for number in range(2):
        world.drop(f"letters/{number}.parquet", letters("a", at=number))
    for _ in range(4):
        world.queue += world.deliver(world.queue.popleft())  # both files, and both announcements
    world.clock.advance(seconds=90)
    waiting = current_metrics(world)
    assert (waiting[Metric.JOBS_ASSIGNED], waiting[Metric.OLDEST_JOB_AGE_SECONDS]) == (1, 90)
    world.queue += world.deliver(world.queue.popleft())
    done = current_metrics(world)
    assert (done[Metric.JOBS_ASSIGNED], done[Metric.GARBAGE_SHARDS]) == (0, 2)


def test_rows_and_refused_files_are_counted_by_table(world: World) -> None:
    world.create(compaction_strategy="batch", compaction_files=2)
    for number in range(2):
        world.drop(f"letters/{number}.parquet", letters("abc", at=number))
    world.drop("letters/bad.csv", b"nonsense")
    world.settle()
    world.drop("nobody/stray.csv", b"")
    assert world.metrics.total(Metric.ROWS_INGESTED) == 6
    assert world.metrics.total(Metric.ROWS_COMPACTED) == 6
    refused = [name for name, values in world.metrics.emitted if Metric.FILES_REFUSED in values]
    assert refused == ["letters", NO_TABLE]


def test_a_job_that_fails_is_counted(world: World) -> None:
    def unavailable() -> None:
        raise UnavailableError("throttled")

    world.create()
    world.drop("letters/1.parquet", letters("abc"))
    world.before_next_commit(unavailable)
    with pytest.raises(UnavailableError):
        world.settle()
    assert world.metrics.total(Metric.JOBS_FAILED) == 1
