"""Choose leaves to split before a large import, so that many tasks can write it at once.

The rule is that of GCHQ's Sleeper: the leaf that will get the most rows is split at their median,
repeatedly, until there are enough leaves.
"""

from __future__ import annotations

from heapq import heappop, heappush

from dormouse.features.planning.splitting import plan_split
from dormouse.keys.histogram import KeyHistogram
from dormouse.keys.ranges import KeyRange, encode_key
from dormouse.model.partitions import Partition, PartitionTree, partition_id_of

MIN_ROWS_TO_SPLIT = 1000
"""A leaf that will get fewer rows is not split."""
MIN_SHARE = 10
"""A leaf that will get less than the average of the leaves divided by this is not split."""

_Leaf = tuple[int, bytes, str, KeyHistogram]
"""An entry of the heap: the negated rows to come (largest first), the least key, and the id."""


def plan_extension(
    tree: PartitionTree, known: KeyHistogram, min_leaves: int
) -> tuple[tuple[str, bytes], ...]:
    """Return the splits, in order, which make at least `min_leaves` leaves of those there are.

    `known` is known of the rows to come. Fewer splits are given if those are too few, or their keys
    too much alike.
    """
    leaves = list(tree.leaves())
    if len(leaves) >= min_leaves:
        return ()
    least = max(MIN_ROWS_TO_SPLIT, -(-known.rows // (len(leaves) * MIN_SHARE)))
    fullest: list[_Leaf] = []
    for leaf in leaves:
        _put(fullest, leaf, known, least)
    splits: list[tuple[str, bytes]] = []
    while fullest and len(leaves) + len(splits) < min_leaves:
        _, _, leaf_id, inside = heappop(fullest)
        plan = plan_split(tree.get(leaf_id).range, {"": inside})
        if plan is not None:  # else all its rows share one key
            span, at = tree.get(leaf_id).range, encode_key(plan.at)
            splits.append((leaf_id, at))
            tree = tree.split(leaf_id, at)
            for half in (KeyRange.between(span.low, at), KeyRange.between(at, span.high)):
                _put(fullest, tree.get(partition_id_of(half)), inside, MIN_ROWS_TO_SPLIT)
    return tuple(splits)


def _put(fullest: list[_Leaf], leaf: Partition, known: KeyHistogram, least: int) -> None:
    inside = known.within(leaf.range)
    if inside.rows >= least:
        heappush(fullest, (-inside.rows, leaf.range.low, leaf.id, inside))
