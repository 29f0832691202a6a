"""A restored table has the rows of the version, and works on; or the restore is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.features import versions as restoring
from dormouse.features.administration import administer
from dormouse.messages.requests import CompactTable, ReinitialiseTable, RestoreVersion, TagVersion
from dormouse.messages.stages import OutboundMessage, TableChanged
from dormouse.ports import Services
from dormouse.state.state import TableState
from dormouse.stored.paths import RESTORED
from dormouse.tables.table import Table
from tests.support.world import Crash, World, letters
from tests.unit.features.versions.restoring import (
    DELAY_SECONDS,
    age,
    ask,
    assert_sound,
    drop,
    merged_since,
    newest,
    restore,
    restore_pins,
)


@pytest.fixture
def table(world: World) -> Table:
    return merged_since(world)


def test_the_rows_of_a_tag_are_the_newest_again(world: World, table: Table) -> None:
    before = world.services.store(table).at(
        version=world.services.store(table).pins.all()[0].version
    )
    restored = restore(world, table)
    state = assert_sound(world, restored, "abcxyz")
    assert dict(state.references.items()) == dict(before.references.items())
    assert restored.generation == 1
    assert restore_pins(world, table) == 0


def test_what_was_undone_is_collected_and_the_table_works_on(world: World, table: Table) -> None:
    restored = restore(world, table)
    age(world)
    assert_sound(world, restored, "abcxyz")
    assert world.shard_objects(restored) == set(world.state(restored).shards)
    drop(world, 4, "k")
    ask(world, CompactTable("again", restored.name, all=True))
    age(world)
    assert_sound(world, restored, "abckxyz")


def test_a_version_that_is_still_kept_is_restored_by_number_and_by_time(world: World) -> None:
    made = world.create(gc_delay_seconds=DELAY_SECONDS, compaction_files=100)
    drop(world, 1, "abc")
    version, time_ms = world.state(made).version, world.clock.now_ms()
    world.clock.advance(seconds=5)
    drop(world, 2, "xyz")
    restore(world, made, version, "by number")
    assert_sound(world, made, "abc")
    assert time_ms < world.clock.now_ms()


def test_a_restore_can_be_undone(world: World, table: Table) -> None:
    ask(world, TagVersion("t2", table.name, world.state(table).version, "after"))
    restore(world, table, "before", "r1")
    assert_sound(world, table, "abcxyz")
    age(world)
    restore(world, table, "after", "r2")
    assert_sound(world, table, "abcmnoxyz")
    age(world)
    restore(world, table, "before", "r3")
    assert_sound(world, table, "abcxyz")


def test_a_restore_is_done_once_however_often_it_is_delivered(world: World, table: Table) -> None:
    restore(world, table)
    drop(world, 4, "k")
    restore(world, table)
    assert newest(world, table).generation == 1
    assert_sound(world, table, "abckxyz")


def test_files_that_came_since_are_forgotten_and_can_come_again(world: World, table: Table) -> None:
    restore(world, table)
    age(world)  # an audit must not send them again by itself
    assert_sound(world, table, "abcxyz")
    drop(world, 3, "mno")
    assert_sound(world, table, "abcmnoxyz")
    drop(world, 2, "xyz")  # it was ingested before the version
    assert_sound(world, table, "abcmnoxyz")


def test_what_was_queued_before_is_refused(world: World, table: Table) -> None:
    world.drop("letters/9.parquet", letters("q"))
    (late,) = world.queue
    world.queue.clear()
    ask(world, CompactTable("c", table.name, all=True))
    restore(world, table)
    world.queue.append(late)
    world.settle()
    assert_sound(world, table, "abcxyz")


def test_open_jobs_are_released(world: World) -> None:
    made = world.create(gc_delay_seconds=DELAY_SECONDS, compaction_files=100)
    drop(world, 1, "abc")
    drop(world, 2, "xyz")
    world.administer(CompactTable("c", made.name, all=True))
    (begun,) = (message for message in world.queue if message.queue == "compaction-jobs")
    version = world.state(made).version
    assert world.state(made).jobs
    world.queue.clear()
    drop(world, 3, "m")
    restore(world, made, version)
    assert not world.state(made).jobs
    assert all(held.free == len(held) for held in world.state(made).references.values())
    world.queue.append(begun)
    world.settle()
    assert_sound(world, made, "abcxyz")
    ask(world, CompactTable("d", made.name, all=True))
    assert_sound(world, made, "abcxyz")


def test_a_version_that_lost_a_shard_is_refused(world: World, table: Table) -> None:
    """The version after the tagged one: its third shard was merged, and then collected."""
    version = world.services.store(table).pins.all()[0].version
    with pytest.raises(NotFoundError, match="cannot be restored: shard .* was deleted"):
        ask(world, RestoreVersion("r", table.name, version + 1))
    assert newest(world, table).generation == 0
    assert restore_pins(world, table) == 0


def test_a_version_before_a_reset_is_refused_with_the_reason(world: World, table: Table) -> None:
    ask(world, ReinitialiseTable("empty", table.name))
    with pytest.raises(NotFoundError, match="left the table when it was reset"):
        ask(world, RestoreVersion("r", table.name, "before"))
    assert newest(world, table).generation == 1
    assert restore_pins(world, table) == 0


@pytest.mark.parametrize("as_of", ["yesterday noon", "1-2-3"])
def test_what_names_no_version_is_refused(world: World, table: Table, as_of: str) -> None:
    with pytest.raises(InvalidRequestError):
        ask(world, RestoreVersion("r", table.name, as_of))


def test_the_newest_version_is_not_restored(world: World, table: Table) -> None:
    with pytest.raises(InvalidRequestError, match="is the newest already"):
        ask(world, RestoreVersion("r", table.name, world.state(table).version))


def test_a_running_purge_does_not_end_as_done(world: World) -> None:
    made = world.create(gc_delay_seconds=DELAY_SECONDS, compaction_files=100)
    drop(world, 1, "abc")
    drop(world, 2, "xyz")
    version = world.state(made).version
    drop(world, 3, "mno")
    purge_id = world.purge(made, "letter = 'a'")
    (step,) = (message for message in world.queue if message.queue == "purges")
    world.queue.clear()
    restore(world, made, version)
    world.queue.append(step)
    world.settle()
    record = world.tracker.get(made.id, purge_id)
    assert record is not None
    assert record.state == "failed"
    assert "purge them again" in record.reason


@pytest.mark.parametrize("when", ["pin", "record", "registry", "state", "state landed"])
def test_wherever_the_process_dies_the_next_delivery_restores_it_once(
    world: World, table: Table, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash_at(world, when, monkeypatch)
    request = RestoreVersion("r", table.name, "before")
    with pytest.raises(Crash):
        administer(world.services, request)
    monkeypatch.undo()
    ask(world, request)
    assert newest(world, table).generation == 1
    assert restore_pins(world, table) == 0
    age(world)
    assert_sound(world, table, "abcxyz")


def crash_at(world: World, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next restore die after its pin, or before what comes next is written."""
    places: dict[str, Callable[[], object]] = {
        "pin": lambda: monkeypatch.setattr(restoring, "put_restored", crash),
        "record": lambda: monkeypatch.setattr(world.tables, "change", crash),
        "registry": lambda: monkeypatch.setattr(restoring, "finish_reset", crash_at_second()),
        "state": lambda: world.before_next_commit(world.crash),
        "state landed": lambda: world.after_next_commit(world.crash),
    }
    places[when]()


def crash(*_: object, **__: object) -> None:
    raise Crash


def crash_at_second() -> Callable[..., object]:
    """Return a `finish_reset` that does nothing to a table that is not being reset."""

    def finish(services: Services, table: Table) -> TableState:
        if table.restored:
            raise Crash
        return services.store(table).current()

    return finish


def test_any_process_finishes_a_restore_that_is_registered(world: World, table: Table) -> None:
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        administer(world.services, RestoreVersion("r", table.name, "before"))
    assert newest(world, table).generation == 1
    assert world.state(table).generation == 0
    world.queue.append(OutboundMessage("table-changes", TableChanged(table.id)))
    world.settle()
    assert_sound(world, table, "abcxyz")
    assert restore_pins(world, table) == 1
    age(world)
    assert restore_pins(world, table) == 0


def test_a_restore_that_was_never_registered_leaves_nothing(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash_at(world, "record", monkeypatch)
    with pytest.raises(Crash):
        administer(world.services, RestoreVersion("r", table.name, "before"))
    monkeypatch.undo()
    assert restore_pins(world, table) == 1
    age(world)
    assert restore_pins(world, table) == 0
    assert not list(world.storage.list(RESTORED.prefix(table.id)))
    assert_sound(world, table, "abcmnoxyz")


def test_the_record_stays_as_long_as_the_generation(world: World, table: Table) -> None:
    restored = restore(world, table)
    age(world)
    (record,) = world.storage.list(RESTORED.prefix(table.id))
    assert record.path == RESTORED.path(table.id, restored.restored)
    ask(world, ReinitialiseTable("empty", table.name))
    assert newest(world, table).restored == ""
    age(world)
    assert not list(world.storage.list(RESTORED.prefix(table.id)))
