"""Blocks of row groups: every column begins a page where a block does, whatever is in it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dormouse.errors import InvariantError
from dormouse.keys import KeyRange
from dormouse.ports import Cache
from dormouse.schema.schema import Schema
from dormouse.shards import parquet
from dormouse.shards.decoding import read_blocks
from dormouse.shards.footer import ShardIndex, read_index
from dormouse.shards.reading import Blocks, Slice, audit_shard
from dormouse.storage import FolderStorage
from dormouse.stored.paths import shard_path
from dormouse.tables.properties import Properties
from tests.support.memory_storage import MemoryStorage
from tests.support.small_blocks import write_small_blocks
from tests.support.tables import ShardTable

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "sortKeyFields": [{"name": "n", "type": "StringType"}],
        "valueFields": [
            {"name": "kind", "type": "StringType", "nullable": True},
            {"name": "text", "type": "StringType", "nullable": True},
            {"name": "ratio", "type": "DoubleType", "nullable": True},
            {"name": "sure", "type": "BooleanType", "nullable": True},
            {"name": "list", "type": {"ListType": {"elementType": "StringType"}}, "nullable": True},
            {
                "name": "map",
                "type": {"MapType": {"keyType": "StringType", "valueType": "LongType"}},
                "nullable": True,
            },
        ],
    }
)


def rows_of(seed: int, count: int) -> list[dict[str, object]]:
    draw = random.Random(seed)

    def maybe(value: object) -> object:
        return None if draw.random() < 0.2 else value

    return [
        {
            "k": at // 3,
            "n": f"{at:05}",
            # repeats in the first rows only: the dictionary outgrows what was expected
            "kind": maybe("ab"[at % 2] if at < 40 else draw.randbytes(9).hex()),
            "text": maybe("x" * draw.choice([0, 1, 400])),
            "ratio": maybe(draw.random()),
            "sure": maybe(draw.random() < 0.5),
            "list": maybe([maybe("abc"[draw.randrange(3)]) for _ in range(draw.randrange(5))]),
            "map": maybe([(str(i), i) for i in range(draw.randrange(3))]),
        }
        for at in range(count)
    ]


def index_of(table: ShardTable) -> ShardIndex:
    (shard,) = table.state.shards.values()
    return read_index(table.storage, "table", shard, SCHEMA, Cache(0))


def read(table: ShardTable, numbers: Sequence[int]) -> list[dict[str, object]]:
    (shard,) = table.state.shards.values()
    found = Blocks(Slice(shard, KeyRange()), index_of(table), numbers)
    columns = [field.name for field in SCHEMA.fields]
    (rows,) = read_blocks(table.storage, "table", [found], SCHEMA, columns)
    return [row for batch in rows for row in batch.to_pylist()]


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 300),
    page=st.sampled_from([1, 4, 16, 64]),
    row_group=st.integers(1, 200),
    block=st.sampled_from([1, 200, 5000]),
    links=st.booleans(),
)
def test_every_block_has_its_rows_and_all_blocks_have_all(
    seed: int, count: int, page: int, row_group: int, block: int, links: bool
) -> None:
    """A merge copies what it needs of a shard, where it cannot link its file."""
    rows = rows_of(seed, count)
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        write_small_blocks(patch, page, row_group=row_group)
        patch.setattr(parquet, "block_bytes", lambda *_, **__: block)
        storage = FolderStorage(Path(folder) / "data") if links else MemoryStorage()
        table = ShardTable(storage, SCHEMA, Path(folder))
        table.add(rows)
        index = index_of(table)
        at = 0
        for number in index.blocks:
            assert read(table, [number]) == rows[at : at + index.rows(number)]
            at += index.rows(number)
        assert at == count
        some = random.Random(seed).sample(list(index.blocks), min(3, len(index.blocks)))
        firsts = [sum(map(index.rows, range(n))) for n in sorted(some)]
        expected = [rows[a : a + index.rows(n)] for a, n in zip(firsts, sorted(some), strict=True)]
        assert read(table, sorted(some)) == [row for part in expected for row in part]
        for key in {row["k"] for row in rows[:: max(1, count // 5)]}:
            wanted = [row for row in rows if row["k"] == key]
            assert table.rows(KeyRange.exactly((key,))) == wanted
        assert table.rows(KeyRange.exactly((key,)), look_up_bytes=0) == wanted, "a part merged"
        assert table.rows(look_up_bytes=0) == rows, "merged"
        (shard,) = table.state.shards.values()
        path = shard_path("table", shard.id)
        audit_shard(storage, path, shard.size_bytes)
        assert pq.read_table(pa.BufferReader(storage.get(path))).num_rows == count


@pytest.mark.parametrize("column", ["kind", "text"], ids=["dictionary", "plain"])
def test_values_that_become_long_end_no_page_and_no_dictionary_before_its_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    write_small_blocks(monkeypatch, 16, row_group=64)
    draw = random.Random(1)
    rows = rows_of(1, 160)
    for at, row in enumerate(rows):
        if column == "text":
            row[column] = draw.randbytes(8).hex()
        if at >= 64:
            row[column] = draw.randbytes(100_000).hex()
    table = ShardTable(FolderStorage(tmp_path / "data"), SCHEMA, tmp_path)
    table.add(rows)
    index = index_of(table)
    assert [row for number in index.blocks for row in read(table, [number])] == rows


def test_a_row_group_has_several_blocks_and_of_many_columns_or_with_filters_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_small_blocks(monkeypatch, 16, row_group=64)
    for name, most, filters, expected in (
        ("several", 100, "", [1, 4, 4, 4, 4, 2]),
        ("many columns", 5, "", [1] * 6),
        ("filters", 100, "text", [1] * 6),
    ):
        monkeypatch.setattr(parquet, "MOST_COLUMNS", most)
        monkeypatch.setattr(
            parquet, "block_bytes", lambda *_, few=name == "several", **__: 1 if few else 10**9
        )
        table = ShardTable(FolderStorage(tmp_path / name / "data"), SCHEMA, tmp_path)
        table.properties = Properties(bloom_columns=filters)
        table.add(rows_of(1, 300))
        layout = index_of(table).stored.layout
        blocks = [len(layout.blocks_of(number)) for number in range(layout.row_groups)]
        assert blocks == expected, name


def test_text_that_never_stops_to_bring_new_values_gets_no_dictionary() -> None:
    """Or a look-up would read a dictionary that is longer than its block."""
    texts = pa.chunked_array([[f"customer {at // 5} of many" for at in range(2048)]])
    kinds = pa.chunked_array([[f"kind {at % 50}" for at in range(2048)]])
    first = pa.table({"texts": texts, "kinds": kinds})
    assert [*parquet.dictionaries(first, {}, 65_536, 40_000)] == ["kinds"]
    assert [*parquet.dictionaries(first, {}, 2048, 40_000)] == ["texts", "kinds"], "as one block"
    assert [*parquet.dictionaries(first, {}, 2048, 1000)] == ["kinds"], "with little room for both"


def test_pages_that_do_not_begin_where_blocks_do_are_noticed_when_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a writer of Parquet ended pages elsewhere: no look-up could tell."""
    write_small_blocks(monkeypatch, 64, row_group=512)
    monkeypatch.setattr(parquet, "UNLIMITED", 200)
    table = ShardTable(FolderStorage(tmp_path / "data"), SCHEMA, tmp_path)
    with pytest.raises(InvariantError, match=r"the pages of column \d do not have \d+ rows"):
        table.add(rows_of(1, 600))
