"""How large the row groups of a shard are, and what follows for its footer.

Row groups are small, so that a look-up reads little: it finds the key in the index at the end of
the footer and reads one row group, not the shard. But each row group costs time to write and merge,
and takes room in the footer that merges and other readers read whole. So row groups grow with the
square root of the file's size, and with them both parts of the footer.

For example, a file of three columns and 20 MB has 290 row groups of 60 to 88 KB, an index of 16 KB
and a footer of 107 KB; one of 512 MB has 2,300 of up to 443 KB, an index of 120 KB and a footer of
0.8 MB.
"""

from __future__ import annotations

import math

ROW_GROUP_BYTES = 160 * 1024
COLUMN_BYTES = 20 * 1024
"""The compressed size of the first row groups is this for each column, up to `ROW_GROUP_BYTES`:
smaller ones would cost more time to write and merge.
"""
MANY_COLUMNS = 40
MANY_COLUMN_BYTES = ROW_GROUP_BYTES // MANY_COLUMNS
"""With more columns than these, the first row groups have this of each, 4 KiB: every column chunk
takes some KB of memory where it is written or merged.
"""
GROWTH_BYTES = 128
"""A row group is as large as a square of which one side is what is written so far, the other this
for each column.
"""
CHUNK_FOOTER_BYTES = 111
"""The approximate size in the footer of one column chunk, the index included."""
BASE_FOOTER_BYTES = 12 * 1024
"""The approximate size of the rest of a footer, including samples of short keys."""
CHUNK_INDEX_BYTES = 12
GROUP_INDEX_BYTES = 20
"""The approximate sizes in the index of a column chunk, and of the bound and the rows of a row
group.
"""
COLUMN_INDEX_BYTES = 240
BASE_INDEX_BYTES = 1024
"""The approximate sizes of what follows the index in the footer, for each column, and besides."""


def row_group_bytes(written_bytes: int, columns: int) -> int:
    """Return the compressed size of the next row group after `written_bytes` of others."""
    return max(first_bytes(columns), math.isqrt(GROWTH_BYTES * columns * written_bytes))


def first_bytes(columns: int) -> int:
    """Return the compressed size of the first row groups."""
    if columns > MANY_COLUMNS:
        return MANY_COLUMN_BYTES * columns
    return min(ROW_GROUP_BYTES, COLUMN_BYTES * columns)


def estimated_footer_bytes(size_bytes: int, columns: int) -> int:
    """Return a length that the footer of a shard of `size_bytes` rarely exceeds."""
    groups = _estimated_groups(size_bytes, columns)
    return BASE_FOOTER_BYTES + int(groups * (columns * CHUNK_FOOTER_BYTES + GROUP_INDEX_BYTES))


def estimated_index_bytes(size_bytes: int, columns: int) -> int:
    """Return how far from the end of a shard of `size_bytes` its index rarely begins."""
    groups = _estimated_groups(size_bytes, columns)
    in_groups = groups * (columns * CHUNK_INDEX_BYTES + GROUP_INDEX_BYTES)
    return BASE_INDEX_BYTES + COLUMN_INDEX_BYTES * columns + int(in_groups)


def _estimated_groups(size_bytes: int, columns: int) -> float:
    """Return how many row groups a shard of `size_bytes` has, or some more."""
    density = GROWTH_BYTES * columns
    grown_from = first_bytes(columns) ** 2 / density
    groups = min(size_bytes, grown_from) / first_bytes(columns)
    if size_bytes > grown_from:
        groups += 2 * (math.sqrt(size_bytes) - math.sqrt(grown_from)) / math.sqrt(density)
    return groups * 1.03 + 2
