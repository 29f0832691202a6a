"""Shards with small blocks: what a few rows need to be in several blocks and row groups."""

from __future__ import annotations

import pytest

from dormouse.shards import footer, parquet


def write_small_blocks(patch: pytest.MonkeyPatch, rows: int, row_group: int | None = None) -> None:
    """Let blocks have `rows`, a power of two, which are one page, and row groups `row_group`, by
    default three blocks.
    """
    assert rows & (rows - 1) == 0, "pages have a power of two of rows"
    patch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", rows)
    patch.setattr(parquet, "PAGE_ROWS", rows)
    patch.setattr(parquet, "MAX_ROW_GROUP_ROWS", row_group or 3 * rows)
    patch.setattr(parquet, "MOST_COLUMNS", 1000)
    patch.setattr(footer, "BLOCK_BYTES", 256)  # by which the lengths of indexes are guessed
    patch.setattr(footer, "_growth_bytes", lambda *_, **__: 1)
    patch.setattr(footer, "LEAST_GROUP_BYTES", 1)
    patch.setattr(parquet, "block_bytes", lambda *_, **__: 1)
