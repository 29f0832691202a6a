"""Batches of a merge are joined, and the memory of a row is computed from a footer."""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.arrow.statistics import row_bytes
from dormouse.arrow.types import gathered


@given(st.lists(st.integers(0, 5)), st.integers(1, 8))
def test_short_batches_are_joined_without_loss_and_no_longer_than_needed(
    lengths: list[int], rows: int
) -> None:
    numbers = iter(range(sum(lengths)))
    schema = pa.schema([("number", pa.int64())])
    given_batches = [
        pa.record_batch([pa.array([next(numbers) for _ in range(n)], pa.int64())], schema=schema)
        for n in lengths
    ]
    joined = list(gathered(given_batches, rows))
    assert [n for batch in joined for n in batch.column(0).to_pylist()] == list(range(sum(lengths)))
    for batch in joined[:-1]:
        assert rows <= batch.num_rows < rows + max(lengths)


def _footer(rows: pa.Table, group_rows: int) -> pq.FileMetaData:
    file = io.BytesIO()
    encodings = {"packed": "DELTA_BINARY_PACKED"} if "packed" in rows.column_names else None
    pq.write_table(
        rows, file, row_group_size=group_rows, use_dictionary=False, column_encoding=encodings
    )
    return pq.read_metadata(file)


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"packed": pa.array(range(4000), pa.int64())}),
        pa.table({"flags": pa.array([True, False] * 2000)}),
        pa.table({"empty": pa.array([""] * 4000)}),
        pa.table({"uuids": pa.array([b"x" * 16] * 4000, pa.binary(16))}),
        pa.table({"lists": pa.array([list(range(50))] * 4000, pa.list_(pa.int32()))}),
    ],
    ids=lambda rows: rows.column_names[0],
)
def test_a_row_counts_as_it_is_in_memory_however_it_is_packed(rows: pa.Table) -> None:
    needed = rows.nbytes / rows.num_rows
    assert 0.95 * needed <= row_bytes(_footer(rows, 1000))


def test_rows_count_as_those_of_the_widest_row_group() -> None:
    letters = random.Random(1).randbytes(1000).hex()
    rows = pa.table({"text": ["a"] * 9990 + [letters] * 10})
    assert row_bytes(_footer(rows, 10)) > 2000
