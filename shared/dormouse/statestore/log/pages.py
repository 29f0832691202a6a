"""The log pages of a table: the order of its commits, and the head that says what there is.

A page takes up to 48 ids of deltas and is then immutable; the next page takes over. Nothing that
was appended moves, so the version of a commit is its place in the log::

    version = 48 * page + position + 1      # the id at position 2 of page 1 makes version 51

and the state at version v has applied the first v ids. The head names the last page and, in its
manifest, the snapshots and segments. It is written once a page and by maintenance, never by a plain
commit.

Ids of deltas, segments and snapshots begin with the time of their making. The low-water mark, in
the head and in the open page, divides them: an id below the mark that is not in the log or the
manifest when the mark is raised never gets there, so its blob is garbage.

`log` uses this port. It is implemented by `items.pages`. One port
covers both the pages and the head, because opening a page and raising the mark change both at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dormouse.statestore.log.pins import Pins

PAGE_CAPACITY = 48
"""Ids a page takes. 48 of 16 bytes keep the item below 1 KB, so that an append costs one write
unit however full the page is."""
LOWEST_ID = "0" * 32
"""No id is below this."""


@dataclass(frozen=True, slots=True)
class Page:
    """The delta ids of one page, in order. It takes no id below its low-water mark."""

    number: int
    ids: tuple[str, ...] = ()
    low_water_mark: str = LOWEST_ID

    @property
    def is_full(self) -> bool:
        """Whether the page is immutable from now on."""
        return len(self.ids) >= PAGE_CAPACITY

    def version_of(self, delta_id: str) -> int:
        """Return the version which an id of this page makes."""
        return self.number * PAGE_CAPACITY + self.ids.index(delta_id) + 1


def place_after(version: int) -> tuple[int, int]:
    """Return the page and the position of the id that follows a version: (1, 2) follows 50."""
    return divmod(version, PAGE_CAPACITY)


def reaches_end(version: int, count: int) -> bool:
    """Return whether so many ids after a version, if any, fill its page: 3 after version 45 do."""
    return count > 0 and place_after(version)[1] + count >= PAGE_CAPACITY


def version_before(page: int) -> int:
    """Return the version after which a page begins: 48 for page 1."""
    return page * PAGE_CAPACITY


def id_at(time_ms: int) -> str:
    """Return the lowest id that can be made at a time."""
    return f"{max(time_ms, 0):012x}" + "0" * 20


def not_below(low_water_mark: str, new_id: str) -> str:
    """Return a new id, with the time of the mark if that is later; it stays unique."""
    return max(new_id, low_water_mark[:12] + new_id[12:])


@dataclass(frozen=True, slots=True)
class IndexPlace:
    """Where the index of a key index lies in its object: its size, and what follows it."""

    size_bytes: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the manifest says of a snapshot: the version and the time of the state, and its size.

    Of the newest one it also says where its index lies, if it has one: then a reader of a few keys
    fetches no more than that.
    """

    id: str
    version: int
    time_ms: int
    size_bytes: int
    index: IndexPlace | None = None


@dataclass(frozen=True, slots=True)
class Increment:
    """What the manifest says of an increment: what changed after version `after`, up to `version`.

    It follows the newest snapshot, or the increment before it. Of the newest one the manifest also
    says where its index lies.
    """

    id: str
    after: int
    version: int
    time_ms: int
    size_bytes: int
    index: IndexPlace | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """What the manifest says of a segment: its deltas follow version `after`, up to `version`.

    `restores` are the ids of those deltas that restore a version: each has a snapshot of that id.
    """

    id: str
    after: int
    version: int
    size_bytes: int
    restores: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """The snapshots, increments and segments of a log; each change of it counts the revision up.

    Increments lead from the newest snapshot on, each from where the one before ends.

    Segments follow one another without a gap, from the oldest snapshot on or from before it, or
    from the first version on: so every version from there can be read. There are none once the
    oldest snapshot covers them all.
    """

    revision: int = 0
    snapshots: tuple[Snapshot, ...] = ()
    segments: tuple[Segment, ...] = ()
    increments: tuple[Increment, ...] = ()

    @property
    def newest(self) -> Snapshot | None:
        """The newest snapshot."""
        return self.snapshots[-1] if self.snapshots else None

    @property
    def cuts(self) -> tuple[int, ...]:
        """The versions after which an increment can begin, in order: that of the newest snapshot,
        and that of each increment.
        """
        newest = [self.newest.version] if self.newest else []
        return *newest, *(increment.version for increment in self.increments)

    @property
    def beginning(self) -> int:
        """The version from which on segments and pages hold everything that happened."""
        return self.segments[0].after if self.segments else version_before(self.covered_pages)

    @property
    def covered_pages(self) -> int:
        """How many pages no reader needs, because segments or a snapshot cover them."""
        if self.segments:
            return place_after(self.segments[-1].version)[0]
        return place_after(self.snapshots[0].version)[0] if self.snapshots else 0


@dataclass(frozen=True, slots=True)
class Head:
    """Where a table's log ends, and its manifest.

    `last_page` is exact: a page is made in the same transaction. Pages before `first_page` are
    deleted. A `closed` log belongs to a destroyed table and takes nothing more; its head remains,
    to keep late writers out.
    """

    last_page: int
    manifest: Manifest = Manifest()
    low_water_mark: str = LOWEST_ID
    first_page: int = 0
    closed: bool = False


class Pages(Protocol):
    """Heads and pages of many tables, each call atomic and strongly consistent.

    Every call may raise UnavailableError: nothing was changed. Those that change something may
    raise OutcomeUnknownError instead: it may have been changed, or may be later. All can be
    repeated.
    """

    @property
    def pins(self) -> Pins:
        """The pins of these tables, which are kept in the same place."""

    def head(self, table_id: str) -> Head | None:
        """Return the head; None if the table has no log yet."""

    def page(self, table_id: str, number: int) -> Page | None:
        """Return a page; None if it was not made yet, or was deleted."""

    def append(self, table_id: str, number: int, delta_id: str) -> Page | None:
        """Append an id to a page with room that does not hold it; return the page as it then is.

        An id below the page's low-water mark is never appended. So the id has its place if the
        returned page holds it, whichever attempt put it there; if not, the page shows why. None if
        there is no such page.
        """

    def open_page(self, table_id: str, number: int, low_water_mark: str) -> bool:
        """Make page `number` with the head's low-water mark, and the head with page 0.

        False, and nothing done, unless the log ends with the page before, is not closed, and has
        this mark. This fences a writer that slept: it cannot make a page twice, nor revive a
        destroyed log, nor lower the mark.
        """

    def set_manifest(self, table_id: str, manifest: Manifest) -> bool:
        """Change the manifest; False, and nothing done, unless its revision is the next one."""

    def raise_low_water_mark(self, table_id: str, head: Head) -> bool:
        """Change manifest, low-water mark and first page, and the mark of the last page with them.

        False, and nothing done, unless the manifest's revision is the next one, and the last page
        is still the last.
        """

    def close(self, table_id: str) -> Head:
        """Close the log for good, whether or not there was one; return its head."""

    def delete_pages(self, table_id: str, first: int, end: int) -> None:
        """Delete the pages from `first` up to, but not with, `end`."""
