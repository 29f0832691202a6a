"""Rows as JSON and CSV: every type, so that what is written can be ingested again as it was."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dormouse.arrow.types import arrow_schema, frame_schema
from dormouse.schema.schema import (
    DecimalType,
    Field,
    ListType,
    MapType,
    Member,
    Primitive,
    Schema,
    StructType,
)
from dormouse.sources.formats import read_source
from dormouse_cli.values.row_output import json_cells, write_csv, write_json
from tests.support.batches import rows_of

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


def rows() -> pa.Table:
    nested = [
        None,
        dict.fromkeys(["raw", "at", "days", "in"]),
        {"raw": b"\xff", "at": [None, NOON], "days": [(DAY, None)], "in": {"n": Decimal("-1.5")}},
        {"raw": b"", "at": [], "days": [], "in": {"n": Decimal(0)}},
    ]
    wanted = arrow_schema(SCHEMA)
    days = pa.array([None, -(2**31), 0, 2**31 - 1], pa.int32()).cast(pa.date32())
    times = pa.array([-(2**63), None, 1, 2**63 - 1], pa.int64()).cast(wanted.field("at").type)
    columns = [pa.array(range(4), pa.int64()), pa.array(nested, wanted.field("v").type)]
    return pa.Table.from_arrays([*columns, days, times], schema=wanted)


def test_what_is_written_is_read_back_as_it_was(tmp_path: Path) -> None:
    for suffix, write in ((".json", write_json), (".csv", write_csv)):
        local, sink = tmp_path / f"x{suffix}", io.BytesIO()
        assert write(rows().to_reader(), sink) == 4
        local.write_bytes(sink.getvalue())
        assert pa.Table.from_batches(read_source(local, local.name, SCHEMA)).equals(rows())


def test_slices_give_their_own_cells() -> None:
    (batch,) = rows().to_batches()
    for name in batch.schema.names:
        column = batch.column(name)
        assert json_cells(column.slice(2, 1)) == list(json_cells(column))[2:3]
        assert json_cells(column.slice(4)) == []


def test_lists_and_maps_behind_others_have_their_own_items() -> None:
    lists = pa.array([[1], [2, 3], None, [4]], pa.list_(pa.int64()))
    assert json_cells(lists.slice(1)) == [[2, 3], None, [4]]
    maps = pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string(), pa.int64()))
    assert json_cells(maps.slice(1)) == [{"b": 2}]


def test_times_and_dates_without_a_year_of_four_digits_are_numbers() -> None:
    sink = io.BytesIO()
    write_json(rows().to_reader(), sink)
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
            Field(f"l{at}", ListType(kind), nullable=True),
        )
    ),
)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_values_of_every_type_are_read_back_as_they_were(data: st.DataObject) -> None:
    rows = data.draw(rows_of(PLAIN, max_size=3))
    stored = pa.Table.from_pylist(rows, arrow_schema(PLAIN))
    table = stored.cast(frame_schema(stored.schema))
    for suffix, write in ((".json", write_json), (".csv", write_csv)):
        with TemporaryDirectory() as folder:
            local, sink = Path(folder) / f"x{suffix}", io.BytesIO()
            write(table.to_reader(), sink)
            local.write_bytes(sink.getvalue())
            found = pa.Table.from_batches(
                read_source(local, local.name, PLAIN), arrow_schema(PLAIN)
            )
        assert repr(found.to_pylist()) == repr(stored.to_pylist())  # NaN is not equal to itself
