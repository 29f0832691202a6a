"""Sampled keys of sorted rows, each with its rank: what is known of where rows lie without them.

The footer of a shard holds them, and so does the survey of files to be imported; from them
partitions are split, and work is cut into tasks of about equal rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from dormouse.keys.ranges import Key, KeyRange


@dataclass(frozen=True, slots=True)
class SampledKeys:
    """Row keys in strictly ascending order, each with the number of rows whose key is less.

    `rows` counts all rows, `max_key` is the greatest key; the first sample is the least.
    """

    samples: tuple[tuple[Key, int], ...] = ()
    rows: int = 0
    max_key: Key = ()

    def rows_below(self, key: Key) -> int:
        """Return the rows whose row key is less than `key`; exact at samples, else interpolated."""
        if not self.samples or key <= self.samples[0][0]:
            return 0
        if key > self.max_key:
            return self.rows
        at = bisect_left(self.samples, key, key=_key)
        if at < len(self.samples) and self.samples[at][0] == key:
            return self.samples[at][1]
        low = self.samples[at - 1][1] + 1
        high = self.samples[at][1] if at < len(self.samples) else self.rows - 1
        return (low + high) // 2

    def rows_in(self, span: KeyRange) -> int:
        """Return the rows whose row key lies in `span`, as well as it is known."""
        end = self.rows if span.max is None else self.rows_below(span.max)
        return max(0, end - self.rows_below(span.min))

    def within(self, span: KeyRange) -> SampledKeys:
        """Return what is known of the rows in `span` alone."""
        first = bisect_left(self.samples, span.min, key=_key)
        end = (
            len(self.samples) if span.max is None else bisect_left(self.samples, span.max, key=_key)
        )
        if first == end:
            return SampledKeys()
        below = self.samples[first][1]
        rows = (self.samples[end][1] if end < len(self.samples) else self.rows) - below
        samples = tuple((key, rank - below) for key, rank in self.samples[first:end])
        inside = span.max is None or self.max_key < span.max
        return SampledKeys(samples, rows, self.max_key if inside else samples[-1][0])


def pooled(known: Iterable[SampledKeys]) -> SampledKeys:
    """Return what is known of the rows of several together.

    The rows between two samples count at the first of them; of one alone, nothing is lost.
    """
    weights: dict[Key, int] = {}
    greatest: Key = ()
    for one in known:
        if one.samples:
            greatest = max(greatest, one.max_key)
            ends = [rank for _, rank in one.samples[1:]] + [one.rows]
            for (key, rank), end in zip(one.samples, ends, strict=True):
                weights[key] = weights.get(key, 0) + end - rank
    samples = []
    rows = 0
    for key in sorted(weights):
        samples.append((key, rows))
        rows += weights[key]
    return SampledKeys(tuple(samples), rows, greatest)


def _key(sample: tuple[Key, int]) -> Key:
    return sample[0]
