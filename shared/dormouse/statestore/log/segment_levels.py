"""Which things of a log become one, so that there are few and each is written again few times.

**Segments.** A cold reader fetches few, and the head that names them is small. *Open* segments
begin on the page of the newest cut (the newest snapshot, or an increment after it) or later: a cold
reader folds them. All before are *history*: only readers of earlier versions need them, and a
reader that fell behind. Segments have levels, so a delta is written again once a level, and the
number of segments grows with the logarithm of the log.

**Runs** of what comes one by one: increments after a snapshot, and the deltas that another one of
their page carries (`carrying`). After each thing that comes, the runs follow from their number
alone, by its representation as a sum of binomial coefficients. From one to the next only the last
ends change, so the new run takes in only those just before it. For example, with three runs at
most: after 1, 2 and 3 there are one, two and three runs, of one each; the fourth takes all before
it in.

**Increments.** Five are left at most. Time is counted in periods since the newest snapshot: after
each, an increment is due. It ends at that time, and begins where those that are left end. Of 225
periods each entry is written four times on average: as often as if each increment took in those
before it that are as short, which would leave up to seven.

Pure rules; `compaction` carries them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import comb

from dormouse.statestore.log.pages import Increment, Manifest, Segment, place_after

PAGES_PER_SEGMENT = 3
"""An open segment of fewer pages takes in those that come next."""
SEGMENTS_PER_LEVEL = 8
"""So many segments of a size become one."""
MOST_SEGMENTS = 15
"""With more, history is merged. A table whose versions need fewer never pays for it."""
HISTORY_PER_LEVEL = 3
"""So many segments of history of a size become one."""
MOST_HISTORY_BYTES = 32 * 1024 * 1024
"""No larger segment is made of history: what is merged is in memory."""


def absorbed_by(pages: int, manifest: Manifest) -> tuple[Segment, ...]:
    """Return the last segments that become one with `pages` more, like a carry in addition.

    Open segments have levels: below 3 pages level 0, below 24 level 1, below 192 level 2, and so
    on. One of level 0 becomes one with whatever comes; of a higher level, seven take part when one
    more comes, and the sum may carry on to the next level. With segments of 24, 3, 3, 3, 3, 3, 3,
    3, 2 pages, one more page absorbs the one of 2; that makes 3 pages, which absorb the seven of 3;
    the one of 24 is left.
    """
    open_ = _open(manifest)
    taken = 0
    while True:
        level = _open_level(pages)
        run = 0
        while taken + run < len(open_):
            if _open_level(_pages(open_[-1 - taken - run])) > level:
                break
            run += 1
        if run < (SEGMENTS_PER_LEVEL - 1 if level else 1):
            return open_[len(open_) - taken :]
        pages += sum(_pages(s) for s in open_[len(open_) - taken - run : len(open_) - taken])
        taken += run


def history_to_merge(manifest: Manifest) -> tuple[Segment, ...]:
    """Return segments of history that become one; none if the manifest has few segments.

    Below 3 pages they are of level 0, below 9 of level 1, and so on. The latest three or more that
    follow one another become one if the last of them has no lower level than the others. With 40,
    7, 5, 1, 1, 1 pages, those of 1 page do; with 40, 7, 5, 3, the last three.

    None reaches across the newest snapshot: the next one is due by what the segments after it have.
    """
    if len(manifest.segments) <= MOST_SEGMENTS:
        return ()
    history = manifest.segments[: len(manifest.segments) - len(_open(manifest))]
    newest = manifest.newest.version if manifest.newest else 0
    older = sum(segment.version <= newest for segment in history)
    for group in (history[older:], history[:older]):
        for end in range(len(group), HISTORY_PER_LEVEL - 1, -1):
            run = _run_before(group[:end])
            if len(run) >= HISTORY_PER_LEVEL:
                return run
    return ()


def _open(manifest: Manifest) -> tuple[Segment, ...]:
    first_page = place_after(manifest.cuts[-1])[0] if manifest.cuts else 0
    return tuple(s for s in manifest.segments if place_after(s.after)[0] >= first_page)


def _run_before(history: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Return the last segments of one level, and of lower ones, that are not too large together."""
    size_bytes, run = 0, 0
    level = _level(_pages(history[-1]), HISTORY_PER_LEVEL)
    for segment in reversed(history):
        size_bytes += segment.size_bytes
        if size_bytes > MOST_HISTORY_BYTES:
            break
        if _level(_pages(segment), HISTORY_PER_LEVEL) > level:
            break
        run += 1
    return history[len(history) - run :]


def with_segment(now: Manifest, seen: Manifest, made: Segment) -> Manifest | None:
    """Return the manifest with a segment in place of those it was made from.

    None if these changed since `seen`.
    """
    if now.covered_pages != seen.covered_pages:
        return None
    before = tuple(s for s in now.segments if s.version <= made.after)
    if now.segments and (before[-1].version if before else now.segments[0].after) != made.after:
        return None
    return replace(now, revision=now.revision + 1, segments=(*before, made))


def with_history_merged(now: Manifest, run: tuple[Segment, ...], made: Segment) -> Manifest | None:
    """Return the manifest with one segment in place of a run of them.

    None if it has no such run any more.
    """
    if run[0] not in now.segments:
        return None
    first = now.segments.index(run[0])
    end = first + len(run)
    if now.segments[first:end] != run:
        return None
    segments = (*now.segments[:first], made, *now.segments[end:])
    return replace(now, revision=now.revision + 1, segments=segments)


def _pages(segment: Segment) -> int:
    return place_after(segment.version)[0] - place_after(segment.after)[0]


def _open_level(pages: int) -> int:
    return (
        1 + _level(pages // PAGES_PER_SEGMENT, SEGMENTS_PER_LEVEL)
        if pages >= PAGES_PER_SEGMENT
        else 0
    )


def _level(pages: int, per_level: int) -> int:
    level = 0
    while pages >= per_level:
        pages, level = pages // per_level, level + 1
    return level


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
