"""An equi-depth histogram of row keys: estimate how many rows lie in a range without reading them.

The footer of each shard holds one, and the survey of files for a bulk import makes one. Splitting a
partition at its median and cutting a job into tasks of about equal rows both use them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from dormouse.keys.ranges import Key, KeyRange


@dataclass(frozen=True, slots=True)
class KeyHistogram:
    """Sampled row keys in strictly ascending order, each with its rank: the number of rows whose
    row key is less.

    `rows` counts all rows. `max_key` is the greatest row key; the first sample is the least one.

    Example: rows with the keys a a b c d e, sampled at every second row, give samples (("a",), 0),
    (("b",), 2), (("d",), 4), with rows 6 and max_key ("e",).
    """

    samples: tuple[tuple[Key, int], ...] = ()
    rows: int = 0
    max_key: Key = ()

    def rows_below(self, key: Key) -> int:
        """Return the number of rows whose row key is less than `key`.

        The answer is exact where `key` is a sample. Between two samples it is the middle of what is
        possible: in the example above, the rows below ("c",) are at least 3 (the rows up to b) and
        at most 4 (those below d), so 3.
        """
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
        """Return the estimated number of rows whose row key lies in `span`."""
        end = self.rows if span.max is None else self.rows_below(span.max)
        return max(0, end - self.rows_below(span.min))

    def within(self, span: KeyRange) -> KeyHistogram:
        """Return the histogram of only those rows that lie in `span`, with ranks that start at 0
        again.
        """
        first = bisect_left(self.samples, span.min, key=_key)
        end = (
            len(self.samples) if span.max is None else bisect_left(self.samples, span.max, key=_key)
        )
        if first == end:
            return KeyHistogram()
        below = self.samples[first][1]
        rows = (self.samples[end][1] if end < len(self.samples) else self.rows) - below
        samples = tuple((key, rank - below) for key, rank in self.samples[first:end])
        inside = span.max is None or self.max_key < span.max
        return KeyHistogram(samples, rows, self.max_key if inside else samples[-1][0])


def merge_histograms(known: Iterable[KeyHistogram]) -> KeyHistogram:
    """Return one histogram of the rows of several.

    The rows between two samples count at the lower one. So merging a single histogram loses
    nothing, and merging several is as coarse as the coarsest: a 0, c 2 of 4 rows (2 at a, 2 at c)
    and b 0 of 3 rows become a 0, b 2, c 5 of 7 rows.
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
    return KeyHistogram(tuple(samples), rows, greatest)


def _key(sample: tuple[Key, int]) -> Key:
    return sample[0]
