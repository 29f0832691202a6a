"""Hypothesis strategies for keys, ranges and tables of transactions."""

from __future__ import annotations

from hypothesis import strategies as st

from dormouse.keys import INT64_MAX, INT64_MIN, Key, KeyRange

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
"""Any text UTF-8 can hold: astral characters and NULs, but no lone surrogates."""

int64 = st.integers(INT64_MIN, INT64_MAX) | st.sampled_from([INT64_MIN, -1, 0, 1, INT64_MAX])

_shapes = st.tuples(st.sampled_from(["text", "int", "bytes"]), st.sampled_from(["text", "int"]))
_parts: dict[str, st.SearchStrategy[str | int | bytes]] = {
    "text": text,
    "int": int64 | st.integers(1 - 10**38, 10**38 - 1),
    "bytes": st.binary(max_size=6),
}


@st.composite
def keys_of_one_table(draw: st.DrawFn, count: int = 2) -> list[Key]:
    """Full keys and prefixes of one table: parts at one position have one type."""
    shape = draw(_shapes)
    full = st.tuples(*(_parts[kind] for kind in shape))
    lengths = st.integers(0, len(shape))
    return [draw(full)[: draw(lengths)] for _ in range(count)]


short_keys = st.text("abcdefgh", min_size=1, max_size=2).map(lambda s: (s,))
"""Keys of one short string, so that random ones often meet."""


@st.composite
def short_ranges(draw: st.DrawFn) -> KeyRange:
    """Ranges over `short_keys`, half of them open at an end."""
    low = draw(st.just(()) | short_keys)
    high = draw(st.none() | short_keys)
    return KeyRange(low, high)
