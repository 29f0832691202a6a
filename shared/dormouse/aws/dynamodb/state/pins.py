"""Pins as items of the DynamoDB table that has the log's pages.

Items, with hash key `t` and range key `g`: ``<table>#P``, a number made from the owner's key; `pin`
is the pin as JSON. So an owner has one item, and one query finds the pins of a table. Each item has
a checksum (`stored_items`), which also shows whether it is unchanged.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from dormouse.aws.base.failures import ConditionFailedError, read_pages, writing
from dormouse.aws.dynamodb.batch_deletes import delete_items
from dormouse.aws.dynamodb.stored_items import opened, sealed, unchanged
from dormouse.errors import CorruptDataError
from dormouse.model.versions.pins import Pin, PinOwner
from dormouse.retry_policy import RetryPolicy
from dormouse.statestore.log.pins import damaged_pin
from dormouse.stored.decoding import decode_json

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

    from dormouse.aws.dynamodb.stored_items import Item

_KIND = "pin"


class DynamoPins:
    """`Pins` over the low-level client; safe for many threads, as the client is."""

    def __init__(self, client: DynamoDBClient, table_name: str, retry_policy: RetryPolicy) -> None:
        """Use the DynamoDB table `table_name`; `retry_policy` is for items left undeleted."""
        self._client, self._table_name = client, table_name
        self._retry_policy = retry_policy

    def all(self, table_id: str) -> list[Pin]:
        """Return all pins of a table, by owner."""
        pins = [_pin(table_id, item) for item in self._items(table_id)]
        return sorted(pins, key=lambda pin: pin.owner.key)

    def put(self, table_id: str, pin: Pin) -> Pin:
        """Put a pin unless its owner has one; return the one that the owner then has."""
        try:
            with writing("DynamoDB"):
                self._client.put_item(
                    TableName=self._table_name,
                    Item=_item(table_id, pin),
                    ConditionExpression="attribute_not_exists(t)",
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
        except ConditionFailedError as failed:
            return _pin(table_id, failed.item or {})
        return pin

    def replace(self, table_id: str, old: Pin, new: Pin) -> bool:
        """Put a pin in the place of one of the same owner; False unless that is there unchanged."""
        try:
            with writing("DynamoDB"):
                self._client.put_item(
                    TableName=self._table_name,
                    Item=_item(table_id, new),
                    **unchanged(_item(table_id, old)),
                )
        except ConditionFailedError:
            return False
        return True

    def delete(self, table_id: str, owner: PinOwner, *, only: Pin | None = None) -> bool:
        """Delete the pin of an owner, or `only` this one; return whether there was one."""
        key = _key(table_id, owner)
        try:
            with writing("DynamoDB"):
                if only is None:
                    answer = self._client.delete_item(
                        TableName=self._table_name, Key=key, ReturnValues="ALL_OLD"
                    )
                    return bool(answer.get("Attributes"))
                unchanged_only = unchanged(_item(table_id, only))
                self._client.delete_item(TableName=self._table_name, Key=key, **unchanged_only)
        except ConditionFailedError:
            return False
        return True

    def clear(self, table_id: str) -> None:
        """Delete all pins of a table."""
        keys = [{"t": item["t"], "g": item["g"]} for item in self._items(table_id)]
        delete_items(self._client, self._table_name, keys, self._retry_policy)

    def _items(self, table_id: str) -> list[Item]:
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table_name,
            ConsistentRead=True,
            KeyConditionExpression="t = :pins",
            ExpressionAttributeValues={":pins": {"S": _hash_key(table_id)}},
        )
        return [item for page in read_pages("DynamoDB", pages) for item in page["Items"]]


def _hash_key(table_id: str) -> str:
    return f"{table_id}#P"


def _key(table_id: str, owner: PinOwner) -> dict[str, AttributeValueTypeDef]:
    digest = blake2b(owner.key.encode(), digest_size=12).digest()
    return {"t": {"S": _hash_key(table_id)}, "g": {"N": str(int.from_bytes(digest, "big"))}}


def _item(table_id: str, pin: Pin) -> dict[str, AttributeValueTypeDef]:
    body = msgspec.json.encode(pin).decode()
    return sealed(_KIND, {**_key(table_id, pin.owner), "pin": {"S": body}})


def _pin(table_id: str, item: Item) -> Pin:
    try:
        with opened(_KIND, item, "a pin is damaged", hint=""):
            return decode_json(item["pin"]["S"], Pin)
    except CorruptDataError as error:
        raise damaged_pin(f"at {item.get('g')}", table_id) from error
