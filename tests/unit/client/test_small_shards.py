"""What a look-up reads of many small shards, whose ranges of keys are those of the whole table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from dormouse.client.instance import Instance

SHARDS = 40


def test_shards_that_many_keys_need_are_not_read_again_for_each(tmp_path: Path) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        table = instance.create_table("t", "k:long, n:long", row_keys=["k"])
        instance.set_online("t", False)
        keys = [100 * n + 1 for n in range(SHARDS)]
        for n, key in enumerate(keys):
            many = [key, *(10**6 + 40 * each + n for each in range(99))]
            table.ingest(pa.table({"k": many, "n": [n] * 100})).wait()
        found = table.query(exact=keys)
        assert found.read_all()["n"].to_pylist() == [*range(SHARDS)]
        assert found.reads.requests <= 4 * SHARDS
