"""Storage, pages and a DynamoDB in memory that count what they are asked, and what it would cost.

The benchmarks put them under the real store. Prices are those of us-east-1, on demand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from dormouse.aws.items import DynamoItems, attributes_of
from dormouse.items.pages import head_key, page_key
from dormouse.items.store import IDS, MARK, Item, Put
from dormouse.log.pages import PAGE_CAPACITY
from dormouse.ports import Storage, StoredObject
from dormouse.retry_policy import WITHOUT_PAUSES
from tests.support.hooked_pages import HookedPages
from tests.support.memory_storage import MemoryStorage

DOLLARS_PER_MILLION = {"wru": 0.625, "rru": 0.125, "put": 5.0, "get": 0.4, "list": 5.0}
"""A write unit of 1 KB and a read unit of 4 KB of DynamoDB; requests of S3. Deletes are free."""


@dataclass
class Requests:
    """What was asked so far: S3 requests and bytes by kind of object, units of DynamoDB."""

    counts: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)

    def clear(self) -> None:
        for counter in (self.counts, self.written, self.read):
            counter.clear()

    def dollars(self) -> float:
        return sum(self.counts[name] * at for name, at in DOLLARS_PER_MILLION.items()) / 1e6

    def dynamo_read(self, size_bytes: int) -> None:
        self.counts["dynamo_reads"] += 1
        self.counts["rru"] += -(-size_bytes // 4096)

    def dynamo_write(self, *sizes_bytes: int) -> None:
        """Count a write of an item, or of several in one transaction, which costs twice."""
        self.counts["dynamo_writes"] += 1
        units = sum(-(-size // 1024) for size in sizes_bytes)
        self.counts["wru"] += units if len(sizes_bytes) == 1 else 2 * units


class CountingStorage(MemoryStorage):
    """Another storage in memory, seen through a counter. Each store has one of its own."""

    def __init__(self, inner: Storage, requests: Requests) -> None:
        self._inner, self._requests = inner, requests

    def get(self, path: str) -> bytes:
        body = self._inner.get(path)
        self._requests.counts["get"] += 1
        self._requests.read[kind_of(path)] += len(body)
        return body

    def stream(self, path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
        self._requests.counts["get"] += 1
        self._requests.read[kind_of(path)] += end - start
        return self._inner.stream(path, size_bytes, start, end)

    def put(self, path: str, body: bytes) -> bool:
        self._requests.counts["put"] += 1
        self._requests.written[kind_of(path)] += len(body)
        return self._inner.put(path, body)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        found = list(self._inner.list(prefix))
        self._requests.counts["list"] += len(found) // 1000 + 1
        yield from found

    def delete(self, paths: Sequence[str]) -> None:
        self._inner.delete(paths)


def kind_of(path: str) -> str:
    """Return the folder of the state an object lies in: deltas, segments or snapshots."""
    return path.split("/state/")[-1].partition("/")[0]


class CountingPages(HookedPages):
    """Other pages, seen through a counter. Each store has one of its own.

    Dollars go by the sizes which the items have when they are asked for. A condition that fails
    costs as much as one that holds.
    """

    def __init__(self, inner: HookedPages, requests: Requests) -> None:
        super().__init__(before=self._count, items=inner._items)
        self._requests = requests

    def delete_pages(self, table_id: str, first: int, end: int) -> None:
        """Count a write for each page, sent 25 at a time."""
        super().delete_pages(table_id, first, end)
        self._requests.counts["dynamo_writes"] += -(-(end - first) // 25)
        self._requests.counts["wru"] += end - first

    def _count(self, operation: str) -> None:
        head = head_bytes_of(self)
        match operation:
            case "pins":
                self._requests.dynamo_read(_KEY_BYTES)  # a query that finds none
            case "head":
                self._requests.dynamo_read(head)
            case "page":
                self._requests.dynamo_read(PAGE_ITEM_BYTES)
            case "append":
                self._requests.dynamo_write(PAGE_ITEM_BYTES)
            case "set_manifest":
                self._requests.dynamo_write(head)
            case "open_page" | "raise_low_water_mark":
                self._requests.dynamo_write(head, PAGE_ITEM_BYTES)
            case "delete_pages":
                pass  # counted there
            case other:
                raise NotImplementedError(f"say what {other!r} costs, to count it")


def head_bytes_of(pages: HookedPages) -> int:
    """Return the size of the largest head as DynamoDB counts it."""
    found = pages._items.scan("state", "")
    heads = (_head_bytes(item) for item in found if item.key.owner.endswith("#H"))
    return max(heads, default=100)


@lru_cache(16)
def _head_bytes(head: Item) -> int:
    parts = {name: part.body for name, part in head.parts.items() if part.body is not None}
    return item_bytes(attributes_of(Put(head_key("0" * 32), parts)))


def item_bytes(item: Mapping[str, Any]) -> int:
    """Return the size of an item as DynamoDB counts it."""
    return sum(len(name) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: Mapping[str, Any]) -> int:
    ((kind, held),) = value.items()
    match kind:
        case "N":
            return (len(held) + 1) // 2 + 1
        case "L":
            return 3 + sum(1 + _value_bytes(each) for each in held)
    return len(held)


_FULL_PAGE = Put(page_key("0" * 32, 768), {IDS: bytes(range(16)) * PAGE_CAPACITY, MARK: b"0" * 16})
PAGE_ITEM_BYTES = item_bytes(attributes_of(_FULL_PAGE))
"""A full page as DynamoDB counts it."""
_KEY_BYTES = len("t") + len("0" * 32 + "#P") + len("g") + 1
Key = tuple[str, str, str]


class CountingDynamoDB:
    """The requests for blobs, on items that are shared; each store counts for itself."""

    def __init__(self, kept: dict[Key, Mapping[str, Any]], requests: Requests) -> None:
        self.kept, self._requests = kept, requests

    @property
    def store(self) -> DynamoItems:
        names: Any = {"deltas": "deltas", "snapshots": "snapshots"}
        return DynamoItems(cast(Any, self), names, WITHOUT_PAUSES)

    def put_item(self, *, TableName: str, Item: Mapping[str, Any], **_: Any) -> None:  # noqa: N803
        self._requests.dynamo_write(item_bytes(Item))
        self._requests.written[_kind_of(Item)] += len(Item["body"]["B"])
        self.kept[TableName, Item["k"]["S"], Item["i"]["S"]] = Item

    def batch_get_item(self, *, RequestItems: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N803
        ((table, asked),) = RequestItems.items()
        keys = [(table, key["k"]["S"], key["i"]["S"]) for key in asked["Keys"]]
        is_consistent = asked["ConsistentRead"]
        items = [self.kept.get(key) for key in keys]
        self._requests.counts["dynamo_reads"] += 1
        for item in items:
            units = read_units(item, is_consistent)
            self._requests.counts["rru"] += units  # type: ignore[assignment]  # halves, too
        found = [item for item in items if item is not None]
        for item in found:
            self._requests.read[_kind_of(item)] += len(item["body"]["B"])
        return {"Responses": {table: found}, "UnprocessedKeys": {}}

    def batch_write_item(self, *, RequestItems: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N803
        ((table, requests),) = RequestItems.items()
        self._requests.counts["dynamo_writes"] += 1
        for request in requests:
            key = request["DeleteRequest"]["Key"]
            item = self.kept.pop((table, key["k"]["S"], key["i"]["S"]), None)
            units = -(-item_bytes(item) // 1024) if item else 1
            self._requests.counts["wru"] += units
        return {"UnprocessedItems": {}}

    def get_paginator(self, _: str) -> CountingDynamoDB:
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
            ExpressionAttributeValues[f":{name}"]["S"] for name in ("owner", "least", "most")
        )
        found = sorted(
            i for t, k, i in self.kept if (t, k) == (TableName, hash_key) and low <= i <= high
        )
        passed = sum(item_bytes(self.kept[TableName, hash_key, i]) for i in found)
        self._requests.dynamo_read(max(1, passed))
        yield {"Items": [{"k": {"S": hash_key}, "i": {"S": i}} for i in found]}


def _kind_of(item: Mapping[str, Any]) -> str:
    return f"{item['k']['S'].split('#')[1]}s"


def read_units(item: Mapping[str, Any] | None, is_consistent: bool) -> float:
    """Return what a read of an item costs, or of a key that has none."""
    units = -(-item_bytes(item) // 4096) if item else 1
    return units if is_consistent else units / 2
