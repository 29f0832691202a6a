"""A request that is redelivered after its table's name was given to another table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from msgspec import structs

from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.features.requests import request_key
from dormouse.messages.requests import (
    AdminRequest,
    AlterSchema,
    CreateTable,
    DeleteRows,
    DeleteTable,
    GrantAccess,
    IngestFiles,
    PurgeRows,
    ReinitialiseTable,
    RenameTable,
    Reply,
    RestoreVersion,
    SetDefaults,
    SetOnline,
    SetProperties,
    refusal,
)
from dormouse.messages.stages import SelectionMessage
from dormouse.tables.properties import SparkOptions
from dormouse.tables.table import RETAINED_REQUESTS, Table
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


SAME_ID: dict[str, tuple[AdminRequest, AdminRequest]] = {
    "create": (CreateTable("r", "birds", LETTERS.to_json()), CreateTable("r", "birds", {})),
    "defaults": (SetDefaults("r", {"compaction_files": 3}), SetDefaults("r", unset=("gc",))),
    "grant": (GrantAccess("r", "a", "*", ("read",)), GrantAccess("r", "b", "*", ("read",))),
    "set": (
        SetProperties("r", "letters", {"compaction_files": 3}),
        SetProperties("r", "letters", {"compaction_files": 4}),
    ),
    "delete rows": (
        DeleteRows("r", "letters", SelectionMessage(where="letter = 'a'")),
        DeleteRows("r", "letters", SelectionMessage(where="letter = 'b'")),
    ),
    "ingest": (IngestFiles("r", "letters", ("letters",)), IngestFiles("r", "letters", ("b",))),
}


@pytest.mark.parametrize("verb", SAME_ID)
def test_an_id_used_again_for_other_content_is_refused_and_says_so(world: World, verb: str) -> None:
    table = world.create("letters")
    world.drop("letters/1.parquet", letters("abc"))
    world.settle()
    first, other = SAME_ID[verb]
    world.administer(first)
    before = world.job_record("r"), world.tables.all(), world.tables.defaults(), world.state(table)
    with pytest.raises(InvalidRequestError, match="'r' belongs to another request"):
        world.administer(other)
    after = world.job_record("r"), world.tables.all(), world.tables.defaults(), world.state(table)
    assert after == before
    world.administer(structs.replace(first, reply=True))  # that a reply is wanted is no content
    (refused,) = refusal(structs.replace(other, reply=True), "")
    assert isinstance(refused.message, Reply)
    assert refused.message.id not in {reply.id for reply in world.replies}


@pytest.mark.parametrize("verb", ["create", "set"])
def test_a_request_that_was_refused_is_corrected_under_its_id(world: World, verb: str) -> None:
    world.create("letters")
    wrong: dict[str, AdminRequest] = {
        "create": CreateTable("r", "birds", {}),
        "set": SetProperties("r", "letters", {"compaction_files": "many"}),
    }
    right, other = SAME_ID[verb]
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match="(?!belongs)"):
            world.administer(wrong[verb])
    for _ in range(2):
        world.administer(right)
        states = {each.state for (_, job_id), each in world.tracker.kept.items() if job_id == "r"}
        assert states - {"refused"} == {"finished"}
        for late in (wrong[verb], other):
            with pytest.raises(InvalidRequestError, match="belongs to another request"):
                world.administer(late)


def test_members_of_an_object_have_no_order_in_the_content_of_a_request(world: World) -> None:
    table = world.create("letters")
    properties: dict[str, object] = {"compaction_files": 3, "keep": "all"}
    world.administer(SetProperties("r", "letters", properties))
    before = world.tables.get(table.id)
    world.administer(SetProperties("r", "letters", dict(reversed(properties.items()))))
    assert world.tables.get(table.id) == before


def test_what_a_request_says_is_no_other_once_a_later_release_has_more_fields() -> None:
    """A field that is added later is left out if it is empty, from what is known of a request."""
    rows = SelectionMessage(where="letter = 'a'")
    said = "selection=SelectionMessage(where=\"letter = 'a'\")"
    assert repr(PurgeRows("r", "t", rows, spark=SparkOptions())) == (
        f"PurgeRows(request_id='r', name='t', {said}, spark=SparkOptions())"
    )


@pytest.mark.parametrize("others", [1, RETAINED_REQUESTS, RETAINED_REQUESTS + 1])
@pytest.mark.parametrize("verb", ["empty", "restore"])
def test_a_redelivery_takes_away_no_row_that_came_since(
    world: World, verb: str, others: int
) -> None:
    table = world.create("letters")
    request: AdminRequest = ReinitialiseTable("late", "letters")
    world.drop("letters/1.parquet", letters("ab"))
    world.settle()
    if verb == "restore":
        request = RestoreVersion("late", "letters", world.state(table).version)
        world.drop("letters/2.parquet", letters("c"))
        world.settle()
    world.administer(request)
    world.delete_job_record("late")
    world.drop("letters/3.parquet", letters("xy"))
    world.settle()
    kept = world.names(now(world, table))
    for number in range(others):
        world.administer(SetProperties(f"{number}", "letters", {"compaction_files": 3 + number}))
    if others < RETAINED_REQUESTS:
        world.administer(request)
    else:
        with pytest.raises(InvalidRequestError, match="whether it was carried out is not known"):
            world.administer(request)
    world.settle()
    assert world.names(now(world, table)) == kept
    assert kept == {"empty": "xy", "restore": "abxy"}[verb]


def test_a_first_delivery_is_carried_out_however_many_requests_there_were(world: World) -> None:
    table = world.create("letters")
    world.drop("letters/1.parquet", letters("ab"))
    world.settle()
    for number in range(2 * RETAINED_REQUESTS):
        world.administer(SetProperties(f"{number}", "letters", {"compaction_files": 3 + number}))
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        world.administer(ReinitialiseTable("late", "letters"))
    world.administer(ReinitialiseTable("late", "letters"))
    assert world.names(now(world, table)) == ""
