"""The log of one table: append a delta's id exactly once, and read the ids after a version.

Nothing here touches an object: a delta is uploaded before its id is appended, and fetched after its
id was read. Used by `s3`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from dormouse.errors import (
    ContendedError,
    CorruptDataError,
    DormouseError,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from dormouse.statestore.pages import Head, Page, Pages, place_after
from dormouse.statestore.patience import Patience


@dataclass(frozen=True, slots=True)
class Log:
    """A table's log, over the pages of many."""

    table_id: str
    pages: Pages
    patience: Patience

    def head(self) -> Head | None:
        """Give the head; None if nothing was ever appended.

        Raises:
            NotFoundError: the log is closed, for its table was destroyed.
        """
        head = self.pages.head(self.table_id)
        if head is not None and head.closed:
            raise NotFoundError(f"the state of table {self.table_id} was destroyed")
        return head

    def append(self, delta_id: str, page: int) -> int:
        """Append an id to the last page, `page` being a guess at it; give the version it makes.

        An append that was not answered is repeated on the same page, which tells what became of
        it: a page takes an id once, and a full page without it can never get it. So an id stands
        in the log once or not at all, however often and late its requests arrive.

        Raises:
            ContendedError: all attempts failed; the id is not in the log and never will be.
            OutcomeUnknownError: the id may be in the log, or may get there.
            NotFoundError: the table was destroyed.
        """
        doubtful, failures = False, 0
        failure: DormouseError | None = None
        for _ in range(self.patience.attempts):
            if failures:
                self.patience.pause(failures)
            try:
                found = self.pages.append(self.table_id, page, delta_id)
                if found and delta_id in found.ids:
                    self._prepare_next(found)
                    return found.version_of(delta_id)
                doubtful = doubtful and found is None
                page = self._writable_page(page, found)
                failures = 0
            except OutcomeUnknownError as error:
                doubtful, failure, failures = True, error, failures + 1
            except UnavailableError as error:
                failure, failures = error, failures + 1
        return self._settle(delta_id, page, doubtful, failure)

    def ids_after(self, version: int) -> list[str]:
        """Give the ids that follow a version: at least those appended before the call.

        One read if there is nothing new. The reads end on a page with room, or on the head; what
        either shows was true at one moment, so no later id is given without all before it.

        Raises:
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

    def _page_if_made(self, number: int) -> Page:
        """Give a page that was not there at the first look; an empty one if it is the next."""
        head = self.head()
        last_page = head.last_page if head else -1
        if last_page < number:
            if last_page + 1 < number:
                raise self._cut_short(number)
            return Page(number)
        page = self.pages.page(self.table_id, number)
        if page is None:
            self.head()  # raises if it is gone because the table is
            raise CorruptDataError(f"page {number} of the log of table {self.table_id} is missing")
        return page

    def _cut_short(self, number: int) -> CorruptDataError:
        return CorruptDataError(
            f"the log of table {self.table_id} ends before a version of page {number} seen earlier",
            hint="it was restored to an earlier time; restore the snapshots of that time with it",
        )

    def _writable_page(self, number: int, found: Page | None) -> int:
        """Give the page to try after `number` was full, or not there; make it if it must be.

        A page that is not there is tried again itself: an append to it may still be on its way, and
        the id must not get a second place.
        """
        head = self.head()
        last_page = head.last_page if head else -1
        wanted = number if found is None else max(number + 1, last_page)
        if wanted > last_page:
            self.pages.open_page(self.table_id, wanted)  # False: another writer was quicker
        return wanted

    def _prepare_next(self, page: Page) -> None:
        """Spare the next writer a failed attempt, if this id was the page's last."""
        if page.is_full:
            with suppress(UnavailableError, OutcomeUnknownError):  # then the next writer does it
                self.pages.open_page(self.table_id, page.number + 1)

    def _settle(
        self, delta_id: str, number: int, doubtful: bool, failure: DormouseError | None
    ) -> int:
        """Look a last time for an id whose attempts are used up; give its version or raise."""
        if doubtful:
            try:
                page = self.pages.page(self.table_id, number)
            except UnavailableError:
                page = None
            if page and delta_id in page.ids:
                return page.version_of(delta_id)
            if page is None or not page.is_full:
                raise OutcomeUnknownError(
                    f"a commit to table {self.table_id} was not answered; it may yet land",
                    hint="commit the same again to find out; delete nothing it may need",
                ) from failure
        raise ContendedError(
            f"a commit to table {self.table_id} failed {self.patience.attempts} times",
            hint="nothing was changed; try again later",
        ) from failure
