"""The order of a table's commits: pages of delta ids, and the head that says where they end.

A page takes up to 48 ids and is then immutable; the next takes over. What is appended stays where
it is, so the version of a commit is its place: ``48 * page + position + 1``, and a state at
version v has applied the first v ids. The head names the last page and the newest snapshot; it is
written once a page and by maintenance, never by a plain commit.

`log` appends and reads; `dynamodb_pages` keeps pages in DynamoDB, `MemoryPages` in the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

PAGE_CAPACITY = 48
"""Ids a page takes. 48 of 16 bytes keep the item below 1 KB, so that an append costs one write
unit however full the page is."""


@dataclass(frozen=True, slots=True)
class Page:
    """The delta ids of one page, in order."""

    number: int
    ids: tuple[str, ...] = ()

    @property
    def is_full(self) -> bool:
        """Tell whether the page is immutable from now on."""
        return len(self.ids) >= PAGE_CAPACITY

    def version_of(self, delta_id: str) -> int:
        """Give the version which an id of this page makes."""
        return self.number * PAGE_CAPACITY + self.ids.index(delta_id) + 1


def place_after(version: int) -> tuple[int, int]:
    """Give the page and the position of the id that follows a version."""
    return divmod(version, PAGE_CAPACITY)


@dataclass(frozen=True, slots=True)
class Root:
    """The newest snapshot: its id, what version it holds, how big it is."""

    id: str
    version: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Head:
    """Where a table's log ends.

    `last_page` is exact: a page is made in the same transaction. A `closed` log belongs to a
    destroyed table and takes nothing more; its head remains, to keep late writers out.
    """

    last_page: int
    root: Root | None = None
    closed: bool = False


class Pages(Protocol):
    """Heads and pages of many tables, each call atomic and strongly consistent.

    Every call may raise UnavailableError: nothing was changed. Those that change something may
    raise OutcomeUnknownError instead: it may have been changed, or may be yet. All can be repeated.
    """

    def head(self, table_id: str) -> Head | None:
        """Give the head; None if the table has no log yet."""

    def page(self, table_id: str, number: int) -> Page | None:
        """Give a page; None if it was not made yet, or the log was destroyed."""

    def append(self, table_id: str, number: int, delta_id: str) -> Page | None:
        """Append an id to a page with room that does not hold it; give the page as it then is.

        So the id has its place if the page given holds it, whichever attempt put it there; if not,
        the page was full before. None if there is no such page.
        """

    def open_page(self, table_id: str, number: int) -> bool:
        """Make page `number`, and the head with page 0.

        False, and nothing done, unless the log ends with the page before and is not closed. This
        fences a writer that slept: it cannot make a page twice, nor revive a destroyed log.
        """

    def set_root(self, table_id: str, root: Root) -> bool:
        """Make `root` the newest snapshot; False, and nothing done, unless it is newer."""

    def close(self, table_id: str) -> Head:
        """Close the log for good, whether or not there was one; give its head."""

    def delete_pages(self, table_id: str, last_page: int) -> None:
        """Delete the pages up to `last_page` of a closed log."""


def _nothing(operation: str) -> None:
    """Stand where a test puts its hooks."""


@dataclass
class _Log:
    head: Head
    pages: dict[int, Page]


@dataclass
class MemoryPages:
    """Pages in memory, for embedded use and tests; safe for many threads.

    `before` and `after` are called with each operation's name, outside the lock. What a hook raises
    reaches the caller: from `before` as of a call that did nothing, from `after` as of a call that
    landed and was not answered. A hook may also act as another writer would.
    """

    before: Callable[[str], None] = _nothing
    after: Callable[[str], None] = _nothing
    _logs: dict[str, _Log] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def head(self, table_id: str) -> Head | None:
        """Give the head; None if the table has no log yet."""
        with self._call("head", table_id) as log:
            return log.head if log else None

    def page(self, table_id: str, number: int) -> Page | None:
        """Give a page; None if there is none."""
        with self._call("page", table_id) as log:
            return log.pages.get(number) if log else None

    def append(self, table_id: str, number: int, delta_id: str) -> Page | None:
        """Append an id to a page with room that does not hold it; give the page as it then is."""
        with self._call("append", table_id) as log:
            page = log.pages.get(number) if log else None
            if log and page and not page.is_full and delta_id not in page.ids:
                page = log.pages[number] = replace(page, ids=(*page.ids, delta_id))
            return page

    def open_page(self, table_id: str, number: int) -> bool:
        """Make page `number` if the log ends with the page before and is not closed."""
        with self._call("open_page", table_id) as log:
            last_page = log.head.last_page if log else -1
            if (log and log.head.closed) or number != last_page + 1:
                return False
            log = self._logs.setdefault(table_id, _Log(Head(number), {}))
            log.head = replace(log.head, last_page=number)
            log.pages[number] = Page(number)
            return True

    def set_root(self, table_id: str, root: Root) -> bool:
        """Make `root` the newest snapshot; False, and nothing done, unless it is newer."""
        with self._call("set_root", table_id) as log:
            if log is None or log.head.closed:
                return False
            if log.head.root and log.head.root.version >= root.version:
                return False
            log.head = replace(log.head, root=root)
            return True

    def close(self, table_id: str) -> Head:
        """Close the log for good, whether or not there was one; give its head."""
        with self._call("close", table_id):
            log = self._logs.setdefault(table_id, _Log(Head(-1), {}))
            log.head = replace(log.head, root=None, closed=True)
            return log.head

    def delete_pages(self, table_id: str, last_page: int) -> None:
        """Delete the pages up to `last_page` of a closed log."""
        with self._call("delete_pages", table_id) as log:
            for number in range(last_page + 1 if log else 0):
                self._logs[table_id].pages.pop(number, None)

    @contextmanager
    def _call(self, operation: str, table_id: str) -> Iterator[_Log | None]:
        self.before(operation)
        with self._lock:
            yield self._logs.get(table_id)
        self.after(operation)
