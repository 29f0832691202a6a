"""An overlay map behaves as a map, whatever its layers, and its changes are what changed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rpds import HashTrieMap

from dormouse.state.partitions import TOMBSTONE, OverlayMap

keys = st.sampled_from("abcdefgh")
entries = st.dictionaries(keys, st.integers(0, 3))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), keys, st.integers(0, 3)),
        st.tuples(st.just("put"), keys, st.integers(0, 3)),
        st.tuples(st.just("discard"), keys, st.just(0)),
        st.tuples(st.just("retain"), st.just(""), st.integers(0, 3)),
    ),
    max_size=20,
)


def changed(
    layered: OverlayMap[str, int], plain: dict[str, int], step: tuple[str, str, int]
) -> tuple[OverlayMap[str, int], dict[str, int]]:
    kind, key, number = step
    if kind == "insert":
        return layered.insert(key, number), plain | {key: number}
    if kind == "put":
        return layered.put({key: number}, new=key not in plain), plain | {key: number}
    if kind == "retain":
        kept = {k: v for k, v in plain.items() if v >= number}
        return layered.retain(lambda value: value >= number), kept
    return layered.discard(key), {k: v for k, v in plain.items() if k != key}


@given(entries, steps)
def test_it_holds_what_a_dict_would_hold(
    base: dict[str, int], changes: list[tuple[str, str, int]]
) -> None:
    layered, plain = OverlayMap(HashTrieMap(base)), dict(base)
    for step in changes:
        layered, plain = changed(layered, plain, step)
        assert len(layered) == len(plain)
        assert dict(layered.items()) == plain
        assert sorted(layered) == sorted(layered.keys()) == sorted(plain)
        assert sorted(layered.values()) == sorted(plain.values())
        for key in "abcdefgh":
            assert (key in layered) == (key in plain)
            assert layered.get(key) == plain.get(key)
            assert layered.get(key, 9) == plain.get(key, 9)
        assert layered == OverlayMap.of(plain)


@given(entries, steps)
def test_the_base_with_the_changes_made_in_it_is_the_map(
    base: dict[str, int], changes: list[tuple[str, str, int]]
) -> None:
    layered, plain = OverlayMap(HashTrieMap(base)), dict(base)
    for step in changes:
        layered, plain = changed(layered, plain, step)
    written = dict(base)
    for key, value in layered.changes.items():
        if value is TOMBSTONE:
            del written[key]  # never for a key which the base has not
        else:
            written[key] = value
    assert written == plain


@given(entries, entries)
def test_a_change_leaves_the_map_it_was_made_of_as_it_was(
    base: dict[str, int], more: dict[str, int]
) -> None:
    before = OverlayMap(HashTrieMap(base))
    after = before.update(more)
    for key in base:
        after = after.discard(key)
    assert dict(before.items()) == base


@given(entries, entries)
def test_maps_are_equal_only_if_their_entries_are(
    one: dict[str, int], other: dict[str, int]
) -> None:
    assert (OverlayMap.of(one) == OverlayMap(HashTrieMap(other))) == (one == other)
