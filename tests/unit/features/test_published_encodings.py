"""Whatever writes a shard of a published table writes it as every reader of Parquet knows it."""

from __future__ import annotations

import pytest

from dormouse.features.administration import administer
from dormouse.features.publishing import published_files
from dormouse.iceberg.liveness import quick_shards
from dormouse.messages.requests import CompactTable, SetProperties
from dormouse.stored.paths import is_plain
from dormouse.tables.table import Table
from tests.support.world import World, letters


def fill(world: World, table: Table) -> None:
    for number in range(4):
        world.drop(f"{table.name}/{number}.parquet", letters("bcdz"))
        world.settle()
    assert live(world, table)


def compact(world: World, table: Table) -> None:
    request = CompactTable(world.ids.new(), table.name, True)
    world.queue += administer(world.services, request)
    world.settle()


def now(world: World, table: Table) -> Table:
    found = world.tables.get(table.id)
    assert found is not None
    return found


def live(world: World, table: Table) -> list[str]:
    counts = world.state(table).reference_counts
    return sorted(shard for shard, count in counts.items() if count)


@pytest.mark.parametrize("splits", [(), [("c",)]])
def test_ingests_compactions_and_purges_write_plain_shards(
    world: World, splits: list[tuple[object, ...]]
) -> None:
    table = world.create(iceberg="on", splits=splits)
    world.set_online(table, False)
    fill(world, table)
    assert len(live(world, table)) >= 4
    assert all(map(is_plain, live(world, table)))
    ingested = set(live(world, table))
    compact(world, table)
    assert ingested - set(live(world, table))
    assert all(map(is_plain, live(world, table)))
    compacted = set(live(world, table))
    world.purge(table, "letter = 'b'")
    world.settle()
    assert compacted - set(live(world, table))
    assert all(map(is_plain, live(world, table)))
    assert world.names(table) == "ccccddddzzzz"


def test_planned_compactions_write_plain_shards(world: World) -> None:
    table = world.create(iceberg="on", compaction_files=4)
    fill(world, table)
    assert len(live(world, table)) < 4
    assert all(map(is_plain, live(world, table)))


def test_a_table_that_is_published_later_says_which_shards_are_still_quick(world: World) -> None:
    table = world.create()
    fill(world, table)
    before = live(world, table)
    request = SetProperties(world.ids.new(), table.name, {"iceberg": "on"})
    world.administer(request)
    world.drop("letters/more.parquet", letters("ax"))
    world.settle()
    state = world.state(table)
    assert set(quick_shards(state)) == set(before) & set(live(world, table))
    assert quick_shards(state)
    compact(world, table)
    assert quick_shards(world.state(table)) == []
    assert world.names(table) == "a" + "".join(4 * c for c in "bcd") + "x" + "zzzz"


def test_a_full_compaction_rewrites_a_lone_shard_that_old_readers_read_slowly(world: World) -> None:
    table = world.create()
    world.drop("letters/one.parquet", letters("bd"))
    world.settle()
    compact(world, table)
    assert len(quick_shards(world.state(table))) == 1
    world.administer(SetProperties(world.ids.new(), table.name, {"iceberg": "on"}))
    world.settle()
    files = published_files(world.services, now(world, table))
    assert [each.is_quick for each in files] == [True]
    compact(world, table)
    assert quick_shards(world.state(table)) == []
    assert world.names(table) == "bd"
    files = published_files(world.services, now(world, table))
    assert [each.is_quick for each in files] == [False]
    settled = live(world, table)
    compact(world, table)
    assert live(world, table) == settled


def test_a_full_compaction_rewrites_a_lone_shard_with_dead_rows(world: World) -> None:
    table = world.create(
        iceberg="on", ingest_file_strategy="one_reference_per_leaf", splits=[("c",)]
    )
    world.drop("letters/one.parquet", letters("bd"))
    world.settle()
    (shard,) = live(world, table)
    world.drop("letters/two.parquet", letters("a"))
    world.settle()
    compact(world, table)  # the leaf of a and b alone has several shards
    assert shard in live(world, table)
    compact(world, table)
    assert shard not in live(world, table)
    assert world.names(table) == "abd"


def test_a_table_that_is_not_published_keeps_the_quick_encodings(world: World) -> None:
    table = world.create()
    fill(world, table)
    compact(world, table)
    assert quick_shards(world.state(table)) == live(world, table)
