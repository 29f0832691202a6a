"""The log of one table: append a delta's id exactly once, and read the ids after a version.

Nothing here touches a blob: a delta is stored before its id is appended, and fetched after its id
was read.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from dormouse.errors import (
    ContendedError,
    CorruptDataError,
    DormouseError,
    NotFoundError,
    OutcomeUnknownError,
    ServiceRefusedError,
    UnavailableError,
)
from dormouse.retry_policy import RetryPolicy
from dormouse.state_store import REBUILD
from dormouse.statestore.log.pages import (
    Head,
    Manifest,
    Page,
    Pages,
    place_after,
    reaches_end,
)


class CollectedError(Exception):
    """What follows a version was collected: it is in segments or snapshots of a newer manifest."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The outcome of an append, and how many attempts it took.

    `page` is as it was when it was seen with the id, which makes `version`. Without a page the id
    is not in the log: it is below `low_water_mark` and never will be.
    """

    attempts: int
    page: Page | None = None
    version: int | None = None
    low_water_mark: str | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """A table's log, over the pages of many."""

    table_id: str
    pages: Pages
    retry_policy: RetryPolicy
    name: str = ""

    @property
    def title(self) -> str:
        """The table as errors name it: as people call it, if that is known, else by its id."""
        return f"table {self.name!r}" if self.name else f"table {self.table_id}"

    def head(self) -> Head | None:
        """Return the head; None if nothing was ever appended.

        Raises:
            NotFoundError: the log is closed, for its table was destroyed.
        """
        head = self.pages.head(self.table_id)
        if head is not None and head.closed:
            raise NotFoundError(f"the state of {self.title} was destroyed")
        return head

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
                found = self.pages.append(self.table_id, page, delta_id)
                if found and delta_id in found.ids:
                    self._prepare_next(found)
                    return Placement(attempt, found, found.version_of(delta_id))
                doubtful = doubtful and found is None
                if found and _never_takes(found, delta_id):
                    return Placement(attempt, low_water_mark=found.low_water_mark)
                page = self._writable_page(page, found, doubtful)
                failures = 0
            except OutcomeUnknownError as error:
                if isinstance(error, _LostSightError):
                    raise
                doubtful, failure, failures = True, error, failures + 1
            except UnavailableError as error:
                failure, failures = error, failures + 1
                if isinstance(error, ServiceRefusedError):
                    break
        seen = self._finalise(delta_id, page, doubtful, failure)
        return Placement(attempt, seen, seen.version_of(delta_id))

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
            number, position = place_after(version + len(ids))
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
        if not reaches_end(version, expected):
            return place_after(version)[0]
        newer = self.retry_policy.retry(lambda: self.ids_after(version))
        return place_after(version + len(newer))[0]

    def install(self, made: str, change: Callable[[Manifest], Manifest | None]) -> bool:
        """Change the manifest, `made` being the id of what the change adds to it.

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
                changed = change(head.manifest) if head and made >= head.low_water_mark else None
                if changed is None:
                    return False
                if self.pages.set_manifest(self.table_id, changed):
                    return True
            except ServiceRefusedError:
                raise
            except (OutcomeUnknownError, UnavailableError) as error:
                failure = error
            self.retry_policy.pause(failures)
        if failure:
            raise failure
        return False

    def _page_if_made(self, number: int) -> Page:
        """Return a page that was not there at the first look; an empty one if it is the next."""
        head = self.head()
        last_page = head.last_page if head else -1
        if last_page < number:
            if last_page + 1 < number:
                raise self._cut_short(number)
            return Page(number)
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

    def _writable_page(self, number: int, found: Page | None, doubtful: bool) -> int:
        """Return the page to try after `number` was full, or not there; make it if need be.

        A page that is not there is tried again itself: an append to it may still be on its way, and
        the id must not get a second place. One that was there and is collected is past all doubt
        only if no append to it went unanswered.
        """
        head = self.head() or Head(-1)
        wanted = number if found is None else max(number + 1, head.last_page)
        if wanted > head.last_page:
            self.pages.open_page(
                self.table_id, wanted, head.low_water_mark
            )  # False: another was quicker
        elif found is None and number < head.manifest.covered_pages:
            if doubtful:
                raise _LostSightError(
                    f"a commit to {self.title} was not answered; its page is gone",
                    hint="commit the same again to find out; delete nothing it may need",
                )
            return head.last_page
        return wanted

    def _prepare_next(self, page: Page) -> None:
        """Open the next page if this id filled its page: that spares the next writer an attempt."""
        if page.is_full:
            with suppress(UnavailableError, OutcomeUnknownError):  # then the next writer does it
                self.pages.open_page(self.table_id, page.number + 1, page.low_water_mark)

    def _finalise(
        self,
        delta_id: str,
        number: int,
        doubtful: bool,
        failure: DormouseError | None,
    ) -> Page:
        """Look a last time for an id whose attempts are used up; return its page or raise."""
        if doubtful:
            try:
                page = self.pages.page(self.table_id, number)
            except UnavailableError:
                page = None
            if page and delta_id in page.ids:
                return page
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


def _never_takes(page: Page, delta_id: str) -> bool:
    """Return whether a page as found, and all after it, refuse an id for good."""
    return delta_id < page.low_water_mark and not page.is_full
