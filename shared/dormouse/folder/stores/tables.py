"""The registry of tables: `ports.Tables`.

A table is a record of kind ``table``, owned by its name, with its id as the key; a copy of it, of
kind ``table copy``, is written in the same transaction, and `repair` restores one from the other.
The properties of the instance and its access rules have copies, too. Tombstones are records of
their own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from dormouse.access.rules import AccessRules
from dormouse.errors import (
    AlreadyExistsError,
    ContendedError,
    CorruptDataError,
    DamagedEntryError,
    NotFoundError,
)
from dormouse.folder.sqlite.database import Database
from dormouse.folder.sqlite.records import Record, fetch, remove, select, store
from dormouse.folder.stores.table_records import (
    COPIES,
    DEFAULTS,
    INSTANCE,
    TABLE,
    TOMBSTONE,
    Settings,
    StoredTable,
    defaults_of,
    is_lost,
    store_rules,
    stored_rules,
    table_of,
    tombstone_of,
)
from dormouse.folder.stores.table_repair import repair_registry
from dormouse.tables.table import Table, with_applied_request
from dormouse.tables.tombstones import Tombstone

ATTEMPTS = 8
"""How often a change starts over because somebody else changed the same table."""


class SqliteTables:
    """`Tables` in the SQLite file; safe for many threads and processes."""

    def __init__(self, database: Database) -> None:
        """Use `database`."""
        self._database = database

    def get(self, table_id: str) -> Table | None:
        """Return a table by id; None if there is none."""
        with self._database.reading() as connection:
            return _read(connection, _entry(connection, table_id))

    def named(self, name: str) -> Table | None:
        """Return a table by name; None if there is none."""
        with self._database.reading() as connection:
            return _read(connection, _entry_named(connection, name))

    def all(self) -> list[Table]:
        """Return all tables by name. Raises CorruptDataError if anything is damaged."""
        tables, damaged = self.list_readable()
        if damaged:
            raise damaged[0]
        return tables

    def list_readable(self) -> tuple[list[Table], list[DamagedEntryError]]:
        """Return all tables that can be read, by name, and the damaged entries."""
        tables: list[Table] = []
        damaged: list[DamagedEntryError] = []
        with self._database.reading() as connection:
            defaults, wrong = defaults_of(connection)
            entries = list(select(connection, "kind = ?", TABLE))
            there = {record.key for record in entries}
            copies = select(connection, "kind = ?", COPIES[TABLE])
            lost = [record for record in copies if record.key not in there]
        for record in entries:
            try:
                tables.append(table_of(record, defaults))
            except DamagedEntryError as error:
                damaged.append(error)
        damaged += map(is_lost, lost)
        return tables, [*damaged, *([wrong] if wrong else [])]

    def repair(self, which: str = "") -> list[str]:
        """Restore damaged entries of one table, by name or id, or of all; return a description of
        each.

        Raises:
            CorruptDataError: some cannot be restored; all others were.
        """
        with self._database.writing() as connection:
            repaired, hopeless = repair_registry(connection, which)
        if hopeless:
            raise CorruptDataError(
                f"of {', '.join(hopeless)} the copy is damaged or missing too",
                hint="bring the folder's dormouse.sqlite back from a backup",
            )
        return repaired

    def create(self, table: Table) -> None:
        """Register a table; that it was registered before, by this id and name, is no error.

        Raises:
            AlreadyExistsError: another table has the name, or the id has a tombstone.
        """
        with self._database.writing() as connection:
            kept, named = _entry(connection, table.id), _entry_named(connection, table.name)
            if kept is not None and kept.owner == table.name:
                return
            buried = fetch(connection, TOMBSTONE, "", table.id)
            if kept is not None or named is not None or buried is not None:
                raise AlreadyExistsError(f"there is a table {table.name!r} already")
            _put(connection, table)

    def change(
        self, table_id: str, change: Callable[[Table], Table], *, request_id: str = ""
    ) -> Table:
        """Replace a table's entry by what `change` returns for the newest entry; return the result.

        `change` is called outside of any transaction: it may take its time, and is called again if
        the entry was changed meanwhile.

        Raises:
            NotFoundError: there is no such table, or its deletion has begun.
            AlreadyExistsError: another table has the new name.
            ContendedError: concurrent changes won every attempt; nothing was changed.
        """
        for _ in range(ATTEMPTS):
            with self._database.reading() as connection:
                record = _entry(connection, table_id)
                kept = _read(connection, record)
            if record is None or kept is None:
                raise NotFoundError(f"there is no table {table_id!r} any more")
            if request_id and request_id in kept.applied_requests:
                return kept
            wanted = with_applied_request(change(kept), request_id)
            if kept.deleting and not wanted.deleting:
                raise NotFoundError(f"table {kept.name!r} is being deleted")
            if wanted == kept or self._replace(record, wanted):
                return wanted
        raise ContendedError(f"others keep changing table {table_id!r}; try again")

    def put_tombstone(self, tombstone: Tombstone) -> Tombstone | None:
        """Record for ever that an id belongs to no table; return the tombstone that was put first.

        Return None, and change nothing, if a table with this id is registered and not being
        deleted.
        """
        with self._database.writing() as connection:
            found = _tombstone(connection, tombstone.table_id)
            if found is not None:
                return found
            table = _read(connection, _entry(connection, tombstone.table_id))
            if table is not None and not table.deleting:
                return None
            store(connection, TOMBSTONE, "", tombstone.table_id, tombstone)
            store(connection, COPIES[TOMBSTONE], "", tombstone.table_id, tombstone)
            return tombstone

    def tombstone(self, table_id: str) -> Tombstone | None:
        """Return the tombstone of an id; None if there is none."""
        with self._database.reading() as connection:
            return _tombstone(connection, table_id)

    def tombstones(self, since_ms: int) -> tuple[list[Tombstone], list[CorruptDataError]]:
        """Return the tombstones of deletions since a time, in order, and the damaged ones."""
        found: list[Tombstone] = []
        damaged: list[CorruptDataError] = []
        with self._database.reading() as connection:
            records = list(select(connection, "kind = ?", TOMBSTONE))
        for record in records:
            try:
                found.append(tombstone_of(record))
            except CorruptDataError as error:
                damaged.append(error)
        found.sort(key=lambda each: (each.deleted_ms, each.table_id))
        return [each for each in found if each.deleted_ms >= since_ms], damaged

    def delete(self, table: Table) -> None:
        """Remove a table; one that is not registered is ignored."""
        with self._database.writing() as connection:
            if (record := _entry(connection, table.id)) is not None:
                _remove(connection, record)

    def defaults(self) -> dict[str, int | str]:
        """Return the properties of the instance, of their copy where they are damaged.

        Raises:
            CorruptDataError: both are damaged.
        """
        with self._database.reading() as connection:
            return defaults_of(connection)[0]

    def change_defaults(
        self, change: Callable[[Settings], dict[str, int | str]]
    ) -> dict[str, int | str]:
        """Replace the instance's properties by what `change` returns for them; return the result.

        Raises:
            ContendedError: concurrent changes won every attempt; nothing was changed.
            CorruptDataError: they are damaged; nothing was changed.
        """
        for _ in range(ATTEMPTS):
            with self._database.reading() as connection:
                kept, wrong = defaults_of(connection)
                record = fetch(connection, DEFAULTS, "", INSTANCE)
            if wrong is not None:
                raise wrong
            wanted = change(dict(kept))
            with self._database.writing() as connection:
                if fetch(connection, DEFAULTS, "", INSTANCE) == record:
                    store(connection, DEFAULTS, "", INSTANCE, wanted)
                    store(connection, COPIES[DEFAULTS], "", INSTANCE, wanted)
                    return wanted
        raise ContendedError("others keep changing the instance's properties; try again")

    def access_rules(self) -> AccessRules:
        """Return the access rules of the instance; None if access is by instance.

        Raises:
            CorruptDataError: they are damaged or lost, so nobody may be let in.
        """
        with self._database.reading() as connection:
            return stored_rules(connection)

    def change_access_rules(self, change: Callable[[AccessRules], AccessRules]) -> AccessRules:
        """Replace the access rules by what `change` returns for them; return the result.

        Raises:
            ContendedError: concurrent changes won every attempt; nothing was changed.
            CorruptDataError: they are damaged or lost; nothing was changed.
        """
        for _ in range(ATTEMPTS):
            kept = self.access_rules()
            wanted = change(kept)
            with self._database.writing() as connection:
                if stored_rules(connection) == kept:
                    if wanted != kept:
                        store_rules(connection, wanted)
                    return wanted
        raise ContendedError("others keep changing the access rules; try again")

    def _replace(self, record: Record, wanted: Table) -> bool:
        """Replace one table; return False, and change nothing, if its record is another by now."""
        with self._database.writing() as connection:
            if _entry(connection, wanted.id) != record:
                return False
            taken = _entry_named(connection, wanted.name)
            if taken is not None and taken.key != wanted.id:
                raise AlreadyExistsError(f"there is a table {wanted.name!r} already")
            _remove(connection, record)
            _put(connection, wanted)
            return True


def _entry(connection: sqlite3.Connection, table_id: str) -> Record | None:
    """Return the record of a table, or the copy of one that is lost."""
    return _first(connection, "kind = ? AND key = ?", table_id)


def _entry_named(connection: sqlite3.Connection, name: str) -> Record | None:
    return _first(connection, "kind = ? AND owner = ?", name)


def _first(connection: sqlite3.Connection, where: str, value: str) -> Record | None:
    for kind in (TABLE, COPIES[TABLE]):
        if (found := next(select(connection, where, kind, value), None)) is not None:
            return found
    return None


def _read(connection: sqlite3.Connection, record: Record | None) -> Table | None:
    """Return the table of a record.

    Raises:
        DamagedEntryError: it is damaged, or only its copy is left.
    """
    if record is None:
        return None
    if record.kind != TABLE:
        raise is_lost(record)
    return table_of(record, defaults_of(connection)[0])


def _put(connection: sqlite3.Connection, table: Table) -> None:
    stored = StoredTable.of(table)
    for kind in (TABLE, COPIES[TABLE]):
        store(connection, kind, table.name, table.id, stored)


def _remove(connection: sqlite3.Connection, record: Record) -> None:
    for kind in (TABLE, COPIES[TABLE]):
        remove(connection, kind, record.owner, record.key)


def _tombstone(connection: sqlite3.Connection, table_id: str) -> Tombstone | None:
    record = fetch(connection, TOMBSTONE, "", table_id)
    return None if record is None else tombstone_of(record)
