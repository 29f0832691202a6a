"""A request that is redelivered after its table's name was given to another table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.features.requests import request_key
from dormouse.messages.requests import (
    AdminRequest,
    AlterSchema,
    CreateTable,
    DeleteTable,
    IngestFiles,
    PurgeRows,
    ReinitialiseTable,
    RenameTable,
    SetOnline,
    SetProperties,
)
from dormouse.messages.stages import SelectionMessage
from dormouse.tables.table import Table
from tests.support.world import LETTERS, Crash, World, letters, letters_file


def now(world: World, table: Table) -> Table:
    found = world.tables.get(table.id)
    assert found is not None
    return found


ABOUT_A_TABLE: dict[str, Callable[[str], AdminRequest]] = {
    "alter": lambda name: AlterSchema("late", name, drop=("note",)),
    "delete": lambda name: DeleteTable("late", name),
    "empty": lambda name: ReinitialiseTable("late", name),
    "ingest": lambda name: IngestFiles("late", name, ("archive",)),
    "purge": lambda name: PurgeRows("late", name, SelectionMessage(where="letter = 'x'")),
    "rename": lambda name: RenameTable("late", name, "words"),
    "set": lambda name: SetProperties("late", name, {"compaction_files": 3}),
    "offline": lambda name: SetOnline("late", name, False),
}


def another_of_its_name(world: World) -> Table:
    """Return a table called letters that has rows, where there was another or none."""
    world.administer(CreateTable("another", "letters", LETTERS.to_json()))
    table = world.tables.named("letters")
    assert table is not None
    world.drop("letters/2.parquet", letters("xy"))
    world.settle()
    return now(world, table)


@pytest.mark.parametrize("verb", ABOUT_A_TABLE)
@pytest.mark.parametrize("leaving", ["deleted", "renamed"])
def test_a_redelivery_leaves_another_table_of_the_same_name_alone(
    world: World, verb: str, leaving: str
) -> None:
    first = world.create("letters")
    world.sources.drop("archive/1.parquet", letters_file(letters("q")))
    request = ABOUT_A_TABLE[verb]("letters")
    world.administer(request)
    world.settle()
    world.delete_job_record("late")
    kept = world.tables.get(first.id)
    if kept is not None and leaving == "deleted":
        world.administer(DeleteTable("gone", kept.name))
    elif kept is not None and kept.name == "letters":
        world.administer(RenameTable("away", "letters", "others"))
    other = another_of_its_name(world)
    with suppress(NotFoundError):
        world.administer(request)
    world.settle()
    assert now(world, other) == other
    assert world.names(other) == "xy"


def test_a_redelivery_of_a_finished_deletion_is_finished(world: World) -> None:
    world.create("letters")
    world.administer(DeleteTable("late", "letters"))
    world.delete_job_record("late")
    world.administer(DeleteTable("late", "letters"))
    record = world.job_record("late")
    assert record is not None and record.state == "finished"


def test_a_request_refused_without_a_table_stays_refused_when_redelivered(world: World) -> None:
    for _ in range(2):
        with pytest.raises(NotFoundError, match="no table (was named )?'letters'"):
            world.administer(DeleteTable("late", "letters"))
        other = world.tables.named("letters") or another_of_its_name(world)
    assert world.names(now(world, other)) == "xy"


def test_a_request_that_crashed_is_finished_although_its_table_was_renamed(world: World) -> None:
    table = world.create("letters")
    world.drop("letters/1.parquet", letters("ab"))
    world.settle()
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        world.administer(ReinitialiseTable("late", "letters"))
    world.administer(RenameTable("away", "letters", "others"))
    other = another_of_its_name(world)
    world.administer(ReinitialiseTable("late", "letters"))
    assert world.names(now(world, table)) == ""
    assert world.names(other) == "xy"


def test_a_late_renaming_does_not_undo_a_newer_one(world: World) -> None:
    table = world.create("letters")
    world.tracker.bind(request_key(RenameTable("late", "letters", "words")), table.id, 0)
    world.administer(RenameTable("away", "letters", "others"))
    with pytest.raises(NotFoundError, match="called 'others' by now"):
        world.administer(RenameTable("late", "letters", "words"))
    assert now(world, table).name == "others"


def test_an_id_used_again_for_another_name_is_about_that_name(world: World) -> None:
    world.create("letters")
    words = world.create("words")
    with pytest.raises(InvalidRequestError):
        world.administer(SetProperties("same", "letters", {"nothing": 1}))
    world.administer(DeleteTable("same", "words"))
    assert world.tables.get(words.id) is None
    assert world.tables.named("letters") is not None
