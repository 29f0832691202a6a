"""What row groups take in a merge follows from the indexes of shards, for each window by itself."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.arrow.types import arrow_schema
from dormouse.keys import KeyRange
from dormouse.rows.wide_rows import (
    PAGE_BYTES,
    READER_BYTES,
    UNEVEN,
    ZSTD_READER_BYTES,
    GroupSize,
    Widest,
    sizes_of,
)
from dormouse.schema.schema import Schema
from dormouse.shards.reading import Blocks, Slice, find_blocks
from dormouse.storage import FolderStorage
from tests.support.small_blocks import write_small_blocks
from tests.support.tables import ShardTable

ROWS = 5000
LETTERS = "abcdefghij"


def shard_of(
    folder: Path, kind: object, values: list[object]
) -> tuple[Blocks, pa.RecordBatch, Schema]:
    """Return the row groups of a shard with these values, its rows in memory, and their schema."""
    schema = Schema.from_json(
        {
            "rowKeyFields": [{"name": "k", "type": "LongType"}],
            "valueFields": [{"name": "v", "type": kind, "nullable": True}],
        }
    )
    (folder / "scratch").mkdir()
    table = ShardTable(FolderStorage(folder / "data"), schema, folder / "scratch")
    keys = pa.array(range(len(values)), pa.int64())
    column = pa.array(values, arrow_schema(schema).field("v").type)
    rows = pa.record_batch([keys, column], schema=arrow_schema(schema))
    (new,) = table.add_sorted(iter([rows]), "job")
    slices = [Slice(new.shard, KeyRange())]
    (groups,) = find_blocks(table.storage, "table", slices, schema, footers=True)
    return groups, rows, schema


CHANCE = random.Random(1)
VALUES: dict[str, tuple[object, list[object]]] = {
    "packed numbers": ("LongType", [7] * ROWS),
    "nulls": ("StringType", [None] * ROWS),
    "empty texts": ("StringType", [""] * ROWS),
    "texts in a dictionary": ("StringType", [CHANCE.choice(LETTERS) * 500 for _ in range(ROWS)]),
    "long texts in a dictionary": (
        "StringType",
        [CHANCE.choice(LETTERS) * 20_000 for _ in range(ROWS // 10)],
    ),
    "texts in a dictionary, the least and the greatest of which are short": (
        "StringType",
        [CHANCE.choice(["a", "m" * 20_000, "z"]) for _ in range(ROWS // 10)],
    ),
    "random texts": ("StringType", [CHANCE.randbytes(50).hex() for _ in range(ROWS)]),
    "lists": ({"ListType": {"elementType": "LongType"}}, [list(range(50))] * ROWS),
}


@pytest.mark.parametrize(("kind", "values"), VALUES.values(), ids=VALUES)
def test_rows_count_as_they_are_in_memory_however_they_are_stored(
    kind: object, values: list[object], tmp_path: Path
) -> None:
    groups, rows, schema = shard_of(tmp_path, kind, values)
    sizes = sizes_of([groups], schema.fields)
    found = sizes[groups.slice.shard.id].values()
    assert sum(count for size in found for count, _ in size.blocks) == rows.num_rows
    assert sum(size.decoded_bytes for size in found) >= 0.9 * rows.nbytes
    assert all(size.pages_bytes <= 2 * PAGE_BYTES for size in found)
    assert Widest.of(sizes, [groups]).row_bytes >= 0.9 * rows.nbytes / rows.num_rows
    looked_up = [groups.index.column_bytes(number, schema.fields) for number in groups.numbers]
    assert sum(looked_up) >= 0.9 * rows.nbytes


def test_only_columns_that_are_read_count(tmp_path: Path) -> None:
    groups, _, schema = shard_of(tmp_path, *VALUES["random texts"])
    (key,) = sizes_of([groups], schema.keys).values()
    assert all(size.row_bytes <= 16 for size in key.values())


def test_columns_that_zstd_did_not_shrink_need_no_decoder(tmp_path: Path) -> None:
    numbers = [CHANCE.randrange(-(2**63), 2**63) for _ in range(ROWS)]
    for name, (kind, values), expected in (
        ("numbers", ("LongType", numbers), READER_BYTES),
        ("texts", VALUES["random texts"], ZSTD_READER_BYTES),
    ):
        (folder := tmp_path / name).mkdir()
        groups, _, schema = shard_of(folder, kind, values)
        (found,) = sizes_of([groups], schema.fields[1:]).values()
        assert {size.readers_bytes for size in found.values()} == {expected}


NARROW = GroupSize([(1000, 36_000)], 20_000, 36_000, 12_000, 3)
WIDE = GroupSize([(4, 4_000_000)], 3_000_000, 10**6, 12_000, 3)
MIXED = GroupSize([(1000, 3_036_000)], 3_000_000, 10**6, 12_000, 3)


def test_a_window_counts_as_the_widest_row_groups_that_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_small_blocks(monkeypatch, 64, row_group=64)
    groups, *_ = shard_of(tmp_path, *VALUES["random texts"])
    sizes = {groups.slice.shard.id: {0: NARROW, 1: MIXED, 2: WIDE, 3: NARROW}}
    narrow, mixed, both = (
        Widest.of(sizes, [replace(groups, numbers=numbers)] * 3)
        for numbers in ([0], [1, 0], [0, 2])
    )
    assert narrow == Widest(36, 20_000, 36_000, 36_000, 12_000, 3, 0)
    assert mixed.row_bytes < 32_000
    assert mixed.uneven_bytes == 3 * (3_036_000 - UNEVEN * 36_000)
    assert (both.row_bytes, both.stored_bytes, both.decoded_bytes) == (10**6, 3_000_000, 4_000_000)


def test_a_group_of_few_rows_does_not_say_how_wide_those_of_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_small_blocks(monkeypatch, 64, row_group=64)
    groups, *_ = shard_of(tmp_path, *VALUES["random texts"])
    one = GroupSize([(1, 200)], 3000, 200, 12_000, 3)
    sizes = {groups.slice.shard.id: {0: NARROW, 1: one}}
    both, alone = (Widest.of(sizes, [replace(groups, numbers=each)]) for each in ([0, 1], [1]))
    assert (both.row_bytes, alone.row_bytes) == (36, 200)


def test_shards_in_which_all_rows_are_alike_are_even(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_small_blocks(monkeypatch, 64, row_group=64)
    groups, *_ = shard_of(tmp_path, *VALUES["random texts"])
    same = GroupSize([(13_000, 4_000_000)], 500_000, 10**6, 12_000, 3)
    less = replace(same, blocks=[(13_000, 3_000_000)])
    read = [replace(groups, numbers=[0, 1])] * 50
    sizes = {groups.slice.shard.id: dict(enumerate([same, less, same, same]))}
    assert Widest.of(sizes, read).uneven_bytes == 0
    few = {groups.slice.shard.id: {0: same, 1: less}}
    assert Widest.of(few, read).uneven_bytes == 50 * same.decoded_bytes


def test_many_columns_make_windows_smaller() -> None:
    assert NARROW.window_bytes == NARROW.stored_bytes
    assert replace(NARROW, columns=540).window_bytes > 2_000 * 500


def test_a_member_that_is_called_as_another_column_counts_by_its_own_values(tmp_path: Path) -> None:
    texts = {"StructType": {"fields": [{"name": "b", "type": "StringType", "nullable": True}]}}
    values = [{"name": "s", "type": texts}, {"name": "s.b", "type": "StringType"}]
    schema = Schema.from_json(
        {"rowKeyFields": [{"name": "k", "type": "LongType"}], "valueFields": values}
    )
    table = ShardTable(FolderStorage(tmp_path / "data"), schema, tmp_path)
    made = [{"k": k, "s": {"b": "q" * 5000}, "s.b": "x"} for k in range(2000)]
    rows = pa.RecordBatch.from_pylist(made, arrow_schema(schema))
    (new,) = table.add_sorted(iter([rows]), "job")
    slices = [Slice(new.shard, KeyRange())]
    (groups,) = find_blocks(table.storage, "table", slices, schema)
    found = sizes_of([groups], schema.fields)[groups.slice.shard.id].values()
    assert sum(size.decoded_bytes for size in found) >= 0.9 * rows.nbytes


@pytest.mark.parametrize("name", VALUES)
def test_rows_count_the_same_without_a_footer(tmp_path: Path, name: str) -> None:
    groups, _, schema = shard_of(tmp_path, *VALUES[name])
    unread = replace(groups, index=replace(groups.index, footer=None))
    assert sizes_of([unread], schema.fields) == sizes_of([groups], schema.fields)
