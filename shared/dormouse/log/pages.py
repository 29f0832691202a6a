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

`items.pages` stores them: both the pages and the head, because opening a page and raising the mark
change both at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import comb

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


def first_version(time_ms: int) -> int:
    """Return the version of a state that begins a log at a time. No earlier log of its table had
    it, since commits take longer than a millisecond. It ends a page.
    """
    return version_before(place_after(time_ms)[0] + 1)


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


# Which things of a log become one, so that there are few and each is written again few times.
#
# **Segments.** A cold reader fetches few, and the head that names them is small. *Open* segments
# begin on the page of the newest cut (the newest snapshot, or an increment after it) or later: a
# cold reader folds them. All before are *history*: only readers of earlier versions need them, and
# a reader that fell behind. Segments have levels, so a delta is written again once a level, and the
# number of segments grows with the logarithm of the log.
#
# **Runs** of what comes one by one: increments after a snapshot, and the deltas that another one of
# their page carries (`log.log`). After each thing that comes, the runs follow from their number
# alone, by its representation as a sum of binomial coefficients. From one to the next only the last
# ends change, so the new run takes in only those just before it. For example, with three runs at
# most: after 1, 2 and 3 there are one, two and three runs, of one each; the fourth takes all before
# it in.
#
# **Increments.** Five are left at most. Time is counted in periods since the newest snapshot: after
# each, an increment is due. It ends at that time, and begins where those that are left end. Of 225
# periods each entry is written four times on average: as often as if each increment took in those
# before it that are as short, which would leave up to seven.
#
# Pure rules; `compaction` carries them out.

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


def with_segment(now: Manifest, seen: Manifest, segment: Segment) -> Manifest | None:
    """Return the manifest with a segment in place of those it was made from.

    None if these changed since `seen`.
    """
    if now.covered_pages != seen.covered_pages:
        return None
    before = tuple(s for s in now.segments if s.version <= segment.after)
    if now.segments and (before[-1].version if before else now.segments[0].after) != segment.after:
        return None
    return replace(now, revision=now.revision + 1, segments=(*before, segment))


def with_history_merged(
    now: Manifest, run: tuple[Segment, ...], segment: Segment
) -> Manifest | None:
    """Return the manifest with one segment in place of a run of them.

    None if it has no such run any more.
    """
    if run[0] not in now.segments:
        return None
    first = now.segments.index(run[0])
    end = first + len(run)
    if now.segments[first:end] != run:
        return None
    segments = (*now.segments[:first], segment, *now.segments[end:])
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
