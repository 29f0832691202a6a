"""Log compaction: deltas of full pages become segments, and now and then a state a snapshot.

That keeps reading cheap, and the head small (`log.pages`).

It is off the commit path. Any number of processes may do it at once: each makes a blob of a
new name, and the first change of the manifest wins; the blobs of the others are garbage.
"""

import gc
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from dormouse.errors import CorruptDataError, InvariantError, OutcomeUnknownError
from dormouse.log import pages as log_pages
from dormouse.log import tail
from dormouse.log.blobs import Delta, MissingBlobError
from dormouse.log.log import CollectedError, Reader
from dormouse.state.state import TableState, without_expired
from dormouse.state.validation import broken_invariants
from dormouse.system import Clock, Ids

PAGES_AT_ONCE = 64
"""How many pages one call compacts at most, so that it stays short after a long rest."""
LEAST_BYTES_TO_SNAPSHOT = 256 * 1024
COMMITS_TO_INCREMENT = 256
"""An increment is due after so many commits: a cold reader folds no more than these, and those of a
few pages, whatever the size of the snapshot."""
REFERENCES_TO_INDEX = 10_000
"""Snapshots of so many references, and increments after them, have a key index."""


@dataclass(frozen=True, slots=True)
class LogCompaction:
    """Compacts one table's log; versions are kept readable for `keep_ms`."""

    reader: Reader
    ids: Ids
    keep_ms: int

    def compact(self, head: log_pages.Head) -> bool:
        """Make full pages a segment, if there are any; return whether the manifest changed."""
        from dormouse.log.snapshot import StoredSegment, encode_segment

        manifest = head.manifest
        first = manifest.covered_pages
        end = min(head.last_page, first + PAGES_AT_ONCE)
        if end <= first:
            return False
        absorbed = log_pages.absorbed_by(end - first, manifest)
        after = absorbed[0].after if absorbed else log_pages.version_before(first)
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
        segment = self._stored(body, after, log_pages.version_before(end), restores)
        return self.reader.log.install(
            segment.id, lambda now: log_pages.with_segment(now, manifest, segment)
        )

    def merge_history(self, manifest: log_pages.Manifest) -> bool:
        """Make one of segments that only earlier versions need, if there are many; return whether.

        Order of writes: the new segment, the manifest. Those that it replaces are garbage then.
        """
        run = log_pages.history_to_merge(manifest)
        if not run:
            return False
        try:
            body = self.reader.joined(run)
        except CollectedError:
            return False  # another process was quicker
        restores = [delta_id for segment in run for delta_id in segment.restores]
        segment = self._stored(body, run[0].after, run[-1].version, restores)
        return self.reader.log.install(
            segment.id, lambda now: log_pages.with_history_merged(now, run, segment)
        )

    def _stored(
        self, body: bytes, after: int, version: int, restores: Sequence[str]
    ) -> log_pages.Segment:
        segment_id = self.ids.new()
        self.reader.segments.put(segment_id, body)
        return log_pages.Segment(segment_id, after, version, len(body), tuple(restores))

    def snapshot(self, state: TableState) -> bool:
        """Keep a state whole; return whether it became the newest snapshot.
        Raises InvariantError: the state contradicts itself; nothing was kept.
        """
        snapshot = self.put_snapshot(state)
        return self.reader.log.install(
            snapshot.id, lambda now: tail.with_snapshot(now, snapshot, self.keep_ms)
        )

    def put_snapshot(self, state: TableState) -> log_pages.Snapshot:
        """Store a state whole; return what the manifest is to say of it. Raises: as `snapshot`."""
        from dormouse.log.key_index import index_place
        from dormouse.log.snapshot import encode_snapshot

        table_id = self.reader.log.table_id
        self._check(state)
        body = encode_snapshot(table_id, without_expired(state), has_key_index=has_key_index(state))
        snapshot_id = self.ids.new()
        self.reader.snapshots.put(snapshot_id, body)
        facts = state.version, state.time_ms, len(body)
        return log_pages.Snapshot(snapshot_id, *facts, index_place(body))

    def increment(self, cut: TableState, state: TableState, manifest: log_pages.Manifest) -> bool:
        """Keep what changed since a state that is kept; return whether `state` is kept now, too.

        It takes in some of the increments before it, so that there are few (`left_before`).

        Raises:
            InvariantError: the state contradicts itself; nothing was kept.
            CollectedError: another process was quicker.
        """
        from dormouse.log.increments import changes_between, encode_increment, joined, rebased
        from dormouse.log.key_index import index_place

        later = rebased(state, cut)
        if later is None:  # all of it may have changed, as after a reset
            return self.snapshot(state)
        self._check(later)
        table_id, by_key = self.reader.log.table_id, has_key_index(later)
        changes = changes_between(table_id, cut, later, by_key=by_key)
        before = [each for each in manifest.increments if each.version <= cut.version]
        place = log_pages.left_before(state.version, before, increment_period())
        while len(before) > place:
            changes = joined(self.reader.changes(before.pop()), changes)
        indexes = None
        if by_key and before:
            with suppress(MissingBlobError):  # then each reader looks where they are
                indexes = tail.key_indexes(self.reader, before, {})
        increment_id, body = self.ids.new(), encode_increment(changes, indexes)
        self.reader.snapshots.put(increment_id, body)
        facts = changes.after, state.version, state.time_ms, len(body)
        increment = log_pages.Increment(increment_id, *facts, index_place(body))
        return self.reader.log.install(
            increment_id, lambda now: tail.with_increment(now, increment)
        )

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
        return list(self.reader.by_id(ids, log_pages.version_before(first), {}))


def increment_period() -> int:
    """Return after how many commits increments follow one another: those of whole pages."""
    pages = -(-COMMITS_TO_INCREMENT // log_pages.version_before(1))
    return log_pages.version_before(pages)


def has_key_index(state: TableState) -> bool:
    """Return whether a state is so large that a reader of a few keys should not read all of it."""
    return state.reference_count >= REFERENCES_TO_INDEX


def is_snapshot_due(manifest: log_pages.Manifest, snapshot_share: int) -> bool:
    """Return whether the newest state should be kept whole.

    For example: a snapshot of 4.8 MB, a share of 4, and since then segments of 1.2 MB.
    """
    newest = manifest.newest
    version = newest.version if newest else 0
    since = sum(s.size_bytes for s in manifest.segments if s.version > version)
    share = newest.size_bytes // snapshot_share if newest else 0
    return since >= max(LEAST_BYTES_TO_SNAPSHOT, share)


def is_increment_due(manifest: log_pages.Manifest) -> bool:
    """Return whether a cold reader has to fold so much that what changed should be kept."""
    if not (manifest.cuts and manifest.segments):
        return False
    return manifest.segments[-1].version - manifest.cuts[-1] >= COMMITS_TO_INCREMENT


# Garbage collection of a state: deletes what no version that is kept, and no later commit, needs.
#
# The low-water mark makes it safe, whatever else goes on. It is raised together with the manifest
# and in the open page, in one transaction: from then on, no id below it comes into the log, and no
# blob named below it into the manifest. So what is named below the mark and is in neither at that
# moment never will be. A crash leaves what the next round deletes; rounds at once delete the same.
# Snapshots of pinned versions stay too: pins are read after the mark was raised, and a damaged one
# stops the round before it deletes a blob.

PAGES_PER_ROUND = 16
"""A round is due when so many pages can go: what it lists and reads is little for each commit."""
LONGEST_WITHOUT_A_ROUND_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Collector:
    """Collects one table's metadata.

    `keep_ms` is how long a version can be read after it was current, `upload_ms` how long an id may
    take from being made to being in the log or the manifest; a writer that takes longer uploads
    again.
    """

    reader: Reader
    clock: Clock
    keep_ms: int
    upload_ms: int

    def is_due(self, head: log_pages.Head) -> bool:
        """Return whether a round pays.

        It counts the pages that go once the manifest is without the versions a round takes from it.
        What is younger than the mark to come cannot go, so a busy table, whose pages fill faster
        than they age, waits until the mark would move by a third of its distance to now. With
        uploads of at most 15 minutes: a round every 5 minutes, however many pages fill meanwhile.
        """
        manifest = tail.without_versions_before(head.manifest, self.clock.now_ms() - self.keep_ms)
        collectable = manifest.covered_pages - head.first_page
        is_much = collectable >= PAGES_PER_ROUND
        apart_ms = self.upload_ms // 3 if is_much else LONGEST_WITHOUT_A_ROUND_MS
        newest = log_pages.id_at(self.clock.now_ms() - self.upload_ms - apart_ms)
        return collectable > 0 and head.low_water_mark <= newest

    def collect(self) -> bool:
        """Do one round; return False if others were quicker with what it began."""
        reader, log = self.reader, self.reader.log
        head = log.head()
        if head is None:
            return False
        first_page = self._delete_pages(head)
        raised = self._raised(head, first_page)
        if not self._raise_low_water_mark(raised):
            return False
        manifest, mark = raised.manifest, raised.low_water_mark
        try:
            in_pages = frozenset(log.ids_after(log_pages.version_before(manifest.covered_pages)))
        except CollectedError:
            return False
        # Read after the mark was raised: a pin that is put later sees the mark (`pinning`).
        pinned = {pin.snapshot_id for pin in log.pages.pins.all(log.table_id)}
        reader.deltas.delete_stale(mark, in_pages)
        ids = {snapshot.id for snapshot in manifest.snapshots}
        ids |= {increment.id for increment in manifest.increments}
        # A delta that restores a version has a snapshot of its own id, needed as long as the delta.
        restore_ids = {delta_id for segment in manifest.segments for delta_id in segment.restores}
        reader.snapshots.delete_stale(mark, frozenset(ids | pinned | restore_ids | in_pages))
        reader.segments.delete_stale(mark, frozenset(each.id for each in manifest.segments))
        return True

    def _raised(self, head: log_pages.Head, first_page: int) -> log_pages.Head:
        now_ms = self.clock.now_ms()
        manifest = tail.without_versions_before(head.manifest, now_ms - self.keep_ms)
        return replace(
            head,
            manifest=replace(manifest, revision=manifest.revision + 1),
            low_water_mark=max(head.low_water_mark, log_pages.id_at(now_ms - self.upload_ms)),
            first_page=first_page,
        )

    def _raise_low_water_mark(self, raised: log_pages.Head) -> bool:
        log = self.reader.log
        try:
            return log.pages.raise_low_water_mark(log.table_id, raised)
        except OutcomeUnknownError:
            return log.head() == raised

    def _delete_pages(self, head: log_pages.Head) -> int:
        """Delete covered pages without an id above the low-water mark; return the first one left.

        Readers that are not far behind find theirs: those go by the log, others by the manifest.
        """
        log, end = self.reader.log, head.first_page
        while end < head.manifest.covered_pages:
            page = log.pages.page(log.table_id, end)
            if page and page.ids and max(page.ids) >= head.low_water_mark:
                break
            end += 1
        if end > head.first_page:
            log.pages.delete_pages(log.table_id, head.first_page, end)
        return end


# Pauses Python's cyclic garbage collector during a commit.
#
# A commit decodes and folds the deltas of others, which makes many objects and no cycles. The
# collector would look through all of them, and through the state, several times.

_MOST_UNCOLLECTED = 100_000
"""So many new containers, some 10 MB, are collected even where commits follow without a gap."""

_lock = threading.Lock()
_paused = 0
_was_enabled = False


@contextmanager
def gc_paused() -> Iterator[None]:
    """Let the collector not run until the last of the pauses that overlap ends.

    It stays off if it was off before.
    """
    global _paused, _was_enabled
    with _lock:
        if not _paused:
            _was_enabled = gc.isenabled()
            gc.disable()
        _paused += 1
    try:
        yield
    finally:
        with _lock:
            _paused -= 1
            if not _paused and _was_enabled:
                gc.enable()
        if _was_enabled and gc.get_count()[0] > _MOST_UNCOLLECTED:
            gc.collect(0)
