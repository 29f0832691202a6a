"""Between which keys the rows of each row group of a shard lie.

Rows are sorted, so one bound between two row groups says where the one ends and the next begins.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from dormouse.keys.ranges import Key, KeyRange, decode_key, encode_key


def separator(before: Key, key: Key) -> Key:
    """Return the shortest key that is greater than `before` and not greater than `key`; `key` if
    both are the same. Requires: before <= key.

    For example, between ("house", 5) and ("household", 2) it is ("househ"), and between ("a", 5)
    and ("a", 9) it is ("a", 9).
    """
    for i, (part, other) in enumerate(zip(before, key, strict=True)):
        if part == other:
            continue
        if isinstance(part, int) or isinstance(other, int):
            return key[: i + 1]
        pairs = zip(part, other, strict=False)
        same = next((n for n, (a, b) in enumerate(pairs) if a != b), len(part))
        return (*key[:i], other[: same + 1])
    return key


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """Between which keys the rows of each row group lie, in their stored form.

    The keys of row group n are from bound n on, and below bound n + 1; row groups in `ties` may
    also have rows of the key that is bound n + 1, with which the next row group begins.
    """

    bounds: Sequence[bytes]
    ties: frozenset[int]

    @staticmethod
    def of(ends: Sequence[tuple[Key, Key]]) -> KeyBounds:
        """Return the bounds of row groups with these first and last keys, which ascend."""
        first, last = ends[0][0], ends[-1][1]
        pairs = list(zip(ends, ends[1:], strict=False))
        between = [encode_key(separator(a[1], b[0])) for a, b in pairs]
        ties = frozenset(i for i, (a, b) in enumerate(pairs) if a[1] == b[0])
        # no part of a key begins with a zero byte: it is greater than the last key, and less than
        # all others that are
        return KeyBounds([encode_key(first), *between, encode_key(last) + b"\0"], ties)

    def first_key(self, number: int) -> Key:
        """Return a key that no row of a row group is below, and no row before it above."""
        return decode_key(self.bounds[number])

    def overlapping(self, wanted: KeyRange) -> range:
        """Return the row groups that may hold keys in `wanted`, which are contiguous."""
        if wanted.is_empty():
            return range(0)
        groups = len(self.bounds) - 1
        low = wanted.low
        first = bisect_left(self.bounds, low)
        begins_before = first > groups or self.bounds[first] > low or first - 1 in self.ties
        first = max(0, first - begins_before)
        if wanted.high is None:
            return range(min(first, groups), groups)
        stop = bisect_left(self.bounds, wanted.high, hi=groups)
        return range(first, max(first, stop))

    def within(self, wanted: KeyRange) -> range:
        """Return the row groups that certainly hold no key outside of `wanted`."""
        if wanted.is_empty():
            return range(0)
        groups = len(self.bounds) - 1
        first = bisect_left(self.bounds, wanted.low, hi=groups)
        if wanted.high is None:
            return range(first, groups)
        high = wanted.high
        stop = bisect_right(self.bounds, high) - 1
        while stop > first and stop - 1 in self.ties and self.bounds[stop] == high:
            stop -= 1
        return range(first, max(first, stop))
