"""Keeps reading cheap: deltas of full pages into segments, and now and then a snapshot.

All of it is off the commit path. Any number may do it at once: each makes an object of a new name,
and the one change of the root that comes first is kept; the objects of the others are collected.
Used by `engine`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dormouse.errors import CorruptDataError, InvariantError
from dormouse.fold.invariants import broken_invariants
from dormouse.model.state import TableState
from dormouse.ports import Ids
from dormouse.statestore.codec_segment import Delta, encode_segment
from dormouse.statestore.history import with_snapshot
from dormouse.statestore.log import CollectedError
from dormouse.statestore.pages import Head, Root, Segment, place_after, version_before
from dormouse.statestore.reading import Reader
from dormouse.statestore.snapshots import without_forgotten

PAGES_AT_ONCE = 64
"""How many pages one call consolidates at most, so that it stays short after a long rest."""
SEGMENTS_PER_LEVEL = 8
"""So many segments of a size become one: a delta is written anew once a level, and the number of
segments grows with the logarithm of the log."""
SNAPSHOT_SHARE = 10
"""A snapshot is due when the segments since the last one are a tenth of its size: commits then pay
for it with ten times their own small size, and a cold reader reads little more than it."""
LEAST_BYTES_TO_SNAPSHOT = 256 * 1024


@dataclass(frozen=True, slots=True)
class Consolidator:
    """Consolidates one table's log; versions are kept readable for `keep_ms`."""

    reader: Reader
    ids: Ids
    keep_ms: int

    def consolidate(self, head: Head) -> bool:
        """Make full pages a segment, if there are any; tell whether the root was changed."""
        root, segments = head.root, self.reader.segments
        first = root.covered_pages
        end = min(head.last_page, first + PAGES_AT_ONCE)
        if segments is None or end <= first:
            return False
        absorbed = absorbed_by(end - first, root)
        after = absorbed[0].after if absorbed else version_before(first)
        try:
            deltas = [*self.reader.from_segments(absorbed, after)]
            deltas += self._of_pages(first, end)
        except CollectedError:
            return False  # another was quicker
        segment_id, body = self.ids.new(), encode_segment(deltas)
        self.reader.log.patience.insist(lambda: segments.put(segment_id, body))
        made = Segment(segment_id, after, version_before(end), len(body))
        return self.reader.log.install(segment_id, lambda now: with_segment(now, root, made))

    def snapshot(self, state: TableState, root: Root) -> bool:
        """Keep a state whole; tell whether it became the newest snapshot.

        Raises:
            InvariantError: the state contradicts itself; nothing was kept.
        """
        table_id = self.reader.log.table_id
        if broken := broken_invariants(state):
            raise InvariantError(
                f"table {table_id} at version {state.version}: {'; '.join(broken[:5])}",
                hint="no snapshot was written, so that the log still shows how it came to this",
            )
        kept, snapshot_id = without_forgotten(state), self.ids.new()
        made = self.reader.log.patience.insist(
            lambda: self.reader.snapshots.save(snapshot_id, kept, root.newest)
        )
        return self.reader.log.install(
            snapshot_id, lambda now: with_snapshot(now, made, self.keep_ms)
        )

    def _of_pages(self, first: int, end: int) -> list[Delta]:
        ids: list[str] = []
        for number in range(first, end):
            page = self.reader.log.pages.page(self.reader.log.table_id, number)
            if page is None and number < self.reader.root().covered_pages:
                raise CollectedError
            if page is None or not page.is_full:
                raise CorruptDataError(f"page {number} of the log of the table is not whole")
            ids += page.ids
        return self.reader.by_id(ids, version_before(first), {})


def snapshot_due(root: Root, last_page: int, has_segments: bool) -> bool:
    """Return whether the newest state should be kept whole.

    Without segments a cold reader fetches each delta since the last one: then once a page.
    """
    newest = root.newest
    version = newest.version if newest else 0
    if not has_segments:
        return version_before(last_page) > version
    since = sum(s.size_bytes for s in root.segments if s.version > version)
    share = newest.size_bytes // SNAPSHOT_SHARE if newest else 0
    return since >= max(LEAST_BYTES_TO_SNAPSHOT, share)


def absorbed_by(pages: int, root: Root) -> tuple[Segment, ...]:
    """Return the last segments of a root that become one with `pages` more, like a carry in adding.

    Those which a cold reader does not need, for they go before the newest snapshot, are left.
    """
    since = root.newest.version if root.newest else 0
    open_ = [s for s in root.segments if s.after >= since]
    taken = 0
    while True:
        level = _level(pages)
        run = 0
        while taken + run < len(open_) and _level(_pages(open_[-1 - taken - run])) <= level:
            run += 1
        if run < SEGMENTS_PER_LEVEL - 1:
            return tuple(open_[len(open_) - taken :])
        pages += sum(_pages(s) for s in open_[len(open_) - taken - run : len(open_) - taken])
        taken += run


def with_segment(now: Root, seen: Root, made: Segment) -> Root | None:
    """Return the root with a segment in place of those it was made from; None if they changed."""
    if now.covered_pages != seen.covered_pages:
        return None
    before = tuple(s for s in now.segments if s.version <= made.after)
    if now.segments and (before[-1].version if before else now.segments[0].after) != made.after:
        return None
    return replace(now, revision=now.revision + 1, segments=(*before, made))


def _pages(segment: Segment) -> int:
    return place_after(segment.version)[0] - place_after(segment.after)[0]


def _level(pages: int) -> int:
    level = 0
    while pages >= SEGMENTS_PER_LEVEL:
        pages, level = pages // SEGMENTS_PER_LEVEL, level + 1
    return level
