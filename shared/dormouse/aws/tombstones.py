"""Tombstones as items of the table that orders commits; used by `tables`, the registry.

They lie there, where closed logs lie for ever too, because the registry's own table is scanned each
minute and must not grow with every table that ever was. Two items, put in one transaction:

- ``<table>#T``, 0: the tombstone, found by the id alone;
- ``(tombstones)``, ``<deleted_ms> * 2**64 + <hash of the id>``: the same once more, in the order of
  time. A look at the newest costs as much as there are, and what is older rests without a cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING

from dormouse.aws.failures import reading
from dormouse.model.decoding import told_as_corrupt
from dormouse.model.tombstones import Tombstone

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef, TransactWriteItemTypeDef

    _Item = Mapping[str, AttributeValueTypeDef]

IN_ORDER = "(tombstones)"
_HASHES = 2**64


class DynamoTombstones:
    """The tombstones of an instance, over the low-level client."""

    def __init__(self, client: DynamoDBClient, table_name: str) -> None:
        """Use the DynamoDB table `table_name`, which must exist."""
        self._client, self._table_name = client, table_name

    def get(self, table_id: str) -> Tombstone | None:
        """Return the tombstone of an id by a consistent read; None if it has none."""
        with reading("DynamoDB"):
            answer = self._client.get_item(
                TableName=self._table_name, Key=_key(table_id), ConsistentRead=True
            )
        return _tombstone(answer["Item"]) if "Item" in answer else None

    def since(self, time_ms: int) -> Iterator[Tombstone]:
        """Return the tombstones from a time on, the oldest first, page by page."""
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table_name,
            ConsistentRead=True,
            KeyConditionExpression="t = :t AND g >= :g",
            ExpressionAttributeValues={
                ":t": {"S": IN_ORDER},
                ":g": {"N": str(max(0, time_ms) * _HASHES)},
            },
        )
        with reading("DynamoDB"):
            for page in pages:
                yield from map(_tombstone, page["Items"])

    def puts(self, tombstone: Tombstone) -> list[TransactWriteItemTypeDef]:
        """Return what puts a tombstone in a transaction, if its id has none."""
        values = _values(tombstone)
        return [
            {
                "Put": {
                    "TableName": self._table_name,
                    "Item": {**_key(tombstone.table_id), **values},
                    "ConditionExpression": "attribute_not_exists(t)",
                }
            },
            {"Put": {"TableName": self._table_name, "Item": {**_place(tombstone), **values}}},
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


def _key(table_id: str) -> _Item:
    return {"t": {"S": f"{table_id}#T"}, "g": {"N": "0"}}


def _place(tombstone: Tombstone) -> _Item:
    digest = blake2b(tombstone.table_id.encode(), digest_size=8).digest()
    number = tombstone.deleted_ms * _HASHES + int.from_bytes(digest, "big")
    return {"t": {"S": IN_ORDER}, "g": {"N": str(number)}}


def _values(tombstone: Tombstone) -> _Item:
    return {
        "id": {"S": tombstone.table_id},
        "name": {"S": tombstone.name},
        "deleted_ms": {"N": str(tombstone.deleted_ms)},
        "registered": {"BOOL": tombstone.was_registered},
        "state_store": {"S": tombstone.state_store},
        "logs": {"L": [{"S": log} for log in tombstone.logs]},
    }


def _tombstone(item: _Item) -> Tombstone:
    with told_as_corrupt(
        f"the tombstone {item['t'].get('S')!r}, {item['g'].get('N')} cannot be read",
        hint="restore the table of logs in DynamoDB to a point in time",
    ):
        return Tombstone(
            table_id=item["id"]["S"],
            name=item["name"]["S"],
            deleted_ms=int(item["deleted_ms"]["N"]),
            was_registered=item["registered"]["BOOL"],
            state_store=item["state_store"]["S"],
            logs=tuple(log["S"] for log in item["logs"]["L"]),
        )
