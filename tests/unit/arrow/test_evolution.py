"""Shards of older schemas read as the table is now: by the ids of fields, whatever their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.arrow.types import arrow_schema, stored_schema
from dormouse.errors import UnavailableError
from dormouse.keys import KeyRange
from dormouse.rows.merging import merge_slices
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import DecimalType, ListType, MapType, Member, Primitive, StructType
from dormouse.shards.reading import Slice
from dormouse.storage import FolderStorage
from tests.support.memory_storage import MemoryStorage
from tests.support.tables import MEMORY_BYTES, ShardTable

KEY = Field("k", Primitive.LONG, id=1)
A = Field("a", Primitive.LONG, id=2)
B = Field('b."x', Primitive.STRING, nullable=True, id=3)
OLD = Schema((KEY,), values=(A, B), next_field_id=4)
ROWS = [{"k": 1, "a": 10, 'b."x': "one"}, {"k": 3, "a": 30, 'b."x': None}]


@pytest.fixture(params=["look up", "merge", "memory"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def read(
    way: str, folder: Path, newer: Schema, later: Sequence[dict[str, object]] = ()
) -> list[dict[str, object]]:
    """Write ROWS under OLD and `later` under `newer`; return all rows as `newer` has them."""
    storage = MemoryStorage() if way == "memory" else FolderStorage(folder / "data")
    table = ShardTable(storage, OLD, folder)
    table.add(ROWS)
    table.schema = newer
    if later:
        table.add(later)
    return table.rows(look_up_bytes=0 if way == "merge" else MEMORY_BYTES)


def values(*fields: Field) -> Schema:
    return Schema((KEY,), values=fields, next_field_id=10)


def test_an_added_column_of_any_type_is_null_in_older_shards(way: str, tmp_path: Path) -> None:
    struct = StructType((Member("m", Primitive.LONG), Member("n", Primitive.DATE, nullable=True)))
    kinds = [
        *Primitive,
        DecimalType(38, 38),
        ListType(struct),
        MapType(Primitive.BYTES, ListType(Primitive.STRING)),
        struct,
    ]
    added = [Field(f"new{i}", kind, nullable=True, id=20 + i) for i, kind in enumerate(kinds)]
    newer = Schema((KEY,), values=(A, B, *added))
    lately = {f.name: None for f in added} | {"k": 2, "a": 20, 'b."x': "two"}
    expected = [row | {f.name: None for f in added} for row in ROWS]
    assert read(way, tmp_path, newer, [lately]) == [expected[0], lately, expected[1]]


def test_a_renamed_column_keeps_its_values(way: str, tmp_path: Path) -> None:
    newer = values(replace(A, name='dot."ted'), B)
    later = {"k": 2, 'dot."ted': 20, 'b."x': "two"}
    found = read(way, tmp_path, newer, [later])
    assert [row['dot."ted'] for row in found] == [10, 20, 30]


def test_columns_that_swap_their_names_keep_their_values(way: str, tmp_path: Path) -> None:
    newer = values(replace(A, name='b."x'), replace(B, name="a"))
    found = read(way, tmp_path, newer, [{"k": 2, "a": "two", 'b."x': 20}])
    assert [(row["a"], row['b."x']) for row in found] == [("one", 10), ("two", 20), (None, 30)]


@pytest.mark.parametrize("kind", [Primitive.LONG, Primitive.STRING])
def test_a_column_with_the_name_of_a_dropped_one_has_none_of_its_values(
    way: str, tmp_path: Path, kind: Primitive
) -> None:
    newer = values(B, Field("a", kind, nullable=True, id=7))
    new_value = 20 if kind is Primitive.LONG else "twenty"
    found = read(way, tmp_path, newer, [{"k": 2, 'b."x': "two", "a": new_value}])
    assert [row["a"] for row in found] == [None, new_value, None]


def test_a_column_with_the_name_a_renamed_one_had_has_none_of_its_values(
    way: str, tmp_path: Path
) -> None:
    newer = values(replace(A, name="older"), B, Field("a", Primitive.LONG, nullable=True, id=7))
    found = read(way, tmp_path, newer, [{"k": 2, "older": 20, 'b."x': None, "a": 7}])
    assert [(row["older"], row["a"]) for row in found] == [(10, None), (20, 7), (30, None)]


def test_a_range_and_a_projection_are_of_the_new_names(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path / "data")
    table = ShardTable(storage, OLD, tmp_path)
    table.add(ROWS)
    table.schema = values(replace(A, name="z"))
    for look_up_bytes in (0, MEMORY_BYTES):
        found = table.rows(KeyRange((2,)), columns=["z"], look_up_bytes=look_up_bytes)
        assert found == [{"z": 30}]


def test_shards_of_several_schemas_merge_into_one_of_the_newest(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path / "data")
    table = ShardTable(storage, OLD, tmp_path)
    shards = table.add(ROWS)
    table.schema = values(replace(A, name="b"), Field("a", Primitive.DATE, nullable=True, id=7))
    shards += table.add([{"k": 2, "b": 20, "a": None}])
    slices = [Slice(new.shard, KeyRange()) for new in shards]
    merged = merge_slices(
        storage, "table", slices, table.schema, scratch=tmp_path, memory_bytes=MEMORY_BYTES
    )
    (output,) = table.add_sorted(merged, "merged")
    file = pq.ParquetFile(tmp_path / "data" / "table" / "data" / f"{output.shard.id}.parquet")
    ids = {c.name: (c.metadata or {}).get(b"PARQUET:field_id") for c in file.schema_arrow}
    assert ids == {"k": b"1", "b": b"2", "a": b"7"}
    assert [row["b"] for row in file.read().to_pylist()] == [10, 20, 30]


def test_a_column_that_cannot_be_null_and_is_gone_from_a_newer_shard_is_not_read_as_null(
    way: str, tmp_path: Path
) -> None:
    with pytest.raises(UnavailableError, match=r"'must' \(id 9\) was dropped while"):
        read(way, tmp_path, values(A, Field("must", Primitive.LONG, id=9)))


def test_nested_columns_have_the_ids_of_the_schema_in_the_file(tmp_path: Path) -> None:
    kind = MapType(
        Primitive.STRING, StructType((Member("x", ListType(Primitive.LONG)), Member("y", A.type)))
    )
    schema = Schema((KEY,), values=(Field("m", kind, nullable=True),), next_field_id=10)
    path = tmp_path / "nested.parquet"
    with pq.ParquetWriter(path, stored_schema(schema)) as writer:
        row = {"k": 1, "m": [("a", {"x": [1, None], "y": 2})]}
        writer.write_table(pa.Table.from_pylist([row], schema=arrow_schema(schema)))
    elements = pq.read_metadata(path).schema
    found = str(elements)
    m, key, value, x, element, y = (schema.values[0].id, *schema.values[0].nested_ids)
    for name, number in (
        ("m (Map)", m), ("key (String)", key), ("value {", value), ("x (List)", x),
        ("element", element), ("y", y),
    ):  # fmt: skip
        assert f"field_id={number} {name}" in found


@pytest.mark.parametrize("look_up_bytes", [0, MEMORY_BYTES])
@pytest.mark.parametrize(
    ("where", "expected"),
    [("a IS NOT NULL", [20]), ("a IS NULL", [None, None]), ("a > 1 OR k = 1", [None, 20])],
)
def test_a_condition_on_a_column_is_null_where_the_column_was_added_later(
    tmp_path: Path, where: str, expected: list[object], look_up_bytes: int
) -> None:
    table = ShardTable(FolderStorage(tmp_path / "data"), OLD, tmp_path)
    table.add(ROWS)
    table.schema = values(B, Field("a", Primitive.LONG, nullable=True, id=7))
    table.add([{"k": 2, 'b."x': "two", "a": 20}])
    found = table.rows(where=where, look_up_bytes=look_up_bytes)
    assert [row["a"] for row in found] == expected
