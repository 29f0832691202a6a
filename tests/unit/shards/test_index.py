"""Indexes find just the row groups that statistics cannot rule out, whatever is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.cache import Cache
from dormouse.keys.ranges import Key, KeyRange
from dormouse.schema.schema import Schema
from dormouse.shards import index as index_module
from dormouse.shards import parquet
from dormouse.shards.index import KeySpans, ShardIndex, Span, key_span
from dormouse.storage import FolderStorage
from tests.support.tables import ShardTable

PARTS = st.integers(0, 3)
KEYS: st.SearchStrategy[Key] = st.tuples(PARTS, PARTS)
BOUNDS: st.SearchStrategy[Key] = st.just(()) | st.tuples(PARTS) | KEYS


def empty_metadata() -> pq.FileMetaData:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"k": pa.array([], pa.int64())}), sink)
    return pq.read_metadata(pa.BufferReader(sink.getvalue()))


METADATA = empty_metadata()


def span(low: Key, high: Key, known: bool) -> tuple[Key, Key | None]:
    """Return what statistics show of two keys: the parts that all rows share, and one more."""
    if not known:
        return (), None
    return (low, high) if low[0] == high[0] else (low[:1], high[:1])


def index_of(groups: Sequence[Sequence[Key]], known: Sequence[bool]) -> ShardIndex:
    spans = (span(keys[0], keys[-1], k) for keys, k in zip(groups, known, strict=True))
    return ShardIndex(METADATA, {}, tuple(spans), (), {})


@given(
    st.lists(KEYS, min_size=1, max_size=12),
    st.integers(1, 4),
    st.lists(st.booleans(), min_size=12, max_size=12),
    BOUNDS,
    st.none() | BOUNDS,
)
def test_no_row_group_that_holds_a_key_is_missed_and_none_within_holds_another(
    keys: list[Key], size: int, known: list[bool], low: Key, high: Key | None
) -> None:
    keys.sort()
    groups = [keys[i : i + size] for i in range(0, len(keys), size)]
    index = index_of(groups, known[: len(groups)])
    wanted = KeyRange(low, high)
    found = index.row_groups_in(wanted)
    holding = {i for i, g in enumerate(groups) if any(wanted.contains(key) for key in g)}
    assert holding <= set(found)
    within = index.row_groups_within(wanted)
    assert all(wanted.contains(key) for i in within for key in groups[i])


def test_row_groups_outside_the_range_are_left_out() -> None:
    index = index_of([[(i, 0), (i, 3)] for i in range(9)], [True] * 9)
    assert index.row_groups_in(KeyRange((3, 4), (5,))) == range(4, 5)
    assert index.row_groups_in(KeyRange((3, 3), (5, 0))) == range(3, 5)
    assert index.row_groups_in(KeyRange((9,), None)) == range(9, 9)
    assert index.row_groups_within(KeyRange((3, 1), (6,))) == range(4, 6)


def test_the_size_of_rows_in_memory_is_not_underestimated_where_they_are_stored_small() -> None:
    rows = pa.table(
        {
            "k": pa.array(range(50_000), pa.int64()),
            "repeated": [f"{'x' * 100}{i % 20:02}" for i in range(50_000)],
            "alike": ["y" * 50] * 50_000,
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        use_dictionary=["repeated", "alike"],
        column_encoding={"k": "DELTA_BINARY_PACKED"},
    )
    metadata = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    names = dict(enumerate(rows.column_names, start=1))
    index = ShardIndex(metadata, names, (((), None),), (), {})
    body = {"rowKeyFields": [{"name": "k", "type": "LongType"}]}
    values = [{"name": name, "type": "StringType"} for name in ("repeated", "alike")]
    schema = Schema.from_json(body | {"valueFields": values})
    assert metadata.row_group(0).total_byte_size < rows.nbytes / 10
    assert rows.nbytes * 0.8 < index.column_bytes(0, schema.fields) < rows.nbytes * 1.2


def test_a_look_up_asks_the_statistics_of_few_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It bisects them, and what was found once is kept."""
    monkeypatch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", 4)
    monkeypatch.setattr(parquet, "MAX_ROW_GROUP_ROWS", 4)
    schema = Schema.from_json(
        {
            "rowKeyFields": [{"name": "k", "type": "LongType"}],
            "valueFields": [{"name": "v", "type": "LongType"}],
        }
    )
    table = ShardTable(FolderStorage(tmp_path / "data"), schema, tmp_path)
    table.add([{"k": n, "v": -n} for n in range(1024)])
    asked: list[int] = []

    def watched(*given: Any) -> Span:
        asked.append(1)
        return key_span(*given)

    monkeypatch.setattr(index_module, "key_span", watched)
    cache = Cache()
    for _ in range(2):
        assert table.rows(KeyRange.exactly((517,)), cache=cache) == [{"k": 517, "v": -517}]
        assert 0 < len(asked) <= 16 + 2  # two bisections among 256 row groups


def test_spans_of_row_groups_are_a_sequence() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"k": range(9)}), sink, row_group_size=3)
    schema = Schema.from_json({"rowKeyFields": [{"name": "k", "type": "LongType"}]})
    spans = KeySpans(pq.read_metadata(pa.BufferReader(sink.getvalue())), schema.keys)
    assert list(spans) == [((0,), (2,)), ((3,), (5,)), ((6,), (8,))]
    assert (spans[-1], spans[1:], len(spans)) == (list(spans)[2], list(spans)[1:], 3)
