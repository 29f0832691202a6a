"""Purges: no matching row is left, in the table or in any object, whatever goes on meanwhile."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dormouse.model.names import data_prefix, purge_prefix
from dormouse.model.tables import Table
from tests.support.world import World, letters


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def stored(world: World, table: Table) -> list[str]:
    """Give the letters of all rows of all objects, referenced or not, as pyarrow reads them."""
    found = []
    for item in world.storage.list(data_prefix(table.id)):
        rows = pq.read_table(world.folder / "data" / item.path, columns=["letter"])
        found += rows["letter"].to_pylist()
    return sorted(found)


def in_table(world: World, table: Table) -> str:
    return "".join(str(row["letter"]) for row in world.rows(table))


def filled(world: World, *texts: str, **options: object) -> Table:
    """A table with a shard for each text and leaf."""
    table = world.create(**{"gc_delay_seconds": 60, "compaction_files": 100, **options})
    world.set_online(table, False)
    for number, text in enumerate(texts):
        world.drop(f"letters/{number}.parquet", letters(text, at=100 * number))
    world.settle()
    return table


PURGES = [("letter = 'b'", ()), ("", ("b",)), ("letter >= 'b' AND note LIKE 'b%'", ())]


@pytest.mark.parametrize(("where", "keys"), PURGES)
@pytest.mark.parametrize("splits", [(), [("b",), ("m",)]])
def test_no_matching_row_is_left_in_the_table_nor_in_any_object(
    world: World, where: str, keys: tuple[str, ...], splits: list[tuple[object, ...]]
) -> None:
    table = filled(world, "abcz", "bbbb", "acxz", "xyb", splits=splits)
    before = world.shard_objects(table)
    purge = world.purge(table, where, *keys)
    world.settle()
    assert in_table(world, table) == "aacccxxyzz".replace("ccc", "cc")
    assert stored(world, table) == list("aaccxxyzz")
    assert world.shard_objects(table) & before, "shards without such rows stay as they are"
    told = world.tracker.get(table.id, purge)
    assert told is not None
    assert (told.state, told.rows) == ("finished", 6)
    assert list(world.storage.list(purge_prefix(table.id))) == []
