"""A DynamoDB in memory, for the blobs of a state: the few requests that `DynamoItems` makes.

It takes little at once, as a busy DynamoDB may: pages of queries are short, and batches are done
in part. `tests/contract/test_blobs.py` holds it to what moto does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from botocore.exceptions import ClientError

from dormouse.aws.items import DynamoItems
from dormouse.system import RetryPolicy
from tests.support.retries import WITHOUT_PAUSES

Hook = Callable[[str], None]
Key = tuple[str, str, str]
DELTAS, SNAPSHOTS = "deltas", "snapshots"
"""The names of its tables."""


def _no_hook(call: str) -> None:
    """Take the place of a hook."""


@dataclass
class MemoryDynamoDB:
    """A client whose every request can be stopped before and after its effect.

    `kept` maps table, hash key and range key to an item. A read that is not consistent does not
    know yet what was put last.
    """

    hook: Hook = _no_hook
    per_page: int = 7
    per_batch: int = 5
    kept: dict[Key, Mapping[str, Any]] = field(default_factory=dict)
    ever_put: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: Key | None = None

    def items(self, retry_policy: RetryPolicy = WITHOUT_PAUSES) -> DynamoItems:
        """What a store is made over."""
        names = {"deltas": DELTAS, "snapshots": SNAPSHOTS}
        return DynamoItems(cast(Any, self), cast(Any, names), retry_policy)

    def put_item(self, *, TableName: str, Item: Mapping[str, Any], **_: Any) -> None:
        """Put an item, unless one is there under its key."""
        with self._request("put_item"):
            key = TableName, Item["k"]["S"], Item["i"]["S"]
            if key in self.kept:
                raise _condition_failed()
            self.kept[key] = self.ever_put[Item["i"]["S"]] = dict(Item)
            self._newest = key

    def batch_get_item(self, *, RequestItems: Mapping[str, Any]) -> dict[str, Any]:
        """Return some of the items, and the keys of the others."""
        ((table, asked),) = RequestItems.items()
        keys = asked["Keys"]
        assert len(keys) <= 100, "DynamoDB takes no more in one request"
        with self._request("batch_get_item"):
            names = [(table, key["k"]["S"], key["i"]["S"]) for key in keys]
            late = self._newest if not asked["ConsistentRead"] else None
            found = [None if name == late else self.kept.get(name) for name in names]
        left = keys[self.per_batch :]
        return {
            "Responses": {table: [item for item in found[: self.per_batch] if item]},
            "UnprocessedKeys": {table: {"Keys": left}} if left else {},
        }

    def batch_write_item(self, *, RequestItems: Mapping[str, Any]) -> dict[str, Any]:
        """Delete some of the items, and return the others as left."""
        ((table, requests),) = RequestItems.items()
        assert len(requests) <= 25, "DynamoDB takes no more in one request"
        with self._request("batch_write_item"):
            for request in requests[: self.per_batch]:
                key = request["DeleteRequest"]["Key"]
                self.kept.pop((table, key["k"]["S"], key["i"]["S"]), None)
        left = requests[self.per_batch :]
        return {"UnprocessedItems": {table: left} if left else {}}

    def get_paginator(self, operation: str) -> MemoryDynamoDB:
        """Return what makes a query, page by page."""
        assert operation == "query"
        return self

    def paginate(
        self, *, TableName: str, ExpressionAttributeValues: Any, ConsistentRead: bool, **_: Any
    ) -> Iterator[dict[str, Any]]:
        """Yield the items of a hash key between two range keys, each page as it is when read."""
        assert ConsistentRead
        hash_key, low, high = (
            ExpressionAttributeValues[f":{n}"]["S"] for n in ("owner", "least", "most")
        )
        assert low <= high, "DynamoDB refuses such a range"
        last = ""
        while True:
            with self._request("query"):
                keys = sorted(
                    i
                    for t, k, i in self.kept
                    if (t, k) == (TableName, hash_key) and low <= i <= high
                )
                rest = [i for i in keys if i > last]
            page = rest[: self.per_page]
            yield {"Items": [{"k": {"S": hash_key}, "i": {"S": i}} for i in page]}
            if len(rest) <= self.per_page:
                return
            last = page[-1]

    def ids(self, kind: str) -> list[str]:
        """Return the ids of the blobs of a kind of which there is at least a part."""
        found = {i.partition("#")[0] for _, k, i in self.kept if k.split("#")[1] == kind}
        return sorted(found)

    @contextmanager
    def _request(self, name: str) -> Iterator[None]:
        self.hook(f"before {name}")
        with self._lock:
            yield
        self.hook(f"after {name}")


def _condition_failed() -> ClientError:
    error: Any = {"Error": {"Code": "ConditionalCheckFailedException"}}
    return ClientError({**error, "ResponseMetadata": {"HTTPStatusCode": 400}}, "PutItem")
