"""A sample of keys is bounded, uniform, and the same for the same seed."""

from __future__ import annotations

import pyarrow as pa

from dormouse.arrow.types import arrow_schema
from dormouse.client.inferring import KeySample
from tests.support.world import LETTERS


def batch(first: int, rows: int) -> pa.RecordBatch:
    columns = [
        pa.array([f"{first + i:06d}" for i in range(rows)]),
        pa.array(range(rows), pa.int64()),
        pa.nulls(rows, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(LETTERS))


def sample_of(rows: int, most: int, seed: int = 0) -> KeySample:
    sample = KeySample(LETTERS, most, seed)
    for first in range(0, rows, 1000):
        sample.add(batch(first, 1000))
    return sample


def test_few_rows_are_all_kept_in_order_of_their_keys() -> None:
    sample = KeySample(LETTERS, 10, 0)
    for first in (5, 0):
        sample.add(batch(first, 5))
    assert sample.sorted_keys() == [(f"{n:06d}",) for n in range(10)]
    assert KeySample(LETTERS, 10, 0).sorted_keys() == []


def test_of_many_rows_a_bounded_number_is_kept_from_all_over() -> None:
    sample = sample_of(20_000, 1000)
    keys = [int(str(key[0])) for key in sample.sorted_keys()]
    assert (sample.rows, len(keys), len(set(keys))) == (20_000, 1000, 1000)
    assert keys == sorted(keys)
    for quarter in range(4):
        low = quarter * 5000
        assert 180 < sum(low <= key < low + 5000 for key in keys) < 320


def test_the_same_seed_keeps_the_same_rows() -> None:
    assert sample_of(5000, 50).sorted_keys() == sample_of(5000, 50).sorted_keys()
    assert sample_of(5000, 50).sorted_keys() != sample_of(5000, 50, seed=1).sorted_keys()
