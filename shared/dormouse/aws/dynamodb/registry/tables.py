"""The registry of tables in DynamoDB: `ports.Tables`.

Items for each table, written and deleted together: ``name#<name>`` with the id, so that a name
belongs to one table; ``id#<id>`` with all the rest; and ``copy#id#<id>``, the same once more, from
which `table_repair` brings back what is damaged. The item ``instance``, and its copy, hold the
properties that tables have unless their own say otherwise; ``access``, and its copy, the access
rules. Reads are consistent.

What was deleted has a tombstone (`tombstones`). An id never has one and a table that is not in
deletion: each is put in a transaction that checks for the other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from dormouse.aws.base.failures import ConditionFailedError, read_pages, reading, writing
from dormouse.aws.dynamodb.registry.table_items import (
    ACCESS,
    COPY,
    ID,
    INSTANCE,
    NAME,
    access_item,
    copy_of,
    defaults_item,
    id_item,
    id_named,
    key,
    lost,
    name_item,
    revision_of,
    rules_of,
    settings_of,
    table_of,
)
from dormouse.aws.dynamodb.registry.table_repair import Repair
from dormouse.aws.dynamodb.registry.table_survey import Survey
from dormouse.aws.dynamodb.registry.tombstones import DynamoTombstones
from dormouse.aws.dynamodb.stored_items import unchanged
from dormouse.errors import (
    AlreadyExistsError,
    ContendedError,
    CorruptDataError,
    DamagedEntryError,
    NotFoundError,
)
from dormouse.tables.table import Table, can_be_name, with_applied_request
from dormouse.tables.tombstones import Tombstone

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

    from dormouse.access.rules import AccessRules
    from dormouse.aws.dynamodb.stored_items import Item

_Held = TypeVar("_Held")

ATTEMPTS = 8
"""How often a change starts over because another process changed the same table."""


class DynamoTables:
    """`Tables` over the low-level client; safe for many threads, as the client is."""

    def __init__(self, client: DynamoDBClient, table_name: str, state_table: str) -> None:
        """Use the DynamoDB tables `table_name` and, for tombstones, `state_table`; both exist."""
        self._client, self._table_name = client, table_name
        self._tombstones = DynamoTombstones(client, state_table)

    def get(self, table_id: str) -> Table | None:
        """Return a table by id; None if there is none (any more)."""
        item = self._get(ID + table_id)
        return table_of(item, self.defaults()) if item else None

    def named(self, name: str) -> Table | None:
        """Return a table by name; None if there is none."""
        item = self._get(NAME + name) if can_be_name(name) else None
        if not item:
            return None
        table_id = id_named(item)
        stored = self._get(ID + table_id)
        if stored:
            return table_of(stored, self.defaults(), name)
        if self._get(NAME + name) != item:
            return None  # deleted just now, the name with it
        raise lost(ID + table_id, name=name, table_id=table_id)

    def all(self) -> list[Table]:
        """Return all tables by name. Raises CorruptDataError if anything is damaged."""
        tables, damaged = self.list_readable()
        if damaged:
            raise damaged[0]
        return tables

    def list_readable(self) -> tuple[list[Table], list[DamagedEntryError]]:
        """Return all readable tables by name, and the damaged entries."""
        items = self._scan(ID, NAME)
        defaults, wrong = self._defaults()
        survey = Survey.of(items, defaults)
        # A table created or deleted during the listing may seem to lack an item: read it again.
        for name in survey.without_entry:
            survey.look(name, partial(self.named, name))
        for table in survey.without_name:
            survey.look(table.name, partial(self._found, table))
        return survey.tables, [*survey.damaged, *([wrong] if wrong else [])]

    def repair(self, which: str = "") -> list[str]:
        """Restore damaged items of one table, or of all; return a description of each.

        Raises:
            CorruptDataError: some cannot be brought back; all else was.
        """
        items = self._scan(ID, NAME, INSTANCE, ACCESS, COPY)
        return Repair(self._client, self._table_name, self._tombstones).repair(items, which)

    def create(self, table: Table) -> None:
        """Add a table; that it was added before, by the same id and name, is no error.

        Raises:
            AlreadyExistsError: the name is taken by another id, the id by another name, or the id
                has a tombstone.
        """
        self._begin_defaults()
        entry = id_item(table, revision=0)
        try:
            self._transact(
                self._new(name_item(table.name, table.id)),
                self._new(entry),
                self._new(copy_of(entry)),
                self._tombstones.none_of(table.id),
            )
        except ConditionFailedError as error:
            kept = self.get(table.id)
            if kept is None or kept.name != table.name:
                raise AlreadyExistsError(f"there is a table {table.name!r} already") from error

    def change(
        self, table_id: str, change: Callable[[Table], Table], *, request_id: str = ""
    ) -> Table:
        """Replace what is kept of a table by what `change` makes of the newest; return that.

        A change for a request whose change was made before is not made again.

        Raises:
            NotFoundError: there is no such table, or its deletion has begun, which nothing undoes.
            AlreadyExistsError: it is to have the name of another table.
            ContendedError: others kept changing the same table; nothing was changed.
        """
        for _ in range(ATTEMPTS):
            item = self._get(ID + table_id)
            kept = table_of(item, self.defaults()) if item else None
            if kept is None:
                raise NotFoundError(f"there is no table {table_id!r} any more")
            if request_id and request_id in kept.applied_requests:
                return kept
            wanted = with_applied_request(change(kept), request_id)
            if kept.deleting and not wanted.deleting:
                raise NotFoundError(f"table {kept.name!r} is being deleted")
            if wanted == kept or self._replace(kept, wanted, item):
                return wanted
        raise ContendedError(f"others keep changing table {table_id!r}; try again")

    def put_tombstone(self, tombstone: Tombstone) -> Tombstone | None:
        """Keep for ever that an id is no table's; return the tombstone it has, the first one put.

        Return None, with nothing done, if the id is registered and not in deletion.
        """
        self.get(tombstone.table_id)  # an entry that seems to be in deletion may be damaged
        no_table: TransactWriteItemTypeDef = {
            "ConditionCheck": {
                "TableName": self._table_name,
                "Key": key(ID + tombstone.table_id),
                "ConditionExpression": "attribute_not_exists(pk) OR deleting = :yes",
                "ExpressionAttributeValues": {":yes": {"BOOL": True}},
            }
        }
        try:
            self._transact(no_table, *self._tombstones.puts(tombstone))
        except ConditionFailedError:
            return self.tombstone(tombstone.table_id)
        return tombstone

    def tombstone(self, table_id: str) -> Tombstone | None:
        """Return the tombstone of an id; None if it has none."""
        return self._tombstones.get(table_id)

    def tombstones(self, since_ms: int) -> tuple[list[Tombstone], list[CorruptDataError]]:
        """Return the tombstones whose deletion began at a time or later, the oldest first.

        Besides, what is wrong with those that are damaged.
        """
        return self._tombstones.since(since_ms)

    def delete(self, table: Table) -> None:
        """Remove a table, under whatever name; none of that id is no error."""
        kept = self.get(table.id)
        try:
            self._transact(
                {"Delete": {"TableName": self._table_name, "Key": key(ID + table.id)}},
                {"Delete": {"TableName": self._table_name, "Key": key(COPY + ID + table.id)}},
                self._freed((kept or table).name, table.id),
            )
        except ConditionFailedError:
            return  # another table has the name, so this one was removed before

    def defaults(self) -> dict[str, int | str]:
        """Return the properties set for the instance, of their copy where they are damaged.

        Raises:
            CorruptDataError: both are damaged.
        """
        return self._defaults()[0]

    def change_defaults(
        self, change: Callable[[dict[str, int | str]], dict[str, int | str]]
    ) -> dict[str, int | str]:
        """Replace the properties set for the instance by what `change` makes of them; return that.

        Raises:
            ContendedError: others kept changing them; nothing was changed.
            CorruptDataError: what is set is damaged or lost; nothing was changed.
        """

        def read(item: Item) -> dict[str, int | str]:
            return settings_of(item) if item else {}

        return self._change(INSTANCE, read, lambda kept: change(dict(kept)), defaults_item)

    def access_rules(self) -> AccessRules:
        """Return the access rules of the instance; None if access is by instance.

        Raises:
            CorruptDataError: they are damaged or lost, so nobody may be let in.
        """
        return _rules_of(self._whole(ACCESS))

    def change_access_rules(self, change: Callable[[AccessRules], AccessRules]) -> AccessRules:
        """Replace the access rules by what `change` makes of them; return that.

        Raises:
            ContendedError: others kept changing them; nothing was changed.
            CorruptDataError: they are damaged or lost; nothing was changed.
        """
        return self._change(ACCESS, _rules_of, change, access_item)

    def _change(
        self,
        pk: str,
        read: Callable[[Item], _Held],
        change: Callable[[_Held], _Held],
        make: Callable[[_Held, int], Item],
    ) -> _Held:
        """Replace what an item of the instance, and its copy, hold; return what they hold then."""
        for _ in range(ATTEMPTS):
            item = self._whole(pk)
            kept = read(item)
            wanted = change(kept)
            if wanted == kept:
                return wanted
            entry = make(wanted, revision_of(item) + 1 if item else 1)
            try:
                self._transact(self._next(entry, item), self._put(copy_of(entry)))
            except ConditionFailedError:
                continue
            return wanted
        raise ContendedError("others keep changing the instance; try again")

    def _whole(self, pk: str) -> Item:
        """Return an item that has a copy; it is empty if it was never put.

        Raises:
            DamagedEntryError: only the copy is left: else it would be lost with the next change.
        """
        item = self._get(pk)
        if not item and self._get(COPY + pk):
            raise lost(pk)
        return item

    def _defaults(self) -> tuple[dict[str, int | str], DamagedEntryError | None]:
        """Return the instance's properties, and what is wrong if they are those of the copy.

        All tables go by them: if they could not be read, one item would stop the whole instance.
        """
        item = self._get(INSTANCE)
        try:
            if item:
                return settings_of(item), None
            wrong = lost(INSTANCE)
        except DamagedEntryError as error:
            wrong = error
        copy = self._get(COPY + INSTANCE)
        if copy:
            return settings_of(copy), wrong
        if item:
            raise wrong
        return {}, None  # no table was ever created

    def _begin_defaults(self) -> None:
        """Put the instance's properties, of which none is set, unless they were ever there.

        So that they are missing always means that they were lost.
        """
        if self._get(INSTANCE):
            return
        entry = defaults_item({}, revision=0)
        with suppress(ConditionFailedError):
            self._transact(self._new(entry), self._new(copy_of(entry)))

    def _found(self, table: Table) -> Table | None:
        """Return a table whose name leads nowhere, if it is still there.

        Raises:
            DamagedEntryError: so it is, and its name still leads nowhere.
        """
        newest = self.get(table.id)
        if newest is None:
            return None
        name = self._get(NAME + newest.name)
        if not name or id_named(name) != newest.id:
            raise lost(NAME + newest.name, name=newest.name, table_id=newest.id)
        return newest

    def _replace(self, kept: Table, wanted: Table, item: Item) -> bool:
        """Replace one table; False, and nothing done, if its item is another by now."""
        entry = id_item(wanted, revision_of(item) + 1)
        renaming: list[TransactWriteItemTypeDef] = []
        if wanted.name != kept.name:
            taken = self._get(NAME + wanted.name)
            if taken and id_named(taken) != kept.id:
                raise AlreadyExistsError(f"there is a table {wanted.name!r} already")
            new_name = self._new(name_item(wanted.name, wanted.id))
            renaming = [new_name, self._freed(kept.name, kept.id)]
        try:
            self._transact(self._next(entry, item), self._put(copy_of(entry)), *renaming)
        except ConditionFailedError:
            return False
        return True

    def _next(self, entry: Item, before: Item) -> TransactWriteItemTypeDef:
        """Return the put of an item if the one before it is still there."""
        return {"Put": {"TableName": self._table_name, "Item": entry, **unchanged(before)}}

    def _put(self, item: Item) -> TransactWriteItemTypeDef:
        return {"Put": {"TableName": self._table_name, "Item": item}}

    def _new(self, item: Item) -> TransactWriteItemTypeDef:
        return {
            "Put": {
                "TableName": self._table_name,
                "Item": item,
                "ConditionExpression": "attribute_not_exists(pk)",
            }
        }

    def _freed(self, name: str, table_id: str) -> TransactWriteItemTypeDef:
        return {
            "Delete": {
                "TableName": self._table_name,
                "Key": key(NAME + name),
                "ConditionExpression": "attribute_not_exists(pk) OR #id = :id",
                "ExpressionAttributeNames": {"#id": "id"},
                "ExpressionAttributeValues": {":id": {"S": table_id}},
            }
        }

    def _transact(self, *items: TransactWriteItemTypeDef) -> None:
        with writing("DynamoDB"):
            self._client.transact_write_items(TransactItems=items)

    def _scan(self, *prefixes: str) -> list[Item]:
        """Return all items whose key begins with one of these."""
        values = {f":p{number}": prefix for number, prefix in enumerate(prefixes)}
        pages = self._client.get_paginator("scan").paginate(
            TableName=self._table_name,
            ConsistentRead=True,
            FilterExpression=" OR ".join(f"begins_with(pk, {name})" for name in values),
            ExpressionAttributeValues={name: {"S": prefix} for name, prefix in values.items()},
        )
        return [item for page in read_pages("DynamoDB", pages) for item in page["Items"]]

    def _get(self, pk: str) -> Item:
        with reading("DynamoDB"):
            answer = self._client.get_item(
                TableName=self._table_name, Key=key(pk), ConsistentRead=True
            )
        return answer.get("Item", {})


def _rules_of(item: Item) -> AccessRules:
    return rules_of(item) if item else None
