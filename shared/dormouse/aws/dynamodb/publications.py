"""The records of publications as items of the DynamoDB table that orders commits:
`Publications`.

Items, with hash key `t` and range key `g`: ``<table>#I``, 0; `publication` is the record as JSON.
They lie there and not in the registry, which is scanned each minute. Each item has a checksum
(`stored_items`), which also shows whether it is unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dormouse.aws.base.failures import ConditionFailedError, reading, writing
from dormouse.aws.dynamodb.stored_items import opened, sealed, unchanged
from dormouse.model.versions.publications import PublicationRecord
from dormouse.ports.publications import LOST_PUBLICATION
from dormouse.stored.decoding import decode_json

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

_KIND = "publication"


class DynamoPublications:
    """`Publications` over the low-level client; safe for many threads, as the client is."""

    def __init__(self, client: DynamoDBClient, table_name: str) -> None:
        """Use the DynamoDB table `table_name`, which must exist."""
        self._client, self._table_name = client, table_name

    def get(self, table_id: str) -> PublicationRecord | None:
        """Return the record of a table; None if there is none."""
        with reading("DynamoDB"):
            answer = self._client.get_item(
                TableName=self._table_name, Key=_key(table_id), ConsistentRead=True
            )
        if not (item := answer.get("Item")):
            return None
        problem = f"the record of what is published of table {table_id} is damaged"
        with opened(_KIND, item, problem, hint=LOST_PUBLICATION):
            return decode_json(item["publication"]["S"], PublicationRecord)

    def replace(self, table_id: str, old: PublicationRecord | None, new: PublicationRecord) -> bool:
        """Put a record in the place of another, or of none; False if that is not there."""
        try:
            with writing("DynamoDB"):
                if old is None:
                    self._client.put_item(
                        TableName=self._table_name,
                        Item=_item(table_id, new),
                        ConditionExpression="attribute_not_exists(t)",
                    )
                else:
                    self._client.put_item(
                        TableName=self._table_name,
                        Item=_item(table_id, new),
                        **unchanged(_item(table_id, old)),
                    )
        except ConditionFailedError:
            return False
        return True

    def delete(self, table_id: str) -> None:
        """Delete the record of a table, damaged or not; none is no error."""
        with writing("DynamoDB"):
            self._client.delete_item(TableName=self._table_name, Key=_key(table_id))


def _key(table_id: str) -> dict[str, AttributeValueTypeDef]:
    return {"t": {"S": f"{table_id}#I"}, "g": {"N": "0"}}


def _item(table_id: str, record: PublicationRecord) -> dict[str, AttributeValueTypeDef]:
    body = msgspec.json.encode(record).decode()
    return sealed(_KIND, {**_key(table_id), "publication": {"S": body}})
