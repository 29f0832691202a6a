"""Batches of a merge are joined, up to a number of rows and of bytes."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dormouse.arrow.types import gathered, halved

ROW_BYTES = 8


@given(st.lists(st.integers(0, 5)), st.integers(1, 8), st.integers(1, 100))
def test_short_batches_are_joined_without_loss_and_no_longer_than_needed(
    lengths: list[int], rows: int, size_bytes: int
) -> None:
    numbers = iter(range(sum(lengths)))
    schema = pa.schema([("number", pa.int64())])
    given_batches = [
        pa.record_batch([pa.array([next(numbers) for _ in range(n)], pa.int64())], schema=schema)
        for n in lengths
    ]
    joined = list(gathered(given_batches, rows, size_bytes))
    assert [n for batch in joined for n in batch.column(0).to_pylist()] == list(range(sum(lengths)))
    for batch in joined[:-1]:
        enough = min(rows, -(-size_bytes // ROW_BYTES))
        assert enough <= batch.num_rows < enough + max(lengths)


@given(st.lists(st.sampled_from([0, 1, 10, 5_000]), min_size=1), st.integers(1, 10_000))
def test_slices_are_small_however_the_sizes_of_rows_differ(
    lengths: list[int], size_bytes: int
) -> None:
    batch = pa.record_batch([pa.array(["x" * n for n in lengths])], names=["text"])
    parts = list(halved(batch, size_bytes))
    assert [len(text) for part in parts for text in part.column(0).to_pylist()] == lengths
    assert all(part.num_rows == 1 or part.nbytes <= size_bytes for part in parts)
