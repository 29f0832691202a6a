"""When sources are sealed, and which segments a new one takes in: there are always few of them.

A segment has as many sources as one of its level or more, and ten of a level become one of the
next. So each source is written once a level, and of any number of sources there are at most nine
segments a level, besides the largest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dormouse.model.source_segments import SourceSegment

SEAL_AT = 4096
"""How many unsealed sources are worth a segment."""
PER_LEVEL = 10
MOST = SEAL_AT * PER_LEVEL**3
"""Segments of so many sources, four million, are merged no further: a function makes one in 0.6 GB
of memory and a few seconds.
"""


def taken_in(counts: Sequence[int], fresh: int) -> int:
    """Return how many of the last segments, of so many sources each, a new one takes in.

    `fresh` are the unsealed sources that it gets besides.
    """
    left, size = list(counts), fresh
    while True:
        level = _level(size)
        smaller, alike = _up_to(level - 1, left), _up_to(level, left)
        taken = alike if alike - smaller >= PER_LEVEL - 1 else smaller
        if not taken or size >= MOST or size + sum(left[-taken:]) > 2 * MOST:
            return len(counts) - len(left)
        size += sum(left[-taken:])
        del left[-taken:]


def whole_chain(found: Iterable[SourceSegment]) -> tuple[list[SourceSegment], list[str]]:
    """Return as few of the segments of one log as cover all versions any covers, and what is wrong.

    Of segments that were merged, and of such as were put but never committed, some may be there
    still; each has just the sources of its versions. It is wrong that some versions are covered by
    none while later ones are.
    """
    chains: dict[int, list[SourceSegment]] = {0: []}
    ordered = sorted(found, key=lambda segment: (segment.after, -segment.up_to, segment.id))
    for segment in ordered:
        before = chains.get(segment.after)
        known = chains.get(segment.up_to)
        if before is not None and (known is None or len(before) + 1 < len(known)):
            chains[segment.up_to] = [*before, segment]
    end = max(chains)
    beyond = [segment.id for segment in ordered if segment.up_to > end]
    reasons = [
        f"sources ingested after version {end} are lost: no segment leads up to segment {name}"
        for name in beyond[:1]
    ]
    return chains[end], reasons


def _up_to(level: int, counts: Sequence[int]) -> int:
    """Return how many of the last counts, without a gap, are of a level or a lower one."""
    taken = 0
    while taken < len(counts) and _level(counts[-1 - taken]) <= level:
        taken += 1
    return taken


def _level(count: int) -> int:
    level, least = 0, SEAL_AT * PER_LEVEL
    while count >= least:
        level, least = level + 1, least * PER_LEVEL
    return level
