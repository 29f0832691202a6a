"""A merge reads exactly the row groups that were fetched for it, and keeps the rows of its span."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.arrow.order import rows_within
from dormouse.arrow.types import arrow_schema
from dormouse.errors import InvariantError
from dormouse.keys import Key, KeyRange, encode_key
from dormouse.rows import datafusion
from dormouse.rows import datafusion as engine
from dormouse.rows.datafusion import changed, with_range
from dormouse.schema.schema import Schema
from dormouse.shards.crcs import TRAILER_BYTES, Paging, facts_of
from dormouse.shards.footer import ShardIndex
from dormouse.shards.reading import Blocks, Slice
from dormouse.shards.stored_index import (
    IndexedColumn,
    KeyBounds,
    decode_index,
    encode_index,
    form_of,
)
from dormouse.state.partitions import Shard

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "StringType"}, {"name": "n", "type": "IntType"}],
        "sortKeyFields": [{"name": "t", "type": "TimestampType"}],
        "valueFields": [{"name": "v", "type": "StringType"}],
    }
)
STORED = {field.name: field for field in SCHEMA.fields}
COLUMNS = [field.name for field in SCHEMA.fields]

keys = st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.integers(0, 3))
bounds = keys.flatmap(lambda key: st.sampled_from([key[:length] for length in range(1, 4)]))


def as_batch(rows: list[Key]) -> pa.RecordBatch:
    """Return keys as rows."""
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    columns.append(pa.array(["x" * 50] * len(rows)))
    table = pa.Table.from_arrays(columns, COLUMNS).cast(arrow_schema(SCHEMA))
    return table.combine_chunks().to_batches()[0]


def as_keys(batches: list[pa.RecordBatch]) -> list[Key]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [(row["k"], row["n"], row["t"].microsecond) for row in rows]


def written(path: Path, rows: list[Key], row_group_size: int) -> Blocks:
    """Write keys as rows, the text columns with dictionaries; return all row groups."""
    pq.write_table(
        pa.Table.from_batches([as_batch(rows)]),
        path,
        row_group_size=row_group_size,
        use_dictionary=["v"],
    )
    metadata = pq.read_metadata(path)
    footer = path.stat().st_size - TRAILER_BYTES - metadata.serialized_size
    starts = range(0, len(rows), row_group_size)
    groups = [rows[start : start + row_group_size] for start in starts]
    sizes = list(map(len, groups))
    forms = bytes(form_of(is_compressed=True, has_dictionary=name == "v") for name in COLUMNS)
    paging = Paging(row_group_size, forms, [True] * len(COLUMNS), [[size] for size in sizes])
    with path.open("rb") as file:
        facts = facts_of(file.fileno(), metadata, footer, paging, {})
    stored = encode_index(
        "table",
        "s",
        [IndexedColumn.of(field) for field in SCHEMA.fields],
        [1] * len(groups),
        sizes,
        facts,
        KeyBounds.of([(group[0], group[-1]) for group in groups]),
    )
    shard = Shard.of("s", len(rows), path.stat().st_size, rows[0][:2], rows[-1][:2])
    index = ShardIndex(decode_index(stored.encode()), metadata)
    return Blocks(Slice(shard, KeyRange()), index, range(len(groups)))


def forget_others(path: Path, found: Blocks) -> None:
    """Leave of a file what is fetched for the engine: all else is zeros."""
    body = bytearray(path.read_bytes())
    for number in set(range(found.index.metadata.num_row_groups)) - set(found.numbers):
        group = found.index.metadata.row_group(number)
        for column in (group.column(i) for i in range(group.num_columns)):
            start = column.dictionary_page_offset or column.data_page_offset
            body[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    path.write_bytes(body)


def read(path: Path, found: Blocks, joined: int = 8) -> list[pa.RecordBatch]:
    context = engine.session(3)
    frame = engine.sorted_file(context, path, STORED, SCHEMA, KeyRange())
    plan = engine.plan_merge([frame], SCHEMA, COLUMNS, most_rows=0)
    ranges = {f"{path.parent.name}/{path.name}": found.first_bytes}
    return list(
        engine.batches_of(context.execute(changed(context, plan, ranges, joined=joined), 0))
    )


@given(
    rows=st.lists(keys, min_size=1, max_size=60).map(sorted),
    ends=st.tuples(bounds, bounds | st.none()),
    row_group_size=st.integers(1, 7),
)
def test_the_rows_of_any_span_are_read_of_the_row_groups_that_were_fetched(
    rows: list[Key], ends: tuple[Key, Key | None], row_group_size: int
) -> None:
    span = KeyRange(*ends)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "s.parquet"
        found = written(path, rows, row_group_size).within(span, SCHEMA)
        if not found.numbers:
            assert not any(span.contains(encode_key(row)) for row in rows)
            return
        forget_others(path, found)
        batches = read(path, found)
    first, last = found.numbers[0], found.numbers[-1]
    assert as_keys(batches) == rows[first * row_group_size : (last + 1) * row_group_size]
    wanted = [row for row in rows if span.contains(encode_key(row))]
    assert as_keys(list(rows_within(batches, span, SCHEMA))) == wanted


def test_a_stream_is_read_no_further_than_the_first_row_after_the_span() -> None:
    batches = [as_batch([(letter, number, 0) for number in range(3)]) for letter in "abcd"]
    stream = iter(batches)
    found = list(rows_within(stream, KeyRange(("a", 2), ("c", 0)), SCHEMA))
    assert [row[:2] for row in as_keys(found)] == [("a", 2), ("b", 0), ("b", 1), ("b", 2)]
    assert list(stream) == batches[3:]


def test_a_plan_without_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    found = written(path, [("a", 1, 1)], 1)
    context = engine.session()
    frame = engine.sorted_file(context, path, STORED, SCHEMA, KeyRange())
    plan = engine.plan_merge([frame], SCHEMA, COLUMNS, most_rows=0)
    with pytest.raises(InvariantError, match="does not read another"):
        with_range(plan.to_bytes(), b"another", found.first_bytes)


def test_batches_are_joined_to_a_length_of_which_each_has_at_most_half(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    found = written(path, [("a", number, 1) for number in range(100)], 100)
    assert [batch.num_rows for batch in read(path, found, joined=9)] == [9] * 11 + [1]
    assert {batch.num_rows for batch in read(path, found, joined=5)} == {3, 1}


def test_a_length_of_batches_that_datafusion_does_not_take_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datafusion, "_TARGET", 99)
    path = tmp_path / "s.parquet"
    found = written(path, [("a", 1, 1)], 1)
    with pytest.raises(InvariantError, match="would not join batches"):
        read(path, found)


def test_a_range_that_datafusion_does_not_take_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datafusion, "_RANGE", 99)
    path = tmp_path / "s.parquet"
    found = written(path, [("a", 1, 1)], 1)
    with pytest.raises(InvariantError, match="would not read"):
        read(path, found)
