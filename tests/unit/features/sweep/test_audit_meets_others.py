"""An audit deletes nothing that others put, commit or speak of while it is under way."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from dormouse.features import sweep
from dormouse.keys import KeyRange
from dormouse.ports import StoredObject
from dormouse.shards.run_markers import RunMarker, put_run_marker
from dormouse.state.versions import Lineage, Provenance
from dormouse.stored.paths import (
    RUN_MARKERS,
    SOURCES,
    TREES,
    export_task_path,
    run_of_shard,
    shard_path,
)
from dormouse.tables.table import Table
from tests.support.world import World, letters

WEEK_SECONDS = 7 * 24 * 3600


def meanwhile(world: World, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Audit, and have others work when its first look at the state is done."""

    def missed(*_: object) -> list[object]:
        work()
        return []

    monkeypatch.setattr(sweep, "missed_files", missed)
    world.sweep(audit=True)


def emptied(world: World, table: Table) -> None:
    """Ingest a file, and purge it of all its rows: a note of that is all that is left."""
    world.drop("letters/0.parquet", letters("zz"))
    world.settle()
    world.purge(table, "", "z")
    while world.queue and world.queue[0].queue != "gc-candidates":
        world.queue += world.deliver(world.queue.popleft())


def notes(world: World, table: Table) -> list[str]:
    return [stored.path for stored in world.storage.list(RUN_MARKERS.prefix(table.id))]


def test_a_note_put_after_the_first_look_at_the_state_is_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create()

    def work() -> None:
        emptied(world, table)
        world.age_objects(seconds=2 * WEEK_SECONDS)  # by a clock that is far apart

    meanwhile(world, monkeypatch, work)
    assert notes(world, table)


def test_a_run_marker_is_kept_twice_as_long_as_shards_that_it_does_not_list(world: World) -> None:
    table = world.create()
    provenance = Provenance(KeyRange(), "job", 1, 2, lineage=Lineage(sources=("source",)))
    put_run_marker(world.storage, table.id, RunMarker("0123-import", provenance))
    world.age_objects(seconds=2 * WEEK_SECONDS - 3600)
    world.sweep(audit=True)
    assert notes(world, table) == [RUN_MARKERS.path(table.id, "0123-import")]
    world.age_objects(seconds=2 * WEEK_SECONDS + 7200)
    world.sweep(audit=True)
    assert notes(world, table) == []


def test_a_shard_that_is_committed_after_the_first_look_is_no_orphan_however_old(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create()

    def work() -> None:
        world.drop("letters/0.parquet", letters("ab"))
        world.settle()
        world.age_objects(seconds=2 * WEEK_SECONDS)

    meanwhile(world, monkeypatch, work)
    assert world.names(table) == "ab"


@pytest.mark.parametrize("path", [SOURCES.path, TREES.path])
def test_what_is_put_before_it_is_named_is_kept_till_nobody_can_be_about_to_name_it(
    world: World, path: Callable[[str, str], str]
) -> None:
    table = world.create()
    put = path(table.id, "0123")
    world.storage.put(put, b"put, and not yet named")
    world.age_objects(seconds=WEEK_SECONDS - 3600)
    world.sweep(audit=True)
    assert world.storage.get(put)
    world.age_objects(seconds=WEEK_SECONDS + 3600)
    world.sweep(audit=True)
    assert put not in {stored.path for stored in world.storage.list(table.id)}


def test_the_tasks_of_an_export_are_kept_while_the_export_itself_may_still_be_put(
    world: World,
) -> None:
    table = world.create()
    put = export_task_path(table.id, "0123", "cut", 0)
    world.storage.put(put, b"put, and the export not yet")
    patience_seconds = table.properties.job_retry_seconds
    world.age_objects(seconds=patience_seconds - 60)
    world.sweep()
    assert world.storage.get(put)
    world.age_objects(seconds=patience_seconds + 60)
    world.sweep()
    assert put not in {stored.path for stored in world.storage.list(table.id)}


def test_a_segment_that_is_committed_while_an_audit_lists_is_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, whole = world.create(), world.storage.list
    world.drop("letters/0.parquet", letters("ab"))
    world.settle()
    world.storage.put(SOURCES.path(table.id, world.ids.new()), b"of a planner that died")
    hooks: list[Callable[[], None]] = []

    def seals() -> None:
        world.seal(table)
        world.age_objects(seconds=2 * WEEK_SECONDS)  # by a clock that is far apart

    def listing(prefix: str) -> Iterator[StoredObject]:
        if prefix == SOURCES.prefix(table.id) and hooks:
            hooks.pop()()
        return whole(prefix)

    hooks.append(seals)
    monkeypatch.setattr(world.storage, "list", listing)
    world.sweep(audit=True)
    assert not hooks
    (segment,) = world.state(table).source_segments
    assert world.storage.get(SOURCES.path(table.id, segment.id))


def test_an_orphan_goes_with_its_note(world: World) -> None:
    table = world.create()
    shard = f"{world.ids.new()}-0"
    world.storage.put(shard_path(table.id, shard), b"of a run that died")
    provenance = Provenance(KeyRange(), "job", 1, 1, lineage=Lineage(sources=("source",)))
    put_run_marker(world.storage, table.id, RunMarker(run_of_shard(shard)[0], provenance))
    world.age_objects(seconds=2 * WEEK_SECONDS)
    world.sweep(audit=True)
    assert notes(world, table) == []
    assert world.shard_objects(table) == set()
