"""The length of a merge's batches: bounded in rows, in bytes, and by the memory of all inputs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dormouse.rows.datafusion import (
    BATCHES_PER_INPUT,
    MAX_BATCH_BYTES,
    MAX_BATCH_ROWS,
    MAX_JOINED_ROWS,
    MERGE_BYTES,
    MIN_BATCH_ROWS,
    batch_rows,
)


@given(st.integers(1, 2**34), st.integers(1, 500), st.floats(0.1, 2e6))
def test_a_batch_of_a_merge_is_bounded_however_wide_rows_are(
    memory_bytes: int, inputs: int, row_bytes: float
) -> None:
    rows = batch_rows(memory_bytes, inputs, row_bytes)
    assert MIN_BATCH_ROWS <= rows <= MAX_BATCH_ROWS
    if rows > MIN_BATCH_ROWS:
        assert rows * row_bytes <= MAX_BATCH_BYTES
        assert rows * row_bytes * BATCHES_PER_INPUT * (inputs + 1) <= memory_bytes


def test_batches_of_narrow_rows_are_as_long_as_pays() -> None:
    assert batch_rows(2**30, 4, 36) == MAX_BATCH_ROWS
    assert batch_rows(2**30, 0, 20, MAX_JOINED_ROWS) == MAX_JOINED_ROWS


def test_many_inputs_take_no_more_memory_than_few() -> None:
    few, many = (batch_rows(2**34, inputs, 36) for inputs in (15, 150))
    assert many < few / 9
    assert many * 36 * BATCHES_PER_INPUT * 150 <= MERGE_BYTES


def test_rows_of_a_megabyte_come_one_at_a_time() -> None:
    assert batch_rows(2**30, 50, 1e6) == 1
