"""Pages as items of one DynamoDB table, shared by all tables of an instance.

Each method is one request whose condition decides it. Items, with hash key `t` and range key `g`:

- head: ``<table>#H``, -1: last_page, root_id, root_version, root_bytes, closed;
- page: ``<table>#0#<page // 64>``, page: ids, a list of at most 48 times 16 bytes. The zero is the
  log's epoch. 64 pages share a hash key, so that heat moves on as the log grows.

What a failed request means is decided in `aws.failures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dormouse.aws.failures import ConditionFailedError, reading, writing
from dormouse.errors import OutcomeUnknownError
from dormouse.statestore.pages import PAGE_CAPACITY, Head, Page, Root

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import (
        AttributeValueTypeDef,
        ConditionCheckTypeDef,
        TransactWriteItemTypeDef,
        WriteRequestOutputTypeDef,
        WriteRequestTypeDef,
    )

    _Item = Mapping[str, AttributeValueTypeDef]

_PAGES_PER_HASH_KEY = 64
_DELETES_PER_REQUEST = 25
_ROUNDS_OF_DELETES = 20


class DynamoPages:
    """`Pages` over the low-level client; safe for many threads, as the client is."""

    def __init__(self, client: DynamoDBClient, table_name: str) -> None:
        """Use the DynamoDB table `table_name`, which must exist."""
        self._client, self._table_name = client, table_name

    def head(self, table_id: str) -> Head | None:
        """Give the head; None if the table has no log yet."""
        item = self._get(_head_key(table_id))
        return _head(item) if item else None

    def page(self, table_id: str, number: int) -> Page | None:
        """Give a page; None if there is none."""
        item = self._get(_page_key(table_id, number))
        return _page(number, item) if item else None

    def append(self, table_id: str, number: int, delta_id: str) -> Page | None:
        """Append an id to a page with room that does not hold it; give the page as it then is."""
        new_id = bytes.fromhex(delta_id)
        try:
            with writing("DynamoDB"):
                answer = self._client.update_item(
                    TableName=self._table_name,
                    Key=_page_key(table_id, number),
                    UpdateExpression="SET ids = list_append(ids, :ids)",
                    ConditionExpression=(
                        "attribute_exists(ids) AND size(ids) < :full AND NOT contains(ids, :id)"
                    ),
                    ExpressionAttributeValues={
                        ":ids": {"L": [{"B": new_id}]},
                        ":id": {"B": new_id},
                        ":full": {"N": str(PAGE_CAPACITY)},
                    },
                    ReturnValues="ALL_NEW",
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
        except ConditionFailedError as failed:
            return _page(number, failed.item) if failed.item else None
        return _page(number, answer["Attributes"])

    def open_page(self, table_id: str, number: int) -> bool:
        """Make page `number` if the log ends with the page before and is not closed."""
        page: TransactWriteItemTypeDef = {
            "Put": {
                "TableName": self._table_name,
                "Item": {**_page_key(table_id, number), "ids": {"L": []}},
                "ConditionExpression": "attribute_not_exists(t)",
            }
        }
        items = [self._head_moved_to(table_id, number), page]
        try:
            with writing("DynamoDB"):
                self._client.transact_write_items(TransactItems=items)
        except ConditionFailedError:
            return False
        return True

    def set_root(self, table_id: str, root: Root) -> bool:
        """Make `root` the newest snapshot; False, and nothing done, unless it is newer."""
        try:
            with writing("DynamoDB"):
                self._client.update_item(
                    TableName=self._table_name,
                    Key=_head_key(table_id),
                    UpdateExpression=(
                        "SET root_id = :id, root_version = :version, root_bytes = :bytes"
                    ),
                    ConditionExpression=(
                        "attribute_exists(t) AND attribute_not_exists(closed)"
                        " AND (attribute_not_exists(root_version) OR root_version < :version)"
                    ),
                    ExpressionAttributeValues={
                        ":id": {"S": root.id},
                        ":version": {"N": str(root.version)},
                        ":bytes": {"N": str(root.size_bytes)},
                    },
                )
        except ConditionFailedError:
            return False
        return True

    def check_root(self, table_id: str, root: Root | None) -> ConditionCheckTypeDef:
        """Give a check, for a transaction, that `root` is the newest snapshot of an open log."""
        check: ConditionCheckTypeDef = {
            "TableName": self._table_name,
            "Key": _head_key(table_id),
            "ConditionExpression": "attribute_exists(t) AND attribute_not_exists(closed) AND ",
        }
        if root is None:
            check["ConditionExpression"] += "attribute_not_exists(root_id)"
        else:
            check["ConditionExpression"] += "root_id = :id"
            check["ExpressionAttributeValues"] = {":id": {"S": root.id}}
        return check

    def close(self, table_id: str) -> Head:
        """Close the log for good, whether or not there was one; give its head."""
        with writing("DynamoDB"):
            answer = self._client.update_item(
                TableName=self._table_name,
                Key=_head_key(table_id),
                UpdateExpression=(
                    "SET closed = :yes, last_page = if_not_exists(last_page, :none)"
                    " REMOVE root_id, root_version, root_bytes"
                ),
                ExpressionAttributeValues={":yes": {"BOOL": True}, ":none": {"N": "-1"}},
                ReturnValues="ALL_NEW",
            )
        return _head(answer["Attributes"])

    def delete_pages(self, table_id: str, last_page: int) -> None:
        """Delete the pages up to `last_page` of a closed log."""
        for first in range(0, last_page + 1, _DELETES_PER_REQUEST):
            numbers = range(first, min(first + _DELETES_PER_REQUEST, last_page + 1))
            self._delete([{"DeleteRequest": {"Key": _page_key(table_id, n)}} for n in numbers])

    def _get(self, key: _Item) -> _Item:
        with reading("DynamoDB"):
            answer = self._client.get_item(TableName=self._table_name, Key=key, ConsistentRead=True)
        return answer.get("Item", {})

    def _head_moved_to(self, table_id: str, number: int) -> TransactWriteItemTypeDef:
        """Give the half of `open_page` that moves the head on, or makes it with page 0."""
        if number == 0:
            return {
                "Put": {
                    "TableName": self._table_name,
                    "Item": {**_head_key(table_id), "last_page": {"N": "0"}},
                    "ConditionExpression": "attribute_not_exists(t)",
                }
            }
        return {
            "Update": {
                "TableName": self._table_name,
                "Key": _head_key(table_id),
                "UpdateExpression": "SET last_page = :number",
                "ConditionExpression": "last_page = :before AND attribute_not_exists(closed)",
                "ExpressionAttributeValues": {
                    ":number": {"N": str(number)},
                    ":before": {"N": str(number - 1)},
                },
            }
        }

    def _delete(self, deletes: Sequence[WriteRequestTypeDef]) -> None:
        requests: Sequence[WriteRequestTypeDef | WriteRequestOutputTypeDef] = deletes
        for _ in range(_ROUNDS_OF_DELETES):
            with writing("DynamoDB"):
                answer = self._client.batch_write_item(RequestItems={self._table_name: requests})
            requests = answer["UnprocessedItems"].get(self._table_name, [])
            if not requests:
                return
        raise OutcomeUnknownError(f"{len(requests)} pages of a destroyed log are not deleted yet")


def _head_key(table_id: str) -> _Item:
    return {"t": {"S": f"{table_id}#H"}, "g": {"N": "-1"}}


def _page_key(table_id: str, number: int) -> _Item:
    return {"t": {"S": f"{table_id}#0#{number // _PAGES_PER_HASH_KEY}"}, "g": {"N": str(number)}}


def _head(item: _Item) -> Head:
    root = None
    if "root_id" in item:
        version, size_bytes = int(item["root_version"]["N"]), int(item["root_bytes"]["N"])
        root = Root(item["root_id"]["S"], version, size_bytes)
    return Head(int(item["last_page"]["N"]), root, closed="closed" in item)


def _page(number: int, item: _Item) -> Page:
    return Page(number, tuple(delta_id["B"].hex() for delta_id in item["ids"]["L"]))
