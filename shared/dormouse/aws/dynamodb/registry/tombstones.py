"""Tombstones as items of the table that orders commits; used by `tables`, the registry.

They lie there, where closed logs lie for ever too, because the registry's own table is scanned each
minute and must not grow with every table that ever was. Two items, put in one transaction:

- ``<table>#T``, 0: the tombstone, found by the id alone;
- ``(tombstones)``, ``<deleted_ms> * 2**64 + <hash of the id>``: the same once more, in the order of
  time. A look at the newest costs as much as there are, and what is older rests without a cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING

from dormouse.aws.base.failures import ConditionFailedError, read_pages, reading, writing
from dormouse.aws.dynamodb.stored_items import opened, sealed, unchanged
from dormouse.errors import CorruptDataError
from dormouse.tables.tombstones import Tombstone

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

    from dormouse.aws.dynamodb.stored_items import Item

IN_ORDER = "(tombstones)"
_HASHES = 2**64
_KIND = "tombstone"


class DynamoTombstones:
    """The tombstones of an instance, over the low-level client."""

    def __init__(self, client: DynamoDBClient, table_name: str) -> None:
        """Use the DynamoDB table `table_name`, which must exist."""
        self._client, self._table_name = client, table_name

    def get(self, table_id: str) -> Tombstone | None:
        """Return the tombstone of an id by a consistent read; None if it has none."""
        item = self._get(_key(table_id))
        return _tombstone(item) if item else None

    def since(self, time_ms: int) -> tuple[list[Tombstone], list[CorruptDataError]]:
        """Return the tombstones from a time on, the oldest first, and what is wrong with others."""
        found, damaged = [], []
        for item in self._in_order(time_ms):
            try:
                found.append(_tombstone(item))
            except CorruptDataError as error:
                damaged.append(error)
        return found, damaged

    def repair(self) -> tuple[list[str], list[str]]:
        """Restore damaged items from their copies; return those restored, and those not."""
        repaired, unrepaired = [], []
        for item in self._in_order(0):
            tombstone, table_id = _whole(item), item.get("id", {}).get("S", "")
            other_key = _key(tombstone.table_id if tombstone else table_id)
            other = self._get(other_key) if tombstone or table_id else {}
            name = f"the tombstone of table {table_id!r}"
            if tombstone is not None:
                if _whole(other) is None:
                    self._swap(_sealed(other_key, tombstone), other)
                    repaired.append(name)
            elif (kept := _whole(other)) is not None and _same_key(_place(kept), item):
                self._swap(_sealed(_place(kept), kept), item)
                repaired.append(name)
            else:
                unrepaired.append(f"{item['t'].get('S')!r}, {item['g'].get('S')}")
        return repaired, unrepaired

    def _swap(self, new: Item, seen: Item) -> None:
        with suppress(ConditionFailedError), writing("DynamoDB"):  # another process repaired it
            self._client.put_item(TableName=self._table_name, Item=new, **unchanged(seen))

    def _in_order(self, time_ms: int) -> Iterator[Item]:
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table_name,
            ConsistentRead=True,
            KeyConditionExpression="t = :t AND g >= :g",
            ExpressionAttributeValues={
                ":t": {"S": IN_ORDER},
                ":g": {"S": f"{max(0, time_ms) * _HASHES:036d}"},
            },
        )
        for page in read_pages("DynamoDB", pages):
            yield from page["Items"]

    def _get(self, key: Item) -> Item:
        with reading("DynamoDB"):
            answer = self._client.get_item(TableName=self._table_name, Key=key, ConsistentRead=True)
        return answer.get("Item", {})

    def puts(self, tombstone: Tombstone) -> list[TransactWriteItemTypeDef]:
        """Return what puts a tombstone in a transaction, if its id has none."""
        found, in_order = (
            _sealed(place, tombstone) for place in (_key(tombstone.table_id), _place(tombstone))
        )
        return [
            {
                "Put": {
                    "TableName": self._table_name,
                    "Item": found,
                    "ConditionExpression": "attribute_not_exists(t)",
                }
            },
            {"Put": {"TableName": self._table_name, "Item": in_order}},
        ]

    def none_of(self, table_id: str) -> TransactWriteItemTypeDef:
        """Return a check, for a transaction, that an id has no tombstone."""
        return {
            "ConditionCheck": {
                "TableName": self._table_name,
                "Key": _key(table_id),
                "ConditionExpression": "attribute_not_exists(t)",
            }
        }


def _key(table_id: str) -> Item:
    return {"t": {"S": f"{table_id}#T"}, "g": {"S": "0"}}


def _place(tombstone: Tombstone) -> Item:
    digest = blake2b(tombstone.table_id.encode(), digest_size=8).digest()
    number = tombstone.deleted_ms * _HASHES + int.from_bytes(digest, "big")
    return {"t": {"S": IN_ORDER}, "g": {"S": f"{number:036d}"}}


def _same_key(place: Item, item: Item) -> bool:
    return all(item[name] == value for name, value in place.items())


def _sealed(place: Item, tombstone: Tombstone) -> Item:
    return sealed(
        _KIND,
        {
            **place,
            "id": {"S": tombstone.table_id},
            "name": {"S": tombstone.name},
            "deleted_ms": {"N": str(tombstone.deleted_ms)},
            "registered": {"BOOL": tombstone.was_registered},
            "state_store": {"S": tombstone.state_store},
            "logs": {"L": [{"S": log} for log in tombstone.logs]},
        },
    )


def _whole(item: Item) -> Tombstone | None:
    try:
        return _tombstone(item) if item else None
    except CorruptDataError:
        return None


def _tombstone(item: Item) -> Tombstone:
    problem = f"the tombstone {item['t'].get('S')!r}, {item['g'].get('S')} cannot be read"
    with opened(_KIND, item, problem, hint="`dormouse rebuild` brings it back from its copy"):
        return Tombstone(
            table_id=item["id"]["S"],
            name=item["name"]["S"],
            deleted_ms=int(item["deleted_ms"]["N"]),
            was_registered=item["registered"]["BOOL"],
            state_store=item["state_store"]["S"],
            logs=tuple(log["S"] for log in item["logs"]["L"]),
        )
