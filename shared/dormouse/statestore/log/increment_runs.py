"""Which increments become one: five are left at most, and each entry is written few times.

Time is counted in periods since the newest snapshot: after each, an increment is due. It ends at
that time, and begins where those that are left end. Which are left follows from the time alone
(`few_runs`). Of 225 periods each entry is written four times on average: as often as if each
increment took in those before it that are as short, which would leave up to seven.

Pure rules; `compaction` carries them out.
"""

from __future__ import annotations

from collections.abc import Sequence

from dormouse.statestore.log.few_runs import ends_at
from dormouse.statestore.log.pages import Increment

MOST_INCREMENTS = 5


def left_before(version: int, increments: Sequence[Increment], period: int) -> int:
    """Return how many of the increments since a snapshot one that ends at a version leaves.

    Increments come about once in `period` commits; if one comes late, more are taken in.
    """
    if not increments:
        return 0
    begin = increments[0].after
    now = round((version - begin) / period)
    ends = set(ends_at(now, MOST_INCREMENTS)) - {now}
    left = 0
    while left < len(increments) and round((increments[left].version - begin) / period) in ends:
        left += 1
    return left
