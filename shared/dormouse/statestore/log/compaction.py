"""Log compaction: deltas of full pages become segments, and now and then a state a snapshot.

That keeps reading cheap, and the head small (`segment_levels`).

It is off the commit path. Any number of processes may do it at once: each makes a blob of a
new name, and the first change of the manifest wins; the blobs of the others are garbage.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from dormouse.errors import CorruptDataError, InvariantError
from dormouse.fold.invariants import broken_invariants
from dormouse.model.state import TableState, without_expired
from dormouse.ports.services import Ids
from dormouse.statestore.blobs import MissingBlobError
from dormouse.statestore.deltas import Delta
from dormouse.statestore.log.history import with_increment, with_snapshot
from dormouse.statestore.log.key_indexes import index_place_of, key_indexes
from dormouse.statestore.log.log import CollectedError
from dormouse.statestore.log.pages import (
    Head,
    Increment,
    Manifest,
    Segment,
    Snapshot,
    version_before,
)
from dormouse.statestore.log.reader import Reader
from dormouse.statestore.log.segment_levels import (
    absorbed_by,
    history_to_merge,
    left_before,
    with_history_merged,
    with_segment,
)

PAGES_AT_ONCE = 64
"""How many pages one call compacts at most, so that it stays short after a long rest."""
LEAST_BYTES_TO_SNAPSHOT = 256 * 1024
COMMITS_TO_INCREMENT = 256
"""An increment is due after so many commits: a cold reader folds no more than these, and those of a
few pages, whatever the size of the snapshot."""
REFERENCES_TO_INDEX = 10_000
"""Snapshots of so many references, and increments after them, have a key index."""


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """What a state store pays for cheap reads.

    A snapshot is due when the segments since the last one are a `snapshot_share`-th of its size:
    with 3, commits pay three times their own small size for it. What was committed since, a cold
    reader reads in increments.
    """

    snapshot_share: int = 3


@dataclass(frozen=True, slots=True)
class LogCompaction:
    """Compacts one table's log; versions are kept readable for `keep_ms`."""

    reader: Reader
    ids: Ids
    keep_ms: int
    policy: CompactionPolicy

    def compact(self, head: Head) -> bool:
        """Make full pages a segment, if there are any; return whether the manifest changed."""
        from dormouse.statestore.segments import StoredSegment, encode_segment

        manifest = head.manifest
        first = manifest.covered_pages
        end = min(head.last_page, first + PAGES_AT_ONCE)
        if end <= first:
            return False
        absorbed = absorbed_by(end - first, manifest)
        after = absorbed[0].after if absorbed else version_before(first)
        try:
            deltas = self._of_pages(first, end)
            body = encode_segment(deltas, self.reader.log.table_id)
            if absorbed:
                fresh = StoredSegment(body, "what follows them", len(deltas))
                body = self.reader.joined(absorbed, fresh)
        except CollectedError:
            return False  # another process was quicker
        restores = [delta_id for segment in absorbed for delta_id in segment.restores]
        restores += [delta.id for delta in deltas if delta.restores]
        made = self._stored(body, after, version_before(end), restores)
        return self.reader.log.install(made.id, lambda now: with_segment(now, manifest, made))

    def merge_history(self, manifest: Manifest) -> bool:
        """Make one of segments that only earlier versions need, if there are many; return whether.

        Order of writes: the new segment, the manifest. Those that it replaces are garbage then.
        """
        run = history_to_merge(manifest)
        if not run:
            return False
        try:
            body = self.reader.joined(run)
        except CollectedError:
            return False  # another process was quicker
        restores = [delta_id for segment in run for delta_id in segment.restores]
        made = self._stored(body, run[0].after, run[-1].version, restores)
        return self.reader.log.install(made.id, lambda now: with_history_merged(now, run, made))

    def _stored(self, body: bytes, after: int, version: int, restores: Sequence[str]) -> Segment:
        segment_id = self.ids.new()
        self.reader.segments.put(segment_id, body)
        return Segment(segment_id, after, version, len(body), tuple(restores))

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
        facts = state.version, state.time_ms, len(body)
        made = Snapshot(snapshot_id, *facts, index_place_of(body))
        return self.reader.log.install(
            snapshot_id, lambda now: with_snapshot(now, made, self.keep_ms)
        )

    def increment(self, cut: TableState, state: TableState, manifest: Manifest) -> bool:
        """Keep what changed since a state that is kept; return whether `state` is kept now, too.

        It takes in some of the increments before it, so that there are few (`left_before`).

        Raises:
            InvariantError: the state contradicts itself; nothing was kept.
            CollectedError: another process was quicker.
        """
        from dormouse.statestore.snapshot.changes import (
            changes_between,
            encode_increment,
            joined,
            rebased,
        )

        later = rebased(state, cut)
        if later is None:  # all of it may have changed, as after a reset
            return self.snapshot(state)
        self._check(later)
        table_id, by_key = self.reader.log.table_id, has_key_index(later)
        changes = changes_between(table_id, cut, later, by_key=by_key)
        before = [each for each in manifest.increments if each.version <= cut.version]
        left = left_before(state.version, before, increment_period())
        while len(before) > left:
            changes = joined(self.reader.changes(before.pop()), changes)
        indexes = None
        if by_key and before:
            with suppress(MissingBlobError):  # then each reader looks where they are
                indexes = key_indexes(self.reader, before, {})
        increment_id, body = self.ids.new(), encode_increment(changes, indexes)
        self.reader.snapshots.put(increment_id, body)
        facts = changes.after, state.version, state.time_ms, len(body)
        made = Increment(increment_id, *facts, index_place_of(body))
        return self.reader.log.install(increment_id, lambda now: with_increment(now, made))

    def _check(self, state: TableState) -> None:
        if broken := broken_invariants(state):
            raise InvariantError(
                f"{self.reader.log.title} at version {state.version}: {'; '.join(broken[:5])}",
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
        return list(self.reader.by_id(ids, version_before(first), {}))


def increment_period() -> int:
    """Return after how many commits increments follow one another: those of whole pages."""
    pages = -(-COMMITS_TO_INCREMENT // version_before(1))
    return version_before(pages)


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
