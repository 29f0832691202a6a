"""A reset that crashed halfway is completed as its request wanted it."""

from __future__ import annotations

import pytest

from dormouse.errors import CorruptDataError
from dormouse.messages.requests import ReinitialiseTable, RenameTable
from dormouse.messages.stages import OutboundMessage, PartitionSplits, TableChanged
from dormouse.stored.paths import TREES
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.world import Crash, World, letters, letters_file

SPLIT = ReinitialiseTable("split", "letters", False, (("f",), ("t",)))
KEEP = ReinitialiseTable("keep", "letters")


@pytest.fixture
@made_once
def table(world: World) -> Table:
    """A table of two leaves with rows."""
    table = world.create("letters", splits=(("m",),))
    world.drop("letters/1.parquet", letters("abz"))
    world.settle()
    return table


def now(world: World, table: Table) -> Table:
    found = world.tables.get(table.id)
    assert found is not None
    return found


def dies(world: World, request: ReinitialiseTable) -> None:
    """Let the process of a request die when the registry has counted, and the state has not."""
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        world.administer(request)


def leaves_from(world: World, table: Table) -> list[tuple[object, ...]]:
    return [leaf.range.min for leaf in world.state(now(world, table)).partitions.leaves()]


def trees(world: World, table: Table) -> list[str]:
    return [stored.path for stored in world.storage.list(TREES.prefix(table.id))]


def test_the_split_points_of_a_request_that_died_hold_though_a_sweep_did_the_rest(
    world: World, table: Table
) -> None:
    dies(world, SPLIT)
    world.clock.advance(seconds=7 * 60 * 60)
    world.sweep()
    world.settle()
    world.administer(SPLIT)  # its dead letter is sent back
    assert world.names(table) == ""
    assert leaves_from(world, table) == [(), ("f",), ("t",)]
    assert now(world, table).generation == world.state(table).generation == 1


def test_one_sent_back_after_its_table_was_filled_again_leaves_the_rows(
    world: World, table: Table
) -> None:
    dies(world, SPLIT)
    world.sweep()
    world.settle()
    world.drop("letters/2.parquet", letters("gh"))
    world.settle()
    world.administer(SPLIT)
    assert world.names(table) == "gh"


def test_the_partitions_that_stay_are_those_of_a_reset_that_crashed(
    world: World, table: Table
) -> None:
    dies(world, SPLIT)
    world.administer(KEEP)
    assert leaves_from(world, table) == [(), ("f",), ("t",)]
    assert now(world, table).generation == world.state(table).generation == 2


def test_an_audit_leaves_files_alone_that_were_dropped_before(world: World, table: Table) -> None:
    world.sources.drop("letters/2.parquet", letters_file(letters("c")))  # without a notification
    world.clock.advance(seconds=1)
    world.administer(KEEP)
    world.sweep(audit=True)
    world.settle()
    assert world.names(now(world, table)) == ""


def test_of_two_with_split_points_the_later_one_holds(world: World, table: Table) -> None:
    dies(world, SPLIT)
    world.administer(ReinitialiseTable("later", "letters", False, (("k",),)))
    world.administer(SPLIT)
    assert leaves_from(world, table) == [(), ("k",)]


def test_split_points_of_an_earlier_reset_are_not_used_by_the_next(
    world: World, table: Table
) -> None:
    world.administer(SPLIT)
    (leaf, *_) = world.state(table).partitions.leaves()
    world.drop("letters/2.parquet", letters("abcde"))
    world.settle()
    world.queue.append(split_message(world, table, leaf.id))
    world.settle()
    dies(world, KEEP)
    world.sweep()
    world.settle()
    assert len(leaves_from(world, table)) == 4


def split_message(world: World, table: Table, leaf: str) -> OutboundMessage:
    generation = world.state(table).generation
    return OutboundMessage("partition-splits", PartitionSplits(table.id, generation, (leaf,), True))


def test_a_table_renamed_during_a_reset_takes_files_after_its_next_change(
    world: World, table: Table
) -> None:
    dies(world, KEEP)
    world.administer(RenameTable("rename", "letters", "others"))
    assert world.names(now(world, table)) == "abz"
    world.queue.append(OutboundMessage("table-changes", TableChanged(table.id)))
    world.settle()
    assert world.names(now(world, table)) == ""
    world.drop("others/2.parquet", letters("d"))
    world.settle()
    assert world.names(now(world, table)) == "d"


def test_an_audit_deletes_split_points_when_they_are_old_and_nobody_is_to_begin_with_them(
    world: World, table: Table
) -> None:
    old = table.properties.orphan_age_seconds + 60
    dies(world, SPLIT)
    (awaited,) = trees(world, table)
    world.age_objects(seconds=old)
    world.sweep(audit=True)
    assert trees(world, table) == [awaited]
    world.settle()
    assert leaves_from(world, table) == [(), ("f",), ("t",)]
    world.administer(ReinitialiseTable("young", "letters", True))
    world.sweep(audit=True)
    assert len(trees(world, table)) == 1
    assert awaited not in trees(world, table)


def test_a_table_whose_split_points_are_lost_can_be_reset_with_other_split_points(
    world: World, table: Table
) -> None:
    dies(world, SPLIT)
    world.storage.delete(trees(world, table))
    with pytest.raises(CorruptDataError, match=r"generation 1 .* gone") as raised:
        world.administer(KEEP)
    assert "reset the table again" in raised.value.hint
    world.administer(ReinitialiseTable("later", "letters", False, (("k",),)))
    assert leaves_from(world, table) == [(), ("k",)]


def test_split_points_that_were_deleted_when_they_were_not_needed_any_more_are_not_missed(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies(world, SPLIT)
    behind, get = now(world, table), world.storage.get

    def late(path: str) -> bytes:
        if path in trees(world, table):
            monkeypatch.setattr(world.storage, "get", get)
            world.administer(SPLIT)
            world.storage.delete([path])
        return get(path)

    monkeypatch.setattr(world.storage, "get", late)
    world.deliver(OutboundMessage("table-changes", TableChanged(behind.id, swept=True)))
    assert leaves_from(world, table) == [(), ("f",), ("t",)]
    assert world.state(table).generation == 1
