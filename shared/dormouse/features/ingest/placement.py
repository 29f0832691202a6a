"""Whether an ingest writes a shard for each leaf, or shards that span leaves."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from dormouse.keys.ranges import Key
from dormouse.model.partitions import Partition

MIN_PIECE_BYTES = 8 * 1024 * 1024
"""What the rows of a leaf must take in memory, on average, for shards of their own.

A shard costs a request to put it, about 10 milliseconds and 9 KB, however few its rows are; the
request alone costs as much as the time in which so many bytes of rows are sorted and written.
"""


def spans_leaves(strategy: str, size_bytes: int, leaves: int) -> bool:
    """Return whether rows that take `size_bytes` and lie in so many leaves share shards.

    `strategy` is the property ``ingest_file_strategy``.
    """
    if strategy == "auto":
        return size_bytes < leaves * MIN_PIECE_BYTES and leaves > 1
    return strategy == "one_reference_per_leaf"


def leaves_holding(keys: Iterable[Key], leaves: Sequence[Partition]) -> int:
    """Count the leaves in which some of `keys` lie; `leaves` are all there are, in key order.

    Keys may have more parts than the row keys have.
    """
    starts = [leaf.range.min for leaf in leaves]
    return len({bisect_right(starts, key) for key in keys})
