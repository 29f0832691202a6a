"""Choose which leaves to split, by the rows of their references, and where, by key samples."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dormouse.keys.ranges import Key, KeyRange, encode_key
from dormouse.model.state import TableState
from dormouse.tables.properties import Properties

FEWEST_ROWS = 2
"""The fewest rows of a leaf that can be split."""


class KeyRanks(Protocol):
    """The key histogram of a shard: sampled keys at exact ranks, and its number of rows."""

    @property
    def rows(self) -> int:
        """The rows of the shard."""

    @property
    def max_key(self) -> Key:
        """The greatest row key of the shard."""

    @property
    def samples(self) -> Sequence[tuple[Key, int]]:
        """Keys in order, each with the number of the row it was taken from."""

    def rows_below(self, key: Key) -> int:
        """Return the rows whose key is less; exact at samples, interpolated between."""


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """A proposed split: its key, how many rows of each shard go left, and all rows."""

    at: Key
    rows_left: tuple[tuple[str, int], ...]
    total_rows: int


def fewest_rows(properties: Properties, *, forced: bool) -> int:
    """Return how many rows a leaf must have to be split."""
    return FEWEST_ROWS if forced else properties.split_threshold_rows


def splits_due(
    state: TableState, threshold_rows: int, among: Iterable[str] | None = None
) -> list[str]:
    """Return the leaves that hold at least `threshold_rows` by their references, in id order.

    With `among`, only these partitions are looked at.

    References may estimate rows: `split_partition` reads the footers before it splits. A leaf
    whose shards have a single key is left out, because no split could divide its rows.
    """
    return sorted(
        partition
        for partition in (state.references if among is None else among)
        if state.rows_in(partition) >= threshold_rows
        and state.partitions.get(partition).is_leaf
        and not _has_one_key(state, partition)
    )


def _has_one_key(state: TableState, partition: str) -> bool:
    shards = [state.shards[reference.shard] for reference in state.references_in(partition)]
    return len({key for shard in shards for key in (shard.low, shard.high)}) == 1


def plan_split(span: KeyRange, shards: dict[str, KeyRanks]) -> SplitPlan | None:
    """Return the split that divides the rows in `span` most evenly; None if all share one key.

    Candidates are all sampled keys and the greatest key of each shard, so that a key that most
    rows share does not hide the others. If 90 of 100 rows have key b, 5 have a and 5 have c, a
    split at b leaves 5 rows on the left and one at c 95; both are as uneven, and b is chosen.
    """
    candidates = sorted(
        {key for ranks in shards.values() for key, _ in ranks.samples}
        | {ranks.max_key for ranks in shards.values()}
    )
    candidates = [key for key in candidates if span.min < key and span.contains(encode_key(key))]
    first = {name: ranks.rows_below(span.min) for name, ranks in shards.items()}
    total = sum(
        (ranks.rows if span.max is None else ranks.rows_below(span.max)) - first[name]
        for name, ranks in shards.items()
    )

    def rows_left(at: Key) -> dict[str, int]:
        return {name: max(0, r.rows_below(at) - first[name]) for name, r in shards.items()}

    def left(at: Key) -> int:
        return sum(rows_left(at).values())

    middle = bisect_left(candidates, total / 2, key=left)  # rows to the left grow with the key
    near = [key for key in candidates[max(0, middle - 1) : middle + 1] if 0 < left(key) < total]
    if not near:
        return None
    at = min(near, key=lambda key: abs(2 * left(key) - total))
    return SplitPlan(at, tuple(sorted(rows_left(at).items())), total)


def even_split_points(keys: Sequence[Key], partitions: int) -> list[Key]:
    """Return the points that divide sorted keys into up to `partitions` about equal parts.

    Equal keys stay together. Of a, b, b, b, b, c in three parts, the points are b and c: the four
    b's are more than a part. There are fewer parts if there are too few distinct keys.
    """
    points: list[Key] = []
    taken = 0
    for number in range(1, partitions):
        middle = number * len(keys) // partitions
        if middle <= taken:
            continue
        ends = bisect_left(keys, keys[middle]), bisect_right(keys, keys[middle])
        near = [end for end in ends if taken < end < len(keys)]
        if near:
            taken = min(near, key=lambda end: abs(end - middle))
            points.append(keys[taken])
    return points
