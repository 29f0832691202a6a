"""Deletes what no version that is kept, and no commit to come, can need; used by `engine`.

The floor makes it safe, whatever else goes on. It is raised in one step with the root and in the
page that is open: from then on, no id below it comes into the log, and no object named below it
into the root. So what is named below the floor and is not in either at that step never will be.
A crash leaves what the next round deletes; rounds at once delete the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dormouse.errors import OutcomeUnknownError
from dormouse.ports import Clock
from dormouse.statestore.bodies import Bodies, Snapshots
from dormouse.statestore.history import without_versions_before
from dormouse.statestore.log import CollectedError
from dormouse.statestore.pages import Head, id_at, version_before
from dormouse.statestore.reading import Reader

PAGES_PER_ROUND = 16
"""A round is due when so many pages can go: what it lists and reads is little for each commit."""
LONGEST_WITHOUT_A_ROUND_MS = 24 * 60 * 60 * 1000
_DELETED_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Collector:
    """Collects one table's metadata.

    `keep_ms` is how long a version can be read after it was current, `upload_ms` how long an id may
    take from being made to being in the log or the root; who takes longer begins again.
    """

    reader: Reader
    clock: Clock
    keep_ms: int
    upload_ms: int

    def is_due(self, head: Head) -> bool:
        """Return whether a round pays.

        Pages count that go once the root is without the versions a round takes from it. What is
        younger than the floor to come cannot go, so a busy table, whose pages fill faster than they
        age, waits till the floor would move by a good part of its distance to now.
        """
        root = without_versions_before(head.root, self.clock.now_ms() - self.keep_ms)
        collectable = root.covered_pages - head.first_page
        is_much = collectable >= PAGES_PER_ROUND
        apart_ms = self.upload_ms // 3 if is_much else LONGEST_WITHOUT_A_ROUND_MS
        newest = id_at(self.clock.now_ms() - self.upload_ms - apart_ms)
        return collectable > 0 and head.floor <= newest

    def collect(self) -> bool:
        """Do one round; False if others were quicker with what it began."""
        log = self.reader.log
        head = log.head()
        if head is None:
            return False
        first_page = self._delete_pages(head)
        raised = self._raised(head, first_page)
        if not self._raise_floor(raised):
            return False
        try:
            in_pages = set(log.ids_after(version_before(raised.root.covered_pages)))
        except CollectedError:
            return False
        root = raised.root
        self._delete(self.reader.deltas, in_pages, raised.floor)
        self._delete(self.reader.snapshots, (each.id for each in root.snapshots), raised.floor)
        if self.reader.segments is not None:
            self._delete(self.reader.segments, (each.id for each in root.segments), raised.floor)
        return True

    def _raised(self, head: Head, first_page: int) -> Head:
        now_ms = self.clock.now_ms()
        root = without_versions_before(head.root, now_ms - self.keep_ms)
        return replace(
            head,
            root=replace(root, revision=root.revision + 1),
            floor=max(head.floor, id_at(now_ms - self.upload_ms)),
            first_page=first_page,
        )

    def _raise_floor(self, raised: Head) -> bool:
        log = self.reader.log
        try:
            return log.pages.raise_floor(log.table_id, raised)
        except OutcomeUnknownError:
            return log.head() == raised

    def _delete_pages(self, head: Head) -> int:
        """Delete covered pages of which nothing lies above the floor; give the first one left.

        Readers that are not far behind find theirs: those go by the log, others by the root.
        """
        log, end = self.reader.log, head.first_page
        while end < head.root.covered_pages:
            page = log.pages.page(log.table_id, end)
            if page and page.ids and max(page.ids) >= head.floor:
                break
            end += 1
        if end > head.first_page:
            log.pages.delete_pages(log.table_id, head.first_page, end)
        return end

    def _delete(self, kept: Bodies | Snapshots, needed: Iterable[str], floor: str) -> None:
        named = set(needed)
        gone = [each for each in kept.ids() if each < floor and each not in named]
        for start in range(0, len(gone), _DELETED_AT_ONCE):
            kept.delete(gone[start : start + _DELETED_AT_ONCE])
