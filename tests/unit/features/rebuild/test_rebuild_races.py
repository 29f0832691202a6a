"""A rebuild loses nothing that others commit meanwhile, and believes nothing it has not read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dormouse.errors import CorruptDataError, InvariantError, NotFoundError, OutcomeUnknownError
from dormouse.features import rebuild as rebuild_stage
from dormouse.features.rebuild import preview_rebuild, rebuild
from dormouse.log.engine import StateStore
from dormouse.log.pages import first_version
from dormouse.messages.stages import OutboundMessage
from dormouse.ports import StoredObject
from dormouse.state.state import TableState
from dormouse.stored.paths import RUN_MARKERS, data_prefix
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.world import World, letters


@pytest.fixture
@made_once
def table(world: World) -> Table:
    made = world.create()
    world.drop("letters/0.parquet", letters("abc"))
    world.settle()
    return made


def registered(world: World, table: Table) -> Table:
    found = world.tables.get(table.id)
    assert found is not None
    return found


def test_a_commit_after_the_shards_were_listed_is_refused_and_comes_again(
    world: World, table: Table
) -> None:
    world.drop("letters/1.parquet", letters("xyz", at=10))
    (job,) = world.queue
    refused: list[OutboundMessage] = []

    def lands() -> None:
        with pytest.raises(NotFoundError, match="destroyed"):
            world.deliver(job)
        refused.append(job)

    world.before_next_commit(lands)
    rebuild(world.services, table)
    world.queue.extend(refused)
    world.settle()
    assert world.names(registered(world, table)) == "abcxyz"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_rebuild_goes_on_though_the_write_that_begins_its_log_is_not_answered(
    world: World, table: Table, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[str] = []

    def lose(operation: str) -> None:
        if operation == "begin" and not lost:
            lost.append(operation)
            raise OutcomeUnknownError("no answer")

    monkeypatch.setattr(world.pages, moment, lose)
    rebuild(world.services, table)
    assert lost
    assert world.names(registered(world, table)) == "abc"


def test_a_new_state_that_is_not_stored_as_it_was_committed_is_not_registered(
    world: World, table: Table
) -> None:
    gone: list[str] = []

    def loses() -> None:
        found = (stored.path for stored in world.storage.list(f"{table.id}/"))
        gone.extend(path for path in found if "/snapshots/" in path)
        world.storage.delete(gone)

    world.after_next_commit(loses)
    with pytest.raises(CorruptDataError):
        rebuild(world.services, table)
    assert gone
    assert registered(world, table).log == table.log


def test_a_new_state_that_is_another_than_it_was_to_be_is_not_registered(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = StateStore.begin
    other = TableState(version=first_version(0))
    monkeypatch.setattr(StateStore, "begin", lambda store, _: begin(store, other))
    with pytest.raises(InvariantError, match="has other partitions"):
        rebuild(world.services, table)
    assert registered(world, table).log == table.log


def test_what_is_collected_with_its_notes_while_footers_are_read_does_not_come_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create()
    world.drop("letters/0.parquet", letters("zz"))
    world.settle()
    world.purge(table, "", "z")
    while world.queue and world.queue[0].queue != "gc-candidates":
        world.queue += world.deliver(world.queue.popleft())
    assert world.shard_objects(table), "what was purged waits for its collection"
    whole = rebuild_stage._read

    def meanwhile(*args: Any) -> object:
        found = whole(*args)
        stored = [*world.storage.list(data_prefix(table.id)), *notes_of(world, table)]
        world.storage.delete([each.path for each in stored])
        return found

    monkeypatch.setattr(rebuild_stage, "_read", meanwhile)
    assert not preview_rebuild(world.services, table).state.rows


def notes_of(world: World, table: Table) -> Iterator[StoredObject]:
    return world.storage.list(RUN_MARKERS.prefix(table.id))
