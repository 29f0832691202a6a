"""Sorting: any number of rows in bounded memory, by way of scratch, which is left clean."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dormouse.model.schema import Schema
from dormouse.shards import sorting, steps
from dormouse.shards.arrow import arrow_schema
from dormouse.shards.sorting import sort_rows
from tests.unit.shards.strategies import rows_of, schemas, sort_key_of
from tests.unit.shards.tables import batches_of
from tests.unit.shards.test_oracle import assert_same_rows

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "valueFields": [{"name": "v", "type": "StringType"}],
    }
)


@settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck))
@given(data=st.data(), memory_bytes=st.sampled_from([1, 2000, 10**8]))
def test_rows_come_sorted_whether_or_not_they_fit_the_memory(
    tmp_path: Path, data: st.DataObject, memory_bytes: int
) -> None:
    schema = data.draw(schemas())
    rows = data.draw(rows_of(schema))
    found = sort_rows(batches_of(rows, schema), schema, memory_bytes=memory_bytes, scratch=tmp_path)
    batches = list(found)
    assert all(batch.schema == arrow_schema(schema) for batch in batches)
    assert_same_rows([row for b in batches for row in b.to_pylist()], rows, schema)
    assert not list(tmp_path.iterdir())


def scrambled(count: int, width: int = 0) -> Iterator[pa.RecordBatch]:
    """Give rows whose keys are 0 to `count`, a power of two, in no order."""
    for start in range(0, count, 1000):
        keys = [n * 4097 % count for n in range(start, min(count, start + 1000))]
        rows: list[dict[str, object]] = [{"k": k, "v": "x" * width} for k in keys]
        yield from batches_of(rows, SCHEMA, 1000)


def test_more_rows_than_memory_spill_and_are_given_as_a_stream(tmp_path: Path) -> None:
    rows = sort_rows(scrambled(2**16), SCHEMA, memory_bytes=1 << 20, scratch=tmp_path)
    keys = [key for batch in rows for key in batch.column("k").to_pylist()]
    assert keys == list(range(2**16))


def test_a_merge_of_many_runs_goes_step_by_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "GROUPS_PER_STEP", 0)
    monkeypatch.setattr(sorting, "RUN_ROW_GROUP_BYTES", 1 << 14)
    monkeypatch.setattr(sorting, "PIECE_ROWS", 1 << 12)
    rows = sort_rows(scrambled(2**14, 10), SCHEMA, memory_bytes=1 << 18, scratch=tmp_path)
    keys = [key for batch in rows for key in batch.column("k").to_pylist()]
    assert keys == list(range(2**14))


def test_batches_of_wide_rows_shrink_with_the_memory(tmp_path: Path) -> None:
    rows = sort_rows(scrambled(2**10, 20_000), SCHEMA, memory_bytes=8 << 20, scratch=tmp_path)
    assert max(batch.nbytes for batch in rows) <= 2 << 20


def test_a_failing_source_or_a_reader_that_stops_leaves_scratch_clean(tmp_path: Path) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from scrambled(2**12, 100)
        raise OSError("the source broke")

    with pytest.raises(OSError, match="broke"):
        list(sort_rows(failing(), SCHEMA, memory_bytes=1 << 18, scratch=tmp_path))
    stopped = sort_rows(scrambled(2**12, 100), SCHEMA, memory_bytes=1 << 18, scratch=tmp_path)
    next(stopped)
    assert isinstance(stopped, Generator)
    stopped.close()
    assert not list(tmp_path.iterdir())


def test_equal_files_sort_equally_every_time(tmp_path: Path) -> None:
    schema = Schema.from_json(
        {
            "rowKeyFields": [{"name": "k", "type": "LongType"}],
            "valueFields": [{"name": "v", "type": "LongType"}],
        }
    )
    rows: list[dict[str, object]] = [{"k": n % 7, "v": n} for n in range(5000)]

    def run() -> list[dict[str, object]]:
        batches = batches_of(rows, schema, 100)
        ordered = sort_rows(batches, schema, memory_bytes=1 << 30, scratch=tmp_path)
        return [row for batch in ordered for row in batch.to_pylist()]

    first = run()
    assert [sort_key_of(row, schema) for row in first] == sorted(
        sort_key_of(row, schema) for row in rows
    )
    assert run() == first
