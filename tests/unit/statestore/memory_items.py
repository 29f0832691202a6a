"""Items in memory, a few to a page and to a transaction, and a table kept in such."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from unittest.mock import patch

from dormouse.model.state import TableState
from dormouse.statestore import collection, dynamodb_records, dynamodb_snapshots, pages, reading
from dormouse.statestore.codec import decode_delta
from dormouse.statestore.dynamodb_snapshots import DynamoSnapshots
from dormouse.statestore.dynamodb_store import DynamoDBStateStore
from dormouse.statestore.items import Item, ItemKey, ItemTable, Values
from dormouse.statestore.memory_pages import MemoryPages
from dormouse.statestore.pages import Snapshot
from dormouse.statestore.reading import fold_delta
from tests.unit.statestore.faults import Hook, Rig

T = TypeVar("T")


def _nothing(call: str) -> None:
    """Stand where a test puts its hooks."""


@dataclass
class MemoryItems:
    """`Items` whose every request can be stopped before and after its effect."""

    pages: MemoryPages
    hook: Hook = _nothing
    per_page: int = 7
    per_transaction: int = 5

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self.kept: dict[ItemTable, dict[tuple[str, str], Values]] = {
            "references": {},
            "shards": {},
            "partitions": {},
        }
        self.ever_put: dict[str, Values] = {}

    def put(self, item: Item) -> None:
        with self._request("put_item"):
            self._keep(item)
            self.ever_put[item.key.range] = item.values

    def put_while(self, table_id: str, revision: int, items: Sequence[Item]) -> bool:
        for chunk in self._chunks(items):
            with self._request("put_while"), self.pages._lock:
                log = self.pages._logs.get(table_id)
                if log is None or log.head.closed or log.head.root.revision != revision:
                    return False
                for item in chunk:
                    self._keep(item)
        return True

    def query(
        self, table: ItemTable, hash_key: str, *, prefix: str = "", up_to: str | None = None
    ) -> Iterator[Item]:
        last = ""
        while True:
            with self._request("query"):
                keys = sorted(range_key for h, range_key in self.kept[table] if h == hash_key)
                rest = keys[bisect_right(keys, last) :]
                wanted = [k for k in rest if k.startswith(prefix) and (up_to is None or k <= up_to)]
                page = [
                    Item(ItemKey(table, hash_key, k), self.kept[table][hash_key, k])
                    for k in wanted[: self.per_page]
                ]
            yield from page
            if len(wanted) <= self.per_page:
                return
            last = page[-1].key.range

    def keys(self, table: ItemTable, hash_key: str, *, prefix: str = "") -> Iterator[ItemKey]:
        return (item.key for item in self.query(table, hash_key, prefix=prefix))

    def delete(self, keys: Sequence[ItemKey]) -> None:
        for chunk in self._chunks(keys):
            with self._request("delete_items"):
                for key in chunk:
                    self.kept[key.table].pop((key.hash, key.range), None)

    def count(self) -> int:
        """Count all items there are."""
        return sum(map(len, self.kept.values()))

    def _chunks(self, parts: Sequence[T]) -> list[Sequence[T]]:
        size = self.per_transaction
        return [parts[start : start + size] for start in range(0, len(parts), size)]

    def _keep(self, item: Item) -> None:
        self.kept[item.key.table][item.key.hash, item.key.range] = dict(item.values)

    @contextmanager
    def _request(self, name: str) -> Iterator[None]:
        self.hook(f"before {name}")
        with self._lock:
            yield
        self.hook(f"after {name}")


@dataclass
class ItemsRig(Rig):
    """A `Rig` whose table is kept in items."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.items = MemoryItems(self.pages, self._pass)

    def store(self, **changes: Any) -> DynamoDBStateStore:  # type: ignore[override]  # not on S3
        return DynamoDBStateStore(
            "t",
            self.items,
            self.pages,
            self.clock,
            self.ids,
            patience=self.patience,
            options=replace(self.options, **changes),
        )

    def replay(self, version: int | None = None) -> TableState:
        return self.states()[-1 if version is None else version]

    def states(self) -> list[TableState]:
        """Fold the whole log delta by delta, as it was stored once; give every version."""
        states = [TableState()]
        for delta_id in self.ids_in_log():
            body = self.items.ever_put[f"{delta_id}#0000"]["body"]
            assert isinstance(body, bytes)
            states.append(fold_delta(states[-1], decode_delta(body, delta_id))[0])
        return states

    def root(self) -> Snapshot:
        """The newest root, read past the hooks."""
        root = self.pages._logs["t"].head.root.newest
        assert root
        return root


@contextmanager
def small_pages(capacity: int) -> Iterator[None]:
    """Let everything be due early, and reads follow each other, so that short tests say all."""
    with (
        patch.object(pages, "PAGE_CAPACITY", capacity),
        patch.object(collection, "PAGES_PER_ROUND", 1),
        patch.object(reading, "_FETCHES_AT_ONCE", 1),
        patch.object(dynamodb_snapshots, "READS_AT_ONCE", 1),
        patch.object(dynamodb_records, "LANES", 1),
    ):
        yield


def versions(rig: ItemsRig) -> DynamoSnapshots:
    """The versions as a cold process sees them."""
    return DynamoSnapshots(rig.log(), rig.items)
