"""Garbage collection of a state: deletes what no version that is kept, and no later commit, needs.

The low-water mark makes it safe, whatever else goes on. It is raised together with the manifest and
in the open page, in one transaction: from then on, no id below it comes into the log, and no blob
named below it into the manifest. So what is named below the mark and is in neither at that moment
never will be. A crash leaves what the next round deletes; rounds at once delete the same. Snapshots
of pinned versions stay too: pins are read after the mark was raised, and a damaged one stops the
round before it deletes a blob.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dormouse.errors import OutcomeUnknownError
from dormouse.ports.services import Clock
from dormouse.statestore.log.history import without_versions_before
from dormouse.statestore.log.log import CollectedError
from dormouse.statestore.log.pages import Head, id_at, version_before
from dormouse.statestore.log.reader import Reader

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

    def is_due(self, head: Head) -> bool:
        """Return whether a round pays.

        It counts the pages that go once the manifest is without the versions a round takes from it.
        What is younger than the mark to come cannot go, so a busy table, whose pages fill faster
        than they age, waits until the mark would move by a third of its distance to now. With
        uploads of at most 15 minutes: a round every 5 minutes, however many pages fill meanwhile.
        """
        manifest = without_versions_before(head.manifest, self.clock.now_ms() - self.keep_ms)
        collectable = manifest.covered_pages - head.first_page
        is_much = collectable >= PAGES_PER_ROUND
        apart_ms = self.upload_ms // 3 if is_much else LONGEST_WITHOUT_A_ROUND_MS
        newest = id_at(self.clock.now_ms() - self.upload_ms - apart_ms)
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
            in_pages = frozenset(log.ids_after(version_before(manifest.covered_pages)))
        except CollectedError:
            return False
        # Read after the mark was raised: a pin that is put later sees the mark (`pinning`).
        pinned = {pin.snapshot_id for pin in log.pages.pins.all(log.table_id)}
        reader.deltas.delete_stale(mark, in_pages)
        named = {snapshot.id for snapshot in manifest.snapshots}
        named |= {increment.id for increment in manifest.increments}
        # A delta that restores a version has a snapshot of its own id, needed as long as the delta.
        restored = {delta_id for segment in manifest.segments for delta_id in segment.restores}
        reader.snapshots.delete_stale(mark, frozenset(named | pinned | restored | in_pages))
        reader.segments.delete_stale(mark, frozenset(each.id for each in manifest.segments))
        return True

    def _raised(self, head: Head, first_page: int) -> Head:
        now_ms = self.clock.now_ms()
        manifest = without_versions_before(head.manifest, now_ms - self.keep_ms)
        return replace(
            head,
            manifest=replace(manifest, revision=manifest.revision + 1),
            low_water_mark=max(head.low_water_mark, id_at(now_ms - self.upload_ms)),
            first_page=first_page,
        )

    def _raise_low_water_mark(self, raised: Head) -> bool:
        log = self.reader.log
        try:
            return log.pages.raise_low_water_mark(log.table_id, raised)
        except OutcomeUnknownError:
            return log.head() == raised

    def _delete_pages(self, head: Head) -> int:
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
