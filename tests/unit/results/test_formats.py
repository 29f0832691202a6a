"""Rows in every format: what is written can be ingested again as it was."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dormouse.arrow.types import arrow_schema, frame_schema
from dormouse.errors import InvalidRequestError
from dormouse.files import results
from dormouse.files.casting import FIRST_SECOND, LAST_SECOND
from dormouse.files.formats import read_source
from dormouse.files.results import ResultFormat, RowFile, RowWriter, json_cells, write_rows
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import DecimalType, ListType, MapType, Member, Primitive, StructType
from tests.support.batches import rows_of
from tests.support.depth import examples

NESTED = StructType(
    (
        Member("raw", Primitive.BYTES, nullable=True),
        Member("at", ListType(Primitive.TIMESTAMP), nullable=True),
        Member("days", MapType(Primitive.DATE, Primitive.DATE), nullable=True),
        Member("in", StructType((Member("n", DecimalType(38, 1)),)), nullable=True),
    )
)
SCHEMA = Schema(
    (Field("k", Primitive.LONG),),
    values=(
        Field("v", NESTED, nullable=True),
        Field("day", Primitive.DATE, nullable=True, unit="days"),
        Field("at", Primitive.TIMESTAMP, nullable=True, unit="microseconds"),
    ),
)
NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
DAY = dt.date(2024, 2, 29)


def rows(*, any_year: bool = False) -> pa.Table:
    """Return rows with the ends of dates and times that files have, or that Arrow has."""
    nested = [
        None,
        dict.fromkeys(["raw", "at", "days", "in"]),
        {"raw": b"\xff", "at": [None, NOON], "days": [(DAY, None)], "in": {"n": Decimal("-1.5")}},
        {"raw": b"", "at": [], "days": [], "in": {"n": Decimal(0)}},
    ]
    wanted = arrow_schema(SCHEMA)
    first, last = FIRST_SECOND // 86_400, LAST_SECOND // 86_400
    of_days = (-(2**31), 2**31 - 1) if any_year else (first, last)
    of_times = (FIRST_SECOND * 10**6, LAST_SECOND * 10**6 + 999_999)
    low, high = (-(2**63), 2**63 - 1) if any_year else of_times
    days = pa.array([None, of_days[0], 0, of_days[1]], pa.int32()).cast(pa.date32())
    times = pa.array([low, None, 1, high], pa.int64()).cast(wanted.field("at").type)
    columns = [pa.array(range(4), pa.int64()), pa.array(nested, wanted.field("v").type)]
    return pa.Table.from_arrays([*columns, days, times], schema=wanted)


def test_what_is_written_is_read_back_as_it_was(tmp_path: Path) -> None:
    for form in ResultFormat:
        local, sink = tmp_path / f"x{form.suffix}", io.BytesIO()
        assert write_rows(form, rows().to_batches(), rows().schema, sink) == 4
        local.write_bytes(sink.getvalue())
        assert pa.Table.from_batches(read_source(local, local.name, SCHEMA)).equals(rows())


def test_slices_give_their_own_cells() -> None:
    (batch,) = rows().to_batches()
    for name in batch.schema.names:
        column = batch.column(name)
        assert json_cells(column.slice(2, 1)) == list(json_cells(column))[2:3]
        assert json_cells(column.slice(4)) == []


def test_floats_have_the_fewest_digits_that_give_them_back() -> None:
    floats = [17.457754, 1e-45, 3.4e38, 0.1, -0.0, 16777216.0, None]
    assert json_cells(pa.array(floats, pa.float32())) == floats
    special = pa.array([float("nan"), float("-inf")], pa.float32())
    assert json_cells(special) == ["NaN", "-Infinity"]


def test_lists_and_maps_behind_others_have_their_own_items() -> None:
    lists = pa.array([[1], [2, 3], None, [4]], pa.list_(pa.int64()))
    assert json_cells(lists.slice(1)) == [[2, 3], None, [4]]
    maps = pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string(), pa.int64()))
    assert json_cells(maps.slice(1)) == [{"b": 2}]


def test_times_and_dates_without_a_year_of_four_digits_are_numbers() -> None:
    sink = io.BytesIO()
    made = rows(any_year=True)
    write_rows(ResultFormat.json, made.to_batches(), made.schema, sink)
    lines = [json.loads(line) for line in sink.getvalue().splitlines()]
    assert [line["day"] for line in lines] == [None, -(2**31), "1970-01-01", 2**31 - 1]
    last = "1970-01-01T00:00:00.000001Z"
    assert [line["at"] for line in lines] == [-(2**63), None, last, 2**63 - 1]


PLAIN_TYPES = [*Primitive, DecimalType(38, 19)]
PLAIN = Schema(
    (Field("k", Primitive.LONG),),
    values=tuple(
        field
        for at, kind in enumerate(PLAIN_TYPES)
        for field in (
            Field(f"v{at}", kind, nullable=True),
            *(
                [Field(f"l{at}", ListType(kind), nullable=True)]
                if kind is not Primitive.DYNAMIC
                else []
            ),
        )
    ),
)


@settings(max_examples=examples(15), deadline=None)
@given(data=st.data())
def test_values_of_every_type_are_read_back_as_they_were(data: st.DataObject) -> None:
    rows = data.draw(rows_of(PLAIN, max_size=3))
    stored = pa.Table.from_pylist(rows, arrow_schema(PLAIN))
    table = stored.cast(frame_schema(stored.schema))
    for form in ResultFormat:
        with TemporaryDirectory() as folder:
            local, sink = Path(folder) / f"x{form.suffix}", io.BytesIO()
            write_rows(form, table.to_batches(max_chunksize=1), table.schema, sink)
            local.write_bytes(sink.getvalue())
            found = pa.Table.from_batches(
                read_source(local, local.name, PLAIN), arrow_schema(PLAIN)
            )
        assert repr(found.to_pylist()) == repr(stored.to_pylist())  # NaN is not equal to itself


@pytest.mark.parametrize("form", ResultFormat)
def test_a_result_without_rows_is_a_file_that_can_be_read(
    form: ResultFormat, tmp_path: Path
) -> None:
    local, sink = tmp_path / f"x{form.suffix}", io.BytesIO()
    assert write_rows(form, (), arrow_schema(PLAIN), sink) == 0
    local.write_bytes(sink.getvalue())
    assert list(read_source(local, local.name, PLAIN)) == []


ZONE = pa.timestamp("us", "+01:00")
OF_STATEMENTS: list[tuple[pa.Array[Any], object]] = [
    (pa.array(["a"], pa.string_view()), "a"),
    (pa.array(["a"], pa.large_string()), "a"),
    (pa.array(["a"]).dictionary_encode(), "a"),
    (pa.RunEndEncodedArray.from_arrays([1], [5]), 5),
    (pa.array([b"x"], pa.large_binary()), "eA=="),
    (pa.array([b"x"], pa.binary_view()), "eA=="),
    (pa.array([b"xyz"], pa.binary(3)), "eHl6"),
    (pa.array([[b"x"]], pa.large_list(pa.binary())), ["eA=="]),
    (pa.array([[b"x"]], pa.list_(pa.binary(), 1)), ["eA=="]),
    (pa.array([2**64 - 1], pa.uint64()), 2**64 - 1),
    (pa.array([1.5], pa.float16()), 1.5),
    (pa.nulls(1), None),
    (pa.array([86_400_000], pa.date64()), "1970-01-02"),
    (pa.array([5], pa.time32("s")), "00:00:05"),
    (pa.array([86_400_000_000], pa.time64("us")), "24:00:00"),
    (pa.array([5_000_001], pa.time64("ns")), "00:00:00.005000001"),
    (pa.array([1], pa.time64("ns")), "00:00:00.000000001"),
    (pa.array([1], pa.timestamp("s")), "1970-01-01T00:00:01"),
    (pa.array([1], ZONE), "1970-01-01T00:00:00.000001Z"),
    (pa.array([2**62], pa.timestamp("ms")), 2**62),
    (pa.array([253_402_300_799_999], pa.timestamp("ms")), "9999-12-31T23:59:59.999"),
    (pa.array([-1_500], pa.duration("ms")), "-PT1.5S"),
    (pa.array([1_501], pa.duration("ns")), "PT0.000001501S"),
    (pa.array([2**62], pa.duration("s")), f"PT{2**62}S"),
    (pa.array([pa.MonthDayNano([1, -2, 3])]), "P1M-2DT0.000000003S"),
    (pa.array([pa.MonthDayNano([0, 0, -(10**9)])]), "P0M0DT-1S"),
]


WIDE = pa.Array.from_buffers(
    pa.decimal128(38, 0), 1, [None, pa.py_buffer((2**127 - 1).to_bytes(16, "little"))]
)
"""A number of 39 digits, as DuckDB gives a HUGEINT."""


@pytest.mark.parametrize(("column", "cell"), OF_STATEMENTS, ids=lambda each: str(each)[:40])
def test_types_that_only_statements_have_are_exact_in_text(
    column: pa.Array[Any], cell: object
) -> None:
    assert list(json_cells(column)) == [cell]
    batch = pa.record_batch([column], names=["v"])
    texts = {}
    for form in (ResultFormat.json, ResultFormat.csv):
        sink = io.BytesIO()
        assert write_rows(form, [batch], batch.schema, sink) == 1
        texts[form] = sink.getvalue().decode()
    assert json.loads(texts[ResultFormat.json]) == {"v": cell}
    (_, line) = csv.reader(io.StringIO(texts[ResultFormat.csv]))
    if isinstance(cell, str):
        assert line == [cell]


@pytest.mark.parametrize(
    ("form", "column"),
    [
        (ResultFormat.parquet, pa.array([pa.MonthDayNano([1, 2, 3])])),
        (ResultFormat.parquet, pa.array([2**62], pa.timestamp("s"))),
        (ResultFormat.parquet, pa.array([86_400_000_000], pa.time64("us"))),
        (ResultFormat.arrow, pa.array([86_400_000_000], pa.time64("us"))),
        (ResultFormat.feather, WIDE),
        (ResultFormat.json, pa.array([2**62], pa.date64())),
        (ResultFormat.csv, pa.array([2**62], pa.date64())),
    ],
    ids=str,
)
def test_what_a_format_does_not_have_is_refused_and_not_quoted(
    form: ResultFormat, column: pa.Array[Any], tmp_path: Path
) -> None:
    batch = pa.record_batch([column], names=["v"])
    with pytest.raises(InvalidRequestError, match="does not have") as caught:
        write_rows(form, [batch], batch.schema, io.BytesIO())
    assert str(2**62) not in caught.value.explanation
    with pytest.raises(InvalidRequestError, match="does not have"):
        file = RowFile(tmp_path / "rows", form, batch.schema)
        file.write(batch)
        file.close()


def test_json_is_refused_that_would_lose_one_of_two_columns_with_one_name() -> None:
    batch = pa.record_batch([[1], [2]], names=["n", "n"])
    with pytest.raises(InvalidRequestError, match="two columns called 'n'"):
        write_rows(ResultFormat.json, [batch], batch.schema, io.BytesIO())
    sink = io.BytesIO()
    write_rows(ResultFormat.csv, [batch], batch.schema, sink)
    assert sink.getvalue() == b'"n","n"\n1,2\n'


def test_small_batches_share_a_row_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "ROW_GROUP_ROWS", 10)
    batch = pa.record_batch([pa.array(range(4))], names=["v"])
    sink = io.BytesIO()
    write_rows(ResultFormat.parquet, [batch] * 6, batch.schema, sink)
    found = pq.ParquetFile(io.BytesIO(sink.getvalue()))
    groups = [found.metadata.row_group(i).num_rows for i in range(found.num_row_groups)]
    assert groups == [10, 10, 4]
    assert found.read().column("v").to_pylist() == [*range(4)] * 6


def test_a_file_is_not_complete_before_its_writer_is_closed() -> None:
    batch = pa.record_batch([pa.array(range(4))], names=["v"])
    sink = io.BytesIO()
    writer = RowWriter(sink, ResultFormat.parquet, batch.schema)
    writer.write(batch)
    with pytest.raises(pa.ArrowInvalid):
        pq.ParquetFile(io.BytesIO(sink.getvalue()))
    writer.close()
    assert pq.read_table(io.BytesIO(sink.getvalue())).num_rows == 4


@pytest.mark.parametrize("form", ResultFormat)
def test_a_local_file_grows_by_what_is_written_and_is_whole_when_closed(
    form: ResultFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "ROW_GROUP_ROWS", 1)
    local = tmp_path / f"x{form.suffix}"
    file = RowFile(local, form, rows().schema)
    sizes = []
    for batch in rows().to_batches(max_chunksize=1):
        file.write(batch)
        sizes.append(file.size_bytes)
    file.close()
    file.end()
    assert sorted(set(sizes)) == sizes
    assert (file.rows, pa.Table.from_batches(read_source(local, local.name, SCHEMA))) == (4, rows())


@pytest.mark.parametrize("form", ResultFormat)
def test_a_file_that_is_given_up_is_closed(form: ResultFormat, tmp_path: Path) -> None:
    file = RowFile(tmp_path / "x", form, rows().schema)
    file.write(rows().to_batches()[0])
    file.end()
    with pytest.raises(ValueError, match="closed"):
        file.size_bytes  # noqa: B018


@pytest.mark.parametrize(
    "text", ['a"b', "a,b", "a\nb", "a\r\nb", "", " ", "=1+1", "\u2028", "\x00"]
)
def test_csv_is_read_by_the_readers_of_others(text: str) -> None:
    batch = pa.record_batch([pa.array([text, None]), pa.array([1, 2])], names=['a"1', "b,2"])
    sink = io.BytesIO()
    write_rows(ResultFormat.csv, [batch], batch.schema, sink)
    lines = list(csv.reader(io.StringIO(sink.getvalue().decode(), newline="")))
    assert lines == [['a"1', "b,2"], [text, "1"], ["", "2"]]
