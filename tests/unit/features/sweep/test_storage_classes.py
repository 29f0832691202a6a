"""Which shards an audit marks for a cheaper storage class, and that nothing else comes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from dormouse.errors import InvalidRequestError
from dormouse.features import garbage
from dormouse.features.administration import administer
from dormouse.features.garbage import LEAST_BYTES, MOVES_FROM
from dormouse.messages.requests import CreateTable, SetDefaults, SetProperties, TagVersion
from dormouse.ports import StoredObject
from dormouse.state.state import DAY_MS
from dormouse.stored.paths import shard_id_of, shard_path
from dormouse.tables.table import Table
from tests.support.memory_storage import MemoryStorage
from tests.support.world import LETTERS, World, letters

DAY = DAY_MS // 1000


class WithClasses(MemoryStorage):
    """A storage whose objects have classes, and which moves at once those that are marked."""

    def __init__(self, world: World) -> None:
        super().__init__(world.clock)
        self.classes: dict[str, str] = {}
        self.marked: list[str] = []

    def list(self, prefix: str) -> Iterator[StoredObject]:
        for each in super().list(prefix):
            yield replace(each, storage_class=self.classes.get(each.path, "STANDARD"))

    def mark_for_class(self, paths: Sequence[str], storage_class: str) -> None:
        self.marked += paths
        self.classes |= dict.fromkeys(paths, storage_class)


@pytest.fixture
def storage(world: World, monkeypatch: pytest.MonkeyPatch) -> WithClasses:
    """A storage with classes, for which no shard is too small."""
    monkeypatch.setattr(garbage, "LEAST_BYTES", 1)
    storage = WithClasses(world)
    world.storage = storage  # type: ignore[assignment]  # another kind of storage
    world.services = replace(world.services, storage=storage, mark_for_class=storage.mark_for_class)
    return storage


def filled(world: World, **properties: object) -> Table:
    table = world.create(**properties)
    world.drop("letters/1.parquet", letters("abc"))
    world.settle()
    return table


def audited(world: World, storage: WithClasses) -> set[str]:
    """Return the shards that an audit marks."""
    storage.marked.clear()
    world.sweep(audit=True)
    world.settle()
    return {shard_id_of(path) or "" for path in storage.marked}


def test_a_shard_that_has_lasted_is_marked_once_and_read_as_before(
    world: World, storage: WithClasses
) -> None:
    table = filled(world, storage_class="GLACIER_IR", storage_class_days=7)
    world.clock.advance(seconds=6 * DAY)
    assert not audited(world, storage)
    world.clock.advance(seconds=DAY)
    assert audited(world, storage) == world.shard_objects(table) != set()
    assert not audited(world, storage)
    assert {row["letter"] for row in world.rows(table)} == {"a", "b", "c"}


def test_only_an_audit_marks_shards_and_only_where_a_class_is_asked_for(
    world: World, storage: WithClasses
) -> None:
    filled(world)
    world.clock.advance(seconds=400 * DAY)
    assert not audited(world, storage)
    administer(world.services, SetProperties("colder", "letters", {"storage_class": "STANDARD_IA"}))
    world.sweep()
    assert not storage.marked
    assert audited(world, storage)


def test_small_shards_stay_where_they_are(
    world: World, storage: WithClasses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "LEAST_BYTES", LEAST_BYTES)
    filled(world, storage_class="GLACIER_IR", storage_class_days=0)
    assert not audited(world, storage)


def test_shards_that_nothing_needs_are_left_alone_and_those_of_a_tagged_version_are_not(
    world: World, storage: WithClasses
) -> None:
    week = 7 * DAY
    properties = {"compaction_strategy": "batch", "compaction_files": 2}
    table = filled(
        world, storage_class="GLACIER_IR", storage_class_days=1, gc_delay_seconds=week, **properties
    )
    version = world.state(table).version
    administer(world.services, TagVersion("keep", "letters", version, "kept"))
    tagged = world.shard_objects(table)
    world.drop("letters/2.parquet", letters("de"))
    world.deliver_all_but("gc-candidates")
    storage.put(shard_path(table.id, f"{world.ids.new()}-0"), b"of a run that died")
    world.clock.advance(seconds=2 * DAY)
    state = world.state(table)
    live = {*state.shards} - {*state.unreferenced}
    assert live.isdisjoint(tagged)
    assert audited(world, storage) == live | tagged
    assert len(state.unreferenced) == 2, "one is not of the tagged version"


def test_index_objects_stay_in_the_class_that_they_are_in(
    world: World, storage: WithClasses
) -> None:
    table = filled(world, storage_class="GLACIER_IR", storage_class_days=1, index_objects="on")
    world.clock.advance(seconds=2 * DAY)
    audited(world, storage)
    (shard,) = world.shard_objects(table)
    assert storage.marked == [shard_path(table.id, shard or "")]
    assert not audited(world, storage)


@pytest.mark.parametrize("wanted", MOVES_FROM)
def test_shards_never_move_to_a_dearer_class(
    world: World, storage: WithClasses, wanted: str
) -> None:
    table = filled(world, storage_class=wanted)
    world.clock.advance(seconds=31 * DAY)
    (shard,) = world.shard_objects(table)
    moved = []
    for found in ("STANDARD", *MOVES_FROM):
        storage.classes[shard_path(table.id, shard)] = found
        moved += [found] if audited(world, storage) else []
    assert tuple(moved) == MOVES_FROM[wanted]


def test_what_one_audit_does_not_mark_the_next_one_does(
    world: World, storage: WithClasses, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(world, storage_class="GLACIER_IR", compaction_files=10)
    world.drop("letters/2.parquet", letters("de"))
    world.settle()
    world.clock.advance(seconds=31 * DAY)
    monkeypatch.setattr(garbage, "MARKED_AT_ONCE", 1)
    first, second = audited(world, storage), audited(world, storage)
    assert first | second == world.shard_objects(table)
    assert len(first) == len(second) == 1


def test_days_that_s3_does_not_allow_are_refused_however_they_come_together(
    world: World, storage: WithClasses
) -> None:
    early = {"storage_class": "ONEZONE_IA", "storage_class_days": 29}
    with pytest.raises(InvalidRequestError, match="before it is 30 days old"):
        world.create(**early)
    world.create(storage_class_days=29)
    with pytest.raises(InvalidRequestError, match="before it is 30 days old"):
        administer(world.services, SetProperties("1", "letters", {"storage_class": "STANDARD_IA"}))
    with pytest.raises(InvalidRequestError, match="before it is 30 days old"):
        administer(world.services, SetDefaults("2", {"storage_class": "STANDARD_IA"}))
    assert not world.tables.defaults()


def test_where_there_are_no_classes_none_is_taken(world: World) -> None:
    cold = {"storage_class": "GLACIER_IR"}
    for request in (CreateTable("1", "letters", LETTERS.to_json(), cold), SetDefaults("2", cold)):
        with pytest.raises(InvalidRequestError, match="no storage classes"):
            administer(world.services, request)
    world.create()
    with pytest.raises(InvalidRequestError, match="no storage classes"):
        administer(world.services, SetProperties("3", "letters", cold))
