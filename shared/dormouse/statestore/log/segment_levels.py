"""Which segments become one: a cold reader fetches few, and the head that names them is small.

*Open* segments begin on the page of the newest cut (the newest snapshot, or an increment after it)
or later: a cold reader folds them. All before are *history*: only readers of earlier versions need
them, and a reader that fell behind. Segments have levels, so a delta is written again once a level,
and the number of segments grows with the logarithm of the log.

Pure rules; `compaction` carries them out.
"""

from __future__ import annotations

from dataclasses import replace

from dormouse.statestore.log.pages import Manifest, Segment, place_after

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
