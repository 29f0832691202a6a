"""Tables for tests of purges, and what is left in them."""

from __future__ import annotations

import pyarrow.parquet as pq

from dormouse.stored.paths import data_prefix
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.world import World, letters


def stored(world: World, table: Table) -> list[str]:
    """Return the letters of all rows of all objects, referenced or not, as pyarrow reads them."""
    found = []
    for item in world.storage.list(data_prefix(table.id)):
        rows = pq.read_table(world.folder / "data" / item.path, columns=["letter"])
        found += rows["letter"].to_pylist()
    return sorted(found)


def in_table(world: World, table: Table) -> str:
    return "".join(str(row["letter"]) for row in world.rows(table))


@made_once
def filled(world: World, *texts: str, **options: object) -> Table:
    """A table with a shard for each text and leaf."""
    table = world.create(**{"gc_delay_seconds": 60, "compaction_files": 100, **options})
    world.set_online(table, False)
    for number, text in enumerate(texts):
        world.drop(f"letters/{number}.parquet", letters(text, at=100 * number))
    world.settle()
    return table
