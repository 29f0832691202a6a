"""Pages as items of one DynamoDB table, shared by all tables of an instance.

Each method is one request whose condition decides it. Items, with hash key `t` and range key `g`:

- head: ``<table>#H``, -1: last_page, first_page, floor, revision, snapshots, segments,
  segments_after, closed;
- page: ``<table>#0#<page // 64>``, page: ids, a list of at most 48 times 16 bytes; floor. The zero
  is the log's epoch. 64 pages share a hash key, so that heat moves on as the log grows.

What a failed request means is decided in `aws.failures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from dormouse.aws.failures import ConditionFailedError, reading, writing
from dormouse.errors import OutcomeUnknownError
from dormouse.model.decoding import told_as_corrupt
from dormouse.statestore.pages import (
    LOWEST_FLOOR,
    PAGE_CAPACITY,
    Head,
    Page,
    Root,
    Segment,
    Snapshot,
)

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

_SET_ROOT = (
    "SET revision = :revision, #snapshots = :snapshots, #segments = :segments,"
    " segments_after = :after"
)
_ROOT_IS_NEXT = "revision = :before AND attribute_not_exists(closed)"
_ROOT_NAMES = {"#snapshots": "snapshots", "#segments": "segments"}
_ZERO: AttributeValueTypeDef = {"N": "0"}

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

    def append(
        self, table_id: str, number: int, delta_id: str, position: int | None = None
    ) -> Page | None:
        """Append an id to a page with room that does not hold it; give the page as it then is."""
        new_id = bytes.fromhex(delta_id)
        room = "size(ids) < :limit" if position is None else "size(ids) = :limit"
        limit = PAGE_CAPACITY if position is None else position
        try:
            with writing("DynamoDB"):
                answer = self._client.update_item(
                    TableName=self._table_name,
                    Key=_page_key(table_id, number),
                    UpdateExpression="SET ids = list_append(ids, :ids)",
                    ConditionExpression=(
                        "attribute_exists(ids) AND NOT contains(ids, :id)"
                        f" AND #floor <= :id AND {room}"
                    ),
                    ExpressionAttributeNames={"#floor": "floor"},
                    ExpressionAttributeValues={
                        ":ids": {"L": [{"B": new_id}]},
                        ":id": {"B": new_id},
                        ":limit": {"N": str(limit)},
                    },
                    ReturnValues="ALL_NEW",
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
        except ConditionFailedError as failed:
            return _page(number, failed.item) if failed.item else None
        return _page(number, answer["Attributes"])

    def open_page(self, table_id: str, number: int, floor: str) -> bool:
        """Make page `number` if the log ends with the page before, open, and with this floor."""
        page: TransactWriteItemTypeDef = {
            "Put": {
                "TableName": self._table_name,
                "Item": {**_page_key(table_id, number), "ids": {"L": []}, "floor": _binary(floor)},
                "ConditionExpression": "attribute_not_exists(t)",
            }
        }
        return self._transact([self._head_moved_to(table_id, number, floor), page])

    def set_root(self, table_id: str, root: Root) -> bool:
        """Change the root; False, and nothing done, unless its revision is the next one."""
        try:
            with writing("DynamoDB"):
                self._client.update_item(
                    TableName=self._table_name,
                    Key=_head_key(table_id),
                    UpdateExpression=_SET_ROOT,
                    ConditionExpression=_ROOT_IS_NEXT,
                    ExpressionAttributeNames=_ROOT_NAMES,
                    ExpressionAttributeValues=_root_values(root),
                )
        except ConditionFailedError:
            return False
        return True

    def raise_floor(self, table_id: str, head: Head) -> bool:
        """Change root, floor and first page, and the floor of the last page with them."""
        of_head: TransactWriteItemTypeDef = {
            "Update": {
                "TableName": self._table_name,
                "Key": _head_key(table_id),
                "UpdateExpression": f"{_SET_ROOT}, #floor = :floor, first_page = :first",
                "ConditionExpression": f"{_ROOT_IS_NEXT} AND last_page = :last",
                "ExpressionAttributeNames": {**_ROOT_NAMES, "#floor": "floor"},
                "ExpressionAttributeValues": {
                    **_root_values(head.root),
                    ":floor": _binary(head.floor),
                    ":first": {"N": str(head.first_page)},
                    ":last": {"N": str(head.last_page)},
                },
            }
        }
        of_page: TransactWriteItemTypeDef = {
            "Update": {
                "TableName": self._table_name,
                "Key": _page_key(table_id, head.last_page),
                "UpdateExpression": "SET #floor = :floor",
                "ConditionExpression": "attribute_exists(ids)",
                "ExpressionAttributeNames": {"#floor": "floor"},
                "ExpressionAttributeValues": {":floor": _binary(head.floor)},
            }
        }
        return self._transact([of_head, of_page])

    def check_revision(self, table_id: str, revision: int) -> ConditionCheckTypeDef:
        """Give a check, for a transaction, that the root of an open log has this revision."""
        return {
            "TableName": self._table_name,
            "Key": _head_key(table_id),
            "ConditionExpression": "revision = :revision AND attribute_not_exists(closed)",
            "ExpressionAttributeValues": {":revision": {"N": str(revision)}},
        }

    def close(self, table_id: str) -> Head:
        """Close the log for good, whether or not there was one; give its head."""
        with writing("DynamoDB"):
            answer = self._client.update_item(
                TableName=self._table_name,
                Key=_head_key(table_id),
                UpdateExpression=(
                    "SET closed = :yes, last_page = if_not_exists(last_page, :none)"
                    " REMOVE revision, #snapshots, #segments, #floor"
                ),
                ExpressionAttributeNames={
                    "#snapshots": "snapshots",
                    "#segments": "segments",
                    "#floor": "floor",
                },
                ExpressionAttributeValues={":yes": {"BOOL": True}, ":none": {"N": "-1"}},
                ReturnValues="ALL_NEW",
            )
        return _head(answer["Attributes"])

    def delete_pages(self, table_id: str, first: int, end: int) -> None:
        """Delete the pages from `first` up to, but not with, `end`."""
        for start in range(first, end, _DELETES_PER_REQUEST):
            numbers = range(start, min(start + _DELETES_PER_REQUEST, end))
            self._delete([{"DeleteRequest": {"Key": _page_key(table_id, n)}} for n in numbers])

    def _get(self, key: _Item) -> _Item:
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

    def _head_moved_to(self, table_id: str, number: int, floor: str) -> TransactWriteItemTypeDef:
        """Give the half of `open_page` that moves the head on, or makes it with page 0."""
        if number == 0:
            new = {**_head_key(table_id), "last_page": _ZERO, "first_page": _ZERO}
            new |= {"revision": _ZERO, "floor": _binary(floor)}
            return {
                "Put": {
                    "TableName": self._table_name,
                    "Item": new,
                    "ConditionExpression": "attribute_not_exists(t)",
                }
            }
        return {
            "Update": {
                "TableName": self._table_name,
                "Key": _head_key(table_id),
                "UpdateExpression": "SET last_page = :number",
                "ConditionExpression": (
                    "last_page = :before AND attribute_not_exists(closed) AND #floor = :floor"
                ),
                "ExpressionAttributeNames": {"#floor": "floor"},
                "ExpressionAttributeValues": {
                    ":number": {"N": str(number)},
                    ":before": {"N": str(number - 1)},
                    ":floor": _binary(floor),
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


def _binary(delta_id: str) -> AttributeValueTypeDef:
    return {"B": bytes.fromhex(delta_id)}


def _head(item: _Item) -> Head:
    closed = "closed" in item
    with _read(item):
        return Head(
            last_page=int(item["last_page"]["N"]),
            root=Root() if closed else _root(item),
            floor=item["floor"]["B"].hex() if "floor" in item else LOWEST_FLOOR,
            first_page=int(item["first_page"]["N"]) if "first_page" in item else 0,
            closed=closed,
        )


def _page(number: int, item: _Item) -> Page:
    with _read(item):
        ids = tuple(delta_id["B"].hex() for delta_id in item["ids"]["L"])
        return Page(number, ids, item["floor"]["B"].hex())


def _read(item: _Item) -> AbstractContextManager[None]:
    return told_as_corrupt(
        f"the item {item.get('t')}, {item.get('g')} of a table's log cannot be read",
        hint="restore the table of logs in DynamoDB to a point in time",
    )


def _root_values(root: Root) -> _Item:
    """Give the values of `_SET_ROOT` and `_ROOT_IS_NEXT`.

    The names in the maps are single letters, and a segment begins where the one before ends, so
    that the head stays below 1 KB.
    """
    snapshots: list[AttributeValueTypeDef] = [
        {
            "M": {
                "i": {"S": snapshot.id},
                "v": {"N": str(snapshot.version)},
                "t": {"N": str(snapshot.time_ms)},
                "b": {"N": str(snapshot.size_bytes)},
            }
        }
        for snapshot in root.snapshots
    ]
    segments: list[AttributeValueTypeDef] = [
        {
            "M": {
                "i": _binary(segment.id),
                "v": {"N": str(segment.version)},
                "b": {"N": str(segment.size_bytes)},
            }
        }
        for segment in root.segments
    ]
    after = root.segments[0].after if root.segments else 0
    return {
        ":revision": {"N": str(root.revision)},
        ":before": {"N": str(root.revision - 1)},
        ":snapshots": {"L": snapshots},
        ":segments": {"L": segments},
        ":after": {"N": str(after)},
    }


def _root(item: _Item) -> Root:
    snapshots = tuple(
        Snapshot(m["i"]["S"], int(m["v"]["N"]), int(m["t"]["N"]), int(m["b"]["N"]))
        for m in (each["M"] for each in item.get("snapshots", {"L": []})["L"])
    )
    segments: list[Segment] = []
    after = int(item["segments_after"]["N"]) if "segments_after" in item else 0
    for m in (each["M"] for each in item.get("segments", {"L": []})["L"]):
        version = int(m["v"]["N"])
        segments.append(Segment(m["i"]["B"].hex(), after, version, int(m["b"]["N"])))
        after = version
    return Root(int(item["revision"]["N"]), snapshots, tuple(segments))
