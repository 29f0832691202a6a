"""Deliveries of one request to create a table that sleep while others go on."""

from __future__ import annotations

from hashlib import blake2b

import pytest

from dormouse.errors import AlreadyExistsError
from dormouse.features.deletion import collect_leftovers
from dormouse.features.rebuild import rebuild
from dormouse.messages.requests import CreateTable, DeleteTable
from dormouse.stored.paths import blob_prefix, table_prefix
from tests.support.adapters import HookedStore
from tests.support.world import LETTERS, Crash, World, letters

REQUEST = CreateTable("create-letters", "letters", LETTERS.to_json())


def made_and_deleted(world: World) -> None:
    """Act as another delivery of the request, and then delete the table."""
    world.administer(REQUEST)
    world.administer(DeleteTable("delete", "letters"))
    world.delete_job_record(REQUEST.request_id)


def test_a_delivery_that_slept_until_its_table_was_deleted_leaves_none_without_a_state(
    world: World,
) -> None:
    world.after_next_commit(lambda: made_and_deleted(world))
    world.administer(REQUEST)
    assert world.tables.all() == []


def test_a_creator_that_slept_before_initialising_the_state_gets_the_same_answer(
    world: World,
) -> None:
    world.before_next_commit(lambda: made_and_deleted(world))
    world.administer(REQUEST)
    record = world.job_record(REQUEST.request_id)
    assert record is not None and record.state == "finished"
    assert world.tables.all() == []


def others_take_the_name(world: World) -> None:
    world.administer(CreateTable("create-others", "letters", LETTERS.to_json()))


def states(world: World) -> list[str]:
    """Return where there are states, or what is left of them."""
    open_logs = [t for t, log in world.pages.logs.items() if log.pages or not log.head.closed]
    return sorted({*world.storage.folders(), *open_logs})


def test_one_that_finds_its_name_taken_leaves_no_state_and_is_refused_for_good(
    world: World,
) -> None:
    world.after_next_commit(lambda: others_take_the_name(world))
    for _ in range(2):
        with pytest.raises(AlreadyExistsError, match="'letters'"):
            world.administer(REQUEST)
        world.delete_job_record(REQUEST.request_id)
    (others,) = world.tables.all()
    assert states(world) == [others.id]
    world.administer(DeleteTable("delete", "letters"))
    with pytest.raises(AlreadyExistsError) as refused:
        world.administer(REQUEST)
    assert "another request_id" in refused.value.explanation


def test_one_refused_that_died_before_its_state_was_gone_is_ended_by_an_audit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.after_next_commit(lambda: others_take_the_name(world))
    with monkeypatch.context() as patched, pytest.raises(Crash):
        patched.setattr(HookedStore, "destroy", lambda _: world.crash())
        world.administer(REQUEST)
    (others,) = world.tables.all()
    assert len(states(world)) == 2
    assert collect_leftovers(world.services) == []
    assert states(world) == [others.id]


def test_one_refused_at_once_leaves_nothing_even_of_a_delivery_that_died_before(
    world: World,
) -> None:
    world.after_next_commit(world.crash)
    with pytest.raises(Crash):
        world.administer(REQUEST)
    others_take_the_name(world)
    with pytest.raises(AlreadyExistsError):
        world.administer(REQUEST)
    (others,) = world.tables.all()
    assert states(world) == [others.id]


def test_one_refused_leaves_nothing_of_a_delivery_that_died_before_its_entry_was_in_the_log(
    world: World,
) -> None:
    table_id = blake2b(REQUEST.request_id.encode(), digest_size=8).hexdigest()
    world.storage.put(f"{blob_prefix(table_id, 'delta')}{'0' * 32}.delta", b"put, and not appended")
    others_take_the_name(world)
    with pytest.raises(AlreadyExistsError):
        world.administer(REQUEST)
    assert list(world.storage.list(table_prefix(table_id))) == []
    assert world.tables.tombstone(table_id) is not None  # for what may yet be put


def test_one_that_comes_weeks_after_another_died_makes_the_table_of_the_state_there_is(
    world: World,
) -> None:
    world.after_next_commit(world.crash)
    with pytest.raises(Crash):
        world.administer(REQUEST)
    world.clock.advance(seconds=20 * 24 * 3600)
    world.administer(REQUEST)
    (table,) = world.tables.all()
    assert len(world.services.store(table).current().partitions)


@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_duplicate_leaves_a_table_alone_that_is_being_rebuilt(
    world: World, rebuilt: bool
) -> None:
    table = world.create("letters")
    world.drop("letters/1.parquet", letters("ab"))
    world.settle()
    world.delete_job_record(REQUEST.request_id)
    if rebuilt:
        rebuild(world.services, table)
    else:
        world.services.store(table).terminate()
    world.administer(REQUEST)
    assert [kept.id for kept in world.tables.all()] == [table.id]
