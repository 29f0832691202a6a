"""Values of Python programs as columns: exact, or refused without being quoted."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.arrow.types import arrow_schema
from dormouse.errors import RefusedSourceError
from dormouse.files.casting import check_columns
from dormouse.files.cells import rows_to_batch
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive, parse_type_text
from tests.support.batches import rows_of, schemas


def column(kind: str, *values: object) -> list[object]:
    """Return values after they were converted to a nullable column of a type."""
    fields = (Field("v", parse_type_text(kind), nullable=True),)
    schema = Schema((Field("k", Primitive.LONG),), values=fields)
    rows = [{"k": n, "v": value} for n, value in enumerate(values)]
    return rows_to_batch(rows, schema).column(1).to_pylist()


@given(st.data())
def test_values_of_every_type_come_back_equal(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    rows = data.draw(rows_of(schema, max_size=5))
    found = rows_to_batch(rows, schema).to_pylist()
    wanted = pa.RecordBatch.from_pylist(rows, arrow_schema(schema)).to_pylist()
    assert repr(found) == repr(wanted)  # NaN is not equal to itself


def test_numbers_of_numpy_and_arrays_are_accepted() -> None:
    assert column("long", np.int64(7), np.uint8(3)) == [7, 3]
    assert column("double", np.float32(0.5), np.int64(2), 3) == [0.5, 2.0, 3.0]
    assert column("boolean", np.bool_(True)) == [True]
    assert column("list<long>", np.array([1, 2]), (3,)) == [[1, 2], [3]]
    assert column("map<string,long>", {"a": 1}, [("b", None)]) == [[("a", 1)], [("b", None)]]
    assert column("decimal(4,2)", 3, Decimal("1.5")) == [Decimal("3.00"), Decimal("1.50")]


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("long", True, "of the type bool"),
        ("long", 1.0, "of the type float"),
        ("long", "1", "of the type str"),
        ("long", 2**63, "long"),
        ("long", np.array([1]), "of the type ndarray"),
        ("long", np.array([1, 2]), "of the type ndarray"),
        ("double", np.array([1.5]), "of the type ndarray"),
        ("double", np.timedelta64(1), "of the type timedelta64"),
        ("list<long>", np.array(["2024-01-01"], "M8[ns]"), "of the type ndarray"),
        ("dynamic", np.timedelta64(1, "ns"), "of the type timedelta64"),
        ("int", 2**31, "int"),
        ("double", 2**53 + 1, "does not fit a float exactly"),
        ("double", True, "of the type bool"),
        ("double", np.bool_(True), "double"),
        ("float", 1e39, "too large"),
        ("boolean", 1, "of the type int"),
        ("string", b"x", "of the type bytes"),
        ("string", "\ud800", "string"),
        ("bytes", "x", "of the type str"),
        ("timestamp", dt.datetime.fromisoformat("2024-01-01"), "has no time zone"),
        ("timestamp", dt.date(2024, 1, 1), "of the type date"),
        ("timestamp", pd.Timestamp(1, unit="ns", tz="UTC"), "whole microseconds"),
        ("date", dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "of the type datetime"),
        ("timestamp_ntz", dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "has a time zone"),
        ("timestamp_ns", pd.Timestamp(1, unit="ns"), "has no time zone"),
        ("timestamp_ns", dt.datetime(1500, 1, 1, tzinfo=dt.UTC), "timestamp_ns"),
        ("time", dt.time(12, tzinfo=dt.UTC), "of the type time"),
        ("time", 7, "of the type int"),
        ("uuid", b"short", "it is no UUID"),
        ("uuid", "short", "expected: a UUID such as"),
        ("decimal(3,1)", Decimal("1.25"), "data loss"),
        ("decimal(3,1)", Decimal("NaN"), "not finite"),
        ("decimal(3,1)", 1.5, "of the type float"),
        ("list<long>", "ab", "of the type str"),
        ("list<long>", [1, "x"], "of the type str"),
        ("struct<a:long>", {"a": 1, "b": 2}, "unknown member"),
        ("struct<a:long>", {}, "'a' has no value in it"),
        ("struct<a:long>", [1], "of the type list"),
        ("map<string,long>", [1], "pairs of key and value"),
    ],
)
def test_a_value_that_would_change_is_refused_with_its_row(
    kind: str, value: object, reason: str
) -> None:
    with pytest.raises(RefusedSourceError, match="row 2, column 'v'") as caught:
        column(kind, None, value)
    assert reason in caught.value.explanation


def test_names_of_a_row_are_those_of_columns() -> None:
    schema = Schema(
        (Field("k", Primitive.LONG),), values=(Field("v", Primitive.LONG, nullable=True),)
    )
    check = partial(check_columns, schema=schema, of="the row", quotes_all=True)
    check(["k"])
    for names, reason in (["k", "x:1"], "no column 'x:1'"), (["v"], "the row has no column 'k'"):
        with pytest.raises(RefusedSourceError, match=reason):
            check(names)
    with pytest.raises(RefusedSourceError, match="row 8, column 'k': there is no value"):
        rows_to_batch([{"k": None}], schema, first=7)
