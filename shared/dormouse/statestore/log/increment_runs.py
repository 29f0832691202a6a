"""Which increments become one: five are left at most, and each entry is written few times.

Time is counted in periods since the newest snapshot: after each, an increment is due. It ends at
that time, and begins where those that are left end. Which are left follows from the time alone, by
its representation as a sum of binomial coefficients (`ends_at`). From one period to the next, only
the last ends change, so an increment takes in only those just before it. Of 225 periods each
entry is written four times on average: as often as if each increment took in those before it that
are as short, which would leave up to seven.

Pure rules; `compaction` carries them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

from dormouse.statestore.log.pages import Increment

MOST_INCREMENTS = 5


def ends_at(periods: int) -> list[int]:
    """Return where the increments end after so many periods, in order; the last ends then.

    Of the numbers "choose 5 of a" the largest that fits is taken, then "choose 4 of b", and so on:
    7 is C(6, 5) + C(4, 4), so increments end after 6 and 7 periods; 8 is C(6, 5) + C(4, 4) +
    C(3, 3), so they end after 6, 7 and 8.
    """
    ends, end = [], 0
    for chosen in range(MOST_INCREMENTS, 0, -1):
        of = chosen - 1
        while end + comb(of + 1, chosen) <= periods:
            of += 1
        if of >= chosen:
            end += comb(of, chosen)
            ends.append(end)
    return ends


def left_before(version: int, increments: Sequence[Increment], period: int) -> int:
    """Return how many of the increments since a snapshot one that ends at a version leaves.

    Increments come about once in `period` commits; if one comes late, more are taken in.
    """
    if not increments:
        return 0
    begin = increments[0].after
    now = round((version - begin) / period)
    ends = set(ends_at(now)) - {now}
    left = 0
    while left < len(increments) and round((increments[left].version - begin) / period) in ends:
        left += 1
    return left
