"""Key parts as text: what is shown can be parsed again, and invalid text is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import InvalidRequestError
from dormouse.key_codec import parse_part, show_part
from dormouse.keys import KeyPart, prefix_successor
from dormouse.schema.types import KEY_TYPES as ALL_KEY_TYPES
from dormouse.schema.types import MAX_TIME, DecimalType, FieldType, KeyType, Primitive
from tests.support.batches import KEY_TYPES, cells, part_of

KEYS = sorted(ALL_KEY_TYPES - {Primitive.INT}, key=lambda kind: kind.value)


@given(data=st.data(), kind=KEY_TYPES)
def test_what_is_shown_is_read_back(data: st.DataObject, kind: KeyType) -> None:
    part = part_of(data.draw(cells(kind)))
    assert parse_part(show_part(part, kind), kind) == part


@pytest.mark.parametrize(
    ("text", "kind", "part"),
    [
        ("2024-02-29", Primitive.DATE, 19_782),
        ("1970-01-01T00:00:01", Primitive.TIMESTAMP, 1_000_000),
        ("1970-01-01T01:00:00.000001+01:00", Primitive.TIMESTAMP, 1),
        ("-5", Primitive.TIMESTAMP, -5),
        ("/wA=", Primitive.BYTES, b"\xff\0"),
        ("", Primitive.STRING, ""),
        ("1.5", DecimalType(4, 2), 150),
        ("+015e-1", DecimalType(4, 2), 150),
        ("-0", DecimalType(4, 2), 0),
        ("9" * 38, DecimalType(38, 0), 10**38 - 1),
    ],
)
def test_times_are_iso_or_microseconds_bytes_base64_and_decimals_as_written(
    text: str, kind: KeyType, part: KeyPart
) -> None:
    assert parse_part(text, kind) == part


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x", Primitive.LONG),
        ("2147483648", Primitive.INT),
        ("9223372036854775808", Primitive.TIMESTAMP),
        ("not base64", Primitive.BYTES),
        ("2024-02-30", Primitive.DATE),
        ("noon", Primitive.TIMESTAMP),
        ("1970-01-01T00:00:00.0000001", Primitive.TIMESTAMP),
        ("\ud800", Primitive.STRING),
        ("1.5", Primitive.DOUBLE),
        *((text, DecimalType(4, 2)) for text in ("1.005", "100", "nan", "inf", " 1", "1_0", "")),
    ],
)
def test_text_that_is_no_key_is_refused(text: str, kind: FieldType) -> None:
    with pytest.raises(InvalidRequestError):
        parse_part(text, kind)


@pytest.mark.parametrize("kind", KEYS, ids=lambda kind: kind.value)
def test_the_end_of_a_range_of_each_type_is_read_back(kind: Primitive) -> None:
    """What follows the greatest value, and what is less than the least, may be no value."""
    texts: dict[Primitive, KeyPart] = {
        Primitive.STRING: "\U0010ffff",
        Primitive.BYTES: b"\xff",
        Primitive.UUID: b"\xff" * 16,
    }
    greatest = texts.get(kind, MAX_TIME if kind is Primitive.TIME else 2**31 - 1)
    past = prefix_successor((greatest,))
    assert past is not None
    for part in (past[0], *(() if kind in texts else (-(2**31),))):
        assert parse_part(show_part(part, kind), kind) == part


def test_times_beyond_the_years_of_iso_are_shown_as_numbers() -> None:
    assert show_part(2**63 - 1, Primitive.TIMESTAMP) == str(2**63 - 1)


def test_eight_digits_of_days_are_read_back_as_days_and_not_as_a_date() -> None:
    assert parse_part(show_part(20_240_229, Primitive.DATE), Primitive.DATE) == 20_240_229
    assert parse_part("20240229", Primitive.DATE) == parse_part("2024-02-29", Primitive.DATE)
