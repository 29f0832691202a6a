"""Each kind of damage to a table is found, and nothing that merely goes on is taken for one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs

from dormouse.errors import CorruptDataError
from dormouse.features.checking import CheckReport, Damage, check
from dormouse.keys import encode_key
from dormouse.log.engine import StateStore
from dormouse.log.sources import encode_sources, read_segment
from dormouse.state.partitions import OverlayMap
from dormouse.state.state import SplitPartition, TableState
from dormouse.stored.paths import SOURCES, shard_path
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.world import World, letters


@pytest.fixture
def table(world: World) -> Table:
    return make_table(world)


@made_once
def make_table(world: World, gc_delay_seconds: int = 3600) -> Table:
    """Return a table of two leaves, a shard in each, and a shard that lies in both."""
    table = world.create(
        gc_delay_seconds=gc_delay_seconds,
        orphan_age_seconds=7200,
        compaction_strategy="batch",
        compaction_files=3,
        ingest_file_strategy="one_file_per_leaf",
    )
    world.set_online(table, False)
    world.drop("letters/0.parquet", letters("abyz"))
    world.settle()
    split(world, table)
    world.drop("letters/1.parquet", letters("bcxy"))
    world.settle()
    return table


def split(world: World, table: Table) -> None:
    world.new_store(table).commit(SplitPartition("root", encode_key(("m",))), generation=0)


def found(world: World, table: Table) -> set[tuple[Damage, str]]:
    return {(f.damage, f.subject) for f in check(world.services, table).findings}


def a_shard(world: World, table: Table) -> str:
    return min(world.state(table).shards)


def overwrite(world: World, table: Table, shard: str, change: Callable[[bytes], bytes]) -> None:
    path = shard_path(table.id, shard)
    body = world.storage.get(path)
    world.storage.delete([path])
    world.storage.put(path, change(body))


class Seen:
    """A store whose state is what the test says, until it is looked at once more."""

    def __init__(self, inner: StateStore, first: TableState) -> None:
        self.inner, self.states = inner, [first]

    def current(self) -> TableState:
        return self.states.pop() if self.states else self.inner.current()


def seen(world: World, table: Table, first: TableState) -> CheckReport:
    store = Seen(world.new_store(table), first)
    return check(replace(world.services, store=lambda _: store), table)  # type: ignore[arg-type,return-value]  # only `current` is called


def test_a_healthy_table_is_clean_and_every_shard_is_checked(world: World, table: Table) -> None:
    steps: list[tuple[int, int]] = []
    report = check(world.services, table, lambda done, of: steps.append((done, of)))
    assert report.findings == ()
    assert (report.shards, report.rows) == (3, 8)
    assert steps == [(1, 3), (2, 3), (3, 3)]


def test_an_empty_table_is_clean(world: World) -> None:
    assert check(world.services, world.create()).findings == ()


def test_a_table_is_clean_after_all_its_flow(world: World) -> None:
    table = world.create(split_threshold_rows=8, gc_delay_seconds=60)
    for i in range(8):
        world.drop(f"letters/{i}.parquet", letters("thequickbrownfox", at=100 * i))
    world.settle()
    assert check(world.services, table).findings == ()


def test_a_missing_object_is_found(world: World, table: Table) -> None:
    shard = a_shard(world, table)
    world.storage.delete([shard_path(table.id, shard)])
    assert found(world, table) == {(Damage.SHARD_MISSING, shard)}


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body[:-1],
        lambda body: body + b"x",
        lambda body: body[:-4] + b"????",
        lambda body: bytes(len(body)),
    ],
    ids=["cut", "longer", "not Parquet", "zeros"],
)
def test_a_damaged_object_is_found(
    world: World, table: Table, change: Callable[[bytes], bytes]
) -> None:
    shard = a_shard(world, table)
    overwrite(world, table, shard, change)
    assert found(world, table) == {(Damage.SHARD_DAMAGED, shard)}


def test_an_object_under_another_shards_name_is_found(world: World, table: Table) -> None:
    world.drop("letters/2.parquet", letters("bcxy", at=4))
    world.settle()
    shards = sorted(world.state(table).shards.values(), key=lambda s: s.id)
    one, two = next(
        (a, b) for a in shards for b in shards if a.id < b.id and a.size_bytes == b.size_bytes
    )
    other = world.storage.get(shard_path(table.id, two.id))
    overwrite(world, table, one.id, lambda _: other)
    assert found(world, table) == {(Damage.SHARD_DIFFERS, one.id)}


def test_rows_and_keys_that_differ_from_the_footers_are_found(world: World, table: Table) -> None:
    state = world.state(table)
    shards = {
        s.id: structs.replace(s, rows=s.rows + 1, low=encode_key(("A",)))
        for s in state.shards.values()
    }
    wrong = replace(state, shards=OverlayMap.of(shards))
    details = {
        f.detail
        for f in check(
            replace(world.services, store=lambda _: Fixed(wrong)),  # type: ignore[arg-type,return-value]  # only `current` is called
            table,
        ).findings
        if f.damage is Damage.SHARD_DIFFERS
    }
    assert "the object has 4 rows, not 5" in details
    assert "the object has keys from (a) to (z), not from (A) to (z)" in details


class Fixed:
    """A store of one state."""

    def __init__(self, state: TableState) -> None:
        self.state = state

    def current(self) -> TableState:
        return self.state


def test_a_state_that_contradicts_itself_is_found(world: World, table: Table) -> None:
    wrong = replace(world.state(table), rows=99)
    services = replace(world.services, store=lambda _: Fixed(wrong))  # type: ignore[arg-type,return-value]  # only `current` is called
    assert {f.damage for f in check(services, table).findings} == {Damage.STATE_BROKEN}


def test_a_lost_state_is_found_and_the_sweep_leaves_the_shards_alone(
    world: World, table: Table
) -> None:
    before = world.shard_objects(table)
    world.pages.lose()
    world.services.store.cache_clear()  # type: ignore[attr-defined]  # as in a new process
    assert found(world, table) == {(Damage.STATE_LOST, "state")}
    world.age_objects(seconds=10**7)
    with pytest.raises(CorruptDataError, match="lost its state"):
        world.sweep(audit=True)
    assert world.shard_objects(table) == before


def test_a_state_whose_deltas_are_gone_is_found(world: World, table: Table) -> None:
    deltas = [o.path for o in world.storage.list(f"{table.id}/state/")]
    world.storage.delete(deltas)
    world.services.store.cache_clear()  # type: ignore[attr-defined]  # as in a new process
    assert found(world, table) == {(Damage.STATE_UNREADABLE, "state")}


def test_garbage_is_overdue_after_twice_the_delay_and_not_before(
    world: World, table: Table
) -> None:
    merge_without_collecting(world, table)
    world.clock.advance(seconds=7100)
    assert found(world, table) == set()
    world.clock.advance(seconds=200)
    overdue = found(world, table)
    assert {damage for damage, _ in overdue} == {Damage.GARBAGE_OVERDUE}
    assert {shard for _, shard in overdue} == set(world.state(table).unreferenced)


def test_garbage_is_not_overdue_before_a_sweep_can_have_come(world: World) -> None:
    table = make_table(world, gc_delay_seconds=1)
    merge_without_collecting(world, table)
    world.clock.advance(seconds=60)
    assert found(world, table) == set()


def merge_without_collecting(world: World, table: Table) -> None:
    world.set_online(table, True)
    world.drop("letters/2.parquet", letters("abcd", at=50))
    while world.queue:
        message = world.queue.popleft()
        if message.queue != "gc-candidates":
            world.queue += world.deliver(message)


def test_objects_nobody_knows_are_found_when_they_are_old(world: World, table: Table) -> None:
    orphan, stranger = f"{table.id}/data/gone-0.parquet", f"{table.id}/data/notes.txt"
    world.storage.put(orphan, b"written, never committed")
    world.storage.put(stranger, b"who put this here?")
    world.age_objects(seconds=7100)
    assert found(world, table) == set()
    world.age_objects(seconds=7300)
    assert found(world, table) == {(Damage.ORPHAN, orphan), (Damage.FOREIGN_OBJECT, stranger)}


def test_a_collection_between_reading_the_state_and_the_objects_is_no_damage(
    world: World, table: Table
) -> None:
    before = world.state(table)
    merge_without_collecting(world, table)
    world.clock.advance(seconds=3601)
    world.sweep()
    world.clock.advance(seconds=3601)
    world.sweep()
    world.settle()
    assert world.shard_objects(table) < set(before.shards) | set(world.state(table).shards)
    assert seen(world, table, before).findings == ()


def test_an_ingest_between_reading_the_state_and_the_objects_is_no_damage(
    world: World, table: Table
) -> None:
    before = world.state(table)
    world.drop("letters/2.parquet", letters("abc", at=70))
    world.settle()
    assert seen(world, table, before).findings == ()


def test_a_segment_of_sources_that_is_lost_or_cut_is_found(world: World, table: Table) -> None:
    world.seal(table)
    (segment,) = world.state(table).source_segments
    path = SOURCES.path(table.id, segment.id)
    body = world.storage.get(path)
    for left in (None, body[:-1]):
        world.storage.delete([path])
        if left is not None:
            world.storage.put(path, left)
        assert found(world, table) == {(Damage.SOURCES_LOST, segment.id)}


def test_a_whole_segment_of_other_sources_is_found_by_its_bytes(world: World, table: Table) -> None:
    world.seal(table)
    (segment,) = world.state(table).source_segments
    _, cover, ids = read_segment(world.storage, table.id, segment.id)
    _, other = encode_sources(segment.id, replace(cover, up_to=cover.up_to - 1), [ids])
    assert len(other) == segment.size_bytes
    path = SOURCES.path(table.id, segment.id)
    world.storage.delete([path])
    world.storage.put(path, other)
    (finding,) = check(world.services, table, all_bytes=True).findings
    assert (finding.damage, finding.subject) == (Damage.SOURCES_LOST, segment.id)
