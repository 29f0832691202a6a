"""Pages as items of one DynamoDB table, shared by all tables of an instance.

Each method is one request whose condition decides it. Items, with hash key `t` and range key `g`:

- head: ``<table>#H``, -1: last_page, first_page, mark, revision, manifest, closed;
- page: ``<table>#0#<page // 64>``, page: ids, a list of at most 48 times 16 bytes; mark. The zero
  is the log's epoch. 64 pages share a hash key, so that heat moves on as the log grows.

Beside them are the pins (`pins`).

Both have checksums (`log_items`). What a failed request means is decided in
`aws.base.failures`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dormouse import system
from dormouse.aws.base.failures import ConditionFailedError, read_pages, reading, writing
from dormouse.aws.dynamodb.batch_deletes import delete_items
from dormouse.aws.dynamodb.items import DynamoItems
from dormouse.aws.dynamodb.state.log_items import (
    FORMER,
    binary,
    head_item,
    head_key,
    head_of,
    id_sum,
    manifest_part,
    page_key,
    page_of,
    pages_named,
    pages_prefix,
    part,
)
from dormouse.items.pins import ItemPins
from dormouse.retry_policy import RetryPolicy
from dormouse.statestore.log.pages import PAGE_CAPACITY, Head, Manifest, Page

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

    from dormouse.aws.dynamodb.stored_items import Item

_MANIFEST_IS_NEXT = "revision = :before AND attribute_not_exists(closed)"


class DynamoPages:
    """`Pages` over the low-level client; safe for many threads, as the client is."""

    def __init__(
        self, client: DynamoDBClient, table_name: str, retry_policy: RetryPolicy | None = None
    ) -> None:
        """Use the DynamoDB table `table_name`, which must exist.

        `retry_policy` is for pages that a request left undeleted.
        """
        self._client, self._table_name = client, table_name
        self._retry_policy = retry_policy or system.retry_policy()
        self.pins = ItemPins(DynamoItems(client, {"state": table_name}, self._retry_policy))

    def head(self, table_id: str) -> Head | None:
        """Return the head; None if the table has no log yet."""
        item = self._get(head_key(table_id))
        return head_of(item) if item else None

    def page(self, table_id: str, number: int) -> Page | None:
        """Return a page; None if there is none."""
        item = self._get(page_key(table_id, number))
        return page_of(number, item) if item else None

    def append(
        self, table_id: str, number: int, delta_id: str, position: int | None = None
    ) -> Page | None:
        """Append an id to a page with room that does not hold it; return the page as it then is."""
        new_id, key = bytes.fromhex(delta_id), page_key(table_id, number)
        room = "size(ids) < :limit" if position is None else "size(ids) = :limit"
        limit = PAGE_CAPACITY if position is None else position
        try:
            with writing("DynamoDB"):
                answer = self._client.update_item(
                    TableName=self._table_name,
                    Key=key,
                    UpdateExpression="SET ids = list_append(ids, :ids), id_sum = id_sum + :sum",
                    ConditionExpression=(
                        "attribute_type(ids, :list) AND attribute_type(id_sum, :number)"
                        f" AND NOT contains(ids, :id) AND #mark <= :id AND {room}"
                    ),
                    ExpressionAttributeNames={"#mark": "mark"},
                    ExpressionAttributeValues={
                        ":ids": {"L": [{"B": new_id}]},
                        ":id": {"B": new_id},
                        ":sum": {"N": str(id_sum(key, new_id))},
                        ":list": {"S": "L"},
                        ":number": {"S": "N"},
                        ":limit": {"N": str(limit)},
                    },
                    ReturnValues="ALL_NEW",
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
        except ConditionFailedError as failed:
            return page_of(number, failed.item) if failed.item else None
        return page_of(number, answer["Attributes"])

    def open_page(self, table_id: str, number: int, low_water_mark: str) -> bool:
        """Make page `number` if the log is open and ends with the page before and this mark."""
        key = page_key(table_id, number)
        empty: Item = {"ids": {"L": []}, "id_sum": {"N": "0"}}
        page: TransactWriteItemTypeDef = {
            "Put": {
                "TableName": self._table_name,
                "Item": {**key, **empty, **part(key, "mark", binary(low_water_mark))},
                "ConditionExpression": "attribute_not_exists(t)",
            }
        }
        return self._transact([self._head_moved_to(table_id, number, low_water_mark), page])

    def set_manifest(self, table_id: str, manifest: Manifest) -> bool:
        """Change the manifest; False, and nothing done, unless its revision is the next one."""
        key = head_key(table_id)
        change = _Change(manifest_part(key, manifest), FORMER)
        try:
            with writing("DynamoDB"):
                self._client.update_item(
                    TableName=self._table_name,
                    Key=key,
                    UpdateExpression=change.expression,
                    ConditionExpression=_MANIFEST_IS_NEXT,
                    ExpressionAttributeNames=change.names,
                    ExpressionAttributeValues={**change.values, **_before(manifest)},
                )
        except ConditionFailedError:
            return False
        return True

    def raise_low_water_mark(self, table_id: str, head: Head) -> bool:
        """Change manifest, first page and the low-water mark, which the last page has too."""
        key, last = head_key(table_id), page_key(table_id, head.last_page)
        mark = binary(head.low_water_mark)
        first = part(key, "first_page", {"N": str(head.first_page)})
        parts = {**manifest_part(key, head.manifest), **part(key, "mark", mark), **first}
        change = _Change(parts, FORMER)
        of_head: TransactWriteItemTypeDef = {
            "Update": {
                "TableName": self._table_name,
                "Key": key,
                "UpdateExpression": change.expression,
                "ConditionExpression": f"{_MANIFEST_IS_NEXT} AND last_page = :last",
                "ExpressionAttributeNames": change.names,
                "ExpressionAttributeValues": {
                    **change.values,
                    **_before(head.manifest),
                    ":last": {"N": str(head.last_page)},
                },
            }
        }
        raised = _Change(part(last, "mark", mark))
        of_page: TransactWriteItemTypeDef = {
            "Update": {
                "TableName": self._table_name,
                "Key": last,
                "UpdateExpression": raised.expression,
                "ConditionExpression": "attribute_exists(ids)",
                "ExpressionAttributeNames": raised.names,
                "ExpressionAttributeValues": raised.values,
            }
        }
        return self._transact([of_head, of_page])

    def close(self, table_id: str) -> Head:
        """Close the log for good, whether or not there was one; return its head.

        An append asks for nothing but a page with room. So where a damaged head does not say which
        pages there are, they are looked for in the whole table.
        """
        key = head_key(table_id)
        gone = ("revision", "manifest", "manifest_sum", "mark", "mark_sum", *FORMER)
        change = _Change({"closed": {"BOOL": True}}, gone)
        try:
            with writing("DynamoDB"):
                answer = self._client.update_item(
                    TableName=self._table_name,
                    Key=key,
                    UpdateExpression=change.expression,
                    ConditionExpression="attribute_exists(t)",
                    ExpressionAttributeNames=change.names,
                    ExpressionAttributeValues=change.values,
                    ReturnValues="ALL_NEW",
                )
        except ConditionFailedError:
            return self._close_unbegun(table_id)
        first, last = pages_named(answer["Attributes"]) or self._pages_there(table_id)
        return Head(last, first_page=first, closed=True)

    def _close_unbegun(self, table_id: str) -> Head:
        key = head_key(table_id)
        none = part(key, "last_page", {"N": "-1"})
        try:
            with writing("DynamoDB"):
                self._client.put_item(
                    TableName=self._table_name,
                    Item={**key, **none, "closed": {"BOOL": True}},
                    ConditionExpression="attribute_not_exists(t)",
                )
        except ConditionFailedError:
            return self.close(table_id)  # it was begun just now
        return Head(-1, closed=True)

    def delete_pages(self, table_id: str, first: int, end: int) -> None:
        """Delete the pages from `first` up to, but not with, `end`."""
        keys = [page_key(table_id, number) for number in range(first, end)]
        delete_items(self._client, self._table_name, keys, self._retry_policy)

    def _pages_there(self, table_id: str) -> tuple[int, int]:
        """Return the first and the last page of a table's log that there is."""
        pages = self._client.get_paginator("scan").paginate(
            TableName=self._table_name,
            ConsistentRead=True,
            FilterExpression="begins_with(t, :pages)",
            ExpressionAttributeValues={":pages": {"S": pages_prefix(table_id)}},
        )
        found = (item for page in read_pages("DynamoDB", pages) for item in page["Items"])
        numbers = [int(item["g"]["S"]) for item in found]
        return min(numbers, default=0), max(numbers, default=-1)

    def _get(self, key: Item) -> Item:
        with reading("DynamoDB"):
            answer = self._client.get_item(TableName=self._table_name, Key=key, ConsistentRead=True)
        return answer.get("Item", {})

    def _transact(self, items: Sequence[TransactWriteItemTypeDef]) -> bool:
        try:
            with writing("DynamoDB"):
                self._client.transact_write_items(TransactItems=items)
        except ConditionFailedError:
            return False
        return True

    def _head_moved_to(self, table_id: str, number: int, mark: str) -> TransactWriteItemTypeDef:
        """Return the half of `open_page` that moves the head on, or makes it with page 0."""
        key = head_key(table_id)
        if number == 0:
            return {
                "Put": {
                    "TableName": self._table_name,
                    "Item": head_item(table_id, Head(0, Manifest(), mark)),
                    "ConditionExpression": "attribute_not_exists(t)",
                }
            }
        change = _Change(part(key, "last_page", {"N": str(number)}))
        return {
            "Update": {
                "TableName": self._table_name,
                "Key": key,
                "UpdateExpression": change.expression,
                "ConditionExpression": (
                    "last_page = :before AND attribute_not_exists(closed) AND #mark = :mark"
                ),
                "ExpressionAttributeNames": {**change.names, "#mark": "mark"},
                "ExpressionAttributeValues": {
                    **change.values,
                    ":before": {"N": str(number - 1)},
                    ":mark": binary(mark),
                },
            }
        }


class _Change:
    """What sets attributes in an update, and removes those that others replace; some of their
    names are words of DynamoDB's own.
    """

    def __init__(self, attributes: Item, removed: Sequence[str] = ()) -> None:
        """Set attributes, and remove others."""
        self.expression = "SET " + ", ".join(f"#{name} = :{name}" for name in attributes)
        if removed:
            self.expression += " REMOVE " + ", ".join(f"#{name}" for name in removed)
        self.names = {f"#{name}": name for name in (*attributes, *removed)}
        self.values = {f":{name}": value for name, value in attributes.items()}


def _before(manifest: Manifest) -> Item:
    return {":before": {"N": str(manifest.revision - 1)}}
