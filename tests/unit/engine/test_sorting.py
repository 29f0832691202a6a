"""Sorting: any number of rows in bounded memory, by way of scratch, which is left clean."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dormouse.arrow.order import row_span, row_spans, sort_key
from dormouse.arrow.types import arrow_schema
from dormouse.rows import sorting
from dormouse.rows.sorting import Sorter
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Member, Primitive, StructType
from tests.support.batches import rows_of, schemas, sort_key_of
from tests.support.depth import examples
from tests.support.tables import batches_of, sort_rows
from tests.unit.query.test_oracle import assert_same_rows

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "valueFields": [{"name": "v", "type": "StringType"}],
    }
)


@settings(deadline=None, max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(data=st.data(), memory_bytes=st.sampled_from([1, 2000, 10**6, 10**8]))
def test_rows_come_sorted_whatever_fits_the_memory_and_whenever_they_are_spilled(
    data: st.DataObject, memory_bytes: int
) -> None:
    schema = data.draw(schemas())
    rows = data.draw(rows_of(schema))
    with TemporaryDirectory() as folder:  # the draw of an example may end it half-way
        scratch = Path(folder)
        sorter = Sorter(schema, scratch, memory_bytes=memory_bytes)
        for batch in batches_of(rows, schema, 3):
            other = Sorter(schema, scratch, memory_bytes=memory_bytes)
            target = data.draw(st.sampled_from([sorter, other]))
            target.add(batch)
            if data.draw(st.booleans()):
                target.spill()
            sorter.absorb(other)
        assert sorter.rows == len(rows)
        batches = list(sorter.sorted_rows())
        assert all(batch.schema == arrow_schema(schema) for batch in batches)
        found = [row for batch in batches for row in batch.to_pylist()]
        assert_same_rows(found, rows, schema)
        keys = [sort_key_of(row, schema) for row in found]
        assert keys == sorted(keys)
        assert not list(scratch.iterdir())


@settings(deadline=None, max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(data=st.data(), memory_bytes=st.sampled_from([1, 2000, 10**8]))
def test_rows_that_are_sorted_already_come_sorted_with_all_others(
    tmp_path: Path, data: st.DataObject, memory_bytes: int
) -> None:
    schema = data.draw(schemas())
    parts = data.draw(st.lists(rows_of(schema).filter(bool), min_size=1, max_size=3))
    choices = data.draw(st.lists(st.booleans(), min_size=6, max_size=6))
    sorter = Sorter(schema, tmp_path, memory_bytes=memory_bytes)
    for rows, is_sorted, is_spilled in zip(parts, choices[::2], choices[1::2], strict=False):
        if is_sorted:
            rows.sort(key=lambda row: sort_key_of(row, schema))
            sorter.add_sorted(list(batches_of(rows, schema, 3)))
        else:
            for batch in batches_of(rows, schema, 3):
                sorter.add(batch)
        if is_spilled:
            sorter.spill()
    found = [row for batch in sorter.sorted_rows() for row in batch.to_pylist()]
    assert_same_rows(found, [row for rows in parts for row in rows], schema)
    assert sorter.rows == len(found)
    assert not list(tmp_path.iterdir())


@settings(deadline=None, max_examples=examples(60))
@given(data=st.data())
def test_rows_before_and_up_to_a_key_are_counted_exactly(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    rows = data.draw(rows_of(schema).filter(bool))
    rows.sort(key=lambda row: sort_key_of(row, schema))
    (batch,) = batches_of(rows, schema, len(rows))
    keys = [sort_key_of(row, schema) for row in rows]
    assert keys == [sort_key(batch, n, schema) for n in range(len(rows))]
    others = data.draw(rows_of(schema, 2))
    for key in (*keys, *(sort_key_of(row, schema) for row in others)):
        key = key[: data.draw(st.integers(0, len(key)))]
        before = sum(k < key for k in keys)
        beginning = sum(k[: len(key)] == key for k in keys)
        assert row_span(batch, key, schema) == (before, before + beginning)
    assert row_spans(batch, keys, schema) == [row_span(batch, key, schema) for key in keys]


def scrambled(count: int, width: int = 0) -> Iterator[pa.RecordBatch]:
    """Return rows whose keys are 0 to `count`, a power of two, in no order."""
    for start in range(0, count, 1000):
        keys = [n * 4097 % count for n in range(start, min(count, start + 1000))]
        rows: list[dict[str, object]] = [{"k": k, "v": "x" * width} for k in keys]
        yield from batches_of(rows, SCHEMA, 1000)


def keys_of(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [key for batch in batches for key in batch.column("k").to_pylist()]


def test_more_rows_than_memory_spill_and_are_returned_range_by_range(tmp_path: Path) -> None:
    rows = list(sort_rows(scrambled(2**16), SCHEMA, memory_bytes=1 << 20, scratch=tmp_path))
    assert keys_of(rows) == list(range(2**16))
    assert max(batch.nbytes for batch in rows) <= 64 * 1024
    assert not list(tmp_path.iterdir())


def test_more_rows_than_may_be_in_memory_are_spilled(tmp_path: Path) -> None:
    sorter = Sorter(SCHEMA, tmp_path, memory_bytes=1 << 18)
    for batch in scrambled(2**16, 40):
        sorter.add(batch)
        assert sorter.held_bytes <= 1 << 17
    assert len(list(tmp_path.iterdir())) > 1
    assert keys_of(sorter.sorted_rows()) == [*range(2**16)]


def test_files_are_merged_before_there_are_too_many_to_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorting, "MAX_FILES", 4)
    sorter = Sorter(SCHEMA, tmp_path, memory_bytes=1 << 20)
    for batch in scrambled(2**13, 10):
        sorter.add(batch)
        sorter.spill()
    assert len(list(tmp_path.iterdir())) == 9
    rows = sorter.sorted_rows()
    next(rows)
    assert len(list(tmp_path.iterdir())) <= 4
    assert keys_of(rows)[-1] == 2**13 - 1
    assert not list(tmp_path.iterdir())


def test_ranges_of_a_sorted_run_are_as_small_as_pieces(tmp_path: Path) -> None:
    sorter = Sorter(SCHEMA, tmp_path, memory_bytes=1 << 20)
    rows = [{"k": k, "v": "x" * 10} for k in range(2**14)]
    for part in (rows[::2], rows[1::2]):
        sorter.add_sorted(list(batches_of(part, SCHEMA, 2**12)))
    found = list(sorter.sorted_rows())
    assert keys_of(found) == list(range(2**14))
    assert max(batch.nbytes for batch in found) <= 64 * 1024


def test_rows_of_one_key_beyond_the_memory_are_returned_unsorted(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"k": 5, "v": "x" * 1000} for _ in range(1000)]
    rows += [{"k": k, "v": ""} for k in (9, 1)]
    batches = batches_of(rows, SCHEMA, 100)
    found = list(sort_rows(batches, SCHEMA, memory_bytes=1 << 18, scratch=tmp_path))
    assert keys_of(found) == [1, *[5] * 1000, 9]
    assert max(batch.nbytes for batch in found) <= 16 * 1024


def test_batches_of_wide_rows_shrink_with_the_memory(tmp_path: Path) -> None:
    rows = sort_rows(scrambled(2**10, 20_000), SCHEMA, memory_bytes=8 << 20, scratch=tmp_path)
    assert max(batch.nbytes for batch in rows) <= 256 * 1024


def test_wide_rows_that_meet_among_narrow_ones_are_sorted_a_few_at_a_time(tmp_path: Path) -> None:
    sorter = Sorter(SCHEMA, tmp_path, memory_bytes=32 << 20)  # pieces of a megabyte
    wide = 0
    for piece in range(40):
        rows: list[dict[str, object]] = [{"k": k * 40 + piece, "v": "x" * 40} for k in range(2000)]
        for row in rows[1000:1003]:
            row["v"] = "x" * 100_000
            wide += 1
        sorter.add(next(iter(batches_of(rows, SCHEMA, len(rows)))))
        if piece == 20:
            sorter.spill()
    batches = list(sorter.sorted_rows())
    assert [n for batch in batches for n in batch.column(0).to_pylist()] == list(range(80_000))
    assert sum(batch.nbytes for batch in batches) > wide * 100_000
    assert max(batch.nbytes for batch in batches) < 2 << 20


def test_a_failing_source_or_a_reader_that_stops_leaves_scratch_clean(tmp_path: Path) -> None:
    sorter = Sorter(SCHEMA, tmp_path, memory_bytes=1 << 18)
    for batch in scrambled(2**11, 100):
        sorter.add(batch)
        sorter.spill()
    assert list(tmp_path.iterdir())
    sorter.discard()
    assert not list(tmp_path.iterdir())
    stopped = sort_rows(scrambled(2**11, 100), SCHEMA, memory_bytes=1 << 18, scratch=tmp_path)
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
        ordered = sort_rows(batches, schema, memory_bytes=1 << 20, scratch=tmp_path)
        return [row for batch in ordered for row in batch.to_pylist()]

    first = run()
    assert [sort_key_of(row, schema) for row in first] == sorted(
        sort_key_of(row, schema) for row in rows
    )
    assert run() == first


def test_slices_of_structs_within_structs_are_sorted_and_do_not_abort_the_engine(
    tmp_path: Path,
) -> None:
    inner = StructType((Member("n", Primitive.LONG),))
    schema = Schema(
        (Field("k", Primitive.LONG),), values=(Field("v", StructType((Member("i", inner),))),)
    )
    rows = [{"k": -n, "v": {"i": {"n": n}}} for n in range(9)]
    (batch,) = batches_of(rows, schema, size=9)
    sorter = Sorter(schema, tmp_path, memory_bytes=10**8)
    sorter.add(batch.slice(5, 3))
    assert [row for b in sorter.sorted_rows() for row in b.to_pylist()] == rows[5:8][::-1]


def test_what_was_sorted_in_memory_before_sorters_became_one_is_kept(tmp_path: Path) -> None:
    one, other = (Sorter(SCHEMA, tmp_path, memory_bytes=32_000) for _ in range(2))
    keys = list(range(400))
    for sorter, part in ((one, keys[::2]), (other, keys[1::2])):
        for batch in batches_of([{"k": key, "v": "x"} for key in reversed(part)], SCHEMA, 20):
            sorter.add(batch)
    assert other._held and not other._files, "it has runs in memory"
    one.absorb(other)
    assert [k for batch in one.sorted_rows() for k in batch.column("k").to_pylist()] == keys


def test_pending_rows_are_spilled_with_the_others(tmp_path: Path) -> None:
    sorter = Sorter(SCHEMA, tmp_path, memory_bytes=32_000)
    for start in (0, 100):
        for batch in batches_of([{"k": start + n, "v": "x"} for n in range(70)], SCHEMA, 1):
            sorter.add(batch)
        assert sorter._pending
        sorter.spill()
        assert sorter.held_bytes == 0
    found = [k for batch in sorter.sorted_rows() for k in batch.column("k").to_pylist()]
    assert found == [*range(70), *range(100, 170)]
