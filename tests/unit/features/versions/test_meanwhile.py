"""What goes on beside restores and tags: collections, purges, audits, resets, a second restore."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator

import pytest

from dormouse.client.changes import WantedChanges, changes_of
from dormouse.errors import ContendedError, CorruptDataError, NotFoundError
from dormouse.features import garbage as collecting
from dormouse.features import seal_sources as sealing
from dormouse.features import versions as restoring
from dormouse.features.administration import administer
from dormouse.features.reset import restorer
from dormouse.features.versions import read_as_of, tags_of
from dormouse.log.engine import StateStore
from dormouse.messages.requests import (
    CompactTable,
    ReinitialiseTable,
    RestoreVersion,
    SplitPartitions,
    UntagVersion,
)
from dormouse.messages.stages import GarbageCandidates
from dormouse.schema.schema import Field
from dormouse.schema.types import Primitive
from dormouse.state.state import TableState
from dormouse.stored.paths import RESTORED, SOURCES
from dormouse.tables.table import Table
from tests.support.world import BY_TIME, Crash, World
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


def restores_and_untags(world: World, table: Table) -> None:
    """Restore the tagged version, and remove the tag: nothing but the state holds its shards."""
    administer(world.services, RestoreVersion("r", table.name, "before"))
    administer(world.services, UntagVersion("u", table.name, "before"))


@pytest.mark.parametrize("then_merged", [False, True])
def test_a_collection_that_began_before_a_restore_deletes_no_shard_of_it(
    world: World, table: Table, then_merged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shards were due when it chose them; before it reads the pins, the table is restored.

    If they were merged then once more, queries may read the version before for a while.
    """
    age_without_collection(world)
    due = sorted(world.state(table).unreferenced)
    assert due
    read_pins = collecting.unpinned

    def meanwhile(store: StateStore, state: TableState, shards: Iterable[str]) -> list[str]:
        restores_and_untags(world, table)
        if then_merged:
            merge(world, table)
        return read_pins(store, state, shards)

    monkeypatch.setattr(collecting, "unpinned", meanwhile)
    restored_version = world.state(table).version + 1
    collecting.collect_garbage(world.services, GarbageCandidates(table.id, 0, tuple(due)))
    monkeypatch.undo()
    assert set(due) <= world.shard_objects(table)
    assert_sound(world, table, "abcxyz")
    _, state = read_as_of(world.services, newest(world, table), restored_version)
    assert len(world.rows(newest(world, table), state=state)) == 6


def merge(world: World, table: Table) -> None:
    """Merge all shards into one, without what follows from it."""
    world.administer(CompactTable("again", table.name, all=True))
    (job,) = (message for message in world.queue if message.queue == "compaction-jobs")
    world.deliver(job)
    world.queue.clear()


def age_without_collection(world: World) -> None:
    world.queue.clear()
    world.clock.advance(seconds=2 * DELAY_SECONDS)


def test_an_audit_that_began_before_a_restore_deletes_no_segment_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment was merged while the restore was under way, which then names it again."""
    made = world.create(gc_delay_seconds=DELAY_SECONDS, compaction_files=100, orphan_age_seconds=60)
    for number in range(9):
        drop(world, number, "abcdefghi"[number])
        world.seal(made)
    version = world.state(made).version
    drop(world, 9, "x")
    world.before_next_commit(world.crash)
    request = RestoreVersion("r", made.name, version)
    with pytest.raises(Crash):
        administer(world.services, request)
    world.seal(made)
    assert len(world.state(made).source_segments) == 1
    world.clock.advance(seconds=3600)
    world.age_objects(seconds=3000)
    states_to_keep = sealing._states_to_keep

    def meanwhile(store: StateStore) -> Iterator[TableState]:
        states = states_to_keep(store)
        yield next(states)
        administer(world.services, request)
        yield from states

    monkeypatch.setattr(sealing, "_states_to_keep", meanwhile)
    spent = sealing.obsolete_segments(world.services, made, world.clock.now_ms() - 60_000)
    named = world.state(newest(world, made)).source_segments
    assert len(named) == 9
    assert not [path for path in spent if SOURCES.name_of(path) in {s.id for s in named}]


@pytest.mark.parametrize("as_of", [0, "0", "1999-01-01T00:00:00Z"])
def test_before_the_table_began_there_is_nothing_to_restore(
    world: World, table: Table, as_of: int | str
) -> None:
    with pytest.raises(NotFoundError, match="its first is version 1, of"):
        restore(world, table, as_of)
    assert newest(world, table).generation == 0
    drop(world, 7, "q")
    assert_sound(world, table, "abcmnoqxyz")


def test_a_table_that_begins_while_its_restore_is_registered_is_not_emptied(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "read_as_of", lambda *_: (table, TableState()))
    with pytest.raises(NotFoundError, match="had not begun"):
        restore(world, table, "before")
    assert_sound(world, table, "abcmnoxyz")


def test_of_two_restores_at_once_one_is_done_and_then_the_other(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_restored = restoring.put_restored

    def meanwhile(*args: object) -> None:
        monkeypatch.undo()
        administer(world.services, RestoreVersion("first", table.name, "before"))
        put_restored(*args)  # type: ignore[arg-type]

    drop(world, 4, "k")
    version = world.state(table).version
    drop(world, 5, "q")
    world.clock.advance(seconds=5)
    monkeypatch.setattr(restoring, "put_restored", meanwhile)
    second = RestoreVersion("second", table.name, version)
    with pytest.raises(ContendedError, match="reset meanwhile"):
        administer(world.services, second)
    assert restore_pins(world, table) == 0
    assert_sound(world, table, "abcxyz")
    ask(world, second)
    assert newest(world, table).generation == 2
    assert_sound(world, table, "abckmnoxyz")
    age(world)
    assert restore_pins(world, table) == 0
    assert_sound(world, table, "abckmnoxyz")


def test_a_restore_whose_pin_was_swept_away_pins_its_version_again(
    world: World, table: Table
) -> None:
    """As of a process that slept for days between its pin and the registry."""
    world.before_next_commit(world.crash)
    request = RestoreVersion("r", table.name, "before")
    with pytest.raises(Crash):
        administer(world.services, request)
    owner = restorer(newest(world, table).restored)
    assert world.services.store(table).pins.remove(owner)
    ask(world, request)
    assert restore_pins(world, table) == 0
    assert_sound(world, table, "abcxyz")


def test_a_restore_of_which_a_shard_was_deleted_says_that_the_state_is_lost(
    world: World, table: Table
) -> None:
    world.before_next_commit(world.crash)
    request = RestoreVersion("r", table.name, "before")
    with pytest.raises(Crash):
        administer(world.services, request)
    world.services.store(table).pins.remove(restorer(newest(world, table).restored))
    administer(world.services, UntagVersion("u", table.name, "before"))
    world.clock.advance(seconds=2 * DELAY_SECONDS)
    with pytest.raises(CorruptDataError, match="not pinned any more") as error:
        administer(world.services, request)
    assert "rebuild" in str(error.value.hint)


def test_each_attempt_at_a_restore_has_a_record_of_its_own(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep may just delete what an earlier attempt left behind."""
    monkeypatch.setattr(world.tables, "change", crash)
    request = RestoreVersion("r", table.name, "before")
    with pytest.raises(Crash):
        administer(world.services, request)
    monkeypatch.undo()
    (left,) = world.storage.list(RESTORED.prefix(table.id))
    ask(world, request)
    assert newest(world, table).restored not in left.path
    assert restore_pins(world, table) == 0


def crash(*_: object, **__: object) -> None:
    raise Crash


def test_a_split_that_was_under_way_is_refused_and_done_again(world: World) -> None:
    made = world.create(
        gc_delay_seconds=DELAY_SECONDS, compaction_files=100, split_threshold_rows=4
    )
    world.set_online(made, False)
    drop(world, 1, "abc")
    version = world.state(made).version
    drop(world, 2, "mnopq")
    world.administer(SplitPartitions("s", made.name, forced=True))
    splits = [message for message in world.queue if message.queue == "partition-splits"]
    assert splits
    world.queue.clear()
    restore(world, made, version)
    world.queue += splits
    world.settle()
    assert_sound(world, made, "abc")
    assert len(world.state(newest(world, made)).partitions) == 1
    world.set_online(newest(world, made), True)
    drop(world, 2, "mnopq")
    drop(world, 3, "stuv")
    ask(world, SplitPartitions("again", made.name, forced=True))
    assert_sound(world, made, "abcmnopqstuv")


def test_columns_are_those_of_now_also_in_rows_of_a_restored_version(world: World) -> None:
    """A column that was dropped and came back under its name is another column."""
    made = world.create(gc_delay_seconds=DELAY_SECONDS, compaction_files=100)
    drop(world, 1, "ab")
    version = world.state(made).version
    drop(world, 2, "x")
    world.alter(made, add=[Field("extra", Primitive.LONG, nullable=True)])
    world.alter(made, drop=["note"])
    world.alter(made, rename={"extra": "note"})
    table = restore(world, made, version)
    rows = [(row["letter"], row["note"]) for row in world.rows(table)]
    assert rows == [("a", None), ("b", None)]


def test_a_released_tag_does_not_take_the_restored_rows_with_it(world: World, table: Table) -> None:
    restores_and_untags(world, table)
    age(world)
    assert_sound(world, table, "abcxyz")
    assert not tags_of(world.services, table)


def test_a_tag_can_be_released_while_its_version_is_being_restored(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    age_without_collection(world)
    put_restored = restoring.put_restored

    def meanwhile(*args: object) -> None:
        administer(world.services, UntagVersion("u", table.name, "before"))
        world.sweep(audit=True)
        world.settle()
        put_restored(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(restoring, "put_restored", meanwhile)
    restore(world, table)
    assert_sound(world, table, "abcxyz")


def test_restored_files_come_once_however_often_they_are_told_of(
    world: World, table: Table
) -> None:
    """At once after the restore: what was written of the file before is still there, as garbage."""
    restore(world, table)
    for number, letters in ((3, "mno"), (1, "abc"), (3, "mno"), (2, "xyz")):
        drop(world, number, letters)
    assert_sound(world, table, "abcmnoxyz")
    age(world)
    assert_sound(world, table, "abcmnoxyz")


def test_a_merge_that_was_undone_can_be_made_again_at_once(world: World, table: Table) -> None:
    restore(world, table)
    ask(world, CompactTable("again", table.name, all=True))
    assert_sound(world, table, "abcxyz")
    age(world)
    assert_sound(world, table, "abcxyz")


def test_of_versions_at_one_time_the_last_is_read(world: World) -> None:
    """A clock that goes back makes ties, too: the time of a table never does."""
    made = world.create(gc_delay_seconds=DELAY_SECONDS, compaction_files=100)
    drop(world, 1, "a")
    world.clock.advance(seconds=60)
    drop(world, 2, "b")
    at = dt.datetime.fromtimestamp(world.clock.now_ms() / 1000, dt.UTC)
    world.clock.advance(seconds=-50)
    drop(world, 3, "c")
    _, state = read_as_of(world.services, made, at)
    assert world.names(made) == "abc"
    assert state.version == world.state(made).version
    _, before = read_as_of(world.services, made, at - dt.timedelta(milliseconds=1))
    assert before.rows == 1
    found = changes_of(world.services, made, at - dt.timedelta(milliseconds=1), WantedChanges())
    assert sorted(row["letter"] for row in found.reader.read_all().to_pylist()) == ["b", "c"]


def test_while_a_table_gets_another_schema_its_changes_are_refused(world: World) -> None:
    made = world.create(gc_delay_seconds=DELAY_SECONDS, compaction_files=100)
    drop(world, 1, "abc")
    world.before_next_commit(world.crash)
    request = ReinitialiseTable("e", made.name, schema=BY_TIME.to_json(), delete_partitions=True)
    with pytest.raises(Crash):
        administer(world.services, request)
    with pytest.raises(NotFoundError, match="is being reset and gets another schema"):
        changes_of(world.services, newest(world, made), 0, WantedChanges())
