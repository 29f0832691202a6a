"""The stored forms of tables, tombstones and the instance's properties; used by `tables`."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from dormouse.access.rules import AccessRules, dump_rules, load_rules
from dormouse.errors import CorruptDataError, DamagedEntryError
from dormouse.folder.sqlite.records import Record, fetch, store
from dormouse.schema.schema import Schema
from dormouse.stored.decoding import raise_corrupt
from dormouse.tables.origins import Origin
from dormouse.tables.properties import parse_settings
from dormouse.tables.table import Table
from dormouse.tables.tombstones import Tombstone

TABLE, TOMBSTONE, DEFAULTS, ACCESS = "table", "tombstone", "defaults", "access"
COPIES = {kind: f"{kind} copy" for kind in (TABLE, TOMBSTONE, DEFAULTS, ACCESS)}
"""The kind of the copies of each kind."""
INSTANCE = "instance"
"""The key of the instance's properties and access rules."""
Settings = dict[str, int | str]


class StoredTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table but for its name and id, which are the place of its record."""

    schema: dict[str, Any]
    properties: dict[str, int | str]
    online: bool
    deleting: bool
    created_ms: int
    log: str
    logs: tuple[str, ...]
    generation: int
    schema_generation: int
    reset_ms: int
    tree: str
    renamed_ms: int
    applied_requests: tuple[str, ...]
    origins: tuple[tuple[str, str], ...] = ()
    restored: str = ""
    purged_version: int = 0

    @staticmethod
    def of(table: Table) -> StoredTable:
        """Return the stored form of a table."""
        return StoredTable(
            schema=table.schema.to_json(),
            properties=table.settings,
            online=table.online,
            deleting=table.deleting,
            created_ms=table.created_ms,
            log=table.log,
            logs=table.logs,
            generation=table.generation,
            schema_generation=table.schema_generation,
            reset_ms=table.reset_ms,
            tree=table.tree,
            renamed_ms=table.renamed_ms,
            applied_requests=table.applied_requests,
            origins=tuple((origin.bucket, origin.table_name) for origin in table.origins),
            restored=table.restored,
            purged_version=table.purged_version,
        )

    def table(self, table_id: str, name: str, defaults: Mapping[str, int | str]) -> Table:
        """Return the table, over the properties of the instance."""
        table = Table(
            id=table_id,
            name=name,
            schema=Schema.from_json(self.schema),
            online=self.online,
            deleting=self.deleting,
            created_ms=self.created_ms,
            log=self.log,
            logs=self.logs,
            generation=self.generation,
            schema_generation=self.schema_generation,
            reset_ms=self.reset_ms,
            tree=self.tree,
            renamed_ms=self.renamed_ms,
            applied_requests=self.applied_requests,
            origins=tuple(Origin(*origin) for origin in self.origins),
            restored=self.restored,
            purged_version=self.purged_version,
        )
        return table.with_settings(parse_settings(self.properties), defaults)


def table_of(record: Record, defaults: Mapping[str, int | str]) -> Table:
    """Return the table that a record holds.

    An entry is read for each request, and rarely changes: the last ones are remembered, each with
    the bytes that it was decoded from.

    Raises:
        DamagedEntryError: it is damaged.
    """
    return _decoded(record, tuple(sorted(defaults.items())))


@lru_cache(maxsize=64)
def _decoded(record: Record, settings: tuple[tuple[str, int | str], ...]) -> Table:
    name, table_id = record.owner, record.key
    try:
        with raise_corrupt(f"the registry's entry of table {name!r} cannot be read"):
            stored: StoredTable = record.read(StoredTable)
            return stored.table(table_id, name, dict(settings))
    except CorruptDataError as error:
        raise damaged_entry(str(error), name, table_id) from error


def tombstone_of(record: Record) -> Tombstone:
    """Return the tombstone that a record holds.

    Raises:
        CorruptDataError: it is damaged.
    """
    hint = "`dormouse rebuild` restores it from its copy"
    with raise_corrupt(f"the tombstone of table {record.key!r} cannot be read", hint=hint):
        tombstone: Tombstone = record.read(Tombstone)
        return tombstone


def defaults_of(connection: sqlite3.Connection) -> tuple[Settings, DamagedEntryError | None]:
    """Return the instance's properties, and what is wrong if they are those of the copy.

    All tables depend on them: if they could not be read, one record would stop the instance.

    Raises:
        DamagedEntryError: the copy is damaged, too.
    """
    record = fetch(connection, DEFAULTS, "", INSTANCE)
    copy = fetch(connection, COPIES[DEFAULTS], "", INSTANCE)
    if record is None and copy is None:
        return {}, None  # none was ever set
    try:
        return settings_of(record), None
    except DamagedEntryError as error:
        return settings_of(copy), error


def settings_of(record: Record | None) -> Settings:
    """Return the properties that a record sets.

    Raises:
        DamagedEntryError: it is damaged or lost.
    """
    if record is None:
        raise damaged_entry("the registry has lost the properties of the instance")
    try:
        with raise_corrupt("the properties of the instance cannot be read"):
            return parse_settings(record.read(dict[str, object]))
    except CorruptDataError as error:
        raise damaged_entry(str(error)) from error


def rules_of(record: Record) -> AccessRules:
    """Return the access rules that a record holds.

    Raises:
        DamagedEntryError: it is damaged.
    """
    try:
        with raise_corrupt("the access rules cannot be read"):
            return load_rules(record.read(str))
    except CorruptDataError as error:
        raise damaged_entry(str(error)) from error


def stored_rules(connection: sqlite3.Connection) -> AccessRules:
    """Return the access rules; None if none were ever set, or access is by instance.

    Raises:
        DamagedEntryError: they are damaged, or only their copy is left: nobody may be let in.
    """
    record = fetch(connection, ACCESS, "", INSTANCE)
    if record is None and fetch(connection, COPIES[ACCESS], "", INSTANCE) is not None:
        raise damaged_entry("the registry has lost the access rules")
    return None if record is None else rules_of(record)


def store_rules(connection: sqlite3.Connection, rules: AccessRules) -> None:
    """Store the access rules and their copy."""
    for kind in (ACCESS, COPIES[ACCESS]):
        store(connection, kind, "", INSTANCE, dump_rules(rules))


def is_lost(copy: Record) -> DamagedEntryError:
    """Return the error that only the copy of a table's entry is left."""
    return damaged_entry(
        f"the registry's entry of table {copy.owner!r} is missing", copy.owner, copy.key
    )


def damaged_entry(message: str, name: str = "", table_id: str = "") -> DamagedEntryError:
    """Return the error of a damaged entry, which says how to restore it."""
    command = f"dormouse rebuild {name or table_id}".rstrip()
    hint = f"`{command}` restores it from the registry's copy"
    return DamagedEntryError(message, name=name, table_id=table_id, hint=hint)
