"""What an audit deletes under ids that are no tables, and what it never deletes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from dormouse.errors import CorruptDataError, InvariantError, NotFoundError, UnavailableError
from dormouse.features import deletion as tombstones
from dormouse.features.deletion import collect_leftovers, list_unregistered, tombstones_to_recheck
from dormouse.features.rebuild import rebuild
from dormouse.messages.requests import CreateTable
from dormouse.ports import NO_TABLE
from dormouse.state.jobs import Metric
from dormouse.state.versions import PublicationRecord
from dormouse.stored.paths import SPARK_CODE, shard_path
from dormouse.tables.table import Table, Tombstone
from tests.support.adapters import MemoryTables
from tests.support.made_once import made_once
from tests.support.world import LETTERS, Crash, World, letters

DAY_SECONDS = 24 * 3600


@made_once
def filled(world: World, name: str = "letters") -> Table:
    table = world.create(name)
    world.drop(f"{name}/1.parquet", letters("ab"))
    world.settle()
    world.age_objects(seconds=3 * DAY_SECONDS)
    return table


def objects(world: World, table: Table) -> list[str]:
    return [stored.path for stored in world.storage.list(f"{table.id}/")]


def lose_entry(world: World, table: Table) -> Table:
    return world.tables.by_id.pop(table.id)


def reported(world: World) -> float:
    """Return the last value of the metric."""
    (values,) = [v for n, v in world.metrics.emitted[-1:] if n == NO_TABLE]
    return values[Metric.UNREGISTERED]


def test_what_came_after_a_deletion_is_deleted_whatever_the_time(world: World) -> None:
    table = filled(world)
    world.delete(table)
    for path in (shard_path(table.id, "late-0"), f"{table.id}/any/thing", f"{table.id}/x"):
        world.storage.put(path, b"late")
    world.clock.ms = 0  # of a machine whose clock is far behind
    assert collect_leftovers(world.services) == []
    assert objects(world, table) == []
    world.clock.ms = 10**14
    world.storage.put(shard_path(table.id, "later-0"), b"later")
    assert collect_leftovers(world.services) == []
    assert objects(world, table) == []


def test_a_table_whose_entry_was_lost_is_reported_and_loses_nothing(world: World) -> None:
    table = filled(world)
    before = objects(world, table)
    lost = lose_entry(world, table)
    for _ in range(3):
        assert collect_leftovers(world.services) == [table.id]
        assert reported(world) == 1
        world.clock.advance(seconds=100 * DAY_SECONDS)
    assert objects(world, table) == before
    (unregistered,) = list_unregistered(world.services)
    assert (unregistered.table_id, unregistered.objects) == (table.id, len(before))
    assert unregistered.size_bytes > 0 and unregistered.newest_ms > 0
    world.tables.by_id[table.id] = lost
    assert collect_leftovers(world.services) == []
    assert reported(world) == 0
    assert world.names(table) == "ab"


def test_a_table_that_is_being_made_is_neither_deleted_nor_reported(world: World) -> None:
    seen: list[list[str]] = []

    def audit() -> None:
        world.age_objects(seconds=DAY_SECONDS - 60)
        seen.append(collect_leftovers(world.services))

    world.after_next_commit(audit)
    table = world.create()
    assert seen == [[]]
    world.drop("letters/1.parquet", letters("ab"))
    world.settle()
    assert world.names(table) == "ab"


def test_an_entry_that_is_damaged_is_an_entry(world: World) -> None:
    table = filled(world)
    world.tables.damaged.add(table.id)
    before = objects(world, table)
    assert collect_leftovers(world.services) == []
    world.tables.damaged.clear()
    assert objects(world, table) == before


def test_a_damaged_tombstone_proves_nothing_and_keeps_nobody_from_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(world)
    lose_entry(world, table)
    before = objects(world, table)
    late = f"{table.id[:-1]}z"
    stone = replace(Tombstone.of(table, world.clock.ms, was_registered=False), table_id=late)
    world.tables.buried[late] = stone
    world.storage.put(f"{late}/data/late.parquet", b"late")

    def read(tables: MemoryTables, table_id: str) -> Tombstone | None:
        if table_id == table.id:
            raise CorruptDataError(f"the tombstone of {table_id} cannot be read")
        return tables.buried.get(table_id)

    monkeypatch.setattr(MemoryTables, "tombstone", read)
    with pytest.raises(CorruptDataError, match=table.id):
        collect_leftovers(world.services)
    with pytest.raises(CorruptDataError, match=table.id):
        list(list_unregistered(world.services))
    assert objects(world, table) == before
    assert list(world.storage.list(f"{late}/")) == []


@pytest.mark.parametrize("was_registered", [True, False])
def test_an_entry_counts_more_than_a_tombstone(world: World, was_registered: bool) -> None:
    """As after the registry was restored to a time before a deletion."""
    table = filled(world)
    before = objects(world, table)
    buried = Tombstone.of(table, world.clock.ms, was_registered=was_registered)
    world.tables.buried[table.id] = buried
    assert collect_leftovers(world.services) == []
    assert objects(world, table) == before
    assert world.names(table) == "ab"


def test_a_listing_that_misses_a_table_costs_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(world)
    before = objects(world, table)
    monkeypatch.setattr(MemoryTables, "list_readable", lambda _: ([], []))
    assert collect_leftovers(world.services) == []
    assert objects(world, table) == before


def test_a_registry_that_does_not_answer_half_way_costs_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(world)
    before = objects(world, table)
    lose_entry(world, table)

    def silent(_: object, table_id: str) -> Table:
        raise UnavailableError("DynamoDB does not answer")

    monkeypatch.setattr(MemoryTables, "get", silent)
    with pytest.raises(UnavailableError):
        collect_leftovers(world.services)
    assert objects(world, table) == before


def test_another_table_of_the_name_is_left_alone(world: World) -> None:
    first = filled(world)
    world.delete(first)
    world.administer(CreateTable("again", "letters", LETTERS.to_json()))
    second = world.tables.named("letters")
    assert second is not None
    world.drop("letters/2.parquet", letters("xy"))
    world.settle()
    world.storage.put(shard_path(first.id, "late-0"), b"late")
    collect_leftovers(world.services)
    assert objects(world, first) == []
    assert world.names(second) == "xy"


def test_the_code_of_spark_jobs_is_no_strangers(world: World) -> None:
    world.storage.put(f"{SPARK_CODE}/jobs.py", b"code")
    world.age_objects(seconds=3 * DAY_SECONDS)
    assert collect_leftovers(world.services) == []
    assert list(world.storage.folders()) == [SPARK_CODE]


def test_an_audit_that_dies_at_any_deletion_is_made_good_by_the_next_and_two_do_no_harm(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [filled(world, name) for name in ("a", "b")]
    for table in tables:
        world.delete(table)
        for number in range(3):
            world.storage.put(shard_path(table.id, f"late-{number}"), b"late")
    delete = world.storage.delete
    monkeypatch.setattr(world.storage, "delete", lambda paths: dies(delete, paths))
    for _ in range(6):
        with pytest.raises(Crash):
            collect_leftovers(world.services)
    monkeypatch.setattr(world.storage, "delete", delete)

    def another(paths: list[str]) -> None:
        monkeypatch.setattr(world.storage, "delete", delete)
        collect_leftovers(world.services)
        delete(paths)

    world.storage.put(shard_path(tables[0].id, "late-9"), b"late")
    monkeypatch.setattr(world.storage, "delete", another)
    assert collect_leftovers(world.services) == []
    assert list(world.storage.folders()) == []


def dies(delete: Callable[[list[str]], None], paths: list[str]) -> None:
    """Delete one object, and die."""
    delete(paths[:1])
    raise Crash


def test_a_rebuild_that_its_tables_deletion_overtakes_leaves_nothing(world: World) -> None:
    table = filled(world)
    world.before_next_commit(lambda: world.delete(table))
    with suppress(NotFoundError):
        rebuild(world.services, table)
    assert collect_leftovers(world.services) == []
    assert left(world, table) == []


def test_a_rebuild_that_died_leaves_nothing_once_its_table_is_deleted(world: World) -> None:
    table = filled(world)
    world.after_next_commit(world.crash)
    with pytest.raises(Crash):
        rebuild(world.services, table)
    assert len(left(world, table)) > 1
    world.delete(table)
    assert left(world, table) == []


def left(world: World, table: Table) -> list[str]:
    """Return the logs of a table that are not closed or have pages, and its objects."""
    logs = [t for t, log in world.pages.logs.items() if log.pages or not log.head.closed]
    return [*logs, *objects(world, table)]


def test_a_state_that_was_not_destroyed_is_never_taken_for_one(world: World) -> None:
    table = filled(world)
    with pytest.raises(InvariantError, match="never destroyed"):
        world.new_store(table).delete_late()
    with pytest.raises(InvariantError):
        world.new_store(replace(table, id="other")).delete_late()
    assert world.names(table) == "ab"


def stones(count: int) -> Iterator[Tombstone]:
    table = Table("", "letters", LETTERS)
    return (Tombstone.of(replace(table, id=f"{n:016x}"), n) for n in range(count))


def test_an_audit_looks_after_so_many_deleted_tables_at_most_and_after_all_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tombstones, "MAX_RECHECKED", 10)
    few, many = list(stones(10)), list(stones(37))
    assert tombstones_to_recheck(few, 5) == few
    days = [tombstones_to_recheck(many, day * DAY_SECONDS * 1000) for day in range(100, 105)]
    assert {len(found) for found in days} == {10}
    seen = {stone.table_id for found in days for stone in found}
    assert seen == {stone.table_id for stone in many}


def test_what_rests_costs_an_audit_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    gets: list[str] = []
    get = MemoryTables.get
    monkeypatch.setattr(MemoryTables, "get", lambda t, i: (gets.append(i), get(t, i))[1])

    def looks(deleted: int) -> int:
        world.tables.buried = {s.table_id: s for s in stones(deleted)}
        gets.clear()
        collect_leftovers(world.services)
        return len(gets)

    living = filled(world)
    assert looks(10) == looks(2000)
    assert world.names(living) == "ab"


def test_while_its_objects_are_deleted_a_table_is_gone_and_not_damaged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(world)
    (shard,) = world.state(table).shards
    delete = world.storage.delete
    looked: list[str] = []

    def looking(paths: list[str]) -> None:
        if shard_path(table.id, shard) in paths:
            with pytest.raises(NotFoundError):
                world.new_store(table).current()
            looked.append(shard)
        delete(paths)

    monkeypatch.setattr(world.storage, "delete", looking)
    world.delete(table)
    assert looked == [shard]


def test_a_record_that_a_publisher_began_meanwhile_is_deleted(world: World) -> None:
    table = filled(world)
    world.delete(table)
    world.publications.replace(table.id, None, PublicationRecord())
    assert collect_leftovers(world.services) == []
    assert world.publications.get(table.id) is None
