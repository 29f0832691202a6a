"""Where the rows of an ingest go: the number of shards is bounded by their bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dormouse.features.ingest import MIN_LEAF_BYTES, count_leaves_holding, spans_leaves
from dormouse.keys import Key, encode_key
from dormouse.state.partitions import PartitionTree
from tests.support.strategies import short_keys

SIZES = st.integers(0, 10**12)
LEAVES = st.integers(1, 10**5)


@given(SIZES, LEAVES)
def test_left_to_itself_it_never_writes_more_shards_than_their_bytes_pay_for(
    size_bytes: int, leaves: int
) -> None:
    shards = 1 if spans_leaves("auto", size_bytes, leaves) else leaves
    assert shards <= max(1, size_bytes // MIN_LEAF_BYTES)


@given(LEAVES)
def test_large_pieces_get_shards_of_their_own(leaves: int) -> None:
    assert not spans_leaves("auto", leaves * MIN_LEAF_BYTES, leaves)


@given(SIZES, LEAVES)
def test_a_strategy_that_is_set_is_followed(size_bytes: int, leaves: int) -> None:
    assert spans_leaves("one_reference_per_leaf", size_bytes, leaves)
    assert not spans_leaves("one_file_per_leaf", size_bytes, leaves)


@given(st.sets(short_keys), st.lists(short_keys), st.booleans())
def test_the_leaves_that_hold_keys_are_counted_by_their_ranges(
    points: set[Key], keys: list[Key], sort_keys: bool
) -> None:
    leaves = list(PartitionTree.from_split_points(sorted(points)).leaves())
    holding = {leaf.id for key in keys for leaf in leaves if leaf.range.contains(encode_key(key))}
    full = [(*key, 7) for key in keys] if sort_keys else keys
    assert count_leaves_holding(full, leaves) == len(holding)
