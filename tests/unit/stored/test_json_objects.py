"""A stored JSON object is accepted only if every byte is as it was put, at the same path."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import CorruptDataError
from dormouse.stored.decoding import decode_stored, encode_stored


class Body(msgspec.Struct, frozen=True):
    text: str
    number: int


WHOLE = encode_stored("a note", 2, "t/notes/1.json", Body("é", 7))


def read(body: bytes, *, kind: str = "a note", path: str = "t/notes/1.json") -> Body:
    return decode_stored(kind, 2, path, body, Body)


@given(st.text(), st.integers(-(2**60), 2**60))
def test_what_was_put_comes_back(text: str, number: int) -> None:
    body = Body(text, number)
    assert read(encode_stored("a note", 2, "t/notes/1.json", body)) == body


def test_a_text_that_looks_like_a_checksum_is_none() -> None:
    body = Body("blake2b:" + "0" * 32, 1)
    assert read(encode_stored("a note", 2, "t/notes/1.json", body)) == body


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    for place in range(len(WHOLE)):
        for bit in range(8):
            flipped = bytearray(WHOLE)
            flipped[place] ^= 1 << bit
            with pytest.raises(ValueError, match="."):
                read(bytes(flipped))
        with pytest.raises(ValueError, match="."):
            read(WHOLE[:place])


def test_an_object_of_another_kind_or_place_is_not_believed() -> None:
    for elsewhere in ({"kind": "a tree"}, {"path": "t/notes/2.json"}):
        with pytest.raises(ValueError, match=r"it is a note and was put at t/notes/1\.json"):
            read(WHOLE, **elsewhere)


def test_another_format_is_refused_with_what_to_do() -> None:
    later = encode_stored("a note", 3, "t/notes/1.json", Body("", 1))
    with pytest.raises(CorruptDataError, match=r"format 3.* is 2") as raised:
        read(later)
    assert "another version" in raised.value.hint
