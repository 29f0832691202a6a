"""The index of a shard: no block that holds a key is missed, and no damage is believed."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from zlib import crc32

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dormouse.errors import CorruptDataError
from dormouse.keys import Key, KeyRange, encode_key
from dormouse.query.doubtful_rows import contested_blocks
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive, parse_type_text, show_type
from dormouse.shards.stored_index import (
    Facts,
    IndexedColumn,
    KeyBounds,
    StoredIndex,
    decode_index,
    encode_index,
    fill_in,
    find_entry,
    rename_table,
    separator,
)
from dormouse.shards.thrift import varint

TEXT = st.text("ab\0é", max_size=4)
KEYS: st.SearchStrategy[Key] = st.tuples(TEXT, st.integers(0, 3))
BOUNDS: st.SearchStrategy[Key] = st.just(()) | st.tuples(TEXT) | KEYS
FIELDS = [
    Field("k", Primitive.STRING, id=7),
    Field("nested", parse_type_text("map<int,date>"), nullable=True, id=9, nested_ids=(10, 11)),
]
COLUMNS = [IndexedColumn.of(field) for field in FIELDS]


def ends_of(groups: Sequence[Sequence[Key]]) -> list[tuple[Key, Key]]:
    return [(group[0], group[-1]) for group in groups]


@example([("", 0), ("a", 0), ("a", 0), ("a", 0), ("a", 0), ("b", 0)], 2, (), ("a", 0))
@given(
    st.lists(KEYS, min_size=1, max_size=14).map(sorted),
    st.integers(1, 4),
    BOUNDS,
    st.none() | BOUNDS,
)
def test_no_row_group_that_holds_a_key_is_missed_and_none_within_holds_another(
    keys: list[Key], size: int, low: Key, high: Key | None
) -> None:
    groups = [keys[i : i + size] for i in range(0, len(keys), size)]
    bounds, wanted = KeyBounds.of(ends_of(groups)), KeyRange(low, high)
    found = bounds.overlapping(wanted)
    holding = {
        i for i, g in enumerate(groups) if any(wanted.contains(encode_key(key)) for key in g)
    }
    assert holding <= set(found) <= set(range(len(groups)))
    within = bounds.within(wanted)
    assert all(wanted.contains(encode_key(key)) for i in within for key in groups[i])
    assert all(0 <= i < len(groups) for i in within)
    for key in keys:
        found = bounds.overlapping(KeyRange.exactly(key))
        assert {i for i, g in enumerate(groups) if key in g} <= set(found)
    for number, group in enumerate(groups):
        for parts in (1, 2):
            first, end = bounds.span(number, parts)
            assert all(first <= encode_key(key[:parts]) < end for key in group)


@given(st.lists(KEYS, min_size=1, max_size=14, unique=True).map(sorted), st.integers(1, 4))
def test_a_key_that_is_there_is_looked_for_in_one_row_group(keys: list[Key], size: int) -> None:
    groups = [keys[i : i + size] for i in range(0, len(keys), size)]
    bounds = KeyBounds.of(ends_of(groups))
    for number, group in enumerate(groups):
        for key in group:
            assert bounds.overlapping(KeyRange.exactly(key)) == range(number, number + 1)


SHARDS = st.lists(st.lists(KEYS, min_size=1, max_size=9).map(sorted), max_size=4)


@given(SHARDS, st.integers(1, 3), st.integers(1, 2))
def test_no_block_that_has_a_key_of_another_shard_is_missed(
    shards: list[list[Key]], size: int, parts: int
) -> None:
    blocks = [[keys[i : i + size] for i in range(0, len(keys), size)] for keys in shards]
    contested = contested_blocks([KeyBounds.of(ends_of(each)).spans(parts) for each in blocks])
    prefixes = [{key[:parts] for key in keys} for keys in shards]
    for shard, groups in enumerate(blocks):
        others = set[Key]().union(*prefixes[:shard], *prefixes[shard + 1 :])
        for number, group in enumerate(groups):
            if others.intersection(key[:parts] for key in group):
                assert number in contested[shard]


def test_blocks_whose_keys_no_other_shard_has_are_not_contested() -> None:
    large = KeyBounds.of([((n,), (n + 9,)) for n in range(0, 100, 10)])
    small = KeyBounds.of([((25,), (25,)), ((31,), (34,))])
    assert contested_blocks([large.spans(1), small.spans(1)]) == [{2, 3}, {0, 1}]
    assert contested_blocks([large.spans(1)]) == [set()]


def test_keys_before_the_first_and_after_the_last_are_in_no_row_group() -> None:
    bounds = KeyBounds.of([((5,), (6,)), ((6,), (6,)), ((8,), (9,))])
    assert bounds.overlapping(KeyRange.exactly((4,))) == range(0)
    assert not bounds.overlapping(KeyRange.exactly((10,)))
    assert not bounds.overlapping(KeyRange((10,), None))
    assert bounds.overlapping(KeyRange.exactly((6,))) == range(2)
    assert bounds.overlapping(KeyRange()) == bounds.within(KeyRange()) == range(3)
    assert bounds.within(KeyRange((5,), (8,))) == range(2)
    assert bounds.within(KeyRange((5,), (6,))) == range(0)
    assert bounds.first_key(2) == (8,)


@given(KEYS, KEYS)
def test_a_separator_lies_between_two_keys_and_is_short(before: Key, key: Key) -> None:
    assume(before < key)
    between = separator(before, key)
    assert before < between <= key
    shorter = between[:-1]
    if isinstance(between[-1], str):
        shorter += (between[-1][:-1],)
    assert shorter <= before


def test_a_separator_of_long_texts_is_as_long_as_what_they_have_in_common() -> None:
    assert separator(("house", 5), ("household", 2)) == ("househ",)
    assert separator((b"aaaa",), (b"abbbbbbb",)) == (b"ab",)
    assert separator(("a", 5), ("a", 9)) == ("a", 9)
    assert separator(("a", 5), ("a", 5)) == ("a", 5)


def encoded(facts: Facts) -> str:
    keys = KeyBounds.of([((1,), (2,)), ((2,), (9,))])
    return encode_index("table", "shard", COLUMNS, BLOCKS, [3, 4], facts, keys)


BLOCKS = [2]
"""Both blocks are one row group; the third Parquet column has a dictionary."""
FACTS = Facts(
    bytes([0, 1, 3]), [10, 20, 30, 40, 7, 50, 60], [1, 2**10, 3000, 0, 5, 2**33], [*range(9)]
)


def test_what_is_filled_in_is_read_again_and_has_the_length_of_what_was_blank() -> None:
    blank = encoded(Facts.blank(FACTS.forms, BLOCKS, has_filters=True))
    filled = fill_in(blank, FACTS)
    assert filled == encoded(FACTS)
    assert len(filled) == len(blank)
    found: StoredIndex = decode_index(filled.encode())
    assert (found.table_id, found.shard_id, found.leaves) == ("table", "shard", 3)
    assert list(found.starts) == [4, 14, 34, 64, 104, 111, 161, 221]
    assert list(found.rows) == [3, 4]
    assert found.columns == {7: (COLUMNS[0], 0), 9: (COLUMNS[1], 1)}
    assert [found.crc(n) for n in range(9)] == list(range(9))
    assert [found.is_compressed(n) for n in range(3)] == [False, True, True]
    layout = found.layout
    assert [layout.has_dictionary(n) for n in range(3)] == [False, False, True]
    assert [layout.chunk(0, n) for n in range(3)] == [0, 2, 4]
    assert [[layout.pages(0, block, n) for n in range(3)] for block in (0, 1)] == [
        [0, 2, 5],
        [1, 3, 6],
    ]
    assert found.has_filters
    assert found.keys.ties == {0}
    for number, size in enumerate(FACTS.memory[:-1]):
        assert size <= found.memory_bytes(*divmod(number, 3)) <= max(1, size) * 1.1
    assert found.memory_bytes(1, 2) > 2**31
    renamed = rename_table(filled.encode(), "other")
    assert decode_index(renamed).table_id == "other"
    assert len(renamed) == len(filled)


@given(st.data())
def test_no_damage_to_an_index_is_believed(data: st.DataObject) -> None:
    value = bytearray(encoded(FACTS).encode())
    kind = data.draw(st.sampled_from(["flip", "cut"]))
    place = data.draw(st.integers(0, len(value) - 1))
    if kind == "flip":
        value[place] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del value[place:]
    with pytest.raises(CorruptDataError, match="index"):
        decode_index(bytes(value))


def sealed(body: bytes) -> bytes:
    return b64encode(body + crc32(body).to_bytes(4, "little"))


def test_an_index_of_a_later_version_is_refused() -> None:
    body = bytearray(b64decode(encoded(FACTS))[:-4])
    body[0] += 1
    with pytest.raises(CorruptDataError, match="unknown version 4") as raised:
        decode_index(sealed(bytes(body)))
    assert "later version" in str(raised.value.hint)


@pytest.mark.parametrize(
    "facts",
    [
        Facts(FACTS.forms[:2], FACTS.sizes, FACTS.memory, FACTS.crcs),
        Facts(bytes(3), FACTS.sizes, FACTS.memory, FACTS.crcs),
        Facts(FACTS.forms, FACTS.sizes[:6], FACTS.memory, FACTS.crcs),
        Facts(FACTS.forms, FACTS.sizes, FACTS.memory[:5], FACTS.crcs),
        Facts(FACTS.forms, FACTS.sizes, FACTS.memory, FACTS.crcs[:7]),
        Facts(FACTS.forms, FACTS.sizes, FACTS.memory, [*FACTS.crcs, 8]),
    ],
)
def test_an_index_that_lacks_something_is_refused(facts: Facts) -> None:
    with pytest.raises(CorruptDataError, match="lacks what belongs to some"):
        decode_index(encoded(facts).encode())


def test_an_index_is_found_at_the_end_of_a_footer_and_not_where_it_is_cut() -> None:
    value = encoded(FACTS).encode()
    entry = b"dormouse.index\x18" + varint(len(value)) + value
    footer = b"\x18\x0e" + entry + b"\0\x1c\x18\x11dormouse.checksum"
    assert find_entry(b"row groups" + footer) == value
    assert find_entry(footer[3:]) is None
    assert find_entry(footer, "dormouse") is None
    with pytest.raises(CorruptDataError, match="cut short"):
        find_entry(b"\x0edormouse.index\x18")


@pytest.mark.parametrize(
    "kind", [*map(show_type, Primitive), "decimal(9,2)", "list<struct<a:int?>>"]
)
@pytest.mark.parametrize("nullable", [False, True])
def test_a_column_is_the_field_that_it_was(kind: str, nullable: bool) -> None:
    made = Schema(
        (),
        (),
        (Field("k", Primitive.INT), Field("c", parse_type_text(kind), nullable)),
        is_part=True,
    )
    for field in made.fields:
        assert IndexedColumn.of(field).field == field
