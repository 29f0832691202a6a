"""Tables that nobody changes cost little: they are swept and read ever more rarely, and publish no
metrics.
"""

from __future__ import annotations

import pytest

from dormouse.features.measure import QUIET_MS, measure
from dormouse.features.sweep import sweep_in_turn
from dormouse.jobs import SWEEP_SECONDS
from dormouse.messages.requests import DeleteRows
from dormouse.messages.stages import SelectionMessage
from dormouse.quiet import LOOK_MS
from dormouse.state.jobs import Metric
from dormouse.state.state import AssignJob, DisputeReason, DisputeShards, ReplaceShards
from dormouse.state.versions import OwnerKind, PinOwner
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


def test_a_quiet_table_is_swept_ever_more_rarely_and_one_that_changes_each_time(
    world: World, table: Table
) -> None:
    assert sweeps(world, table, 1) == 12
    assert [sweeps(world, table, hours) for hours in (1, 2, 4, 8)] == [1, 1, 1, 1]
    assert [sweeps(world, table, hours) for hours in (16, 48)] == [1, 0]
    world.drop("letters/2.parquet", letters("d"))
    world.settle()
    world.clock.advance(seconds=LOOK_MS // 1000)
    assert sweeps(world, table, 1) >= 9


@pytest.mark.parametrize("what", ["garbage", "hidden rows", "age"])
def test_a_quiet_table_that_will_change_by_itself_is_swept_each_hour(
    world: World, table: Table, what: str
) -> None:
    store = world.services.store(table)
    (leaf,) = world.state(table).partitions.leaves()
    (shard,) = world.state(table).shards
    if what == "garbage":
        store.commit(AssignJob("job", leaf.id, (shard,)), generation=0)
        store.commit(ReplaceShards("job", leaf.id, (shard,), ()), generation=0)
    elif what == "hidden rows":
        selection = SelectionMessage(where="letter = 'a'")
        world.administer(DeleteRows("delete", table.name, selection))
    else:
        table = table.with_settings({"filters": "ageOff(at,1000)"}, {})
    world.clock.advance(seconds=100 * 3600)
    assert sweeps(world, table, 5) == 5


@pytest.mark.parametrize(
    ("kind", "count"), [(OwnerKind.EXPORT, 1), (OwnerKind.QUERY, 1), (OwnerKind.TAG, 0)]
)
def test_what_reads_a_version_of_a_quiet_table_is_followed_up_within_an_hour(
    world: World, table: Table, kind: OwnerKind, count: int
) -> None:
    pins = world.services.store(table).pins
    pins.add(PinOwner(kind, "mine@"), world.state(table))
    world.clock.advance(seconds=100 * 3600)
    assert sweeps(world, table, 1) == count
    assert len(pins.all(expired=True)) == 1 - count, "nobody works on it any more"


def test_a_quiet_table_is_looked_at_without_loading_its_state_and_a_new_entry_at_once(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.clock.advance(seconds=7200)
    for work in (measure, sweep_in_turn):
        assert not any(work(world.services, table))
    store = world.services.store(table)
    looks: list[int] = []
    is_newest = store.is_newest

    def look(version: int) -> bool:
        looks.append(version)
        return is_newest(version)

    monkeypatch.setattr(store, "current", lambda: pytest.fail("the state was loaded"))
    monkeypatch.setattr(store, "is_newest", look)
    for work in (measure, sweep_in_turn):
        assert not any(work(world.services, table))
    assert looks == []
    world.clock.advance(seconds=LOOK_MS // 1000)
    for work in (measure, sweep_in_turn):
        assert not any(work(world.services, table))
    assert looks == [world.new_store(table).current().version] * 2
    world.metrics.emitted.clear()
    measure(world.services, table.with_settings({"iceberg": "on"}, {}))
    assert world.metrics.emitted, "a new entry: there is something to be published"


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
