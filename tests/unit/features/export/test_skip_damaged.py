"""Exports that leave out damaged shards: all rows of the others, each once, and a list of what is
left out.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.stored.paths import shard_path
from dormouse.tables.table import Table
from tests.support.damage import flipped
from tests.support.made_once import made_once
from tests.support.world import World
from tests.unit.features.exports import manifest, record_of, rows_of

PARTS = 3
ROWS = 40
Spoil = Callable[[bytes, Random], bytes | None]


DAMAGE: dict[str, Spoil] = {
    "lost": lambda content, random: None,
    "empty": lambda content, random: b"",
    "cut": lambda content, random: content[: random.randrange(len(content))],
    **{
        f"flipped-{number}": lambda content, random: flipped(
            content, random.randrange(len(content)), random.randrange(8)
        )
        for number in range(12)
    },
}


@pytest.fixture
@made_once
def table(world: World) -> Table:
    """A table of shards that have their rows between each other's, and of four leaves."""
    table = world.create(splits=[("c",), ("f",)], compaction_strategy="batch")
    for part in range(PARTS):
        letters = [{"letter": "abcdefg"[n % 7], "at": PARTS * n + part} for n in range(ROWS)]
        world.drop(f"letters/{part}.parquet", [{**row, "note": None} for row in letters])
        world.settle()
    return table


def test_all_rows_of_intact_shards_are_exported_once_whatever_is_damaged(
    world: World, table: Table
) -> None:
    whole, random = world.rows(table), Random(5)
    shards = sorted(world.state(table).shards)
    assert len(shards) == PARTS
    for name, spoil in DAMAGE.items():
        path = shard_path(table.id, random.choice(shards))
        content = world.storage.get(path)
        put(world, path, spoil(content, random))
        export = world.export(table, to=name, skip_damaged=True)
        world.settle()
        (left_out,) = manifest(world, name).skipped or ()
        assert (left_out.shard, left_out.rows) == (path, ROWS), name
        assert left_out.reason
        part = pq.read_table(pa.BufferReader(content))["at"][0].as_py() % PARTS
        assert rows_of(world, name) == [row for row in whole if row["at"] % PARTS != part], name
        assert record_of(world, table, export).rows == (PARTS - 1) * ROWS
        put(world, path, content)
    world.export(table, to="intact", skip_damaged=True)
    world.settle()
    assert (rows_of(world, "intact"), manifest(world, "intact").skipped or ()) == (whole, ())


def put(world: World, path: str, content: bytes | None) -> None:
    world.storage.delete([path])
    if content is not None:
        world.storage.put(path, content)
