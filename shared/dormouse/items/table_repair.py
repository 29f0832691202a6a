"""What is damaged in the registry → what it was, from the copy beside it; used by `tables`.

An entry and its copy are written at once, so either is what the other was. A name is made again of
the entry that has it. Each item is put only over the very item that was looked at, and only while
its copy is the one that was looked at: any number may do this at once, beside all others, and a
table that is deleted meanwhile stays deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dormouse.errors import CorruptDataError
from dormouse.items.store import (
    ABSENT,
    Change,
    Check,
    Delete,
    Item,
    ItemStore,
    Key,
    has,
    put,
    unchanged,
)
from dormouse.items.table_items import (
    ACCESS,
    COPY,
    ID,
    INSTANCE,
    NAME,
    copy_key,
    id_key,
    id_named,
    name_key,
    rules_of,
    settings_of,
    table_of,
)
from dormouse.items.tombstones import ItemTombstones
from dormouse.tables.table import Table

_OF_INSTANCE = {INSTANCE: "the instance's properties", ACCESS: "the access rules"}


@dataclass
class Repair:
    """One repair of the registry."""

    items: ItemStore
    tombstones: ItemTombstones
    repaired: list[str] = field(default_factory=list)
    hopeless: list[str] = field(default_factory=list)
    unread: bool = False
    """Whether neither some entry nor its copy can be read: then its name is unknown."""

    def repair(self, items: Iterable[Item], which: str) -> list[str]:
        """Mend what of these items is damaged, of the table of this name or id, if one is given.

        Raises:
            CorruptDataError: some cannot be repaired; all else was.
        """
        there = {item.key.owner: item for item in items}
        entries = {owner.removeprefix(COPY) for owner in there if not owner.startswith(NAME)}
        tables: dict[str, tuple[Table, str]] = {}
        for owner in sorted(entries):
            key = Key("tables", owner)
            body = self._whole_entry(key, there.get(owner), there.get(COPY + owner), which)
            if body is not None and owner.startswith(ID):
                table = _table(key, body)
                tables[table.name] = table, body
        names = {owner.removeprefix(NAME) for owner in there if owner.startswith(NAME)}
        for name in sorted({*tables, *names}):
            found = tables.get(name)
            if which in ("", name, found[0].id if found else name):
                self._mend_name(name, found, there.get(NAME + name))
        if not which:
            repaired, hopeless = self.tombstones.repair()
            self.repaired += repaired
            self.hopeless += hopeless
        if self.hopeless:
            raise CorruptDataError(
                f"of {', '.join(self.hopeless)} the copy is damaged or missing too",
                hint="restore them from a backup: a folder's dormouse.sqlite; on AWS the table of "
                "tables in DynamoDB, or that of logs, from a point in time",
            )
        return self.repaired

    def _whole_entry(
        self, key: Key, item: Item | None, copy: Item | None, which: str
    ) -> str | None:
        """Return an entry as it should be, and put it, or its copy, where it is damaged."""
        good_item, good_copy = _is_whole(item), _is_whole(copy)
        good = item if good_item else copy if good_copy else None
        body = good.text() if good else None
        if good_item and good_copy:
            return body
        self.unread |= body is None
        table = _table(key, body) if body is not None and key.owner.startswith(ID) else None
        names = (table.id, table.name) if table else (key.owner.removeprefix(ID),)
        if which and which not in names:
            return body
        if body is None:
            self.hopeless.append(repr(key.owner))
        elif good_item:
            what = f"the copy of {_described(key, table)}"
            self._write(what, put(copy_key(key), body, unchanged(copy)), Check(key, has(key, body)))
        else:
            checks = [Check(copy_key(key), unchanged(copy))]
            if table is not None and not table.deleting:
                checks.append(self.tombstones.none_of(table.id))
            self._write(_described(key, table), put(key, body, unchanged(item)), *checks)
        return body

    def _mend_name(self, name: str, found: tuple[Table, str] | None, item: Item | None) -> None:
        """Let a name lead to the table that has it, or nowhere."""
        key, leads_to = name_key(name), _leads_to(item)
        if found is not None:
            table, body = found
            if leads_to != table.id:
                entry = id_key(table.id)
                change = put(key, table.id, unchanged(item))
                self._write(f"the name {name!r}", change, Check(entry, has(entry, body)))
        elif item and not leads_to and self.unread:
            self.hopeless.append(repr(key.owner))
        elif item and not leads_to:
            free = Delete(key, unchanged(item))
            self._write(f"the name {name!r}, which no table has", free)

    def _write(self, what: str, *changes: Change) -> None:
        if self.items.write(*changes):  # else others changed it just now, which mends it too
            self.repaired.append(what)


def _leads_to(item: Item | None) -> str:
    try:
        return id_named(item) if item else ""
    except CorruptDataError:
        return ""


def _table(key: Key, body: str) -> Table:
    """Return the table of a body that was verified."""
    return table_of(put(key, body, ABSENT).item(), {})


def _is_whole(item: Item | None) -> bool:
    if item is None:
        return False
    owner = item.key.owner.removeprefix(COPY)
    try:
        if owner.startswith(ID):
            table_of(item, {})
        else:
            rules_of(item) if owner == ACCESS.owner else settings_of(item)
    except CorruptDataError:
        return False
    return True


def _described(key: Key, table: Table | None) -> str:
    if table is not None:
        return f"the entry of table {table.name!r}"
    return _OF_INSTANCE.get(key, f"the item {key.owner!r}")
