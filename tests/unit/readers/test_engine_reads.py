"""All that the engine reads of a file is fetched for it, whatever is left out."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.arrow.statistics import key_span
from dormouse.arrow.types import arrow_schema
from dormouse.engine import datafusion as engine
from dormouse.keys.ranges import Key, KeyRange
from dormouse.model.shards import Shard
from dormouse.readers.reading import RowGroups, Slice, narrow_for_engine
from dormouse.schema.schema import Schema
from dormouse.shards.index import ShardIndex

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "StringType"}, {"name": "n", "type": "IntType"}],
        "sortKeyFields": [{"name": "t", "type": "TimestampType"}],
        "valueFields": [{"name": "v", "type": "StringType"}],
    }
)
NAMES = {field.id: field.name for field in SCHEMA.fields}

keys = st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.integers(0, 3))
bounds = keys.flatmap(lambda key: st.sampled_from([key[:length] for length in range(1, 4)]))


def written(path: Path, rows: list[Key], row_group_size: int) -> ShardIndex:
    """Write keys as rows, and return their index."""
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    columns.append(pa.array(["x" * 50] * len(rows)))
    table = pa.Table.from_arrays(columns, list(NAMES.values())).cast(arrow_schema(SCHEMA))
    pq.write_table(table, path, row_group_size=row_group_size, use_dictionary=False)
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    spans = tuple(key_span(group, SCHEMA.keys) for group in groups)
    return ShardIndex(metadata, NAMES, spans, SCHEMA.keys, {})


def fetched(path: Path, found: RowGroups) -> None:
    """Leave of a file what is fetched for the engine: all else is zeros."""
    body = bytearray(path.read_bytes())
    for number in set(range(found.metadata.num_row_groups)) - set(found.numbers):
        group = found.metadata.row_group(number)
        for column in (group.column(i) for i in range(group.num_columns)):
            start = column.data_page_offset
            body[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    path.write_bytes(body)


def read(path: Path, rows: list[Key], wanted: KeyRange, row_group_size: int) -> list[Key]:
    index = written(path, rows, row_group_size)
    shard = Shard("s", len(rows), path.stat().st_size, rows[0][:2], rows[-1][:2])
    found = narrow_for_engine(RowGroups(Slice(shard, wanted), index, ()), KeyRange(), SCHEMA)
    fetched(path, found)
    whole = KeyRange() if found.slice.is_whole else wanted
    frame = engine.sorted_file(engine.session(), path, NAMES, SCHEMA, whole)
    batches = list(engine.execute_frame(frame.select("k", "n", "t")))
    found_rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    return [(k, n, t.microsecond) for k, n, t in found_rows]


@given(
    rows=st.lists(keys, min_size=1, max_size=60).map(sorted),
    ends=st.tuples(bounds, bounds | st.none()),
    row_group_size=st.integers(1, 7),
)
def test_any_range_of_any_file_is_read_of_what_was_fetched(
    rows: list[Key], ends: tuple[Key, Key | None], row_group_size: int
) -> None:
    wanted = KeyRange(*ends)
    if wanted.is_empty():
        return
    with TemporaryDirectory() as folder:
        got = read(Path(folder) / "s.parquet", rows, wanted, row_group_size)
    assert got == [row for row in rows if wanted.contains(row)]


@pytest.mark.parametrize(
    "wanted", [KeyRange(("UA", 1690)), KeyRange(("UA", 700), ("UA", 1700)), KeyRange((), ("MQ",))]
)
def test_a_row_group_that_ends_where_the_next_begins_is_fetched_if_the_engine_reads_it(
    tmp_path: Path, wanted: KeyRange
) -> None:
    """The first row group has MQ 3367 to UA 44: by its columns alone it may hold UA 3367."""
    numbers = [("MQ", 3367), ("UA", 44), ("UA", 45), ("UA", 443), ("UA", 444), ("UA", 1700)]
    rows: list[Key] = [(*key, 0) for key in numbers]
    got = read(tmp_path / "s.parquet", rows, wanted, 2)
    assert got == [row for row in rows if wanted.contains(row)]
