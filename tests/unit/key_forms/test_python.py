from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import InvalidRequestError
from dormouse.key_forms.json import key_of_json, key_to_json, split_points_of_json
from dormouse.key_forms.python import NOTHING, KeyValue, key_of, range_of, ranges_of, split_point_of
from dormouse.keys.ranges import KeyRange
from dormouse.schema.schema import Field, Primitive, Schema

FLIGHTS = Schema(
    row_keys=(Field("carrier", Primitive.STRING), Field("flight", Primitive.LONG)),
    sort_keys=(Field("at", Primitive.TIMESTAMP), Field("seat", Primitive.INT)),
    values=(Field("dest", Primitive.STRING, nullable=True),),
)


def keyed_by(kind: Primitive) -> Schema:
    return Schema(row_keys=(Field("key", kind),))


def test_a_key_is_its_parts_in_order_or_by_name_or_its_first_part() -> None:
    assert key_of(FLIGHTS, ("AA", 12)) == ("AA", 12)
    assert key_of(FLIGHTS, {"flight": 12, "carrier": "AA"}) == ("AA", 12)
    assert key_of(FLIGHTS, "AA") == ("AA",)


def test_sort_keys_go_on_where_all_row_keys_are_given() -> None:
    assert key_of(FLIGHTS, ("AA", 12, 5)) == ("AA", 12, 5)
    assert key_of(FLIGHTS, {"at": 5, "flight": 12, "carrier": "AA"}) == ("AA", 12, 5)
    assert range_of(FLIGHTS, ("AA", 12, 5), "B") == KeyRange(("AA", 12, 5), ("B",))
    assert key_of_json(FLIGHTS, ("AA", 12, "1970-01-01T00:00:01Z"), "key 1") == ("AA", 12, 10**6)
    assert key_to_json(FLIGHTS, ("AA", 12, 5, 6)) == ("AA", 12, 5, 6)


def test_a_sort_key_in_a_split_point_is_refused_by_name() -> None:
    for refused in (("AA", 12, 5), {"carrier": "AA", "flight": 12, "at": 5}):
        with pytest.raises(InvalidRequestError, match="'at', which is a sort key") as caught:
            split_point_of(FLIGHTS, refused)  # type: ignore[arg-type]  # either is a key
        assert "row keys alone" in caught.value.hint
    assert split_point_of(FLIGHTS, ("AA", 12)) == ("AA", 12)
    with pytest.raises(InvalidRequestError, match="split point 2 goes on with 'at'"):
        split_points_of_json(FLIGHTS, [("AA",), ("AA", 12, 5)], strings_base64=False)


def test_times_and_dates_become_numbers_without_rounding() -> None:
    paris = dt.timezone(dt.timedelta(hours=1))
    time = dt.datetime(2013, 1, 1, 1, 0, 0, 1, tzinfo=paris)
    assert key_of(keyed_by(Primitive.TIMESTAMP), time) == (1_356_998_400_000_001,)
    assert key_of(keyed_by(Primitive.DATE), dt.date(1970, 2, 1)) == (31,)
    assert key_of(keyed_by(Primitive.TIMESTAMP), -5) == (-5,)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (Primitive.TIMESTAMP, dt.datetime(2013, 1, 1), "no time zone"),  # noqa: DTZ001
        (Primitive.TIMESTAMP, dt.date(2013, 1, 1), "TimestampType"),
        (Primitive.DATE, dt.datetime(2013, 1, 1, tzinfo=dt.UTC), "DateType"),
        (Primitive.LONG, "12", "LongType"),
        (Primitive.LONG, True, "truth value"),
        (Primitive.LONG, 2**63, "64 bits"),
        (Primitive.STRING, 12, "StringType"),
        (Primitive.BYTES, "12", "ByteArrayType"),
    ],
)
def test_a_value_of_another_type_is_refused_and_never_guessed_at(
    kind: Primitive, value: KeyValue, reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        key_of(keyed_by(kind), value)


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
        key_of(FLIGHTS, given)  # type: ignore[arg-type]  # on purpose


def test_a_range_that_ends_before_it_starts_is_an_error_and_an_empty_one_is_not() -> None:
    with pytest.raises(InvalidRequestError, match="before it starts"):
        range_of(FLIGHTS, "B", "A")
    assert range_of(FLIGHTS, "A", "A").is_empty()


def test_no_keys_at_all_are_asked_for_by_an_empty_list_not_every_row() -> None:
    assert ranges_of(FLIGHTS, None, None) == [KeyRange()]
    assert ranges_of(FLIGHTS, None, []) == [NOTHING]
    assert ranges_of(FLIGHTS, [], None) == [NOTHING]
    assert NOTHING.is_empty()


def test_ranges_and_exact_keys_add_up() -> None:
    assert ranges_of(FLIGHTS, [("A", None)], ["B", ("C", 1)]) == [
        KeyRange(("A",), None),
        KeyRange(("B",), ("B\0",)),
        KeyRange(("C", 1), ("C", 2)),
    ]


@given(st.integers(-(2**63), 2**63 - 1), st.binary(), st.dates())
def test_split_points_travel_as_plain_json(number: int, raw: bytes, day: dt.date) -> None:
    schema = Schema(
        row_keys=(
            Field("time", Primitive.TIMESTAMP),
            Field("raw", Primitive.BYTES),
            Field("day", Primitive.DATE),
        )
    )
    sent = key_to_json(schema, key_of(schema, (number, raw, day)))
    assert sent[0] == number
    assert isinstance(sent[1], str)
    assert sent[2] == day.isoformat()
