"""A DynamoDB in memory that counts the units which blobs of a state take: `counting` has prices.

A delete costs what the deleted item is big, as DynamoDB counts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from bench.state.counting import Requests
from dormouse.aws.blobs import BlobTables

Key = tuple[str, str, str]


class CountingDynamoDB:
    """The requests of `DynamoBlobs`, on items that are shared; each store counts for itself."""

    def __init__(self, kept: dict[Key, Mapping[str, Any]], requests: Requests) -> None:
        """Count in `requests` what is asked of `kept`: items by table, hash key and range key."""
        self.kept, self._requests = kept, requests

    @property
    def tables(self) -> BlobTables:
        """What a store is made over."""
        return BlobTables(cast(Any, self), "deltas", "snapshots")

    def put_item(self, *, TableName: str, Item: Mapping[str, Any], **_: Any) -> None:  # noqa: N803
        """Put an item."""
        self._requests.dynamo_write(item_bytes(Item))
        self._requests.written[_kind_of(Item)] += len(Item["body"]["B"])
        self.kept[TableName, Item["k"]["S"], Item["i"]["S"]] = Item

    def batch_get_item(self, *, RequestItems: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N803
        """Return the items of some keys."""
        ((table, asked),) = RequestItems.items()
        keys = [(table, key["k"]["S"], key["i"]["S"]) for key in asked["Keys"]]
        is_consistent = asked["ConsistentRead"]
        items = [
            None if not is_consistent and self.lags(key) else self.kept.get(key) for key in keys
        ]
        self._requests.counts["dynamo_reads"] += 1
        for item in items:
            units = read_units(item, is_consistent)
            self._requests.counts["rru"] += units  # type: ignore[assignment]  # halves, too
        found = [item for item in items if item is not None]
        for item in found:
            self._requests.read[_kind_of(item)] += len(item["body"]["B"])
        return {"Responses": {table: found}, "UnprocessedKeys": {}}

    def lags(self, key: Key) -> bool:
        """Return whether an item is not there yet for a read that is not consistent."""
        return False

    def batch_write_item(self, *, RequestItems: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N803
        """Delete items."""
        ((table, requests),) = RequestItems.items()
        self._requests.counts["dynamo_writes"] += 1
        for request in requests:
            key = request["DeleteRequest"]["Key"]
            item = self.kept.pop((table, key["k"]["S"], key["i"]["S"]), None)
            units = -(-item_bytes(item) // 1024) if item else 1
            self._requests.counts["wru"] += units
            self._requests.counts["wru_of_deletes"] += units
        return {"UnprocessedItems": {}}

    def get_paginator(self, _: str) -> CountingDynamoDB:
        """Return what makes a query."""
        return self

    def paginate(
        self,
        *,
        TableName: str,  # noqa: N803
        ExpressionAttributeValues: Any,  # noqa: N803
        **_: Any,
    ) -> Iterator[dict[str, Any]]:
        """Return the keys between two; reads are counted by whole items."""
        hash_key, low, high = (
            ExpressionAttributeValues[f":{name}"]["S"] for name in ("k", "low", "high")
        )
        found = sorted(
            i for t, k, i in self.kept if (t, k) == (TableName, hash_key) and low <= i <= high
        )
        passed = sum(item_bytes(self.kept[TableName, hash_key, i]) for i in found)
        self._requests.dynamo_read(max(1, passed))
        yield {"Items": [{"k": {"S": hash_key}, "i": {"S": i}} for i in found]}


def _kind_of(item: Mapping[str, Any]) -> str:
    return item["k"]["S"].split("#")[1] + "s"


def read_units(item: Mapping[str, Any] | None, is_consistent: bool) -> float:
    """Return what a read of an item costs, or of a key that has none."""
    units = -(-item_bytes(item) // 4096) if item else 1
    return units if is_consistent else units / 2


def item_bytes(item: Mapping[str, Any]) -> int:
    """Return the size of an item as DynamoDB counts it; a number takes up to 21 bytes."""
    sizes = {"S": lambda text: len(text), "B": lambda data: len(data), "N": lambda digits: 21}
    return sum(
        len(name) + sizes[kind](value)
        for name, held in item.items()
        for kind, value in held.items()
    )
