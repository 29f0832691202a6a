"""The log pages of all tables: `statestore.log.pages.Pages`.

Records of two kinds, owned by the table's state: ``head``, and ``page`` by its number. Each call is
one transaction, so what it looks at cannot change before it writes.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import TypeVar

from dormouse.folder.sqlite.database import Database
from dormouse.folder.sqlite.items import SqliteItems
from dormouse.folder.sqlite.records import fetch, remove, store
from dormouse.items.pins import ItemPins
from dormouse.state_store import REBUILD
from dormouse.statestore.log.pages import LOWEST_ID, Head, Manifest, Page
from dormouse.stored.decoding import raise_corrupt

_HEAD, _PAGE = "head", "page"
_Form = TypeVar("_Form", Head, Page)


class SqlitePages:
    """`Pages` in the SQLite file; safe for many threads and processes."""

    def __init__(self, database: Database) -> None:
        """Use `database`."""
        self._database = database
        self.pins = ItemPins(SqliteItems(database))

    def head(self, table_id: str) -> Head | None:
        """Return the head; None if the table has no log yet."""
        with self._database.reading() as connection:
            return _head(connection, table_id)

    def page(self, table_id: str, number: int) -> Page | None:
        """Return a page; None if there is none."""
        with self._database.reading() as connection:
            return _page(connection, table_id, number)

    def append(
        self, table_id: str, number: int, delta_id: str, position: int | None = None
    ) -> Page | None:
        """Append an id to a page with room that does not hold it; return the page as it then is."""
        with self._database.writing() as connection:
            page = _page(connection, table_id, number)
            if page is None or page.is_full or delta_id in page.ids:
                return page
            if delta_id < page.low_water_mark or position not in (None, len(page.ids)):
                return page
            page = replace(page, ids=(*page.ids, delta_id))
            _put_page(connection, table_id, page)
            return page

    def open_page(self, table_id: str, number: int, low_water_mark: str) -> bool:
        """Make page `number` if the log is open and ends with the page before and this mark."""
        with self._database.writing() as connection:
            head = _head(connection, table_id) or Head(-1)
            if head.closed or (number - 1, low_water_mark) != (head.last_page, head.low_water_mark):
                return False
            _put_head(connection, table_id, replace(head, last_page=number))
            _put_page(connection, table_id, Page(number, (), low_water_mark))
            return True

    def set_manifest(self, table_id: str, manifest: Manifest) -> bool:
        """Change the manifest; False, and nothing done, unless its revision is the next one."""
        with self._database.writing() as connection:
            head = _head(connection, table_id)
            if head is None or not _is_next(head, manifest):
                return False
            _put_head(connection, table_id, replace(head, manifest=manifest))
            return True

    def raise_low_water_mark(self, table_id: str, head: Head) -> bool:
        """Change manifest, first page and the low-water mark, which the last page has too."""
        with self._database.writing() as connection:
            kept = _head(connection, table_id)
            page = _page(connection, table_id, head.last_page)
            if kept is None or page is None or not _is_next(kept, head.manifest):
                return False
            if kept.last_page != head.last_page:
                return False
            _put_head(connection, table_id, head)
            _put_page(connection, table_id, replace(page, low_water_mark=head.low_water_mark))
            return True

    def close(self, table_id: str) -> Head:
        """Close the log for good, whether or not there was one; return its head.

        The pages are looked for, not believed: a damaged head must not keep a log open.
        """
        with self._database.writing() as connection:
            found = connection.execute(
                "SELECT min(key), max(key) FROM records WHERE kind = ? AND owner = ?",
                (_PAGE, table_id),
            ).fetchone()
            first, last = (0, -1) if found[0] is None else map(int, found)
            record = fetch(connection, _HEAD, table_id, "")
            if record is not None and record.is_whole:
                kept: Head = record.read(Head)
                first, last = kept.first_page, kept.last_page
            closed = Head(last, Manifest(), LOWEST_ID, first, closed=True)
            _put_head(connection, table_id, closed)
            return closed

    def delete_pages(self, table_id: str, first: int, end: int) -> None:
        """Delete the pages from `first` up to, but not with, `end`."""
        with self._database.writing() as connection:
            for number in range(first, end):
                remove(connection, _PAGE, table_id, _key(number))


def _is_next(head: Head, manifest: Manifest) -> bool:
    """Return whether a manifest is the next one of an open log."""
    return not head.closed and head.manifest.revision == manifest.revision - 1


def _key(number: int) -> str:
    return f"{number:012d}"


def _head(connection: sqlite3.Connection, table_id: str) -> Head | None:
    return _read(connection, _HEAD, table_id, "", Head)


def _page(connection: sqlite3.Connection, table_id: str, number: int) -> Page | None:
    return _read(connection, _PAGE, table_id, _key(number), Page)


def _put_head(connection: sqlite3.Connection, table_id: str, head: Head) -> None:
    store(connection, _HEAD, table_id, "", head)


def _put_page(connection: sqlite3.Connection, table_id: str, page: Page) -> None:
    store(connection, _PAGE, table_id, _key(page.number), page)


def _read(
    connection: sqlite3.Connection, kind: str, table_id: str, key: str, form: type[_Form]
) -> _Form | None:
    record = fetch(connection, kind, table_id, key)
    if record is None:
        return None
    what = f"the {kind} {key} of the log of table {table_id}".replace("  ", " ")
    with raise_corrupt(f"{what} is damaged", hint=REBUILD):
        read: _Form = record.read(form)
        return read
