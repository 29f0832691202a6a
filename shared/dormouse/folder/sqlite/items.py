"""The `ItemStore` of a folder: each part of an item is a row of the table `items`.

A read is one statement, which sees one moment; a write is one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
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

    def __init__(self, select: Callable[[str, Sequence[object]], list[Any]]) -> None:
        """Read by `select`, which returns the rows of a statement with these values."""
        self._select = select

    def get(self, *keys: Key) -> list[Item | None]:
        """Return the items of some keys, None where there is none."""
        places = ", ".join(["(?, ?, ?)"] * len(keys))
        where = f"{_SELECT} (space, owner, name) IN (VALUES {places}) {_ORDER}"
        found = _items(self._select(where, [*chain.from_iterable(keys)]))
        return [*map(found.get, keys)]

    def query(self, space: Space, owner: str, *, least: str = "") -> Iterator[Item]:
        """Yield the items of an owner by name, from a name on."""
        where = f"{_SELECT} space = ? AND owner = ? AND name >= ? {_ORDER}"
        return iter(_items(self._select(where, (space, owner, least))).values())

    def scan(self, space: Space, *prefixes: str) -> Iterator[Item]:
        """Yield all items whose owner begins with one of these."""
        where = " OR ".join(["space = ? AND owner BETWEEN ? AND ?"] * len(prefixes))
        values = [value for each in prefixes for value in (space, each, each + _LAST)]
        return iter(_items(self._select(f"{_SELECT} {where} {_ORDER}", values)).values())


class SqliteItems(_Reads):
    """`ItemStore` in the SQLite file; safe for many threads and processes."""

    def __init__(self, database: Database) -> None:
        """Use `database`."""
        super().__init__(database.select)
        self._database = database

    def write(self, *changes: Change) -> bool:
        """Make all changes; False, and nothing done, if a condition does not hold."""
        with self._database.writing() as connection:
            return TransactionItems(connection).write(*changes)

    def append(self, key: Key, new_id: bytes, *, room: int) -> Item | None:
        """Append an id to an item's ids; return the item as it then is."""
        with self.transaction() as items:
            return items.append(key, new_id, room=room)

    def delete(self, keys: Iterable[Key]) -> None:
        """Delete many items."""
        with self.transaction() as items:
            items.delete(keys)

    @contextmanager
    def transaction(self) -> Iterator[TransactionItems]:
        """Return the store whose calls in the block are all done, or none if it raises."""
        with self._database.writing() as connection:
            yield TransactionItems(connection)


class TransactionItems(_Reads):
    """`ItemStore` in a transaction of others."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use a connection whose transaction has begun."""
        super().__init__(lambda statement, values: connection.execute(statement, values).fetchall())
        self.connection = connection

    def write(self, *changes: Change) -> bool:
        """Make all changes; False, and nothing done, if a condition does not hold."""
        both = [*zip(changes, self.get(*[change.key for change in changes]), strict=True)]
        for change, item in both:
            if not change.when.holds(item):
                return False
        for change, item in both:
            if not isinstance(change, Check):
                self._replace(change.key, item, changed(change, item))
        return True

    def append(self, key: Key, new_id: bytes, *, room: int) -> Item | None:
        """Append an id to an item's ids; return the item as it then is."""
        (item,) = self.get(key)
        if item is None or (longer := with_id(item, new_id, room)) is item:
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


def remove_expired(connection: sqlite3.Connection, now_ms: int) -> None:
    """Delete the items whose time is over."""
    connection.execute("DELETE FROM items WHERE expires_s <= ?", (now_ms // 1000,))


def _items(rows: Iterable[Any]) -> dict[Key, Item]:
    """Return the items of rows, in their order."""
    items: dict[Key, Item] = {}
    parts: dict[Key, dict[str, Part]] = {}
    for space, owner, name, part, body, checksum, expires_s in rows:
        key = Key(space, owner, name)
        if key not in items:
            parts[key] = {}
            items[key] = Item(key, parts[key], expires_s)
        parts[key][part] = Part(body if isinstance(body, str | bytes) else None, checksum)
    return items
