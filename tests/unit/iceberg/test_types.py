"""Schemas and key bounds as Iceberg has them; what it cannot hold is refused by name."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import CorruptDataError, InvalidRequestError
from dormouse.keys import encode_key
from dormouse.schema.iceberg import (
    BOUND_CHARACTERS,
    check_publishable,
    iceberg_schema,
    key_bounds,
    named_keys,
)
from dormouse.schema.schema import Field, Schema, parse_schema
from dormouse.schema.types import DecimalType, Primitive
from tests.support.every_type import EVERY_TYPE

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=3 * BOUND_CHARACTERS)


def test_every_type_has_an_iceberg_type_with_its_ids() -> None:
    fields = {field["name"]: field for field in _fields(EVERY_TYPE)}
    assert {name: field["type"] for name, field in fields.items() if name not in ("ls", "m", "st")}
    assert fields["t"] == {"id": 1, "name": "t", "required": True, "type": "timestamptz"}
    assert fields["ntz"]["type"] == "timestamp"
    assert fields["clock"]["type"] == "time"
    assert fields["n"]["type"] == "decimal(30, 5)"
    assert fields["l"]["required"] is False
    by_name = {field.name: field for field in EVERY_TYPE.fields}
    (element,) = by_name["ls"].nested_ids
    assert fields["ls"]["type"] == {
        "type": "list",
        "element-id": element,
        "element-required": False,
        "element": "string",
    }
    key, value = by_name["m"].nested_ids
    assert fields["m"]["type"] == {
        "type": "map",
        "key-id": key,
        "key": "binary",
        "value-required": False,
        "value-id": value,
        "value": "long",
    }
    members = fields["st"]["type"]["fields"]
    assert [member["id"] for member in members] == list(by_name["st"].nested_ids)


def _fields(schema: Schema) -> list[dict[str, object]]:
    fields = iceberg_schema(schema)["fields"]
    assert isinstance(fields, list)
    return fields


def test_nested_types_count_their_ids_from_the_outside_in() -> None:
    schema = parse_schema("k:long, v:map<long,struct<a:list<long>,b:long>>", ["k"])
    kind = _fields(schema)[1]["type"]
    key, value, first, element, second = schema.values[0].nested_ids
    assert isinstance(kind, dict)
    assert (kind["key-id"], kind["value-id"]) == (key, value)
    a, b = kind["value"]["fields"]
    assert (a["id"], a["type"]["element-id"], b["id"]) == (first, element, second)


@pytest.mark.parametrize("kind", ["timestamp_ns", "list<timestamp_ntz_ns>"])
def test_nanoseconds_need_version_3(kind: str) -> None:
    schema = parse_schema(f"k:long, v:{kind}", ["k"])
    with pytest.raises(InvalidRequestError, match="column 'v'.*no nanoseconds before version 3"):
        check_publishable(schema, 2)
    check_publishable(schema, 3)


@pytest.mark.parametrize("names", ["k:long, K:long", "k:long, s:list<struct<é:long,É:long>>"])
def test_names_that_differ_in_case_alone_are_refused(names: str) -> None:
    with pytest.raises(InvalidRequestError, match="one name to engines that ignore case"):
        check_publishable(parse_schema(names, ["k"]), 2)
    check_publishable(parse_schema("k:long, s:struct<k:long>", ["k"]), 2)


def _schema(*kinds: Primitive) -> Schema:
    return Schema(tuple(Field(f"k{i}", kind) for i, kind in enumerate(kinds)))


@given(texts, texts)
def test_bounds_of_text_hold_all_texts_between(one: str, other: str) -> None:
    low, high = sorted((one, other))
    lower, upper = key_bounds(_schema(Primitive.STRING), (low,), (high,))
    assert lower[1] <= low.encode()
    assert len(lower[1].decode()) <= BOUND_CHARACTERS
    if 1 in upper:
        assert upper[1] >= high.encode()
        assert len(upper[1].decode()) <= BOUND_CHARACTERS
    else:
        assert high.startswith("\U0010ffff" * BOUND_CHARACTERS)


@given(st.binary(max_size=3 * BOUND_CHARACTERS), st.binary(max_size=3 * BOUND_CHARACTERS))
def test_bounds_of_bytes_hold_all_bytes_between(one: bytes, other: bytes) -> None:
    low, high = sorted((one, other))
    lower, upper = key_bounds(_schema(Primitive.BYTES), (low,), (high,))
    assert lower[1] <= low
    assert upper.get(1, high) >= high
    assert 1 in upper or high.startswith(b"\xff" * BOUND_CHARACTERS)


@pytest.mark.parametrize("last", ["\ud7ff", "a"])
def test_a_text_is_raised_to_the_next_character(last: str) -> None:
    high = "x" * (BOUND_CHARACTERS - 1) + last + "more"
    _, upper = key_bounds(_schema(Primitive.STRING), ("a",), (high,))
    assert high.encode() < upper[1]


def test_later_keys_have_bounds_where_those_before_are_constant() -> None:
    schema = _schema(Primitive.INT, Primitive.DATE, Primitive.TIMESTAMP)
    lower, upper = key_bounds(schema, (5, -1, 3), (5, 2, 1))
    assert lower == {1: struct.pack("<i", 5), 2: struct.pack("<i", -1)}
    assert upper == {1: struct.pack("<i", 5), 2: struct.pack("<i", 2)}


def test_uuids_have_no_bounds_since_readers_order_them_differently() -> None:
    schema = _schema(Primitive.UUID, Primitive.LONG)
    assert key_bounds(schema, (bytes(16), 1), (b"\xff" * 16, 2)) == ({}, {})


@pytest.mark.parametrize(
    ("part", "bound"),
    [
        (0, "00"),
        (150, "0096"),
        (-1, "ff"),
        (-128, "80"),
        (-129, "ff7f"),
        (10**38 - 1, "4b3b4ca85a86c47a098a223fffffffff"),
    ],
)
def test_a_decimal_is_bounded_by_the_fewest_bytes_with_its_sign(part: int, bound: str) -> None:
    lower, upper = key_bounds(_schema(DecimalType(38, 2)), (part,), (part,))
    assert lower[1].hex() == upper[1].hex() == bound


keys_of_types = {
    "string": texts,
    "bytes": st.binary(max_size=3 * BOUND_CHARACTERS),
    "long": st.integers(-(2**63), 2**63 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "timestamp": st.integers(-(2**62), 2**62),
    "date": st.integers(-(10**6), 10**6),
    "decimal(38,10)": st.integers(1 - 10**38, 10**38 - 1),
}


@pytest.mark.parametrize("kind", keys_of_types)
@given(st.data())
def test_the_keys_that_bounds_name_are_found_again(kind: str, data: st.DataObject) -> None:
    schema = parse_schema(f"a:{kind}, b:{kind}", ["a", "b"])
    low, high = sorted(data.draw(st.tuples(*[keys_of_types[kind]] * 2)) for _ in range(2))
    bounds = key_bounds(schema, low, high)
    named = named_keys(schema, *bounds)
    assert named is not None
    assert named[0].contains(encode_key(low))
    assert not bounds[1] or named[-1].contains(encode_key(high))
    assert named_keys(parse_schema(f"b:{kind}", ["b"]), {77: b""}, {}) is None


def test_a_bound_that_is_no_text_is_damaged() -> None:
    with pytest.raises(CorruptDataError, match="no text"):
        named_keys(parse_schema("a:string", ["a"]), {1: b"\xff"}, {})
