"""While an export runs, the version that it reads is whole; then it is as any other."""

from __future__ import annotations

import pytest

from dormouse.errors import NotFoundError
from dormouse.features import export as requesting
from dormouse.features.administration import administer
from dormouse.features.export import ExportRequest, TaskFiles
from dormouse.features.long_jobs import Parts
from dormouse.features.versions import LONGEST_MS, REQUEST_MS
from dormouse.messages.requests import CompactTable, ExportRows, TagVersion, UntagVersion
from dormouse.messages.stages import OutboundMessage
from dormouse.ports import Storage
from dormouse.state.versions import Pin
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.world import Crash, World, letters
from tests.unit.features.exports import exported, record_of

DELAY_SECONDS = 600


@pytest.fixture
@made_once
def table(world: World) -> Table:
    """A table of two shards, which nothing merges unasked."""
    made = world.create(gc_delay_seconds=DELAY_SECONDS, compaction_files=100, orphan_age_seconds=60)
    for number, text in enumerate(("abc", "xyz")):
        world.drop(f"letters/{number}.parquet", letters(text))
        world.settle()
    return made


def pins(world: World, table: Table) -> list[Pin]:
    return world.pages.pins.all(table.state_id)


def begin(world: World, table: Table, name: str = "e") -> list[OutboundMessage]:
    """Ask for an export; return the messages of its tasks."""
    return administer(world.services, ExportRows(name, table.name, "out"))


def merge_and_collect(world: World, table: Table) -> None:
    """Merge all shards, and collect them as soon as nothing holds them."""
    world.administer(CompactTable(world.ids.new(), table.name, all=True))
    world.settle()
    for _ in range(2):
        sweep_after(world, seconds=3 * DELAY_SECONDS)


def sweep_after(world: World, *, seconds: float) -> None:
    world.clock.advance(seconds=int(seconds))
    world.age_objects(seconds=50)
    world.sweep(audit=True)
    world.queue = type(world.queue)(m for m in world.queue if m.queue != "exports")
    world.settle()


def test_a_running_export_keeps_the_shards_of_its_version(world: World, table: Table) -> None:
    tasks = begin(world, table)
    before = world.shard_objects(table)
    merge_and_collect(world, table)
    assert before < world.shard_objects(table)
    world.queue += tasks
    world.settle()
    assert exported(world) == "abcxyz"
    assert len(pins(world, table)) == 1
    for _ in range(2):
        sweep_after(world, seconds=3 * DELAY_SECONDS)
    assert not pins(world, table)
    assert world.shard_objects(table) == set(world.state(table).shards)
    assert not before & world.shard_objects(table)


def test_an_export_of_a_tag_that_is_released_goes_on(world: World, table: Table) -> None:
    version = world.state(table).version
    administer(world.services, TagVersion("t", table.name, version, "january"))
    merge_and_collect(world, table)
    tasks = world_export(world, table, "january")
    world.administer(UntagVersion("u", table.name, "january"))
    world.settle()
    sweep_after(world, seconds=3 * DELAY_SECONDS)
    world.queue += tasks
    world.settle()
    assert exported(world) == "abcxyz"


def world_export(world: World, table: Table, as_of: str) -> list[OutboundMessage]:
    world.export(table, to="out", as_of=as_of)
    tasks = list(world.queue)
    world.queue.clear()
    return tasks


def test_an_export_that_has_ended_holds_nothing_after_the_next_sweep(
    world: World, table: Table
) -> None:
    world.administer(ExportRows("e", table.name, "out"))
    world.sweep()
    assert len(pins(world, table)) == 1
    world.settle()
    assert exported(world, "out")
    world.sweep()
    assert not pins(world, table)


def test_a_request_that_died_leaves_its_pin_for_a_while(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requesting, "parts_of", crash)
    with pytest.raises(Crash):
        begin(world, table)
    monkeypatch.undo()
    sweep_after(world, seconds=REQUEST_MS / 1000 - 1)
    assert len(pins(world, table)) == 1
    sweep_after(world, seconds=2)
    assert not pins(world, table)


def crash(*_: object) -> None:
    raise Crash


def test_an_export_that_never_ends_gives_its_version_up(world: World, table: Table) -> None:
    """To the millisecond: up to then it holds it."""
    begin(world, table)
    (pin,) = pins(world, table)
    assert pin.expires_ms == world.clock.now_ms() + LONGEST_MS
    sweep_after(world, seconds=LONGEST_MS / 1000 - 1)
    assert pins(world, table) == [pin]
    sweep_after(world, seconds=1)
    assert not pins(world, table)


def test_two_deliveries_of_a_request_export_the_version_of_the_first(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts_of, versions = requesting.parts_of, []

    def second_is_quicker(storage: Storage, export: ExportRequest) -> Parts[TaskFiles]:
        monkeypatch.setattr(requesting, "parts_of", parts_of)
        world.drop("letters/late.parquet", letters("q"))
        world.settle()
        world.queue += begin(world, table)
        versions.append(export.read.selection.version)
        return parts_of(storage, export)

    monkeypatch.setattr(requesting, "parts_of", second_is_quicker)
    begin(world, table)
    world.settle()
    (pin,) = pins(world, table)
    assert [pin.version] == versions
    assert world.state(table).version > pin.version
    assert exported(world) == "abcxyz"


def test_a_version_that_may_be_collected_at_any_moment_is_not_exported(
    world: World, table: Table
) -> None:
    version = world.state(table).version
    world.administer(CompactTable("c", table.name, all=True))
    world.deliver_all_but("gc-candidates")
    world.clock.advance(seconds=DELAY_SECONDS - 59)
    with pytest.raises(NotFoundError, match="cannot be pinned any more"):
        world.export(table, to="out", as_of=version)
    assert not pins(world, table)


def test_an_export_of_no_rows_pins_nothing(world: World) -> None:
    empty = world.create()
    export = world.export(empty, to="out")
    assert not pins(world, empty)
    world.settle()
    assert record_of(world, empty, export).state == "finished"
