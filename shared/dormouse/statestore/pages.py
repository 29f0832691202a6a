"""The order of a table's commits: pages of delta ids, and the head that says what there is.

A page takes up to 48 ids and is then immutable; the next takes over. What is appended stays where
it is, so the version of a commit is its place: ``48 * page + position + 1``, and a state at
version v has applied the first v ids. The head names the last page, and in its root the snapshots
and segments; it is written once a page and by maintenance, never by a plain commit.

Ids of deltas, segments and snapshots begin with the time they were made at. The floor, in the head
and in the page that is open, parts them: what is named before the floor and not by then in the log
or the root never gets there, and so can be deleted.

`log` is what uses pages; they are kept by `dynamodb_pages` and `memory_pages`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

PAGE_CAPACITY = 48
"""Ids a page takes. 48 of 16 bytes keep the item below 1 KB, so that an append costs one write
unit however full the page is."""
LOWEST_FLOOR = "0" * 32
"""The floor that no id lies below."""


@dataclass(frozen=True, slots=True)
class Page:
    """The delta ids of one page, in order, and the least id it still takes."""

    number: int
    ids: tuple[str, ...] = ()
    floor: str = LOWEST_FLOOR

    @property
    def is_full(self) -> bool:
        """Return whether the page is immutable from now on."""
        return len(self.ids) >= PAGE_CAPACITY

    def version_of(self, delta_id: str) -> int:
        """Return the version which an id of this page makes."""
        return self.number * PAGE_CAPACITY + self.ids.index(delta_id) + 1


def place_after(version: int) -> tuple[int, int]:
    """Return the page and the position of the id that follows a version."""
    return divmod(version, PAGE_CAPACITY)


def version_before(page: int) -> int:
    """Return the version after which a page begins."""
    return page * PAGE_CAPACITY


def id_at(time_ms: int) -> str:
    """Return the least id that can be made at a time."""
    return f"{max(time_ms, 0):012x}" + "0" * 20


def not_below(floor: str, new_id: str) -> str:
    """Return a new id, with the time of the floor if that is later; it is as unique as it was."""
    return max(new_id, floor[:12] + new_id[12:])


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A whole state that is kept: the version and the time of it, and how big it is."""

    id: str
    version: int
    time_ms: int
    size_bytes: int


BEGINNING = Snapshot(LOWEST_FLOOR, 0, 0, 0)
"""The empty state which every log begins with. A root that names it keeps all pages; nothing is
stored for it."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Deltas kept together: those that follow version `after`, up to `version`."""

    id: str
    after: int
    version: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Root:
    """What of the log is kept in better forms; each change of it counts the revision up.

    Segments follow one another without a gap, from the oldest snapshot on or from before it, or
    from the first version on: so every version from there can be read. Without segments, the pages
    from the oldest snapshot on are kept, which at first is `BEGINNING`.
    """

    revision: int = 0
    snapshots: tuple[Snapshot, ...] = ()
    segments: tuple[Segment, ...] = ()

    @property
    def newest(self) -> Snapshot | None:
        """The newest snapshot."""
        return self.snapshots[-1] if self.snapshots else None

    @property
    def beginning(self) -> int:
        """The version from which on segments and pages tell everything that happened."""
        return self.segments[0].after if self.segments else version_before(self.covered_pages)

    @property
    def covered_pages(self) -> int:
        """How many pages nobody needs any more who goes by this root."""
        if self.segments:
            return place_after(self.segments[-1].version)[0]
        return place_after(self.snapshots[0].version)[0] if self.snapshots else 0


@dataclass(frozen=True, slots=True)
class Head:
    """Where a table's log ends, and what is kept of it in better forms.

    `last_page` is exact: a page is made in the same transaction. Pages before `first_page` are
    deleted. A `closed` log belongs to a destroyed table and takes nothing more; its head remains,
    to keep late writers out.
    """

    last_page: int
    root: Root = Root()
    floor: str = LOWEST_FLOOR
    first_page: int = 0
    closed: bool = False


class Pages(Protocol):
    """Heads and pages of many tables, each call atomic and strongly consistent.

    Every call may raise UnavailableError: nothing was changed. Those that change something may
    raise OutcomeUnknownError instead: it may have been changed, or may be yet. All can be repeated.
    """

    def head(self, table_id: str) -> Head | None:
        """Return the head; None if the table has no log yet."""

    def page(self, table_id: str, number: int) -> Page | None:
        """Return a page; None if it was not made yet, or was deleted."""

    def append(
        self, table_id: str, number: int, delta_id: str, position: int | None = None
    ) -> Page | None:
        """Append an id to a page with room that does not hold it; give the page as it then is.

        With a `position`, only if that is where the id comes to stand. Never an id below the
        page's floor. So the id has its place if the page given holds it, whichever attempt put it
        there; if not, the page shows why. None if there is no such page.
        """

    def open_page(self, table_id: str, number: int, floor: str) -> bool:
        """Make page `number` with the head's floor, and the head with page 0.

        False, and nothing done, unless the log ends with the page before, is not closed, and has
        this floor. This fences a writer that slept: it cannot make a page twice, nor revive a
        destroyed log, nor lower the floor.
        """

    def set_root(self, table_id: str, root: Root) -> bool:
        """Change the root; False, and nothing done, unless its revision is the next one."""

    def raise_floor(self, table_id: str, head: Head) -> bool:
        """Change root, floor and first page, and the floor of the last page with them.

        False, and nothing done, unless the root's revision is the next one, and the last page is
        still the last.
        """

    def close(self, table_id: str) -> Head:
        """Close the log for good, whether or not there was one; give its head."""

    def delete_pages(self, table_id: str, first: int, end: int) -> None:
        """Delete the pages from `first` up to, but not with, `end`."""
