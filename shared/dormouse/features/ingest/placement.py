"""Decide whether an ingest writes a shard for each leaf, or shards that span leaves."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from dormouse.keys.ranges import Key
from dormouse.model.partitions import Partition

MIN_LEAF_BYTES = 8 * 1024 * 1024
"""The size in memory from which the rows of a leaf, on average, are worth a shard of their own.

A shard costs a PUT request, about 10 milliseconds and 9 KB, however few rows it has. The request
alone costs as much as the time in which so many bytes of rows are sorted and written.
"""


def spans_leaves(strategy: str, size_bytes: int, leaves: int) -> bool:
    """Return whether rows of `size_bytes` in memory, which lie in so many leaves, share shards.

    `strategy` is the property ``ingest_file_strategy``.
    """
    if strategy == "auto":
        return size_bytes < leaves * MIN_LEAF_BYTES and leaves > 1
    return strategy == "one_reference_per_leaf"


def count_leaves_holding(keys: Iterable[Key], leaves: Sequence[Partition]) -> int:
    """Return in how many leaves the keys lie; `leaves` are all leaves, in key order.

    Keys may have more columns than the row keys: the sort keys after them do not change the leaf.
    """
    starts = [leaf.range.min for leaf in leaves]
    return len({bisect_right(starts, key) for key in keys})
