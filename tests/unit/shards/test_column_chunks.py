"""How many column chunks a shard has is bounded, and dictionaries do not add to them."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dormouse.schema.schema import Schema
from dormouse.shards import footer, parquet
from dormouse.shards.writer import ShardContext, write_shards
from dormouse.state.partitions import NewShard, Partition
from tests.support.memory_storage import MemoryStorage
from tests.support.small_blocks import write_small_blocks
from tests.support.tables import batches_of

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "StringType"}],
        "sortKeyFields": [{"name": "n", "type": "LongType"}],
        "valueFields": [{"name": "v", "type": "StringType"}, {"name": "w", "type": "StringType"}],
    }
)


def written(
    storage: MemoryStorage, rows: list[dict[str, object]], scratch: Path, size: int
) -> list[NewShard]:
    """Write rows in batches of a size."""
    return write_shards(
        storage,
        batches_of(rows, SCHEMA, size),
        ShardContext("table", SCHEMA, "job"),
        [Partition("root")],
        lambda n: f"job-{n}",
        scratch=scratch,
    )


@pytest.mark.parametrize("size", [1, 40, 500])
def test_a_shard_ends_with_the_row_group_that_has_its_last_column_chunk(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "MOST_CHUNKS", 20)
    monkeypatch.setattr(parquet, "FEW_COLUMNS", 0)
    write_small_blocks(monkeypatch, 8)
    rows = [{"k": f"{i:03}", "n": i, "v": "v", "w": "w"} for i in range(200)]
    shards = written(MemoryStorage(), rows, tmp_path, size)
    assert [new.shard.rows for new in shards] == [8 + 4 * 24, 96], "five row groups of four columns"


def test_row_groups_are_as_long_however_large_their_dictionaries_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", 400)
    monkeypatch.setattr(footer, "COLUMN_BYTES", 20 * 1024)
    texts = [random.Random(i).randbytes(5000).hex() for i in range(100)]
    storage = MemoryStorage()
    rows = [{"k": "a", "n": i, "v": texts[i % 100], "w": "w"} for i in range(4000)]
    (new,) = written(storage, rows, tmp_path, 4000)
    with storage.open("table/data/job-0.parquet", new.shard.size_bytes) as file:
        metadata = pq.read_metadata(file)
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert min(rows[:-1]) >= 400
