"""How large blocks are: a look-up reads little, and the footer stays small."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dormouse.shards import footer


@given(st.integers(0, 10**12), st.integers(1, 1000))
def test_blocks_and_the_index_stay_in_balance(size_bytes: int, columns: int) -> None:
    """What a look-up reads grows with the square root of the size, and the footer no faster."""
    in_index = columns * footer.PAGES_INDEX_BYTES + footer.BLOCK_INDEX_BYTES
    for is_group in (False, True):
        block = footer.block_bytes(size_bytes, columns, is_group=is_group)
        assert block >= footer.first_bytes(columns)
        blocks = size_bytes // block
        assert 2 * blocks * in_index <= block
        assert not is_group or blocks * columns * footer.CHUNK_FOOTER_BYTES <= block


def test_the_first_blocks_are_small_where_there_are_few_columns() -> None:
    assert footer.first_bytes(3) == 36 * 1024
    assert footer.first_bytes(14) == footer.first_bytes(40) == 160 * 1024


def test_the_first_blocks_have_some_kb_of_each_of_many_columns() -> None:
    assert footer.first_bytes(500) == 500 * 4 * 1024
