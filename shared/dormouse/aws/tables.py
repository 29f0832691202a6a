"""The registry of tables in DynamoDB: `ports.Tables`.

Two items for each table, written and deleted together: ``name#<name>`` with the id, so that a name
belongs to one table, and ``id#<id>`` with all the rest. One item, ``instance``, holds the
properties that tables have unless their own say otherwise. Reads are consistent.

What was deleted has a tombstone (`tombstones`). An id never has one and a table that is not in
deletion: each is put in a transaction that checks for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from dormouse.aws.failures import ConditionFailedError, reading, writing
from dormouse.aws.table_items import (
    ID,
    INSTANCE,
    NAME,
    defaults_item,
    id_item,
    key,
    name_item,
    revision_of,
    settings_of,
    table_of,
)
from dormouse.aws.tombstones import DynamoTombstones
from dormouse.errors import AlreadyExistsError, ContendedError, CorruptDataError, NotFoundError
from dormouse.model.tables import Table, applied, can_be_name
from dormouse.model.tombstones import Tombstone

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef, TransactWriteItemTypeDef

    _Item = Mapping[str, AttributeValueTypeDef]

ATTEMPTS = 8
"""How often a change starts over because somebody else changed the same table."""


class DynamoTables:
    """`Tables` over the low-level client; safe for many threads, as the client is."""

    def __init__(self, client: DynamoDBClient, table_name: str, state_table: str) -> None:
        """Use the DynamoDB tables `table_name` and, for tombstones, `state_table`; both exist."""
        self._client, self._table_name = client, table_name
        self._tombstones = DynamoTombstones(client, state_table)

    def get(self, table_id: str) -> Table | None:
        """Give a table by id; None if there is none (any more)."""
        item = self._get(ID + table_id)
        return table_of(item, self.defaults()) if item else None

    def named(self, name: str) -> Table | None:
        """Give a table by name; None if there is none."""
        item = self._get(NAME + name) if can_be_name(name) else None
        return self.get(item["id"]["S"]) if item else None

    def all(self) -> list[Table]:
        """Give all tables by name. Raises CorruptDataError if one of them is damaged."""
        tables, damaged = self.survey()
        if damaged:
            raise damaged[0]
        return tables

    def survey(self) -> tuple[list[Table], list[CorruptDataError]]:
        """Give all tables that can be read, by name, and what is wrong with the others."""
        scan = self._client.get_paginator("scan").paginate(
            TableName=self._table_name,
            ConsistentRead=True,
            FilterExpression="begins_with(pk, :id)",
            ExpressionAttributeValues={":id": {"S": ID}},
        )
        with reading("DynamoDB"):
            items = [item for page in scan for item in page["Items"]]
        defaults = self.defaults()
        tables, damaged = [], []
        for item in items:
            try:
                tables.append(table_of(item, defaults))
            except CorruptDataError as error:
                damaged.append(error)
        return sorted(tables, key=lambda table: table.name), damaged

    def create(self, table: Table) -> None:
        """Add a table; that it was added before, by the same id and name, is no error.

        Raises:
            AlreadyExistsError: the name is taken by another id, the id by another name, or the id
                has a tombstone.
        """
        try:
            self._transact(
                self._new(name_item(table)),
                self._new(id_item(table, revision=0)),
                self._tombstones.none_of(table.id),
            )
        except ConditionFailedError as error:
            kept = self.get(table.id)
            if kept is None or kept.name != table.name:
                raise AlreadyExistsError(f"there is a table {table.name!r} already") from error

    def change(
        self, table_id: str, change: Callable[[Table], Table], *, request_id: str = ""
    ) -> Table:
        """Replace what is kept of a table by what `change` makes of the newest; give that.

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
            if request_id and request_id in kept.applied:
                return kept
            wanted = applied(change(kept), request_id)
            if kept.deleting and not wanted.deleting:
                raise NotFoundError(f"table {kept.name!r} is being deleted")
            if wanted == kept or self._replace(kept, wanted, revision_of(item)):
                return wanted
        raise ContendedError(f"others keep changing table {table_id!r}; try again")

    def bury(self, tombstone: Tombstone) -> Tombstone | None:
        """Keep for ever that an id is no table's; return the tombstone it has, the first one put.

        Return None, with nothing done, if the id is registered and not in deletion.
        """
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

    def tombstones(self, since_ms: int) -> Iterator[Tombstone]:
        """Return the tombstones whose deletion began at a time or later, the oldest first."""
        return self._tombstones.since(since_ms)

    def delete(self, table: Table) -> None:
        """Remove a table, under whatever name; none of that id is no error."""
        kept = self.get(table.id)
        try:
            self._transact(
                {"Delete": {"TableName": self._table_name, "Key": key(ID + table.id)}},
                self._freed((kept or table).name, table.id),
            )
        except ConditionFailedError:
            return  # another table has the name, so this one was removed before

    def defaults(self) -> dict[str, int | str]:
        """Give the properties set for the instance."""
        item = self._get(INSTANCE)
        return settings_of(item) if item else {}

    def change_defaults(
        self, change: Callable[[dict[str, int | str]], dict[str, int | str]]
    ) -> dict[str, int | str]:
        """Replace the properties set for the instance by what `change` makes of them; give that.

        Raises:
            ContendedError: others kept changing them; nothing was changed.
        """
        for _ in range(ATTEMPTS):
            item = self._get(INSTANCE)
            kept = settings_of(item) if item else {}
            wanted = change(dict(kept))
            if wanted == kept:
                return wanted
            revision = revision_of(item) if item else 0
            try:
                with writing("DynamoDB"):
                    self._client.put_item(
                        TableName=self._table_name,
                        Item=defaults_item(wanted, revision + 1),
                        ConditionExpression="attribute_not_exists(pk) OR revision = :revision",
                        ExpressionAttributeValues={":revision": {"N": str(revision)}},
                    )
            except ConditionFailedError:
                continue
            return wanted
        raise ContendedError("others keep changing the instance's properties; try again")

    def _replace(self, kept: Table, wanted: Table, revision: int) -> bool:
        """Replace one table; False, and nothing done, if it is not at `revision` any more."""
        new_item: TransactWriteItemTypeDef = {
            "Put": {
                "TableName": self._table_name,
                "Item": id_item(wanted, revision + 1),
                "ConditionExpression": "revision = :revision",
                "ExpressionAttributeValues": {":revision": {"N": str(revision)}},
            }
        }
        renaming: list[TransactWriteItemTypeDef] = []
        if wanted.name != kept.name:
            taken = self._get(NAME + wanted.name)
            if taken and taken["id"]["S"] != kept.id:
                raise AlreadyExistsError(f"there is a table {wanted.name!r} already")
            renaming = [self._new(name_item(wanted)), self._freed(kept.name, kept.id)]
        try:
            self._transact(new_item, *renaming)
        except ConditionFailedError:
            return False
        return True

    def _new(self, item: _Item) -> TransactWriteItemTypeDef:
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

    def _get(self, pk: str) -> _Item:
        with reading("DynamoDB"):
            answer = self._client.get_item(
                TableName=self._table_name, Key=key(pk), ConsistentRead=True
            )
        return answer.get("Item", {})
