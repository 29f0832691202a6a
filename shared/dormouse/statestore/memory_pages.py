"""Pages in the memory of one process: for embedded use, and for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from dormouse.statestore.pages import LOWEST_FLOOR, Head, Page, Root


def _nothing(operation: str) -> None:
    """Stand where a test puts its hooks."""


@dataclass
class _Log:
    head: Head
    pages: dict[int, Page]


@dataclass
class MemoryPages:
    """Pages in memory; safe for many threads.

    `before` and `after` are called with each operation's name, outside the lock. What a hook raises
    reaches the caller: from `before` as of a call that did nothing, from `after` as of a call that
    landed and was not answered. A hook may also act as another writer would.
    """

    before: Callable[[str], None] = _nothing
    after: Callable[[str], None] = _nothing
    _logs: dict[str, _Log] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def head(self, table_id: str) -> Head | None:
        """Return the head; None if the table has no log yet."""
        with self._call("head", table_id) as log:
            return log.head if log else None

    def page(self, table_id: str, number: int) -> Page | None:
        """Return a page; None if there is none."""
        with self._call("page", table_id) as log:
            return log.pages.get(number) if log else None

    def append(
        self, table_id: str, number: int, delta_id: str, position: int | None = None
    ) -> Page | None:
        """Append an id to a page with room that does not hold it; give the page as it then is."""
        with self._call("append", table_id) as log:
            page = log.pages.get(number) if log else None
            if log is None or page is None or page.is_full or delta_id in page.ids:
                return page
            if delta_id < page.floor or position not in (None, len(page.ids)):
                return page
            log.pages[number] = replace(page, ids=(*page.ids, delta_id))
            return log.pages[number]

    def open_page(self, table_id: str, number: int, floor: str) -> bool:
        """Make page `number` if the log ends with the page before, open, and with this floor."""
        with self._call("open_page", table_id) as log:
            head = log.head if log else Head(-1)
            if head.closed or number != head.last_page + 1 or floor != head.floor:
                return False
            log = self._logs.setdefault(table_id, _Log(head, {}))
            log.head = replace(head, last_page=number)
            log.pages[number] = Page(number, (), floor)
            return True

    def set_root(self, table_id: str, root: Root) -> bool:
        """Change the root; False, and nothing done, unless its revision is the next one."""
        with self._call("set_root", table_id) as log:
            if log is None or log.head.closed or log.head.root.revision != root.revision - 1:
                return False
            log.head = replace(log.head, root=root)
            return True

    def raise_floor(self, table_id: str, head: Head) -> bool:
        """Change root, floor and first page, and the floor of the last page with them."""
        with self._call("raise_floor", table_id) as log:
            if log is None or log.head.closed or log.head.last_page != head.last_page:
                return False
            if log.head.root.revision != head.root.revision - 1:
                return False
            log.head = head
            log.pages[head.last_page] = replace(log.pages[head.last_page], floor=head.floor)
            return True

    def close(self, table_id: str) -> Head:
        """Close the log for good, whether or not there was one; give its head."""
        with self._call("close", table_id):
            log = self._logs.setdefault(table_id, _Log(Head(-1), {}))
            log.head = replace(log.head, root=Root(), floor=LOWEST_FLOOR, closed=True)
            return log.head

    def delete_pages(self, table_id: str, first: int, end: int) -> None:
        """Delete the pages from `first` up to, but not with, `end`."""
        with self._call("delete_pages", table_id) as log:
            for number in range(first, end if log else first):
                self._logs[table_id].pages.pop(number, None)

    @contextmanager
    def _call(self, operation: str, table_id: str) -> Iterator[_Log | None]:
        self.before(operation)
        with self._lock:
            yield self._logs.get(table_id)
        self.after(operation)
