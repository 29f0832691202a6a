"""Steps of a merge: they tile the keys, and none reads more than its share."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dormouse.arrow.statistics import compressed_bytes, may_contain
from dormouse.arrow.types import arrow_schema
from dormouse.engine.merge_windows import (
    GROUPS_PER_WINDOW,
    SHARE_OF_MEMORY,
    max_overlap,
    merge_windows,
)
from dormouse.schema.schema import Schema

SCHEMA = Schema.from_json({"rowKeyFields": [{"name": "k", "type": "LongType"}]})


def file_of(keys: list[int], rows: int, folder: Path) -> pq.FileMetaData:
    """Return the metadata of a file of `keys`, `rows` of them in a row group."""
    local = folder / "file.parquet"
    table = pa.table({"k": sorted(keys)}, arrow_schema(SCHEMA))
    pq.write_table(table, local, row_group_size=rows)
    return pq.read_metadata(local)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=60), min_size=1, max_size=3),
    rows=st.integers(1, 4),
    memory_bytes=st.sampled_from([0, 10_000, 10**9]),
)
def test_steps_tile_the_keys_and_each_reads_a_bounded_share(
    tmp_path: Path, files: list[list[int]], rows: int, memory_bytes: int
) -> None:
    metadatas = [file_of(keys, rows, tmp_path) for keys in files]
    found = merge_windows(metadatas, SCHEMA, memory_bytes)
    assert (found[0].min, found[-1].max) == ((), None)
    assert all(a.max == b.min for a, b in zip(found, found[1:], strict=False))
    assert not any(step.is_empty() for step in found)
    groups = [m.row_group(i) for m in metadatas for i in range(m.num_row_groups)]
    largest = max(compressed_bytes(group) for group in groups)
    share = max(memory_bytes // SHARE_OF_MEMORY, GROUPS_PER_WINDOW * len(files) * largest)
    alike = max(sum(key == k for keys in files for k in keys) for key in range(51))
    for step in found:
        taken = sum(compressed_bytes(g) for g in groups if may_contain(g, step, SCHEMA.row_keys))
        assert taken <= share + (len(files) + alike) * largest
    if memory_bytes == 10**9:
        assert len(found) == 1


def test_shards_one_after_the_other_are_not_all_open_at_once() -> None:
    assert max_overlap([]) == 0
    assert max_overlap([((i,), (i + 1,)) for i in range(0, 20, 2)]) == 1
    assert max_overlap([((0,), (9,)), ((1,), (2,)), ((2,), (3,)), ((5,), (9,))]) == 3
