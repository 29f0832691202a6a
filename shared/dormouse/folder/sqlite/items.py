"""The `ItemStore` of a folder: each part of an item is a row of the table `items`.

A read is one statement, which sees one moment; a write is one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any

from dormouse.folder.sqlite.database import Database
from dormouse.items.store import (
    IDS,
    Change,
    Check,
    Item,
    Key,
    Part,
    Space,
    changed,
    with_id,
)

_SELECT = "SELECT space, owner, name, part, body, sum, expires_s FROM items WHERE"
_ORDER = "ORDER BY space, owner, name"
_LAST = "\U0010ffff"
"""Follows all that an owner can have after a prefix."""


class _Reads:
    """The reads of items, each by one statement."""

    def _select(self, statement: str, values: Sequence[object]) -> list[Any]:
        raise NotImplementedError

    def get(self, *keys: Key) -> list[Item | None]:
        """Return the items of some keys, None where there is none."""
        places = ", ".join(["(?, ?, ?)"] * len(keys))
        values = [value for key in keys for value in key]
        where = f"{_SELECT} (space, owner, name) IN (VALUES {places}) {_ORDER}"
        found = {item.key: item for item in _items(self._select(where, values))}
        return [found.get(key) for key in keys]

    def query(self, space: Space, owner: str, *, least: str = "") -> Iterator[Item]:
        """Yield the items of an owner by name, from a name on."""
        where = f"{_SELECT} space = ? AND owner = ? AND name >= ? {_ORDER}"
        return _items(self._select(where, (space, owner, least)))

    def scan(self, space: Space, *prefixes: str) -> Iterator[Item]:
        """Yield all items whose owner begins with one of these."""
        where = " OR ".join(["space = ? AND owner BETWEEN ? AND ?"] * len(prefixes))
        values = [value for each in prefixes for value in (space, each, each + _LAST)]
        return _items(self._select(f"{_SELECT} {where} {_ORDER}", values))


class SqliteItems(_Reads):
    """`ItemStore` in the SQLite file; safe for many threads and processes."""

    def __init__(self, database: Database) -> None:
        """Use `database`."""
        self._database = database

    def write(self, *changes: Change) -> bool:
        """Make all changes; False, and nothing done, if a condition does not hold."""
        with self.transaction() as items:
            return items.write(*changes)

    def append(self, key: Key, new_id: bytes, *, room: int, at: int | None = None) -> Item | None:
        """Append an id to an item's ids; return the item as it then is."""
        with self.transaction() as items:
            return items.append(key, new_id, room=room, at=at)

    def delete(self, keys: Iterable[Key]) -> None:
        """Delete many items."""
        with self.transaction() as items:
            items.delete(keys)

    @contextmanager
    def transaction(self) -> Iterator[TransactionItems]:
        """Return the store whose calls in the block are all done, or none if it raises."""
        with self._database.writing() as connection:
            yield TransactionItems(connection)

    def _select(self, statement: str, values: Sequence[object]) -> list[Any]:
        return self._database.select(statement, values)


class TransactionItems(_Reads):
    """`ItemStore` in a transaction of others."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use a connection whose transaction has begun."""
        self.connection = connection

    def write(self, *changes: Change) -> bool:
        """Make all changes; False, and nothing done, if a condition does not hold."""
        items = self.get(*(change.key for change in changes))
        both = list(zip(changes, items, strict=True))
        if not all(change.when.holds(item) for change, item in both):
            return False
        for change, item in both:
            if not isinstance(change, Check):
                self._replace(change.key, item, changed(change, item))
        return True

    def append(self, key: Key, new_id: bytes, *, room: int, at: int | None = None) -> Item | None:
        """Append an id to an item's ids; return the item as it then is."""
        (item,) = self.get(key)
        if item is None or (longer := with_id(item, new_id, room, at)) is item:
            return item
        self._put(key, {IDS: longer.parts[IDS]}, None)
        return longer

    def delete(self, keys: Iterable[Key]) -> None:
        """Delete many items."""
        self.connection.executemany(
            "DELETE FROM items WHERE space = ? AND owner = ? AND name = ?", keys
        )

    def _replace(self, key: Key, old: Item | None, new: Item | None) -> None:
        kept = new.parts if new else {}
        if old and not old.parts.keys() <= kept.keys():
            self.delete([key])
        elif old and old.expires_s == (new and new.expires_s):
            kept = {name: part for name, part in kept.items() if old.parts.get(name) != part}
        if new:
            self._put(key, kept, new.expires_s)

    def _put(self, key: Key, parts: Any, expires_s: int | None) -> None:
        self.connection.executemany(
            "INSERT OR REPLACE INTO items (space, owner, name, part, body, sum, expires_s)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(*key, name, *part, expires_s) for name, part in parts.items()],
        )

    def _select(self, statement: str, values: Sequence[object]) -> list[Any]:
        return self.connection.execute(statement, values).fetchall()


def remove_expired(connection: sqlite3.Connection, now_ms: int) -> None:
    """Delete the items whose time is over."""
    connection.execute("DELETE FROM items WHERE expires_s <= ?", (now_ms // 1000,))


def _items(rows: Iterable[Any]) -> Iterator[Item]:
    for key, found in groupby(rows, key=itemgetter(0, 1, 2)):
        parts: dict[str, Part] = {}
        expires_s = None
        for *_, part, body, checksum, expires_s in found:  # noqa: B007  # of any part
            parts[part] = Part(body if isinstance(body, str | bytes) else None, checksum)
        yield Item(Key(*key), parts, expires_s)
