"""Pages of column chunks, and the structs of Thrift that describe them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import CorruptDataError
from dormouse.shards import thrift
from dormouse.shards.crcs import chunk_span
from dormouse.shards.thrift import pages_of

INTEGERS = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(st.integers(1, 15), INTEGERS | st.binary(max_size=300)), max_size=9))
def test_a_struct_is_read_as_it_was_written(steps: list[tuple[int, int | bytes]]) -> None:
    fields: list[thrift.Field] = []
    expected, number = {}, 0
    for step, value in steps:
        number += step
        expected[number] = value
        if isinstance(value, int):
            fields.append((number, thrift.INT64, thrift.signed(value)))
        else:
            fields.append((number, thrift.BINARY, thrift.binary(value)))
    body = thrift.struct(fields)
    assert thrift.read_struct(body + b"more", 0) == (expected, len(body))


@pytest.mark.parametrize("length", [0, 1, 14, 15, 200])
def test_a_list_is_read_as_it_was_written(length: int) -> None:
    items = thrift.list_of(thrift.INT32, [thrift.signed(-n) for n in range(length)])
    inner = thrift.struct([(1, thrift.LIST, items)])
    body = thrift.struct([(3, thrift.STRUCT, inner)])
    assert thrift.read_struct(body, 0)[0] == {3: {1: [-n for n in range(length)]}}


def test_field_numbers_far_apart_and_truth_values_are_read() -> None:
    body = b"\x06\x80\x04" + thrift.signed(7) + b"\x11\x12\0"  # field 256 in full, then two bits
    assert thrift.read_struct(body, 0)[0] == {256: 7, 257: True, 258: False}


def test_a_struct_that_ends_early_is_no_struct() -> None:
    body = thrift.struct([(1, thrift.INT32, thrift.signed(1000))])
    for length in range(len(body)):
        with pytest.raises(IndexError):
            thrift.read_struct(body[:length], 0)


def first_chunk(values: pa.Array[Any], **layout: Any) -> tuple[bytes, int]:
    sink = pa.BufferOutputStream()
    table = pa.table({"a": values})
    with pq.ParquetWriter(sink, table.schema, max_rows_per_page=10, **layout) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    chunk = pq.read_metadata(pa.BufferReader(body)).row_group(0).column(0)
    start, end = chunk_span(chunk)
    return body[start:end], chunk.data_page_offset - start


@pytest.mark.parametrize("kind", [0, 2])
def test_a_page_of_a_negative_size_is_refused(kind: int) -> None:
    values = thrift.struct([(n, thrift.INT32, thrift.signed(1)) for n in (1, 2, 3, 4)])
    sizes = [
        (n, thrift.INT32, thrift.signed(size)) for n, size in ((1, kind), (2, 9), (3, -9), (4, 1))
    ]
    header = thrift.struct([*sizes, (5, thrift.STRUCT, values)])
    with pytest.raises(CorruptDataError, match="negative"):
        pages_of(header)


@pytest.mark.parametrize("use_dictionary", [True, False])
@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_pages_tile_their_chunk_and_its_rows(use_dictionary: bool, compression: str) -> None:
    values = pa.array([None if n % 7 == 0 else f"value {n % 5}" for n in range(95)])
    chunk, dictionary_bytes = first_chunk(
        values, use_dictionary=use_dictionary, compression=compression
    )
    pages = pages_of(chunk)
    assert pages[0].start == dictionary_bytes
    assert bool(dictionary_bytes) == use_dictionary
    starts = [(page.start, page.first_row) for page in pages]
    ends = [(page.end, page.end_row) for page in pages]
    assert starts[1:] == ends[:-1]
    assert ends[-1] == (len(chunk), 95)
    assert [page.end_row - page.first_row for page in pages] == [10] * 9 + [5]


def test_pages_of_another_form_are_refused() -> None:
    chunk, _ = first_chunk(pa.array(range(95)), data_page_version="2.0")
    with pytest.raises(CorruptDataError, match="a page is of the unknown type 3"):
        pages_of(chunk)
    with pytest.raises(CorruptDataError, match="no pages"):
        pages_of(b"")
