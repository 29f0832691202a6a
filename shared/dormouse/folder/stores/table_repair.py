"""Restores damaged entries of the registry from their copies, and copies from entries."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import groupby

from dormouse.errors import CorruptDataError
from dormouse.folder.sqlite.records import Record, copy_to, remove, select
from dormouse.folder.stores.table_records import (
    ACCESS,
    COPIES,
    DEFAULTS,
    TABLE,
    TOMBSTONE,
    rules_of,
    settings_of,
    table_of,
    tombstone_of,
)


def repair_registry(connection: sqlite3.Connection, which: str) -> tuple[list[str], list[str]]:
    """Repair the entries of one table, by name or id, or of all if `which` is empty.

    Return a description of what was repaired, and of what cannot be.
    """
    repaired: list[str] = []
    hopeless: list[str] = []
    for kind in (TABLE,) if which else (TABLE, DEFAULTS, ACCESS, TOMBSTONE):
        found = select(connection, "kind IN (?, ?)", kind, COPIES[kind])
        by_key = groupby(sorted(found, key=lambda each: each.key), key=lambda each: each.key)
        for key, records in by_key:
            both = list(records)
            if which in ("", key, *(record.owner for record in both)):
                _repair(connection, kind, both, repaired, hopeless)
    return repaired, hopeless


def _repair(
    connection: sqlite3.Connection,
    kind: str,
    both: Sequence[Record],
    repaired: list[str],
    hopeless: list[str],
) -> None:
    """Restore whichever of an entry and its copy is damaged or lost."""
    readable = {record.kind: record for record in both if _is_readable(kind, record)}
    good = readable.get(kind) or readable.get(COPIES[kind])
    if good is None:
        hopeless.append(_described(kind, both[0]))
        return
    for missing in {kind, COPIES[kind]} - readable.keys():
        copy_to(connection, missing, good)
        what = _described(kind, good)
        repaired.append(what if missing == kind else f"the copy of {what}")
    for record in both:  # one in a wrong place, as after damage to its name
        if record.owner != good.owner:
            remove(connection, record.kind, record.owner, record.key)


def _described(kind: str, record: Record) -> str:
    return {
        TABLE: f"the entry of table {record.owner!r}",
        TOMBSTONE: f"the tombstone of table {record.key!r}",
        DEFAULTS: "the properties of the instance",
        ACCESS: "the access rules",
    }[kind]


def _is_readable(kind: str, record: Record) -> bool:
    try:
        if kind == TABLE:
            table_of(record, {})
        elif kind == TOMBSTONE:
            tombstone_of(record)
        elif kind == ACCESS:
            rules_of(record)
        else:
            settings_of(record)
    except CorruptDataError:
        return False
    return True
