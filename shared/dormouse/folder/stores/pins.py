"""The pins of all tables: `statestore.log.pins.Pins`.

Records of the kind ``pin``, owned by the table's state, by the key of the pin's owner.
"""

from __future__ import annotations

import sqlite3

from dormouse.errors import CorruptDataError
from dormouse.folder.sqlite.database import Database
from dormouse.folder.sqlite.records import Record, fetch, remove, select, store
from dormouse.model.versions.pins import Pin, PinOwner
from dormouse.statestore.log.pins import damaged_pin

_PIN = "pin"


class SqlitePins:
    """`Pins` in the SQLite file; safe for many threads and processes."""

    def __init__(self, database: Database) -> None:
        """Use `database`."""
        self._database = database

    def all(self, table_id: str) -> list[Pin]:
        """Return all pins of a table, by owner."""
        with self._database.reading() as connection:
            found = list(select(connection, "kind = ? AND owner = ?", _PIN, table_id))
        return [_read(record) for record in found]

    def put(self, table_id: str, pin: Pin) -> Pin:
        """Put a pin unless its owner has one; return the one that the owner then has."""
        with self._database.writing() as connection:
            found = _pin(connection, table_id, pin.owner)
            if found is None:
                store(connection, _PIN, table_id, pin.owner.key, pin)
            return found or pin

    def replace(self, table_id: str, old: Pin, new: Pin) -> bool:
        """Put a pin in the place of one of the same owner; False unless that is there unchanged."""
        with self._database.writing() as connection:
            if _pin(connection, table_id, old.owner) != old:
                return False
            store(connection, _PIN, table_id, new.owner.key, new)
            return True

    def delete(self, table_id: str, owner: PinOwner, *, only: Pin | None = None) -> bool:
        """Delete the pin of an owner, or `only` this one; return whether there was one."""
        with self._database.writing() as connection:
            if fetch(connection, _PIN, table_id, owner.key) is None:
                return False
            if only is not None and _pin(connection, table_id, owner) != only:
                return False
            remove(connection, _PIN, table_id, owner.key)
            return True

    def clear(self, table_id: str) -> None:
        """Delete all pins of a table."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM records WHERE kind = ? AND owner = ?", (_PIN, table_id))


def _pin(connection: sqlite3.Connection, table_id: str, owner: PinOwner) -> Pin | None:
    record = fetch(connection, _PIN, table_id, owner.key)
    return None if record is None else _read(record)


def _read(record: Record) -> Pin:
    try:
        pin: Pin = record.read(Pin)
    except (CorruptDataError, ValueError) as error:
        raise damaged_pin(record.key, record.owner) from error
    return pin
