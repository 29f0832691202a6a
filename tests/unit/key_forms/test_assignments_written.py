"""Keys and ranges that are shown can be given back as they are."""

from __future__ import annotations

import datetime as dt

from hypothesis import given
from hypothesis import strategies as st

from dormouse.key_codec import KeyCodec
from dormouse.keys import INT64_MAX, INT64_MIN, KeyRange
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import MAX_TIME, DecimalType, Primitive

SCHEMA = Schema(
    (Field("path", Primitive.STRING), Field("tail number", Primitive.STRING)),
    (
        Field("at", Primitive.TIMESTAMP),
        Field("day", Primitive.DATE),
        Field("raw", Primitive.BYTES),
        Field("n", Primitive.LONG),
        Field("local", Primitive.TIMESTAMP_NTZ),
        Field("ns", Primitive.TIMESTAMP_NS),
        Field("clock", Primitive.TIME),
        Field("id", Primitive.UUID),
        Field("price", DecimalType(12, 2)),
        Field("wide", DecimalType(38, 0)),
    ),
)
CODEC = KeyCodec(SCHEMA)
TEXTS = st.one_of(
    st.text(st.sampled_from("\\,=.path n"), max_size=12),
    st.lists(st.sampled_from([",", "\\", "path=", "tail number=", "at=", "x=", "a"])).map("".join),
    st.text(st.characters(codec="utf-8"), max_size=6),
)
PARTS = (
    TEXTS,
    TEXTS,
    st.integers(INT64_MIN, INT64_MAX),
    st.integers(-(2**31), 2**31 - 1),
    st.binary(max_size=4),
    st.integers(INT64_MIN, INT64_MAX),
    st.integers(INT64_MIN, INT64_MAX),
    st.integers(INT64_MIN, INT64_MAX),
    st.integers(0, MAX_TIME),
    st.binary(min_size=16, max_size=16),
    st.integers(1 - 10**12, 10**12 - 1),
    st.integers(1 - 10**38, 10**38 - 1),
)
KEYS = st.integers(1, len(PARTS)).flatmap(lambda count: st.tuples(*PARTS[:count]))


@given(KEYS)
def test_a_key_with_commas_backslashes_and_names_is_read_as_it_was_written(
    key: tuple[str, ...],
) -> None:
    assert CODEC.from_python(CODEC.from_assignments(CODEC.to_assignments(key))) == key


@given(KEYS)
def test_a_key_shown_to_a_program_is_the_key_it_passes(key: tuple[str, ...]) -> None:
    assert CODEC.from_python(CODEC.to_python(key)) == key


def test_times_are_shown_to_a_program_as_times() -> None:
    noon = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
    key = CODEC.from_python(("a", "b", noon, noon.date()))
    assert CODEC.to_python(key) == ("a", "b", noon, noon.date())


def test_ranges_are_written_with_open_ends() -> None:
    for span in (KeyRange(), KeyRange(("a.",)), KeyRange((), ("b",)), KeyRange(("a",), ("b", "c"))):
        ends = CODEC.range_from_assignments(CODEC.range_to_assignments(span))
        assert CODEC.range_from_python(*ends) == span
