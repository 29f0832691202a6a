"""Whatever the schema, rows, partitions and ranges: the engine gives what Python's sort gives."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dormouse.keys import KeyRange, encode_key
from dormouse.query.rows import LOOK_UP_BYTES
from dormouse.rows import merging
from dormouse.schema.schema import Schema
from dormouse.shards import parquet
from dormouse.storage import FolderStorage
from tests.support.batches import Row, bounds, ranges, rows_of, schemas, sort_key_of
from tests.support.depth import examples
from tests.support.memory_storage import MemoryStorage
from tests.support.tables import MEMORY_BYTES, ShardTable


@pytest.mark.parametrize("way", ["look up", "merge", "steps", "memory"])
@settings(deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_query_returns_exactly_the_rows_in_its_ranges_in_key_order(
    way: str, data: st.DataObject
) -> None:
    schema = data.draw(schemas())
    files = data.draw(st.lists(rows_of(schema), max_size=3))
    splits = sorted(data.draw(st.sets(bounds(schema), max_size=3)) - {()})
    wanted = data.draw(st.lists(ranges(schema), max_size=2))
    memory_bytes = 1 if way == "steps" else MEMORY_BYTES
    look_up_bytes = LOOK_UP_BYTES if way == "look up" else 0
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if way == "steps":
            patch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", 2)
            patch.setattr(merging, "GROUPS_PER_WINDOW", 1)
        storage = MemoryStorage() if way == "memory" else FolderStorage(Path(folder) / "data")
        table = ShardTable(storage, schema, Path(folder), splits)
        for rows in files:
            table.add(rows)
        found = table.rows(*wanted, look_up_bytes=look_up_bytes, memory_bytes=memory_bytes)
    everything = [row for rows in files for row in rows]
    assert_same_rows(found, _within(everything, schema, wanted), schema)


def _within(rows: Sequence[Row], schema: Schema, wanted: Sequence[KeyRange]) -> list[Row]:
    return [
        row
        for row in rows
        if not wanted or any(r.contains(encode_key(sort_key_of(row, schema))) for r in wanted)
    ]


def assert_same_rows(found: Sequence[Row], expected: Sequence[Row], schema: Schema) -> None:
    """Check that `found` is `expected` sorted; rows of one key may come in any order."""
    keys = [sort_key_of(row, schema) for row in found]
    assert keys == sorted(sort_key_of(row, schema) for row in expected)
    assert _as_set(found, schema) == _as_set(expected, schema)


def _as_set(rows: Sequence[Row], schema: Schema) -> list[str]:
    return sorted(repr([_without_zone(row[f.name]) for f in schema.fields]) for row in rows)


def _without_zone(cell: object) -> object:
    """Return a cell comparable: Arrow and the strategies have different objects for UTC."""
    if isinstance(cell, list | tuple):
        return [_without_zone(item) for item in cell]
    if isinstance(cell, dict):
        return sorted((name, _without_zone(item)) for name, item in cell.items())
    return cell.replace(tzinfo=None) if isinstance(cell, dt.datetime) else cell
