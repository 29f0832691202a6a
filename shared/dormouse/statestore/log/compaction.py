"""Log compaction: deltas of full pages become segments, and now and then a state a snapshot.

That keeps reading cheap.

It is off the commit path. Any number of processes may do it at once: each makes a blob of a
new name, and the first change of the manifest wins; the blobs of the others are garbage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dormouse.errors import CorruptDataError, InvariantError
from dormouse.fold.invariants import broken_invariants
from dormouse.model.state import TableState
from dormouse.ports import Ids
from dormouse.statestore.delta.codec import Delta
from dormouse.statestore.log.history import with_increment, with_snapshot
from dormouse.statestore.log.log import CollectedError
from dormouse.statestore.log.pages import (
    Head,
    Increment,
    Manifest,
    Segment,
    Snapshot,
    place_after,
    version_before,
)
from dormouse.statestore.log.reader import Reader
from dormouse.statestore.snapshot.trimming import without_expired

PAGES_AT_ONCE = 64
"""How many pages one call compacts at most, so that it stays short after a long rest."""
SEGMENTS_PER_LEVEL = 8
"""So many segments of a size become one: a delta is written again once a level, and the number of
segments grows with the logarithm of the log."""
LEAST_BYTES_TO_SNAPSHOT = 256 * 1024
COMMITS_TO_INCREMENT = 256
"""An increment is due after so many commits: a cold reader folds no more than these, and those of a
few pages, whatever the size of the snapshot."""
REFERENCES_TO_INDEX = 10_000
"""Snapshots of so many references, and increments after them, have a key index."""


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """What a state store pays for cheap reads.

    Pages become a segment once there are `least_pages` full ones: until then a reader fetches their
    deltas one by one. A snapshot is due when the segments since the last one are a
    `snapshot_share`-th of its size: with 4, commits pay four times their own small size for it.
    What was committed since, a cold reader reads in increments.
    """

    least_pages: int = 1
    snapshot_share: int = 4


@dataclass(frozen=True, slots=True)
class LogCompaction:
    """Compacts one table's log; versions are kept readable for `keep_ms`."""

    reader: Reader
    ids: Ids
    keep_ms: int
    policy: CompactionPolicy

    def compact(self, head: Head) -> bool:
        """Make full pages a segment, if there are enough; return whether the manifest changed."""
        from dormouse.statestore.delta.segments import encode_segment

        manifest, segments = head.manifest, self.reader.segments
        first = manifest.covered_pages
        end = min(head.last_page, first + PAGES_AT_ONCE)
        if end - first < self.policy.least_pages:
            return False
        absorbed = absorbed_by(end - first, manifest)
        after = absorbed[0].after if absorbed else version_before(first)
        try:
            deltas = [*self.reader.from_segments(absorbed, after)]
            deltas += self._of_pages(first, end)
        except CollectedError:
            return False  # another process was quicker
        segment_id, body = self.ids.new(), encode_segment(deltas, self.reader.log.table_id)
        segments.put(segment_id, body)
        restores = tuple(delta.id for delta in deltas if delta.restores)
        made = Segment(segment_id, after, version_before(end), len(body), restores)
        return self.reader.log.install(segment_id, lambda now: with_segment(now, manifest, made))

    def snapshot(self, state: TableState) -> bool:
        """Keep a state whole; return whether it became the newest snapshot.

        Raises:
            InvariantError: the state contradicts itself; nothing was kept.
        """
        from dormouse.statestore.snapshot.codec import encode_snapshot

        table_id = self.reader.log.table_id
        self._check(state)
        body = encode_snapshot(table_id, without_expired(state), has_key_index=has_key_index(state))
        snapshot_id = self.ids.new()
        self.reader.snapshots.put(snapshot_id, body)
        made = Snapshot(snapshot_id, state.version, state.time_ms, len(body))
        return self.reader.log.install(
            snapshot_id, lambda now: with_snapshot(now, made, self.keep_ms)
        )

    def increment(self, cut: TableState, state: TableState, manifest: Manifest) -> bool:
        """Keep what changed since a state that is kept; return whether `state` is kept now, too.

        It takes in those increments before it that are as short, so that there are few.

        Raises:
            InvariantError: the state contradicts itself; nothing was kept.
            CollectedError: another process was quicker.
        """
        from dormouse.statestore.snapshot.changes import changes_between, joined, rebased
        from dormouse.statestore.snapshot.increments import encode_increment

        later = rebased(state, cut)
        if later is None:  # all of it may have changed, as after a reset
            return self.snapshot(state)
        self._check(later)
        table_id, by_key = self.reader.log.table_id, has_key_index(later)
        changes = changes_between(table_id, cut, later, by_key=by_key)
        before = [each for each in manifest.increments if each.version <= cut.version]
        while before and before[-1].version - before[-1].after <= state.version - changes.after:
            changes = joined(self.reader.changes(before.pop()), changes)
        increment_id, body = self.ids.new(), encode_increment(changes)
        self.reader.snapshots.put(increment_id, body)
        made = Increment(increment_id, changes.after, state.version, state.time_ms, len(body))
        return self.reader.log.install(increment_id, lambda now: with_increment(now, made))

    def _check(self, state: TableState) -> None:
        if broken := broken_invariants(state):
            raise InvariantError(
                f"table {self.reader.log.table_id} at version {state.version}: "
                f"{'; '.join(broken[:5])}",
                hint="no snapshot was written, so that the log still shows how it came to this",
            )

    def _of_pages(self, first: int, end: int) -> list[Delta]:
        ids: list[str] = []
        for number in range(first, end):
            page = self.reader.log.pages.page(self.reader.log.table_id, number)
            if page is None and number < self.reader.manifest().covered_pages:
                raise CollectedError
            if page is None or not page.is_full:
                raise CorruptDataError(f"page {number} of the log of the table is not whole")
            ids += page.ids
        return self.reader.by_id(ids, version_before(first), {})


def has_key_index(state: TableState) -> bool:
    """Return whether a state is so large that a reader of a few keys should not read all of it."""
    return state.reference_count >= REFERENCES_TO_INDEX


def is_snapshot_due(manifest: Manifest, policy: CompactionPolicy) -> bool:
    """Return whether the newest state should be kept whole.

    For example: a snapshot of 4.8 MB, a share of 4, and since then segments of 1.2 MB.
    """
    newest = manifest.newest
    version = newest.version if newest else 0
    since = sum(s.size_bytes for s in manifest.segments if s.version > version)
    share = newest.size_bytes // policy.snapshot_share if newest else 0
    return since >= max(LEAST_BYTES_TO_SNAPSHOT, share)


def is_increment_due(manifest: Manifest) -> bool:
    """Return whether a cold reader has to fold so much that what changed should be kept."""
    if not (manifest.cuts and manifest.segments):
        return False
    return manifest.segments[-1].version - manifest.cuts[-1] >= COMMITS_TO_INCREMENT


def absorbed_by(pages: int, manifest: Manifest) -> tuple[Segment, ...]:
    """Return the last segments that become one with `pages` more, like a carry in addition.

    Segments have levels: below 8 pages level 0, below 64 level 1, and so on. Seven segments of a
    level take part when one more of that level comes, and the sum may carry on to the next level.
    With segments of 64, 8, 8, 8, 8, 8, 8, 8, 1, 1, 1, 1, 1, 1, 1 pages, one more page absorbs the
    seven of 1 page; that makes 8 pages, which absorb the seven of 8; the one of 64 is left.

    Segments which a cold reader does not need, for the newest snapshot covers them, are left.
    """
    since = manifest.newest.version if manifest.newest else 0
    open_ = [s for s in manifest.segments if s.after >= since]
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


def _pages(segment: Segment) -> int:
    return place_after(segment.version)[0] - place_after(segment.after)[0]


def _level(pages: int) -> int:
    level = 0
    while pages >= SEGMENTS_PER_LEVEL:
        pages, level = pages // SEGMENTS_PER_LEVEL, level + 1
    return level
