from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import InvalidRequestError
from dormouse.key_codec import EMPTY_RANGE, KeyCodec, KeyValue
from dormouse.keys import KeyRange
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import DecimalType, KeyType, Primitive

FLIGHTS = Schema(
    row_keys=(Field("carrier", Primitive.STRING), Field("flight", Primitive.LONG)),
    sort_keys=(Field("at", Primitive.TIMESTAMP), Field("seat", Primitive.INT)),
    values=(Field("dest", Primitive.STRING, nullable=True),),
)


AMOUNT = DecimalType(4, 2)


def keyed_by(kind: KeyType) -> Schema:
    return Schema(row_keys=(Field("key", kind),))


def test_a_key_is_its_parts_in_order_or_by_name_or_its_first_part() -> None:
    assert KeyCodec(FLIGHTS).from_python(("AA", 12)) == ("AA", 12)
    assert KeyCodec(FLIGHTS).from_python({"flight": 12, "carrier": "AA"}) == ("AA", 12)
    assert KeyCodec(FLIGHTS).from_python("AA") == ("AA",)


def test_sort_keys_go_on_where_all_row_keys_are_given() -> None:
    assert KeyCodec(FLIGHTS).from_python(("AA", 12, 5)) == ("AA", 12, 5)
    assert KeyCodec(FLIGHTS).from_python({"at": 5, "flight": 12, "carrier": "AA"}) == ("AA", 12, 5)
    assert KeyCodec(FLIGHTS).range_from_python(("AA", 12, 5), "B") == KeyRange(
        ("AA", 12, 5), ("B",)
    )
    assert KeyCodec(FLIGHTS).from_json(("AA", 12, "1970-01-01T00:00:01Z"), "key 1") == (
        "AA",
        12,
        10**6,
    )
    assert KeyCodec(FLIGHTS).to_json(("AA", 12, 5, 6)) == ("AA", 12, 5, 6)


def test_a_sort_key_in_a_split_point_is_refused_by_name() -> None:
    for refused in (("AA", 12, 5), {"carrier": "AA", "flight": 12, "at": 5}):
        with pytest.raises(InvalidRequestError, match="'at', which is a sort key") as caught:
            KeyCodec(FLIGHTS).split_points_to_json([refused])  # type: ignore[list-item]  # either is a key
        assert "row keys alone" in caught.value.hint
    assert KeyCodec(FLIGHTS).split_points_to_json([("AA", 12)]) == (("AA", 12),)
    with pytest.raises(InvalidRequestError, match="split point 2 has a value for 'at'"):
        KeyCodec(FLIGHTS).split_points_from_json([("AA",), ("AA", 12, 5)])


def test_times_and_dates_become_numbers_without_rounding() -> None:
    paris = dt.timezone(dt.timedelta(hours=1))
    time = dt.datetime(2013, 1, 1, 1, 0, 0, 1, tzinfo=paris)
    assert KeyCodec(keyed_by(Primitive.TIMESTAMP)).from_python(time) == (1_356_998_400_000_001,)
    assert KeyCodec(keyed_by(Primitive.DATE)).from_python(dt.date(1970, 2, 1)) == (31,)
    assert KeyCodec(keyed_by(Primitive.TIMESTAMP)).from_python(-5) == (-5,)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (Primitive.TIMESTAMP, dt.datetime(2013, 1, 1), "no time zone"),  # noqa: DTZ001
        (Primitive.TIMESTAMP, dt.date(2013, 1, 1), "timestamp"),
        (Primitive.DATE, dt.datetime(2013, 1, 1, tzinfo=dt.UTC), "date"),
        (Primitive.LONG, "12", "long"),
        (Primitive.LONG, True, "boolean"),
        (Primitive.LONG, 2**63, "64 bits"),
        (Primitive.STRING, 12, "string"),
        (Primitive.BYTES, "12", "bytes"),
        (AMOUNT, Decimal("1.005"), "more digits"),
        (AMOUNT, 100, "more digits"),
        (AMOUNT, Decimal("NaN"), "not a number"),
        (AMOUNT, Decimal("-Infinity"), "not a number"),
        (AMOUNT, "1,5", "not a number"),
        (AMOUNT, 1.5, "decimal"),
        (AMOUNT, True, "boolean"),
        (Primitive.LONG, Decimal(1), "long"),
    ],
)
def test_a_value_of_another_type_is_refused_and_never_guessed_at(
    kind: KeyType, value: KeyValue, reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        KeyCodec(keyed_by(kind)).from_python(value)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("AA", 1, 2, 3, 4), "5 parts"),
        ({"carrier": "AA", "at": 1}, "'flight' too"),
        ({"carrier": "AA", "flight": 1, "seat": 1}, "'at' too"),
        ({"flight": 1}, "'carrier' too"),
        ({"dest": "LAX"}, "'dest' is not a row key or sort key"),
        ({"destiny": "LAX"}, "no column"),
    ],
)
def test_what_is_no_prefix_of_the_keys_is_no_key(given: object, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        KeyCodec(FLIGHTS).from_python(given)  # type: ignore[arg-type]  # on purpose


def test_a_range_that_ends_before_it_starts_is_an_error_and_an_empty_one_is_not() -> None:
    with pytest.raises(InvalidRequestError, match=r"ends \(carrier=A\) before it starts"):
        KeyCodec(FLIGHTS).range_from_python("B", "A")
    assert KeyCodec(FLIGHTS).range_from_python("A", "A").is_empty()


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (AMOUNT, "0.05", "0.01"),
        (Primitive.DATE, "2026-01-31", "2026-01-30"),
        (Primitive.BYTES, "/w==", "AA=="),
    ],
)
def test_a_range_is_refused_by_its_ends_as_they_were_written(
    kind: KeyType, low: str, high: str
) -> None:
    shown = f"range 1 ends (key={high}) before it starts (key={low})"
    with pytest.raises(InvalidRequestError, match=re.escape(shown)):
        KeyCodec(keyed_by(kind)).range_from_json(((low,), (high,)), "range 1")


def test_an_empty_list_of_keys_selects_no_row_instead_of_every_row() -> None:
    assert KeyCodec(FLIGHTS).ranges_from_python(None, None) == [KeyRange()]
    assert KeyCodec(FLIGHTS).ranges_from_python(None, []) == [EMPTY_RANGE]
    assert KeyCodec(FLIGHTS).ranges_from_python([], None) == [EMPTY_RANGE]
    assert EMPTY_RANGE.is_empty()


def test_ranges_and_exact_keys_add_up() -> None:
    assert KeyCodec(FLIGHTS).ranges_from_python([("A", None)], ["B", ("C", 1)]) == [
        KeyRange(("A",), None),
        KeyRange(("B",), ("B\0",)),
        KeyRange(("C", 1), ("C", 2)),
    ]


@pytest.mark.parametrize("given", [Decimal("1.5"), Decimal("1.500"), "1.50", "15e-1"])
def test_a_decimal_is_one_key_however_it_is_written(given: KeyValue) -> None:
    codec = KeyCodec(keyed_by(AMOUNT))
    assert codec.from_python(given) == (150,)
    assert codec.to_python((150,)) == (Decimal("1.50"),)
    assert codec.to_json((150,)) == ("1.50",)
    assert codec.from_python(Decimal("-0")) == codec.from_python(0) == (0,)


@pytest.mark.parametrize(("sent", "part"), [(1.5, 150), (2, 200), ("2.0", 200), (-0.0, 0)])
def test_a_decimal_in_a_message_is_a_number_or_text(sent: object, part: int) -> None:
    assert KeyCodec(keyed_by(AMOUNT)).from_json((sent,), "key 1") == (part,)


@pytest.mark.parametrize("sent", [1.005, 100, math.nan, math.inf, "nan", True, None, [1]])
def test_what_no_decimal_holds_is_refused_in_a_message(sent: object) -> None:
    with pytest.raises(InvalidRequestError, match="key 1"):
        KeyCodec(keyed_by(AMOUNT)).from_json((sent,), "key 1")


def test_a_number_with_more_digits_than_a_double_keeps_is_sent_as_text() -> None:
    codec = KeyCodec(keyed_by(DecimalType(38, 20)))
    with pytest.raises(InvalidRequestError, match="15 digits"):
        codec.from_json((0.12345678901234567,), "key 1")
    assert codec.from_json(("0.12345678901234567",), "key 1") == (12345678901234567000,)


@given(st.integers(-(2**63), 2**63 - 1), st.binary(), st.dates())
def test_split_points_travel_as_plain_json(number: int, raw: bytes, day: dt.date) -> None:
    schema = Schema(
        row_keys=(
            Field("time", Primitive.TIMESTAMP),
            Field("raw", Primitive.BYTES),
            Field("day", Primitive.DATE),
        )
    )
    sent = KeyCodec(schema).to_json(KeyCodec(schema).from_python((number, raw, day)))
    assert sent[0] == number
    assert isinstance(sent[1], str)
    assert sent[2] == day.isoformat()


def test_keys_are_values_of_numpy_and_any_list_of_values() -> None:
    import numpy as np
    import pandas as pd

    codec = KeyCodec(keyed_by(Primitive.LONG))
    two = codec.ranges_from_python(None, [1, 2])
    lists = [np.array([1, 2]), pd.Series([1, 2]), (n for n in (1, 2)), range(1, 3)]
    for keys in (*lists, pa.array([1, 2]), pa.chunked_array([[1], [2]])):
        assert codec.ranges_from_python(None, keys) == two
    assert codec.keys_to_json(n for n in (np.int64(1), 2)) == ((1,), (2,))
    assert type(codec.from_python(np.int32(7))[0]) is int
    assert KeyCodec(keyed_by(AMOUNT)).from_python(np.int8(7)) == (700,)
    for refused in (np.bool_(True), np.float64(7)):
        with pytest.raises(InvalidRequestError, match="the column is long"):
            codec.from_python(refused)
    blob = KeyCodec(keyed_by(Primitive.BYTES))
    for one in (b"a", bytearray(b"a"), memoryview(b"a"), pa.scalar(b"a")):
        assert blob.keys_to_json(one) == (("YQ==",),)


def test_what_is_no_key_is_refused_in_one_short_line() -> None:
    import numpy as np
    import pandas as pd

    refused: list[Any] = [np.array(5), bytearray(b"a"), "a" * 9999, [pd.Series([5, 6])]]
    for keys in refused:
        with pytest.raises(InvalidRequestError, match="^[^\n]{,250}: the column is long$"):
            KeyCodec(keyed_by(Primitive.LONG)).ranges_from_python(None, keys)


def test_a_number_in_json_is_no_bytes() -> None:
    with pytest.raises(InvalidRequestError, match="1234 is not a value of"):
        KeyCodec(keyed_by(Primitive.BYTES)).from_json((1234,), "key 1")


def test_the_names_of_a_frames_columns_are_no_keys() -> None:
    """A purge of them would remove nothing, and be proven."""
    import pandas as pd

    codec = KeyCodec(keyed_by(Primitive.STRING))
    frame = pd.DataFrame({"key": ["a"]})
    with pytest.raises(InvalidRequestError, match="keys is a list, not a DataFrame"):
        codec.keys_to_json(frame)
    with pytest.raises(InvalidRequestError, match="exact is a list, not a DataFrame"):
        codec.ranges_from_python(None, frame)
