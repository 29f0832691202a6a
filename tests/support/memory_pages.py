"""Pages in the memory of one process: for tests and benchmarks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from dormouse.log.pages import LOWEST_ID, Head, Manifest, Page
from tests.support.memory_pins import MemoryPins


def _no_hook(operation: str) -> None:
    """Take the place of a hook."""


@dataclass
class Log:
    """The log of a table: its head, and its pages by their numbers."""

    head: Head
    pages: dict[int, Page]


@dataclass
class MemoryPages:
    """Pages in memory; safe for many threads.

    `before` and `after` are called with each operation's name, outside the lock. What a hook raises
    reaches the caller: from `before` as of a call that did nothing, from `after` as of a call that
    landed and was not answered. A hook may also act as another writer would.
    """

    before: Callable[[str], None] = _no_hook
    after: Callable[[str], None] = _no_hook
    _logs: dict[str, Log] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __getstate__(self) -> dict[str, object]:
        """Return what another process needs to have these pages too; hooks stay here."""
        return {"_logs": self._logs}

    def __setstate__(self, state: dict[str, dict[str, Log]]) -> None:
        """Have the pages of another process."""
        MemoryPages.__init__(self, **state)

    def __post_init__(self) -> None:
        """Make the pins, with the same hooks."""
        self.pins = MemoryPins(self.before, self.after)

    def head(self, table_id: str) -> Head | None:
        """Return the head; None if the table has no log yet."""
        with self._call("head", table_id) as log:
            return log.head if log else None

    def page(self, table_id: str, number: int) -> Page | None:
        """Return a page; None if there is none."""
        with self._call("page", table_id) as log:
            return log.pages.get(number) if log else None

    def append(self, table_id: str, number: int, delta_id: str) -> Page | None:
        """Append an id to a page with room that does not hold it; return the page as it then is."""
        with self._call("append", table_id) as log:
            page = log.pages.get(number) if log else None
            if log is None or page is None or page.is_full or delta_id in page.ids:
                return page
            if delta_id < page.low_water_mark:
                return page
            log.pages[number] = replace(page, ids=(*page.ids, delta_id))
            return log.pages[number]

    def open_page(self, table_id: str, number: int, low_water_mark: str) -> bool:
        """Make page `number` if the log is open and ends with the page before and this mark."""
        with self._call("open_page", table_id) as log:
            head = log.head if log else Head(-1)
            if head.closed or number != head.last_page + 1 or low_water_mark != head.low_water_mark:
                return False
            log = self._logs.setdefault(table_id, Log(head, {}))
            log.head = replace(head, last_page=number)
            log.pages[number] = Page(number, (), low_water_mark)
            return True

    def set_manifest(self, table_id: str, manifest: Manifest) -> bool:
        """Change the manifest; False, and nothing done, unless its revision is the next one."""
        with self._call("set_manifest", table_id) as log:
            if (
                log is None
                or log.head.closed
                or log.head.manifest.revision != manifest.revision - 1
            ):
                return False
            log.head = replace(log.head, manifest=manifest)
            return True

    def raise_low_water_mark(self, table_id: str, head: Head) -> bool:
        """Change manifest, first page and the low-water mark, which the last page has too."""
        with self._call("raise_low_water_mark", table_id) as log:
            if log is None or not _is_next(log.head, head.manifest):
                return False
            if log.head.last_page != head.last_page:
                return False
            log.head = head
            log.pages[head.last_page] = replace(
                log.pages[head.last_page], low_water_mark=head.low_water_mark
            )
            return True

    def close(self, table_id: str) -> Head:
        """Close the log for good, whether or not there was one; return its head."""
        with self._call("close", table_id):
            log = self._logs.setdefault(table_id, Log(Head(-1), {}))
            log.head = replace(log.head, manifest=Manifest(), low_water_mark=LOWEST_ID, closed=True)
            return log.head

    def delete_pages(self, table_id: str, first: int, end: int) -> None:
        """Delete the pages from `first` up to, but not with, `end`."""
        with self._call("delete_pages", table_id) as log:
            for number in range(first, end if log else first):
                self._logs[table_id].pages.pop(number, None)

    @contextmanager
    def _call(self, operation: str, table_id: str) -> Iterator[Log | None]:
        self.before(operation)
        with self._lock:
            yield self._logs.get(table_id)
        self.after(operation)


def _is_next(head: Head, manifest: Manifest) -> bool:
    """Return whether a manifest is the next one of an open log."""
    return not head.closed and head.manifest.revision == manifest.revision - 1
