"""The stored form of keys: bytes that sort as the keys do, and are read back unchanged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import CorruptDataError
from dormouse.keys import Key, decode_key, encode_key
from tests.support.strategies import keys_of_one_table


def test_the_bytes_of_a_key_are_those_that_the_format_says() -> None:
    assert encode_key(("a", 1)).hex(" ") == "02 61 00 03 80 00 00 00 00 00 00 01"
    assert encode_key((b"a\0", -1)).hex(" ") == "01 61 00 ff 00 03 7f ff ff ff ff ff ff ff"
    assert encode_key((10**38 - 1,)).hex() == "04cb3b4ca85a86c47a098a223fffffffff"
    assert encode_key((1 - 10**38,)).hex() == "0034c4b357a5793b85f675ddc000000001"
    assert encode_key((2**63,)).hex() == "0480000000000000008000000000000000"


@given(keys_of_one_table())
def test_stored_keys_compare_as_the_keys_do(pair: list[Key]) -> None:
    low, high = sorted(pair)
    assert encode_key(low) <= encode_key(high)
    assert (encode_key(low) == encode_key(high)) == (low == high)


@given(keys_of_one_table())
def test_a_stored_key_is_read_back_unchanged(pair: list[Key]) -> None:
    assert [decode_key(encode_key(key)) for key in pair] == pair


@given(st.binary(max_size=12))
def test_foreign_bytes_are_a_key_or_corrupt_never_a_crash_nor_quoted(stored: bytes) -> None:
    try:
        decode_key(stored)
    except CorruptDataError as error:
        assert str(error) == "not a stored key"


@pytest.mark.parametrize("part", [1, "x", b"x", -(2**63) - 1, 2**63])
def test_a_prefix_comes_before_every_key_that_begins_with_it(part: str | int | bytes) -> None:
    assert encode_key(("a",)) < encode_key(("a", part)) < encode_key(("a\0",))
