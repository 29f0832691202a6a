"""The log of one table: append a delta's id exactly once, and read the ids after a version.

Nothing here touches a blob: a delta is stored before its id is appended, and fetched after its id
was read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dormouse.errors import (
    ContendedError,
    CorruptDataError,
    DormouseError,
    NotFoundError,
    OutcomeUnknownError,
    ServiceRefusedError,
    UnavailableError,
)
from dormouse.log import pages as log_pages
from dormouse.log.blobs import (
    BlobRange,
    BlobStore,
    Delta,
    MissingBlobError,
    identity_of,
    open_delta,
    packed_entries,
)
from dormouse.state.fold import Verdict, apply
from dormouse.state.rules import REBUILD
from dormouse.state.state import Entry, TableState
from dormouse.stored.decoding import raise_corrupt
from dormouse.system import RetryPolicy

if TYPE_CHECKING:
    from dormouse.items.pages import ItemPages
    from dormouse.log.increments import StateChanges
    from dormouse.log.snapshot import StoredSegment


class CollectedError(Exception):
    """What follows a version was collected: it is in segments or snapshots of a newer manifest."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The outcome of an append, and how many attempts it took.

    `page` is as it was when it was seen with the id, which makes `version`. Without a page the id
    is not in the log: it is below `low_water_mark` and never will be.
    """

    attempts: int
    page: log_pages.Page | None = None
    version: int | None = None
    low_water_mark: str | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """A table's log, over the pages of many."""

    table_id: str
    pages: ItemPages
    retry_policy: RetryPolicy
    name: str = ""

    @property
    def title(self) -> str:
        """The table as errors name it: as people call it, if that is known, else by its id."""
        return f"table {self.name!r}" if self.name else f"table {self.table_id}"

    def head(self) -> log_pages.Head | None:
        """Return the head; None before the first append. Raises NotFoundError: destroyed."""
        head = self.pages.head(self.table_id)
        if head is not None and head.closed:
            raise NotFoundError(f"the state of {self.title} was destroyed")
        return head

    def begin(self, snapshot: log_pages.Snapshot) -> None:
        """Begin with a snapshot, whose version ends a page. What was not answered is repeated: the
        head shows whose snapshot the log began with.

        Raises:
            NotFoundError: the table was destroyed.
            ContendedError: another process has begun the log.
            UnavailableError, OutcomeUnknownError: it may have begun, or may yet.
        """
        page, _ = log_pages.place_after(snapshot.version)
        head = log_pages.Head(page, log_pages.Manifest(snapshots=(snapshot,)), first_page=page)
        for failures in range(1, self.retry_policy.attempts):
            try:
                self._begin(head)
            except OutcomeUnknownError:
                self.retry_policy.pause(failures)
            else:
                return
        self._begin(head)

    def _begin(self, head: log_pages.Head) -> None:
        is_new = self.retry_policy.retry(lambda: self.pages.begin(self.table_id, head))
        if not is_new and self.retry_policy.retry(self.head) != head:
            raise ContendedError(f"another process has begun the log of {self.title}")

    def append(self, delta_id: str, page: int) -> Placement:
        """Append an id to the last page, `page` being a guess at it; return its place.

        An append is idempotent. One that was not answered is repeated on the same page, which shows
        its outcome: a page takes an id once, and a full page without it can never get it. So an id
        is in the log once or not at all, however often and late its requests arrive.

        Raises:
            ContendedError: all attempts lost; the id is not in the log and never will be.
            UnavailableError: the log could not be written; the same holds.
            OutcomeUnknownError: the id may be in the log, or may get there.
            NotFoundError: the table was destroyed.
        """
        doubtful, failures, attempt = False, 0, 0
        failure: DormouseError | None = None
        for attempt in range(1, self.retry_policy.attempts + 1):
            if failures:
                self.retry_policy.pause(failures)
            try:
                page_now = self.pages.append(self.table_id, page, delta_id)
                if page_now and delta_id in page_now.ids:
                    self._prepare_next(page_now)
                    return Placement(attempt, page_now, page_now.version_of(delta_id))
                # A page that answers without the id never takes it, so no earlier attempt can land.
                doubtful = doubtful and page_now is None
                if page_now and _never_takes(page_now, delta_id):
                    return Placement(attempt, low_water_mark=page_now.low_water_mark)
                page = self._writable_page(page, page_now, doubtful)
                failures = 0  # the page was full, or is new: no reason to pause
            except OutcomeUnknownError as error:
                if isinstance(error, _LostSightError):
                    raise
                doubtful, failure, failures = True, error, failures + 1
            except UnavailableError as error:  # this attempt did nothing; an earlier one may have
                failure, failures = error, failures + 1
                if isinstance(error, ServiceRefusedError):
                    break
        page_at_end = self._finalise(delta_id, page, doubtful, failure)
        return Placement(attempt, page_at_end, page_at_end.version_of(delta_id))

    def ids_after(self, version: int) -> list[str]:
        """Return the ids that follow a version: at least those appended before the call.

        One read if there is nothing new. The reads end on a page with room, or on the head; what
        either shows was true at one moment, so no later id is returned without all before it.

        Raises:
            CollectedError: they are not all in pages any more.
            NotFoundError: the table was destroyed.
            UnavailableError: a read failed.
        """
        ids: list[str] = []
        while True:
            number, position = log_pages.place_after(version + len(ids))
            page = self.pages.page(self.table_id, number) or self._page_if_made(number)
            if len(page.ids) < position:
                raise self._cut_short(number)
            ids += page.ids[position:]
            if not page.is_full:
                return ids

    def page_after(self, version: int, expected: int) -> int:
        """Return where to append what follows a version: a guess at the last page.

        The log is looked at if `expected` more ids would fill the page of the version.
        """
        if not log_pages.reaches_end(version, expected):
            return log_pages.place_after(version)[0]
        newer = self.retry_policy.retry(lambda: self.ids_after(version))
        return log_pages.place_after(version + len(newer))[0]

    def install(
        self, new_id: str, change: Callable[[log_pages.Manifest], log_pages.Manifest | None]
    ) -> bool:
        """Change the manifest, `new_id` being the id of what the change adds to it.

        `change` takes the manifest and returns the next one, or None if it is too late for it. It
        may be called again when another change was quicker. A blob below the low-water mark is not
        added any more, because it may have been collected. False if the manifest was not changed.

        Raises:
            UnavailableError: the manifest was not changed.
            OutcomeUnknownError: the manifest may have been changed.
        """
        failure: DormouseError | None = None
        for failures in range(1, self.retry_policy.attempts + 1):
            try:
                head = self.head()
                manifest = change(head.manifest) if head and new_id >= head.low_water_mark else None
                if manifest is None:
                    return False
                if self.pages.set_manifest(self.table_id, manifest):
                    return True
            except ServiceRefusedError:
                raise
            except (OutcomeUnknownError, UnavailableError) as error:
                failure = error
            self.retry_policy.pause(failures)
        if failure:
            raise failure
        return False

    def _page_if_made(self, number: int) -> log_pages.Page:
        """Return a page that was not there at the first look; an empty one if it is the next."""
        head = self.head()
        last_page = head.last_page if head else -1
        if last_page < number:
            if last_page + 1 < number:
                raise self._cut_short(number)
            return log_pages.Page(number)
        page = self.pages.page(self.table_id, number)
        if page is None:
            head = self.head()  # raises if the page is gone because the table is
            if head and number < head.manifest.covered_pages:
                raise CollectedError
            raise CorruptDataError(
                f"page {number} of the log of {self.title} is missing", hint=REBUILD
            )
        return page

    def _cut_short(self, number: int) -> CorruptDataError:
        return CorruptDataError(
            f"the log of {self.title} ends before a version of page {number} seen earlier",
            hint="if it was restored to an earlier time, restore the snapshots of that time with "
            f"it; or {REBUILD}",
        )

    def _writable_page(self, number: int, page: log_pages.Page | None, doubtful: bool) -> int:
        """Return the page to try after `number` was full, or not there; make it if need be.

        A page that is not there is tried again itself: an append to it may still be on its way, and
        the id must not get a second place. One that was there and is collected is past all doubt
        only if no append to it went unanswered.
        """
        head = self.head() or log_pages.Head(-1)
        target = number if page is None else max(number + 1, head.last_page)
        if target > head.last_page:
            # False: another writer was quicker, whose page is as good
            self.pages.open_page(self.table_id, target, head.low_water_mark)
        elif page is None and number < head.manifest.covered_pages:
            if doubtful:
                raise _LostSightError(
                    f"a commit to {self.title} was not answered; its page is gone",
                    hint="commit the same again to find out; delete nothing it may need",
                )
            return head.last_page
        return target

    def _prepare_next(self, page: log_pages.Page) -> None:
        """Open the next page if this id filled its page: that spares the next writer an attempt."""
        if page.is_full:
            with suppress(UnavailableError, OutcomeUnknownError):  # then the next writer does it
                self.pages.open_page(self.table_id, page.number + 1, page.low_water_mark)

    def _finalise(
        self, delta_id: str, number: int, doubtful: bool, failure: DormouseError | None
    ) -> log_pages.Page:
        """Look a last time for an id whose attempts are used up; return its page or raise."""
        if doubtful:
            try:
                page = self.pages.page(self.table_id, number)
            except UnavailableError:
                page = None
            if page and delta_id in page.ids:
                return page
            # on a page that could still take it, a request that was sent long ago may yet arrive
            if page is None or not (page.is_full or _never_takes(page, delta_id)):
                raise OutcomeUnknownError(
                    f"a commit to {self.title} was not answered; it may yet land",
                    hint="commit the same again to find out; delete nothing it may need",
                ) from failure
        if isinstance(failure, ServiceRefusedError):
            raise failure
        times = f"a commit to {self.title} failed {self.retry_policy.attempts} times"
        hint = "nothing was changed; try again later"
        if isinstance(failure, UnavailableError) and not isinstance(failure, ContendedError):
            raise UnavailableError(f"{times}; the last time: {failure}", hint=hint) from failure
        raise ContendedError(f"{times}: others came in between", hint=hint) from failure


class _LostSightError(OutcomeUnknownError):
    """No later attempt can find out whether the append landed."""


def _never_takes(page: log_pages.Page, delta_id: str) -> bool:
    """Return whether a page as found, and all after it, refuse an id for good."""
    return delta_id < page.low_water_mark and not page.is_full


# Which deltas carry others: a reader of a page then fetches few objects, in one round.
#
# An object takes a request, however small it is, so the open page of the log takes up to 47. Some
# deltas of a page therefore carry copies of those before them, so that all lie in few runs, each of
# which its last has whole (`ends_at`). Of 47 deltas a reader fetches those at the places 10, 19,
# 27, 34, 40, 45, 46 and 47.
#
# Where a delta will be is a guess of its writer, who may be overtaken. It carries what it names, so
# what a reader looks for and does not find in the deltas of these places it fetches itself, in a
# second round. Nothing depends on the guess but the number of requests.
#
# Pure rules; `tail` knows what can be carried, `reader` looks into what was.

MOST_FETCHED = 9
"""So many deltas a reader fetches of a page at most. A commit writes some 450 bytes more for it; it
would be 710 for six."""
MOST_CARRIED = log_pages.PAGE_CAPACITY - 1
MOST_BYTES = 16 * 1024
"""A delta of more, not yet compressed, is not carried: a reader fetches it itself."""


def carried_before(version: int) -> int:
    """Return how many deltas before it that one carries which makes a version.

    In the first page, version 10 carries 9, and version 19 the eight after it; 11 to 18 none.
    """
    _, before = log_pages.place_after(version - 1)
    earlier = log_pages.ends_at(before + 1, MOST_FETCHED)[:-1]
    return before - max(earlier, default=0)


def carriers(ids: Sequence[str], version: int, cached: Collection[str]) -> list[str]:
    """Return which of the deltas that follow a version are to be fetched for all of them.

    Those that are `cached` need not be; what a delta should carry that is at its place is left out.
    """
    carrier_ids, place = [], len(ids)
    while place > 0:
        place -= 1
        if ids[place] not in cached:
            carrier_ids.append(ids[place])
            place -= carried_before(version + place + 1)
    return carrier_ids


def packed(deltas: Iterable[Delta]) -> list[tuple[str, bytes]]:
    """Return deltas as another one carries them, without those that are large."""
    bodies = [(delta.id, packed_entries(delta.entries)) for delta in deltas]
    return [(delta_id, rows) for delta_id, rows in bodies if len(rows) <= MOST_BYTES]


# Reads what a table's log leads to: snapshots, and deltas from segments or one by one.
#
# What is gone because it was collected is reported as CollectedError: then the head names a newer
# place of it. What the head names and is gone all the same is lost, and reported as
# CorruptDataError.

_DELTAS_AT_ONCE = 256
_SEGMENTS_AT_ONCE = 16
LARGE_BYTES = 1024 * 1024
"""Of a snapshot of this size only that is fetched which is decoded: a request more, but a third of
the bytes less."""


def fold_delta(
    state: TableState, entries: Sequence[Entry], earlier: TableState | None = None
) -> tuple[TableState, tuple[Verdict, ...]]:
    """Return the state one version on: all entries of a delta applied in order, each for itself.

    The version counts deltas, whatever their verdicts, so that it is the place in the log.
    `earlier` is the version that an entry restores, if one does.
    """
    version, verdicts = state.version + 1, []
    for entry in entries:
        state, verdict = apply(state, entry, earlier)
        verdicts.append(verdict)
    return replace(state, version=version), tuple(verdicts)


@dataclass(frozen=True, slots=True)
class Reader:
    """One table's log, and the three kinds of blobs that it leads to.

    Some deltas carry those before them if `carries`. A snapshot is due when the segments since the
    last one are a `snapshot_share`-th of its size: with 3, commits pay three times their own small
    size for it. What was committed since, a cold reader reads in increments.
    """

    log: Log
    deltas: BlobStore
    segments: BlobStore
    snapshots: BlobStore
    carries: bool = False
    snapshot_share: int = 3

    def manifest(self) -> log_pages.Manifest:
        """Return the head's manifest, or the empty one of a log that has not begun."""
        head = self.log.head()
        return head.manifest if head else log_pages.Manifest()

    def fold(self, state: TableState, delta: Delta) -> tuple[TableState, tuple[Verdict, ...]]:
        """Return the state after the delta that follows it, and the verdicts on its entries.

        A delta that restores a version has the snapshot of it under its own id.

        Raises:
            CollectedError: the snapshot was collected with the delta.
            CorruptDataError: it is lost or damaged.
        """
        earlier = self._restored(delta.id, state.version) if delta.restores else None
        return fold_delta(state, delta.entries, earlier)

    def _restored(self, delta_id: str, after: int) -> TableState:
        """Return the version that the delta which follows version `after` restores."""
        try:
            (body,) = self.snapshots.get([delta_id])
        except MissingBlobError as error:
            raise self._gone(error, after >= self.manifest().beginning) from error
        return self._decoded(delta_id, body, None)

    def snapshot(
        self, snapshot: log_pages.Snapshot, increments: Sequence[log_pages.Increment] = ()
    ) -> TableState:
        """Return the state of a snapshot, or after the increments which follow it.

        Raises:
            CollectedError: a newer manifest has replaced the one that named them.
            CorruptDataError: one is lost, or not what the manifest says.
        """
        try:
            changes = self._changes(increments)
            body = self._without_key_index(snapshot)
        except MissingBlobError as error:
            manifest = self.manifest()
            ids = {each.id for each in manifest.snapshots}
            ids |= {each.id for each in manifest.increments}
            raise self._gone(error, error.blob_id in ids) from error
        state = self._decoded(snapshot.id, body, changes)
        if (state.version if changes is None else changes.after) != snapshot.version:
            raise self._of_another_version("snapshot", snapshot)
        return state

    def _without_key_index(self, snapshot: log_pages.Snapshot) -> bytes:
        """Return the body of a snapshot; of a large one without its key index, a third of it."""
        size = snapshot.size_bytes
        if size >= LARGE_BYTES:
            from dormouse.log.key_index import place_of_key_index, tail_bytes

            end = BlobRange(snapshot.id, size, size - tail_bytes(size), size)
            (tail,) = self.ranges(self.snapshots, [end])
            start, stop = place_of_key_index(tail, size)
            if 0 < start < stop:
                (front,) = self.ranges(self.snapshots, [BlobRange(snapshot.id, size, 0, start)])
                return front + tail[len(tail) - (size - stop) :]
        (body,) = self.snapshots.get([snapshot.id])
        return body

    def changes(self, increment: log_pages.Increment) -> StateChanges:
        """Return what an increment says, with the rows of its key index. Raises as `snapshot`."""
        try:
            changes = self._changes([increment], by_key=True)
        except MissingBlobError as error:
            ids = {each.id for each in self.manifest().increments}
            raise self._gone(error, increment.id in ids) from error
        assert changes is not None
        return changes

    def _changes(
        self, increments: Sequence[log_pages.Increment], *, by_key: bool = False
    ) -> StateChanges | None:
        """Return all increments as one; None if there are none. Raises MissingBlobError."""
        from dormouse.log.increments import decode_increment, joined

        changes: StateChanges | None = None
        bodies = self.snapshots.get([each.id for each in increments])
        for increment, body in zip(increments, bodies, strict=True):
            with self.damage_reported():
                name = f"increment {increment.id}"
                change = decode_increment(self.log.table_id, body, name, by_key=by_key)
            if (change.after, change.version) != (increment.after, increment.version):
                raise self._of_another_version("increment", increment)
            changes = change if changes is None else joined(changes, change)
        return changes

    def _of_another_version(
        self, kind: str, blob: log_pages.Snapshot | log_pages.Increment
    ) -> CorruptDataError:
        return CorruptDataError(
            f"{kind} {blob.id} of {self.log.title} is not of version {blob.version}", hint=REBUILD
        )

    def _decoded(self, snapshot_id: str, body: bytes, changes: StateChanges | None) -> TableState:
        from dormouse.log.snapshot import decode_snapshot

        with self.damage_reported():
            name = f"snapshot {snapshot_id}"
            return decode_snapshot(self.log.table_id, body, name, changes)

    def from_segments(self, segments: Iterable[log_pages.Segment], version: int) -> Iterator[Delta]:
        """Yield the deltas that follow a version, as far as segments go. Raises as `snapshot`."""
        newer = [segment for segment in segments if segment.version > version]
        if newer:
            from dormouse.log.snapshot import decode_segment  # loads Arrow
        for start in range(0, len(newer), _SEGMENTS_AT_ONCE):
            some = newer[start : start + _SEGMENTS_AT_ONCE]
            for segment, body in zip(some, self._segment_bodies(some), strict=True):
                skip = max(version - segment.after, 0)
                with self.damage_reported():
                    name = f"segment {segment.id}"
                    deltas = decode_segment(body, self.log.table_id, name, without=skip)
                if skip + len(deltas) != segment.version - segment.after:
                    raise CorruptDataError(
                        f"segment {segment.id} of {self.log.title} lacks deltas", hint=REBUILD
                    )
                yield from deltas

    def joined(self, segments: Sequence[log_pages.Segment], *more: StoredSegment) -> bytes:
        """Return the body of one segment in place of several, and of `more` that follow them.
        Raises: as `snapshot`.
        """
        from dormouse.log.snapshot import StoredSegment, join_segments  # loads Arrow

        parts = [
            StoredSegment(body, f"segment {each.id}", each.version - each.after)
            for each, body in zip(segments, self._segment_bodies(segments), strict=True)
        ]
        with self.damage_reported():
            return join_segments([*parts, *more], self.log.table_id)

    def from_pages(
        self,
        version: int,
        cached: Mapping[str, tuple[Entry, ...]] | None = None,
        *,
        at_once: bool = False,
    ) -> Iterator[Delta]:
        """Yield the deltas that follow a version, by the pages of the log.

        Deltas that are `cached` are not fetched.

        Raises:
            CollectedError: not all of them are in pages any more.
            CorruptDataError: one is lost.
        """
        ids = self.log.ids_after(version)
        for start in range(0, len(ids), _DELTAS_AT_ONCE):
            some = ids[start : start + _DELTAS_AT_ONCE]
            yield from self.by_id(some, version + start, cached or {}, at_once=at_once)

    def by_id(
        self,
        ids: Sequence[str],
        version: int,
        cached: Mapping[str, tuple[Entry, ...]],
        *,
        at_once: bool = False,
    ) -> Iterator[Delta]:
        """Yield the deltas of `ids`, the first of which follows `version`.

        Those that should carry all others are fetched first, then what they lack. `at_once` fetches
        all in one round: for deltas of writers that did not know of one another. The first are then
        yielded, and folded, while others are on their way.
        """
        entries = {delta_id: cached[delta_id] for delta_id in ids if delta_id in cached}
        if self.carries and not at_once:
            for _ in self._fetch(carriers(ids, version, entries), ids, version, entries):
                pass
        rest = self._fetch([each for each in ids if each not in entries], ids, version, entries)
        for delta_id in ids:
            while delta_id not in entries:
                next(rest)
            yield Delta(delta_id, entries[delta_id])

    def _fetch(
        self,
        fetch_ids: Sequence[str],
        ids: Sequence[str],
        version: int,
        entries: dict[str, tuple[Entry, ...]],
    ) -> Iterator[None]:
        """Add deltas to those that were found, with those of `ids` that they carry, one a step."""
        bodies = self.deltas.stream(fetch_ids)
        for delta_id in fetch_ids:
            try:
                body = next(bodies, None)
                if body is None:
                    raise MissingBlobError(delta_id, f"delta {delta_id}")
            except MissingBlobError as error:
                place = version + ids.index(error.blob_id)
                is_needed = log_pages.place_after(place)[0] >= self.manifest().covered_pages
                raise self._gone(error, is_needed) from error
            with self.damage_reported():
                identity = identity_of(self.log.table_id, delta_id)
                delta = open_delta(body, identity, f"delta {delta_id}")
                entries[delta_id] = delta.entries
                for carried in delta.carried.keys() & set(ids) - entries.keys():
                    entries[carried] = delta.entries_of(carried)
            yield

    def _segment_bodies(self, segments: Sequence[log_pages.Segment]) -> list[bytes]:
        whole = [BlobRange(s.id, s.size_bytes, 0, s.size_bytes) for s in segments]
        try:
            # Of a known size: that spares DynamoDB a round.
            return self.ranges(self.segments, whole)
        except MissingBlobError as error:
            ids = {segment.id for segment in self.manifest().segments}
            raise self._gone(error, error.blob_id in ids) from error

    def ranges(self, blobs: BlobStore, ranges: Sequence[BlobRange]) -> list[bytes]:
        """Return parts of this table's blobs. Raises as `BlobStore.get_ranges`, with a hint."""
        with self.damage_reported():
            return blobs.get_ranges(ranges)

    def damage_reported(self) -> AbstractContextManager[None]:
        """Raise as CorruptDataError what shows that the state is damaged."""
        return raise_corrupt(f"the state of {self.log.title} is damaged", hint=REBUILD)

    def _gone(self, error: MissingBlobError, is_needed: bool) -> CollectedError | CorruptDataError:
        if not is_needed:
            return CollectedError()
        return CorruptDataError(
            f"the state of {self.log.title} lacks {error}",
            hint=f"bring it back from a backup or an older object version; or {REBUILD}",
        )
