"""The index in the footer of a shard: no damage to it is believed, nor one of another footer."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.errors import DamagedShardError
from dormouse.keys import KeyRange
from dormouse.shards import crcs
from dormouse.shards.reading import audit_shard
from dormouse.shards.stored_index import INDEX_KEY, Facts, IndexedColumn, KeyBounds, encode_index
from tests.support.damage import flipped, regions, rewrite
from tests.unit.readers.test_proven_bytes import Shard


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    return Shard(tmp_path)


def a_file(groups: int, index: dict[str, str]) -> pq.FileMetaData:
    rows = pa.table({"k": [1, 2], "v": [3, 4]})
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, rows.schema) as writer:
        for number in range(groups):
            writer.write_table(rows.slice(number, 1))
        writer.add_key_value_metadata(index)
    return pq.read_metadata(io.BytesIO(sink.getvalue()))


def an_index(groups: int, columns: int, *, has_filters: bool = False) -> dict[str, str]:
    value = encode_index(
        "t",
        "s",
        [IndexedColumn(i, str(i), 1) for i in range(columns)],
        [1] * groups,
        [1] * groups,
        Facts.blank(bytes(columns), [1] * groups, has_filters=has_filters),
        KeyBounds.of([((n,), (n,)) for n in range(groups)]),
    )
    return {INDEX_KEY: value}


def test_an_index_of_other_parts_than_the_footer_is_refused() -> None:
    index = crcs.index_of(a_file(2, an_index(2, 2)), "a/b")
    assert (index.layout.row_groups, index.leaves) == (2, 2)
    for other in (an_index(1, 2), an_index(2, 1), an_index(2, 2, has_filters=True)):
        with pytest.raises(DamagedShardError, match="a/b .* lists other parts than its footer"):
            crcs.index_of(a_file(2, other), "a/b")
    with pytest.raises(DamagedShardError, match="a/b has no index") as raised:
        crcs.index_of(a_file(2, {}), "a/b")
    assert "ingest its rows again" in str(raised.value.hint)


def test_a_look_up_refuses_a_damaged_index_and_needs_nothing_else_of_the_footer(
    shard: Shard,
) -> None:
    wanted = KeyRange.exactly(tuple(shard.shard.min_key))
    expected = shard.table.rows(wanted)
    assert expected
    (footer,) = regions(shard.body)["footer"]
    value = (shard.metadata.metadata or {})[INDEX_KEY.encode()]
    start = shard.body.rfind(value)
    assert footer.start < start < start + len(value) < footer.stop - 1000
    for place in (start, start + len(value) // 2, start + len(value) - 1):
        rewrite(shard.file, flipped(shard.body, place))
        with pytest.raises(DamagedShardError, match=f"{shard.path} is damaged: .* index"):
            shard.table.rows(wanted)
    for place in (footer.start, start + len(value) + 200):
        rewrite(shard.file, flipped(shard.body, place))
        assert shard.table.rows(wanted) == expected
        with pytest.raises(DamagedShardError, match=shard.path):
            audit_shard(shard.table.storage, shard.path, len(shard.body))
