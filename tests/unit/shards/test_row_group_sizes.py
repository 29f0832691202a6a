"""How large row groups are: a look-up reads little, and the footer stays small."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dormouse.shards import footer


@given(st.integers(0, 10**12), st.integers(1, 1000))
def test_row_groups_and_the_index_stay_in_balance(size_bytes: int, columns: int) -> None:
    """What a look-up reads grows with the square root of the size, and the footer no faster."""
    group = footer.row_group_bytes(size_bytes, columns)
    assert group >= footer.first_bytes(columns)
    groups = size_bytes // group
    in_index = columns * footer.CHUNK_INDEX_BYTES + footer.GROUP_INDEX_BYTES
    assert groups * in_index <= group
    assert groups * columns * footer.CHUNK_FOOTER_BYTES <= group * 2


def test_the_first_row_groups_are_small_where_there_are_few_columns() -> None:
    assert footer.row_group_bytes(0, 3) == 60 * 1024
    assert footer.row_group_bytes(0, 8) == footer.row_group_bytes(0, 40) == 160 * 1024


def test_the_first_row_groups_have_some_kb_of_each_of_many_columns() -> None:
    assert footer.row_group_bytes(0, 500) == 500 * 4 * 1024
