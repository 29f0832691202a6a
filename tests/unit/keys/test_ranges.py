"""Keys: one order everywhere, and ranges that mean what they say."""

from hypothesis import example, given
from hypothesis import strategies as st

from dormouse.keys import (
    INT64_MAX,
    Key,
    KeyRange,
    encode_key,
    intersect_ranges,
    prefix_successor,
    show_key,
    union_ranges,
)
from tests.support.strategies import keys_of_one_table, short_keys, short_ranges, text


@given(text, text)
def test_text_is_ordered_as_its_utf8_bytes_beyond_the_basic_plane(a: str, b: str) -> None:
    assert (a < b) == (a.encode() < b.encode())


@given(keys_of_one_table())
def test_exactly_a_prefix_holds_just_the_keys_that_begin_with_it(pair: list[Key]) -> None:
    prefix, key = pair
    if len(key) >= len(prefix):
        assert KeyRange.exactly(prefix).contains(encode_key(key)) == (key[: len(prefix)] == prefix)


def test_after_the_greatest_integer_of_64_bits_follows_a_wider_one() -> None:
    span = KeyRange.exactly(("a", INT64_MAX))
    assert span.max == ("a", INT64_MAX + 1)
    assert span.contains(encode_key(("a", INT64_MAX)))
    assert not span.contains(encode_key(("a", INT64_MAX + 1)))
    assert prefix_successor(()) is None


@given(short_ranges(), short_ranges(), short_keys)
def test_an_intersection_holds_what_both_ranges_hold(a: KeyRange, b: KeyRange, key: Key) -> None:
    assert a.intersection(b).contains(encode_key(key)) == (
        a.contains(encode_key(key)) and b.contains(encode_key(key))
    )
    if a.contains(encode_key(key)) and b.contains(encode_key(key)):
        assert a.overlaps(b)


@example([KeyRange(("a",), ("c",)), KeyRange(("b",), ("d",))], ("c",))
@given(st.lists(short_ranges(), max_size=5), short_keys)
def test_merged_ranges_hold_the_same_keys_each_once(ranges: list[KeyRange], key: Key) -> None:
    holding = [r for r in union_ranges(ranges) if r.contains(encode_key(key))]
    assert len(holding) == any(r.contains(encode_key(key)) for r in ranges)
    assert union_ranges(ranges) == sorted(union_ranges(ranges), key=lambda r: r.min)


@given(short_ranges(), st.tuples(short_keys, short_keys))
def test_a_span_overlaps_a_range_that_holds_either_end(
    span: KeyRange, ends: tuple[Key, Key]
) -> None:
    low, high = sorted(ends)
    if span.contains(encode_key(low)) or span.contains(encode_key(high)):
        assert span.overlaps_span(encode_key(low), encode_key(high))
    if span.contains_span(encode_key(low), encode_key(high)):
        assert span.contains(encode_key(low))
        assert span.contains(encode_key(high))


@given(short_ranges(), st.tuples(short_keys, short_keys), short_keys)
def test_a_span_ends_after_all_keys_that_begin_with_its_end(
    span: KeyRange, ends: tuple[Key, Key], rest: Key
) -> None:
    low, high = sorted(ends)
    for key in (high + rest, low + rest):
        if low <= key and (key <= high or key[: len(high)] == high):
            if span.contains(encode_key(key)):
                assert span.overlaps_span(encode_key(low), encode_key(high))
            if span.contains_span(encode_key(low), encode_key(high)):
                assert span.contains(encode_key(key))


@given(short_ranges(), st.integers(0, 3), short_keys)
def test_a_widened_range_holds_all_it_held_and_cuts_between_keys_of_so_many_parts(
    span: KeyRange, parts: int, key: Key
) -> None:
    wide = span.widen_to_parts(parts)
    assert not span.contains(encode_key(key)) or wide.contains(encode_key(key))
    assert all(len(end) <= parts for end in (wide.min, wide.max or ()))
    if max(len(span.min), len(span.max or ())) <= parts:
        assert wide == span


def test_ranges_read_as_mathematicians_write_them() -> None:
    assert str(KeyRange((), ("m", 3))) == "[-∞, m, 3)"
    assert str(KeyRange((b"\xff",), None)) == "[ff, ∞)"
    assert show_key((5,)) == "5"


def test_all_that_lies_in_both_of_two_lists_of_ranges_is_given() -> None:
    these = [KeyRange((0,), (10,)), KeyRange((20,))]
    those = [KeyRange((0,), (2,)), KeyRange((3,), (4,)), KeyRange((9,), (30,))]
    both = [
        KeyRange((0,), (2,)),
        KeyRange((3,), (4,)),
        KeyRange((9,), (10,)),
        KeyRange((20,), (30,)),
    ]
    assert intersect_ranges(these, those) == intersect_ranges(those, these) == both


@given(short_ranges(), short_keys, short_keys)
def test_bytes_say_of_spans_what_the_keys_say(span: KeyRange, low: Key, high: Key) -> None:
    """A span ends with the last key that begins with its end: of ("a",) that is below ("a\\0",)."""
    least, end = span.min, span.max
    overlaps = least[: len(high)] <= high and (end is None or low < end)
    within = least <= low and (end is None or (low < end and high < end[: len(high)]))
    ends = encode_key(low), encode_key(high)
    assert (span.overlaps_span(*ends), span.contains_span(*ends)) == (overlaps, within)


def test_a_range_is_shown_as_it_is_made() -> None:
    span = KeyRange(("a", 1), ("b",))
    assert (
        repr(span) == "KeyRange(('a', 1), ('b',))" and len({span, KeyRange(("a", 1), ("b",))}) == 1
    )
    assert span != (("a", 1), ("b",))
