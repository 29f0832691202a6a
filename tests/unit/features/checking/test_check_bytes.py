"""check with all bytes: each byte of each shard is read, and damage is reported with its place."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dormouse.features.checking import Damage, Finding, check
from dormouse.shards import parquet, reading
from dormouse.stored.paths import shard_path
from dormouse.tables.table import Table
from tests.support.damage import flipped, regions, rewrite
from tests.support.world import World, letters


@pytest.fixture
def table(world: World, monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", 4)
    table = world.create()
    world.set_online(table, False)
    for number in range(3):
        world.drop(f"letters/{number}.parquet", letters("thequickbrownfox", at=100 * number))
    world.settle()
    return table


def findings(world: World, table: Table) -> tuple[Finding, ...]:
    return check(world.services, table, all_bytes=True).findings


def a_file(world: World, table: Table) -> tuple[str, Path]:
    shard = min(world.state(table).shards)
    return shard, world.folder / "data" / shard_path(table.id, shard)


def test_nothing_is_wrong_with_what_was_written(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    assert not check(world.services, table, lambda *at: seen.append(at), all_bytes=True).findings
    assert seen == [(1, 3), (2, 3), (3, 3)]
    monkeypatch.setattr(reading, "READ_BYTES", 1)  # each part by itself
    assert not findings(world, table)


def test_every_flipped_bit_is_found_and_only_with_all_bytes(world: World, table: Table) -> None:
    shard, file = a_file(world, table)
    body = file.read_bytes()
    draws = random.Random(3)
    places = [draws.choice(draws.choice(some)) for some in regions(body).values() for _ in range(9)]
    footer = regions(body)["footer"][0]
    for place in [0, *places]:
        rewrite(file, flipped(body, place, draws.randrange(8)))
        (finding,) = findings(world, table)
        assert (finding.damage, finding.subject) == (Damage.SHARD_DAMAGED, shard)
        assert bool(check(world.services, table).findings) == (place in footer)


def test_a_cut_and_a_swapped_object_are_found(world: World, table: Table) -> None:
    shard, file = a_file(world, table)
    body = file.read_bytes()
    rewrite(file, body[:-1])
    assert [f.damage for f in findings(world, table)] == [Damage.SHARD_DAMAGED]
    other = max(world.state(table).shards)
    swapped = (world.folder / "data" / shard_path(table.id, other)).read_bytes()
    rewrite(file, swapped)
    (finding,) = findings(world, table)
    assert finding.subject == shard
    assert finding.damage in (Damage.SHARD_DIFFERS, Damage.SHARD_DAMAGED)


def test_the_place_of_the_damage_is_reported(world: World, table: Table) -> None:
    _, file = a_file(world, table)
    body = file.read_bytes()
    rewrite(file, flipped(body, regions(body)["data"][4][0]))
    (finding,) = findings(world, table)
    assert "column 'at' in row group 1" in finding.detail
