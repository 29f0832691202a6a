"""Steps of a merge: they tile the keys, and none reads more than its share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dormouse.keys import encode_key
from dormouse.rows.merging import (
    GROUPS_PER_WINDOW,
    SHARE_OF_MEMORY,
    WINDOW_BYTES,
    max_overlap,
    merge_windows,
)

MB = 10**6
group_sizes = st.sampled_from([100, 5_000, 4 * MB])


@given(
    files=st.lists(
        st.lists(st.tuples(st.integers(0, 50), group_sizes), max_size=60), min_size=1, max_size=3
    ),
    memory_bytes=st.sampled_from([0, 100 * MB, 10**9]),
)
def test_windows_tile_the_keys_and_each_reads_a_bounded_share(
    files: list[list[tuple[int, int]]], memory_bytes: int
) -> None:
    shards = [sorted(((key,), size) for key, size in file) for file in files]
    found = merge_windows(shards, memory_bytes)
    assert (found[0].min, found[-1].max) == ((), None)
    assert all(a.max == b.min for a, b in zip(found, found[1:], strict=False))
    assert not any(window.is_empty() for window in found)
    groups = [group for file in shards for group in file]
    if not groups:
        assert len(found) == 1
        return
    mean_bytes = sum(size for _, size in groups) // len(groups)
    largest = max(size for _, size in groups)
    share = min(memory_bytes // SHARE_OF_MEMORY, WINDOW_BYTES)
    share = max(share, GROUPS_PER_WINDOW * len(files) * mean_bytes)
    of_one_key = max(sum(size for (key,), size in groups if key == k) for k in range(51))
    for window in found:
        begun = sum(size for key, size in groups if window.contains(encode_key(key)))
        assert begun <= share + of_one_key + largest
    if sum(size for _, size in groups) <= min(memory_bytes // SHARE_OF_MEMORY, WINDOW_BYTES):
        assert len(found) == 1


def test_a_few_large_row_groups_do_not_make_one_window_of_all() -> None:
    narrow = [((number,), 100_000) for number in range(1000)]
    wide = [((number,), 4 * MB) for number in range(1000, 1010)]
    found = merge_windows([narrow + wide] * 50, 10**9)
    assert len(found) > 50
    ends = [window for window in found if window.contains(encode_key((1000,)))]
    assert all(not window.contains(encode_key((500,))) for window in ends)


def test_shards_one_after_the_other_are_not_all_open_at_once() -> None:
    assert max_overlap([]) == 0
    assert max_overlap([((i,), (i + 1,)) for i in range(0, 20, 2)]) == 1
    assert max_overlap([((0,), (9,)), ((1,), (2,)), ((2,), (3,)), ((5,), (9,))]) == 3
