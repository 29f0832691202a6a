"""How what comes one by one is kept in few runs, while each is written again few times.

After each thing that comes, the runs follow from their number alone, by its representation as a sum
of binomial coefficients. From one to the next only the last ends change, so the new run takes in
only those just before it. For example, with three runs at most: after 1, 2 and 3 there are one, two
and three runs, of one each; the fourth takes all before it in.

Increments after a snapshot are such runs (`increment_runs`), and the deltas of a page (`carrying`).
"""

from __future__ import annotations

from math import comb


def ends_at(count: int, most: int) -> list[int]:
    """Return where the runs end after so many things, in order; the last ends with the last thing.

    There are `most` at most. With five: of the numbers "choose 5 of a" the largest that fits is
    taken, then "choose 4 of b", and so on. 7 is C(6, 5) + C(4, 4), so runs end after 6 and 7; 8 is
    C(6, 5) + C(4, 4) + C(3, 3), so they end after 6, 7 and 8.
    """
    ends, end = [], 0
    for chosen in range(most, 0, -1):
        of = chosen - 1
        while end + comb(of + 1, chosen) <= count:
            of += 1
        if of >= chosen:
            end += comb(of, chosen)
            ends.append(end)
    return ends
