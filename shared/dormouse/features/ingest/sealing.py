"""Decide when sources are sealed, and which segments a new segment is merged with.

Segments are merged by levels, as in a tiered LSM tree: ten segments of one level become one of the
next, which is ten times as large. Each source is therefore written once a level, and a table has
at most nine segments of each level, plus those of the largest size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dormouse.model.source_segments import SourceSegment

MIN_SEALED_SOURCES = 4096
"""Sources are sealed once there are so many unsealed ones."""
SEGMENT_FANOUT = 10
MAX_SEGMENT_SOURCES = MIN_SEALED_SOURCES * SEGMENT_FANOUT**3
"""Segments of so many sources, four million, are merged no further: a function writes one in a few
seconds with 0.6 GB of memory.
"""


def segments_to_merge(counts: Sequence[int], fresh: int) -> int:
    """Return how many of the newest segments are merged into a new one with `fresh` sources.

    `counts` are the sources of each segment, oldest first. With segments of 4,096 sources, nine of
    them wait and the tenth sealing merges them:

    - ``[4096] * 8``, 4096 → 0: there are nine segments afterwards.
    - ``[4096] * 9``, 4096 → 9: one segment of 40,960 sources, of the next level.
    - ``[40960] * 9 + [4096] * 9``, 4096 → 18: the merged segment is the tenth of its own level.
    """
    left, size = list(counts), fresh
    while True:
        level = _level(size)
        smaller, alike = _up_to(level - 1, left), _up_to(level, left)
        taken = alike if alike - smaller >= SEGMENT_FANOUT - 1 else smaller
        if (
            not taken
            or size >= MAX_SEGMENT_SOURCES
            or size + sum(left[-taken:]) > 2 * MAX_SEGMENT_SOURCES
        ):
            return len(counts) - len(left)
        size += sum(left[-taken:])
        del left[-taken:]


def complete_chain(found: Iterable[SourceSegment]) -> tuple[list[SourceSegment], list[str]]:
    """Return the shortest chain of segments that covers the versions of one log, and what is lost.

    Segments that were merged into others, or written and never committed, may still be stored. All
    are usable: a segment holds exactly the sources of its versions, those after `after` and up to
    `up_to`. Of (0, 4], (4, 8], (0, 8] and (8, 9] the chain is (0, 8], (8, 9]. Of (0, 4]
    and (5, 9] the chain is (0, 4], and the sources after version 4 are reported as lost.
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
    """Return how many of the last counts in a row are of this level or a lower one."""
    taken = 0
    while taken < len(counts) and _level(counts[-1 - taken]) <= level:
        taken += 1
    return taken


def _level(count: int) -> int:
    level, least = 0, MIN_SEALED_SOURCES * SEGMENT_FANOUT
    while count >= least:
        level, least = level + 1, least * SEGMENT_FANOUT
    return level
