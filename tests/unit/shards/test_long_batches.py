"""How rows come in batches decides neither what is in a shard nor where it ends."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from dormouse.arrow.types import arrow_schema
from dormouse.shards.writer import ShardContext, write_shards
from tests.support.memory_storage import MemoryStorage
from tests.unit.shards.test_writing import SCHEMA, WHOLE


def test_long_and_short_batches_are_cut_at_the_same_rows(tmp_path: Path) -> None:
    rows = 200_000
    keys = pa.array([f"a{i:06}{i * 7919 % 10**9:09}" for i in range(rows)])
    numbers = pa.array(range(rows), pa.int64())
    values = pa.array([f"{i * 104729 % 10**9:09}" for i in range(rows)])
    columns = [keys, numbers, numbers, values]
    batch = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(SCHEMA))

    def counts(size: int) -> list[int]:
        shards = write_shards(
            MemoryStorage(),
            (batch.slice(at, size) for at in range(0, rows, size)),
            ShardContext("table", SCHEMA, "job"),
            WHOLE,
            lambda n: f"job-{n}",
            scratch=tmp_path,
            target_bytes=300_000,
        )
        return [new.shard.rows for new in shards]

    cut = counts(200)  # these short ones are written whole at first, and cut near the target
    assert len(cut) > 1
    assert cut == counts(rows)
