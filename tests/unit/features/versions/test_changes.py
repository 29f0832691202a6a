"""Changes are the rows that ingests added since a version: once, and as they were ingested."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from dormouse.client.changes import WantedChanges, changes_of
from dormouse.errors import AlreadyExistsError, NotFoundError
from dormouse.features.versions import tag_version, tags_of
from dormouse.messages.requests import (
    CompactTable,
    DeleteRows,
    ReinitialiseTable,
    RestoreVersion,
    TagVersion,
)
from dormouse.messages.stages import SelectionMessage
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.world import Crash, World, letters
from tests.unit.features.versions.restoring import DELAY_SECONDS, ask, drop, lose_state, newest
from tests.unit.statestore.faults import small_pages


@pytest.fixture
@made_once
def table(world: World) -> Table:
    made = world.create(gc_delay_seconds=DELAY_SECONDS, compaction_files=100)
    drop(world, 1, "abc")
    return made


def changes(world: World, table: Table, since: int | str) -> tuple[str, int]:
    """Return the letters that came since, and up to which version."""
    found = changes_of(world.services, newest(world, table), since, WantedChanges())
    rows = found.reader.read_all().to_pylist()
    return "".join(sorted(row["letter"] for row in rows)), found.version


def test_rows_of_later_ingests_come_once_without_what_was_rewritten(
    world: World, table: Table
) -> None:
    since = world.state(table).version
    assert changes(world, table, since) == ("", since)
    drop(world, 2, "xyz")
    world.queue.clear()
    ask(world, CompactTable("merge", table.name, all=False))
    drop(world, 3, "mno")
    world.administer(CompactTable("all", table.name, all=True))
    (job,) = (message for message in world.queue if message.queue == "compaction-jobs")
    world.deliver(job)
    now = world.state(table)
    assert len([s for s, count in now.reference_counts.items() if count]) == 1
    assert changes(world, table, since) == ("mnoxyz", now.version)
    assert changes(world, table, now.version) == ("", now.version)
    assert changes(world, table, 0) == ("abcmnoxyz", now.version)


def test_they_are_selected_by_columns_condition_and_limit(world: World, table: Table) -> None:
    found = changes_of(world.services, table, 0, WantedChanges(["note"], "letter >= 'b'", 1))
    assert found.reader.read_all().to_pylist() == [{"note": "b2"}]


def test_rules_of_the_table_are_not_applied_again(world: World) -> None:
    made = world.create("sums", aggregations="last(note)", compaction_files=100)
    for number in (1, 2):
        world.drop(f"sums/{number}.parquet", letters("a", at=7))
        world.settle()
    assert len(world.rows(made)) == 1
    assert changes(world, made, 0)[0] == "aa"


def test_a_tag_and_a_version_that_cannot_be_read_any_more_can_begin(
    world: World, table: Table
) -> None:
    ask(world, TagVersion("t", table.name, world.state(table).version, "before"))
    drop(world, 2, "xyz")
    assert changes(world, table, "before")[0] == "xyz"
    with pytest.raises(NotFoundError, match="there is no version 1000"):
        changes(world, table, 1000)


def test_a_tag_that_moves_keeps_the_place_whenever_its_process_dies(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = world.state(table).version
    ask(world, TagVersion("t", table.name, first, "fed"))
    drop(world, 2, "xyz")
    second = world.state(table).version
    with pytest.raises(AlreadyExistsError, match=f"already, of version {first}"):
        tag_version(world.services, table, TagVersion("u", table.name, second, "fed"))
    request = TagVersion("v", table.name, second, "fed", moves=True)
    pins = world.services.store(table).pins
    add, remove = type(pins).add, type(pins).remove
    calls = 0

    def dies_before(number: int) -> None:
        def counted(change: Callable[..., object]) -> Callable[..., object]:
            def call(*given: object, **named: object) -> object:
                nonlocal calls
                calls += 1
                if calls == number:
                    raise Crash
                return change(*given, **named)

            return call

        monkeypatch.setattr(type(pins), "add", counted(add))
        monkeypatch.setattr(type(pins), "remove", counted(remove))

    for number in range(1, 6):
        calls = 0
        dies_before(number)
        with suppress(Crash):
            tag_version(world.services, table, request)
        held = {pin.version for pin in tags_of(world.services, table)}
        assert held in ({first}, {first, second}, {second}), number
        monkeypatch.undo()
        tag_version(world.services, table, request)
        assert [(p.owner.name, p.version) for p in tags_of(world.services, table)] == [
            ("fed", second)
        ]
        tag_version(world.services, table, TagVersion("w", table.name, first, "fed", moves=True))
    assert calls == 4


def test_past_what_is_kept_they_are_refused(world: World, table: Table) -> None:
    """The log is still there, but the shard was merged and collected."""
    since = world.state(table).version
    drop(world, 2, "xyz")
    ask(world, CompactTable("all", table.name, all=True))
    with pytest.raises(NotFoundError, match="not kept any more: shard .* is deleted") as error:
        changes(world, table, since)
    assert "gc_delay_seconds" in (error.value.hint or "")


def test_of_a_log_that_was_collected_they_are_refused(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = world.services.store(table)
    kept = store.history()[-1]
    monkeypatch.setattr(type(store), "history", lambda _: [kept])
    with pytest.raises(NotFoundError, match=f"the log is kept from version {kept.version} on"):
        changes(world, table, kept.version - 1)


def test_over_a_reset_or_restore_they_are_refused_and_go_on_after_it(
    world: World, table: Table
) -> None:
    before = world.state(table).version
    ask(world, TagVersion("t", table.name, before, "before"))
    drop(world, 2, "xyz")
    ask(world, RestoreVersion("r", table.name, "before"))
    with pytest.raises(NotFoundError, match="reset or restored at version"):
        changes(world, table, before)
    after = world.state(table).version
    drop(world, 3, "mno")
    assert changes(world, table, after)[0] == "mno"
    ask(world, ReinitialiseTable("empty", table.name))
    with pytest.raises(NotFoundError, match="reset or restored at version"):
        changes(world, table, after)


@small_pages(2)
def test_over_a_rebuild_they_are_refused(world: World, table: Table) -> None:
    before = world.state(table).version
    rebuilt = lose_state(world, table)
    last = world.state(rebuilt).version
    for number in range(before):  # the new log gets as long as the old one
        drop(world, 2 + number, "xyz")
    assert world.state(rebuilt).version >= last + before
    for since in (0, 1, before, last - 1):
        with pytest.raises(NotFoundError, match=f"is kept from version {last} on"):
            changes(world, rebuilt, since)
    assert set(changes(world, rebuilt, last)[0]) == set("xyz")


def test_changes_lack_what_was_deleted_since_and_have_what_came_after(
    world: World, table: Table
) -> None:
    since = world.state(table).version
    drop(world, 2, "xyz")
    ask(world, DeleteRows("d", table.name, SelectionMessage(where="letter IN ('x', 'a')")))
    drop(world, 3, "xq")
    assert changes(world, table, since)[0] == "qxyz"
    world.administer(CompactTable("c", table.name, all=True))
    world.deliver_all_but("gc-candidates")
    assert not world.state(table).deletions
    assert changes(world, table, since)[0] == "qxyz"
