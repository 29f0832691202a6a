"""Conditions on columns with Bloom filters read few row groups, and find all rows."""

from __future__ import annotations

import random
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dormouse.errors import DamagedShardError
from dormouse.keys import KeyRange
from dormouse.ports import Cache
from dormouse.query.result import QueryResult
from dormouse.rows.merging import merge_slices
from dormouse.schema.schema import Schema
from dormouse.shards import parquet
from dormouse.shards.crcs import index_of, sections_behind
from dormouse.shards.footer import read_metadata
from dormouse.shards.reading import Slice, audit_shard
from dormouse.storage import FolderStorage
from dormouse.stored.paths import shard_path
from dormouse.tables.properties import Properties
from tests.support.damage import flipped, rewrite
from tests.support.every_type import EVERY_TYPE, row_of_every_type
from tests.support.tables import MEMORY_BYTES, ShardTable

ROWS, GROUP_ROWS = 4000, 100
SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "valueFields": [
            {"name": "mail", "type": "StringType", "nullable": True},
            {"name": "number", "type": "LongType"},
            {"name": "plain", "type": "LongType"},
        ],
    }
)


def mail(n: int) -> str:
    return f"{sha256(str(n).encode()).hexdigest()[:20]}@example.com"


def row(k: int) -> dict[str, object]:
    address = None if k % 10 == 3 else mail(k)
    return {"k": k, "mail": address, "number": k * 7919 % ROWS, "plain": k * 7919 % ROWS}


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", GROUP_ROWS)
    monkeypatch.setattr(parquet, "MAX_ROW_GROUP_ROWS", GROUP_ROWS)


def filled(folder: Path, **properties: str) -> ShardTable:
    """Return a table of two leaves, with a shard of 20 row groups in each."""
    table = ShardTable(FolderStorage(folder / "data"), SCHEMA, folder, [(ROWS // 2,)])
    table.properties = Properties(**{"bloom_columns": "mail, number", **properties})  # type: ignore[arg-type]
    table.add([row(k) for k in range(ROWS)])
    return table


@pytest.fixture
def table(tmp_path: Path) -> ShardTable:
    return filled(tmp_path)


def keys(result: QueryResult) -> list[object]:
    return [found["k"] for found in result.read_all().to_pylist()]


@pytest.mark.parametrize("look_up_bytes", [0, 10**9])
def test_a_value_reads_the_filters_and_the_row_groups_that_may_hold_it(
    table: ShardTable, look_up_bytes: int
) -> None:
    cache = Cache()
    table.rows(cache=cache)  # the footers are in the cache
    without = table.query(where="plain = 77", look_up_bytes=look_up_bytes, cache=cache)
    (k,) = keys(without)
    result = table.query(where="number = 77", look_up_bytes=look_up_bytes, cache=cache)
    assert keys(result) == [k]
    assert result.reads.row_groups <= 3
    assert result.reads.scans == 0
    assert result.reads.requests <= 2 + result.reads.row_groups  # the filters of two shards
    assert result.reads.size_bytes < without.reads.size_bytes / 2


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (f"mail = '{mail(2345)}'", [2345]),
        (f"mail IN ('{mail(7)}', '{mail(3999)}', 'nobody')", [7, 3999]),
        (f"mail = '{mail(2345)}' AND plain > 0", [2345]),
        (f"mail = '{mail(8)}' OR mail = '{mail(9)}'", [8, 9]),
        (f"mail = '{mail(8)}' AND number = {8 * 7919 % ROWS}", [8]),
        (f"mail = '{mail(8)}' AND number = 0", []),
        (f"mail = '{mail(3)}'", []),
        ("mail = 'nobody'", []),
    ],
)
def test_conditions_find_all_rows_and_read_few_row_groups(
    table: ShardTable, where: str, found: list[int]
) -> None:
    result = table.query(where=where)
    assert keys(result) == found
    assert result.reads.row_groups <= len(found) + 3
    assert keys(table.query(where=where, limit=1)) == found[:1]


def test_neighbouring_numbers_are_each_asked_for(table: ShardTable) -> None:
    expected = sorted(k for k in range(ROWS) if k * 7919 % ROWS in (5, 6, 7))
    result = table.query(where="number IN (5, 6, 7)")
    assert keys(result) == expected
    assert result.reads.row_groups <= 6


def test_a_condition_that_no_filter_helps_reads_what_it_read_without(table: ShardTable) -> None:
    for where in ("plain = 77", "mail IS NULL AND number < 5000", f"mail > '{mail(1)}'"):
        result = table.query(where=where)
        assert len(keys(result)) == len(
            [k for k in keys(table.query()) if matches(int(str(k)), where)]
        )
        assert result.reads.row_groups == 2 * 20


def matches(k: int, where: str) -> bool:
    values = row(k)
    if where.startswith("plain"):
        return values["plain"] == 77
    if where.startswith("mail IS"):
        return values["mail"] is None
    return values["mail"] is not None and str(values["mail"]) > mail(1)


def test_filters_that_exclude_less_than_half_are_not_worth_it(tmp_path: Path) -> None:
    table = ShardTable(FolderStorage(tmp_path / "data"), SCHEMA, tmp_path)
    table.properties = Properties(bloom_columns="number")
    table.add([row(k) | {"number": k // GROUP_ROWS % 4 // 3} for k in range(ROWS)])
    result = table.query(where="number = 0", columns=["k"], look_up_bytes=0)
    assert len(keys(result)) == ROWS * 3 // 4
    assert result.reads.scans == 1


def test_the_rest_of_a_long_range_is_looked_up_step_by_step(table: ShardTable) -> None:
    wanted = [k * 150 for k in range(ROWS // 150)]
    numbers = ", ".join(str(k * 7919 % ROWS) for k in wanted[:8])
    result = table.query(where=f"number IN ({numbers})", look_up_bytes=6000)
    assert keys(result) == wanted[:8]
    assert result.reads.scans == 0
    assert result.reads.row_groups <= 8 + 3


def test_sums_are_compared_and_not_what_is_stored(tmp_path: Path) -> None:
    body = SCHEMA.to_json() | {"valueFields": [{"name": "number", "type": "LongType"}]}
    table = ShardTable(FolderStorage(tmp_path / "data"), Schema.from_json(body), tmp_path)
    table.properties = Properties(aggregations="sum(number)", bloom_columns="number")
    for _ in range(2):
        table.add([{"k": k, "number": k} for k in range(ROWS)])
    assert table.rows(where="number = 154") == [{"k": 77, "number": 154}]
    assert not table.rows(where="number = 155")


def test_damaged_filters_are_not_believed(table: ShardTable) -> None:
    shard = min(table.state.shards.values(), key=lambda shard: shard.min_key)
    path = shard_path("table", shard.id)
    file = table.folder / "data" / path
    body = file.read_bytes()
    metadata = read_metadata(table.storage, path, len(body))
    _, section = sections_behind(metadata, index_of(metadata, path), path, len(body))
    assert section is not None
    assert section.end - section.start > 20 * 2 * 48
    draws = random.Random(8)
    for _ in range(20):
        place = draws.randrange(section.start, section.end)
        rewrite(file, flipped(body, place, draws.randrange(8)))
        with pytest.raises(DamagedShardError, match=f"{path}.*the Bloom filters"):
            table.rows(where="number = 77")
        with pytest.raises(DamagedShardError, match="the Bloom filters"):
            audit_shard(table.storage, path, len(body))
    rewrite(file, body)
    audit_shard(table.storage, path, len(body))


def test_a_merge_fetches_no_filters(table: ShardTable, tmp_path: Path) -> None:
    slices = [Slice(shard, KeyRange()) for shard in table.state.shards.values()]
    shard = slices[0].shard
    path = shard_path("table", shard.id)
    metadata = read_metadata(table.storage, path, shard.size_bytes)
    _, section = sections_behind(metadata, index_of(metadata, path), path, shard.size_bytes)
    assert section is not None
    file = tmp_path / "data" / path
    rewrite(file, flipped(file.read_bytes(), section.start + 50))
    settings = {"scratch": tmp_path, "memory_bytes": MEMORY_BYTES}
    batches = merge_slices(table.storage, "table", slices, SCHEMA, **settings)  # type: ignore[arg-type]
    assert sum(batch.num_rows for batch in batches) == ROWS


def test_other_readers_find_the_filters(table: ShardTable, tmp_path: Path) -> None:
    path = shard_path("table", next(iter(table.state.shards)))
    metadata = pq.read_metadata(tmp_path / "data" / path)
    columns = metadata.row_group(3).to_dict()["columns"]
    with_filter = [each["path_in_schema"] for each in columns if each["bloom_filter_offset"]]
    assert with_filter == ["mail", "number"]


@pytest.mark.parametrize(
    ("name", "literal"),
    [
        ("l", "{l}"),
        ("i", "{i}"),
        ("s", "'{s}'"),
        ("b", "X'{b}'"),
        ("t", "TIMESTAMP '{t}'"),
        ("day", "DATE '{day}'"),
        ("ntz", "TIMESTAMP '{ntz}'"),
        ("ns", "TIMESTAMP '{ns}'"),
        ("clock", "TIME '{clock}'"),
        ("u", "'{u}'"),
    ],
)
def test_values_of_every_type_are_found_with_filters_as_without(
    name: str, literal: str, tmp_path: Path
) -> None:
    rows = [row_of_every_type(n) for n in range(600)]
    found = []
    for bloom_columns in ("", name):
        table = ShardTable(FolderStorage(tmp_path / f"with {bloom_columns}"), EVERY_TYPE, tmp_path)
        table.properties = Properties(bloom_columns=bloom_columns)
        table.add(rows)
        values = [row[name] for row in table.rows(columns=[name])]
        wanted = next(value for value in values[321:] if value is not None)
        shown = wanted.hex() if isinstance(wanted, bytes) else str(wanted).removesuffix("+00:00")
        result = table.query(where=f"{name} = " + literal.format(**{name: shown}))
        found.append((result.read_all().to_pylist(), result.reads.row_groups))
    (without, all_groups), (with_filters, groups) = found
    assert with_filters == without
    assert without
    assert groups < all_groups or name in ("b", "s", "t")  # of which each row group has some
