"""What is damaged in the registry → what it was, from the copy beside it; used by `tables`.

An entry and its copy are written in one transaction, so either is what the other was. A name is
made again of the entry that has it. Each item is put only over the very item that was looked at,
and only while its copy is the one that was looked at: any number may do this at once, beside all
others, and a table that is deleted meanwhile stays deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dormouse.aws.base.failures import ConditionFailedError, writing
from dormouse.aws.dynamodb.registry.table_items import (
    ACCESS,
    COPY,
    ID,
    INSTANCE,
    NAME,
    copy_of,
    id_named,
    key,
    name_item,
    original_of,
    rules_of,
    settings_of,
    table_of,
)
from dormouse.aws.dynamodb.registry.tombstones import DynamoTombstones
from dormouse.aws.dynamodb.stored_items import unchanged
from dormouse.errors import CorruptDataError
from dormouse.tables.table import Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

    from dormouse.aws.dynamodb.stored_items import Item


_OF_INSTANCE = {INSTANCE: "the instance's properties", ACCESS: "the access rules"}


@dataclass
class Repair:
    """One repair of the registry."""

    client: DynamoDBClient
    table_name: str
    tombstones: DynamoTombstones
    repaired: list[str] = field(default_factory=list)
    hopeless: list[str] = field(default_factory=list)
    unread: bool = False
    """Whether neither some entry nor its copy can be read: then its name is unknown."""

    def repair(self, items: Iterable[Item], which: str) -> list[str]:
        """Mend what of these items is damaged, of the table of this name or id, if one is given.

        Raises:
            CorruptDataError: some cannot be repaired; all else was.
        """
        there = {item["pk"]["S"]: item for item in items}
        entries = {pk.removeprefix(COPY) for pk in there if not pk.startswith(NAME)}
        tables: dict[str, tuple[Table, Item]] = {}
        for pk in sorted(entries):
            whole = self._whole_entry(pk, there, which)
            if whole is not None and pk.startswith(ID):
                table = table_of(whole, {})
                tables[table.name] = table, whole
        names = {pk.removeprefix(NAME) for pk in there if pk.startswith(NAME)}
        for name in sorted({*tables, *names}):
            found = tables.get(name)
            if which in ("", name, found[0].id if found else name):
                self._mend_name(name, found, there.get(NAME + name, {}))
        if not which:
            repaired, hopeless = self.tombstones.repair()
            self.repaired += repaired
            self.hopeless += hopeless
        if self.hopeless:
            raise CorruptDataError(
                f"of {', '.join(self.hopeless)} the copy is damaged or missing too",
                hint="restore these items, of the table of tables in DynamoDB or of that of logs, "
                "from a point-in-time backup",
            )
        return self.repaired

    def _whole_entry(self, pk: str, there: Mapping[str, Item], which: str) -> Item | None:
        """Return an entry as it should be, and put it, or its copy, where it is damaged."""
        item, copy = there.get(pk, {}), there.get(COPY + pk, {})
        good_item, good_copy = _is_whole(item), _is_whole(copy)
        if good_item and good_copy:
            return item
        entry = item if good_item else original_of(copy) if good_copy else None
        self.unread |= entry is None
        table = table_of(entry, {}) if entry is not None and pk.startswith(ID) else None
        if which and which not in ((table.id, table.name) if table else (pk.removeprefix(ID),)):
            return entry
        if entry is None:
            self.hopeless.append(repr(pk))
        elif good_item:
            self._swap(
                f"the copy of {_described(pk, table)}", copy_of(item), copy, self._is(pk, item)
            )
        else:
            checks = [self._is(COPY + pk, copy)]
            if table is not None and not table.deleting:
                checks.append(self.tombstones.none_of(table.id))
            self._swap(_described(pk, table), entry, item, *checks)
        return entry

    def _mend_name(self, name: str, found: tuple[Table, Item] | None, item: Item) -> None:
        """Let a name lead to the table that has it, or nowhere."""
        try:
            leads_to = id_named(item) if item else ""
        except CorruptDataError:
            leads_to = ""
        if found is not None:
            table, entry = found
            if leads_to != table.id:
                there = self._is(ID + table.id, entry)
                self._swap(f"the name {name!r}", name_item(name, table.id), item, there)
        elif item and not leads_to and self.unread:
            self.hopeless.append(repr(NAME + name))
        elif item and not leads_to:
            free: TransactWriteItemTypeDef = {
                "Delete": {
                    "TableName": self.table_name,
                    "Key": key(NAME + name),
                    **unchanged(item),
                }
            }
            self._transact(f"the name {name!r}, which no table has", free)

    def _swap(self, what: str, new: Item, seen: Item, *checks: TransactWriteItemTypeDef) -> None:
        put: TransactWriteItemTypeDef = {
            "Put": {"TableName": self.table_name, "Item": new, **unchanged(seen)}
        }
        self._transact(what, put, *checks)

    def _is(self, pk: str, item: Item) -> TransactWriteItemTypeDef:
        check: TransactWriteItemTypeDef = {
            "ConditionCheck": {"TableName": self.table_name, "Key": key(pk), **unchanged(item)}
        }
        return check

    def _transact(self, what: str, *items: TransactWriteItemTypeDef) -> None:
        with suppress(ConditionFailedError):  # others changed it just now, which mends it too
            with writing("DynamoDB"):
                self.client.transact_write_items(TransactItems=items)
            self.repaired.append(what)


def _is_whole(item: Item) -> bool:
    if not item:
        return False
    pk = item["pk"]["S"].removeprefix(COPY)
    try:
        if pk.startswith(ID):
            table_of(item, {})
        else:
            rules_of(item) if pk == ACCESS else settings_of(item)
    except CorruptDataError:
        return False
    return True


def _described(pk: str, table: Table | None) -> str:
    if table is not None:
        return f"the entry of table {table.name!r}"
    return _OF_INSTANCE.get(pk, f"the item {pk!r}")
