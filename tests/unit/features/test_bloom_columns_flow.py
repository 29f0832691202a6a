"""Ingests and compactions write the Bloom filters that a table's property names."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from dormouse.errors import InvalidRequestError
from dormouse.messages.requests import SetProperties
from dormouse.stored.paths import shard_path
from dormouse.tables.table import Table
from tests.support.world import World, letters


def columns_with_filters(world: World, table: Table) -> set[str]:
    """Return the columns with filters in the shards of the newest version, which agree."""
    found = set()
    for shard in world.state(table).shards:
        metadata = pq.read_metadata(world.folder / "data" / shard_path(table.id, shard))
        chunks = metadata.row_group(0).to_dict()["columns"]
        named = (each["path_in_schema"] for each in chunks if each["bloom_filter_offset"])
        found.add(" ".join(named))
    return found


def test_an_ingest_writes_filters(world: World) -> None:
    table = world.create(bloom_columns="note")
    world.drop("letters/1.parquet", letters("ab"))
    world.settle()
    assert columns_with_filters(world, table) == {"note"}


def test_shards_written_after_the_property_was_set_have_filters(world: World) -> None:
    table = world.create(compaction_strategy="batch", compaction_files=2)
    world.drop("letters/1.parquet", letters("ab"))
    world.settle()
    assert columns_with_filters(world, table) == {""}
    world.administer(SetProperties("set", table.name, {"bloom_columns": "note, at"}))
    world.drop("letters/2.parquet", letters("cd"))
    world.settle()
    assert len(world.state(table).shards) == 1
    assert columns_with_filters(world, table) == {"at note"}  # of both, compacted


def test_columns_that_a_table_lacks_are_refused(world: World) -> None:
    with pytest.raises(InvalidRequestError, match="no column 'mail'"):
        world.create(bloom_columns="mail")
    table = world.create()
    with pytest.raises(InvalidRequestError, match="no column 'mail'"):
        world.administer(SetProperties("set", table.name, {"bloom_columns": "mail"}))
