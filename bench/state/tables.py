"""Tables in memory that count what is asked of them, and what it would cost.

Storage, pages and a DynamoDB in memory are under the real store. Prices are those of us-east-1, on
demand. Counts are exact: nothing here takes time.

A table is at its worst for who loads it just before a snapshot is due, and before an increment,
with 47 deltas in the open page. The increments are those that maintenance would have kept, and the
last commits are made by the store itself. In between, transactions are folded without a log, which
takes a tenth of the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, cast

import msgspec

from bench.cost.prices import DOLLARS_PER_MILLION
from bench.figures import emit
from bench.measure import T
from bench.state.workload import KEYS, TABLE, Ids, Mix, clock, key
from dormouse.aws.items import DynamoItems, attributes_of
from dormouse.items.pages import ItemPages, head_key, page_key
from dormouse.items.store import IDS, MARK, Item, Part, Put
from dormouse.items.store import Key as ItemKey
from dormouse.keys import KeyRange
from dormouse.log.blobs import BlobRange, BlobStore
from dormouse.log.compaction import COMMITS_TO_INCREMENT, gc_paused, has_key_index
from dormouse.log.engine import StateStore
from dormouse.log.increments import changes_between, encode_increment, rebased
from dormouse.log.key_index import index_place
from dormouse.log.log import fold_delta
from dormouse.log.pages import (
    LOWEST_ID,
    MOST_INCREMENTS,
    PAGE_CAPACITY,
    Head,
    Increment,
    Manifest,
    Page,
    Segment,
    Snapshot,
    ends_at,
)
from dormouse.log.pinning import PartialReads
from dormouse.log.tail import key_indexes
from dormouse.ports import Storage, StoredObject
from dormouse.state.state import Entry, TableState
from dormouse.storage import FolderStorage
from tests.support.adapters import FakeClock
from tests.support.hooked_pages import HookedPages
from tests.support.memory_items import MemoryItems
from tests.support.memory_storage import MemoryStorage
from tests.support.retries import WITHOUT_PAUSES
from tests.support.stores import items_store, objects_store


@dataclass
class Requests:
    """What was asked so far: S3 requests and bytes by kind of object, units of DynamoDB.

    `taken` are read units and GETs by key and by prefix.
    """

    counts: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)

    def clear(self) -> None:
        for counter in (self.counts, self.written, self.read, self.taken):
            counter.clear()

    def dollars(self) -> float:
        return sum(self.counts[name] * at for name, at in DOLLARS_PER_MILLION.items()) / 1e6

    def do(self, kind: str, work: Callable[[], T], size_bytes: int = 0) -> T:
        """Do a request of a kind, which sends so many bytes; a network lets it take its time."""
        return work()


class CountingStorage(MemoryStorage):
    """Another storage in memory, seen through a counter. Each store has one of its own."""

    def __init__(self, inner: Storage, requests: Requests) -> None:
        self._inner, self._requests = inner, requests

    def get(self, path: str) -> bytes:
        body = self._requests.do("get", lambda: self._inner.get(path))
        self._requests.counts["get"] += 1
        self._requests.taken[f"s3 {path.rpartition('/')[0]}"] += 1
        self._requests.read[kind_of(path)] += len(body)
        return body

    def stream(self, path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
        self._requests.counts["get"] += 1
        self._requests.read[kind_of(path)] += end - start
        return self._inner.stream(path, size_bytes, start, end)

    def put(self, path: str, body: bytes) -> bool:
        self._requests.counts["put"] += 1
        self._requests.written[kind_of(path)] += len(body)
        return self._requests.do("put", lambda: self._inner.put(path, body), len(body))

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

    A condition that fails costs as much as one that holds.
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
        reads, units = _UNITS[operation]
        self._requests.taken[f"dynamodb {operation}"] += reads
        self._requests.counts.update(
            dynamo_reads=reads, rru=reads, dynamo_writes=units > 0, wru=units
        )


_UNITS = {
    "pins": (1, 0),  # a query that finds none
    "head": (1, 0),
    "page": (1, 0),
    "append": (0, 1),
    "set_manifest": (0, 1),
    "open_page": (0, 4),  # two items in one transaction, which costs twice
    "raise_low_water_mark": (0, 4),
    "delete_pages": (0, 0),  # counted there
}
"""The read and write units of operations; that a head or page has at most a KB is a goal."""


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
        def put() -> None:
            self._requests.counts.update(dynamo_writes=1, wru=-(-item_bytes(Item) // 1024))
            self._requests.written[_kind_of(Item)] += len(Item["body"]["B"])
            self.kept[TableName, Item["k"]["S"], Item["i"]["S"]] = Item

        self._requests.do("write", put)

    def batch_get_item(self, *, RequestItems: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N803
        ((table, asked),) = RequestItems.items()

        def get() -> dict[str, Any]:
            self._requests.counts["dynamo_reads"] += 1
            found = []
            for wanted in asked["Keys"]:
                item = self.kept.get((table, wanted["k"]["S"], wanted["i"]["S"]))
                units: Any = read_units(item, asked["ConsistentRead"])  # halves, too
                self._requests.counts["rru"] += units
                self._requests.taken[f"dynamodb {wanted['k']['S']}"] += units
                if item is not None:
                    found.append(item)
                    self._requests.read[_kind_of(item)] += len(item["body"]["B"])
            return {"Responses": {table: found}, "UnprocessedKeys": {}}

        return self._requests.do("read", get)

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
        self._requests.counts.update(dynamo_reads=1, rru=max(1, -(-passed // 4096)))
        yield {"Items": [{"k": {"S": hash_key}, "i": {"S": i}} for i in found]}


def _kind_of(item: Mapping[str, Any]) -> str:
    return f"{item['k']['S'].split('#')[1]}s"


def read_units(item: Mapping[str, Any] | None, is_consistent: bool) -> float:
    """Return what a read of an item costs, or of a key that has none."""
    units = -(-item_bytes(item) // 4096) if item else 1
    return units if is_consistent else units / 2


@dataclass
class Table:
    """One table in memory, and how often each of its stores asked for what."""

    storage: Storage
    pages: HookedPages
    clock: FakeClock
    items: dict[Key, Mapping[str, Any]]
    kept_in: str

    def store(self, requests: Requests, seed: int) -> StateStore:
        tools = CountingPages(self.pages, requests), self.clock, Ids(self.clock, seed)
        if self.kept_in == "dynamodb":
            items = CountingDynamoDB(self.items, requests).store
            return items_store(TABLE, items, *tools)
        storage = CountingStorage(self.storage, requests)
        return objects_store(TABLE, storage, *tools)

    def save(self, path: str) -> None:
        """Write the table to a path. Its objects are files beside it, so that no process that loads
        it has them in memory.
        """
        storage = FolderStorage(Path(f"{path}-objects"))
        for stored in self.storage.list(""):
            storage.put(stored.path, self.storage.get(stored.path))
        pages = [*self.pages._items.scan("state", "")]
        parts = pages, [*self.items.items()], self.clock.ms, self.kept_in
        Path(path).write_bytes(msgspec.msgpack.encode(parts))

    @staticmethod
    def load(path: str) -> Table:
        """Return the table that was written to a path."""
        pages, items, ms, kept_in = msgspec.msgpack.decode(Path(path).read_bytes())
        held = MemoryItems({item.key: item for item in map(_item, pages)})
        storage = FolderStorage(Path(f"{path}-objects"))
        by_key = {tuple(key): item for key, item in items}
        return Table(storage, HookedPages(items=held), FakeClock(ms), by_key, kept_in)


def _item(stored: dict[str, Any]) -> Item:
    parts = {name: Part(*part) for name, part in stored["parts"].items()}
    return Item(ItemKey(*stored["key"]), parts, stored["expires_s"], stored["format"])


def table_of(snapshot: bytes, kept_in: str = "s3") -> Table:
    """Return a table whose state is a snapshot of version 0, kept in `s3` or in `dynamodb`."""
    pages = HookedPages()
    table = Table(MemoryStorage(), pages, clock(), {}, kept_in)
    first = Snapshot(f"{0:032x}", 0, 0, len(snapshot), index_place(snapshot))
    table.store(Requests(), 0).reader.snapshots.put(first.id, snapshot)
    pages.open_page(TABLE, 0, LOWEST_ID)
    pages.set_manifest(TABLE, Manifest(1, (first,)))
    return table


PERIOD = -(-COMMITS_TO_INCREMENT // PAGE_CAPACITY) * PAGE_CAPACITY
"""Commits from increment to increment, where maintenance follows each full page."""


def spans(periods: int) -> list[int]:
    """Return how many periods each increment spans after so many: 8 are 6, 1 and 1."""
    ends = ends_at(periods, MOST_INCREMENTS)
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


def worst_table(snapshot: bytes, kept_in: str, commits: int) -> Table:
    """Return a table with about so many commits since its snapshot, kept in `s3` or `dynamodb`."""
    table = table_of(snapshot, kept_in)
    state = cut = table.store(Requests(), 1).current()
    names = Ids(table.clock, 3)
    deltas = Mix(state, names, 4).deltas()
    increments: list[Increment] = []
    for span in spans(commits // PERIOD):
        for transactions in islice(deltas, span * PERIOD):
            table.clock.ms += 1000
            with gc_paused():
                entries = [Entry(each, table.clock.ms, 0) for each in transactions]
                state, _ = fold_delta(state, entries)
        increments.append(_keep_increment(table, names.new(), cut, state, increments))
        cut = state
    _end_log_at(table, state.version, increments)
    writer, maintainer = table.store(Requests(), 1), table.store(Requests(), 2)
    writer.current()
    for transactions in islice(deltas, PERIOD - 1):
        table.clock.ms += 1000
        writer.commit(*transactions, generation=0)
        if writer.current().version % PAGE_CAPACITY == 0:
            maintainer.maintain()
    assert writer.current().version - state.version == PERIOD - 1
    return table


def _keep_increment(
    table: Table, increment_id: str, cut: TableState, state: TableState, before: Sequence[Increment]
) -> Increment:
    laid_over = rebased(state, cut)
    assert laid_over is not None, "nothing was reset"
    by_key = has_key_index(state)
    reader = table.store(Requests(), 0).reader
    indexes = key_indexes(reader, before, {}) if by_key else None
    body = encode_increment(changes_between(TABLE, cut, laid_over, by_key=by_key), indexes)
    reader.snapshots.put(increment_id, body)
    facts = cut.version, state.version, state.time_ms, len(body)
    return Increment(increment_id, *facts, index_place(body))


def _end_log_at(table: Table, version: int, increments: list[Increment]) -> None:
    """Make a log whose pages up to a version were compacted; that segment itself is not there."""
    head = table.pages.head(TABLE)
    assert head is not None
    segments = (Segment(f"{1:032x}", 0, version, 1),) if version else ()
    for number in range(head.last_page + 1, version // PAGE_CAPACITY + 1):
        table.pages.open_page(TABLE, number, head.low_water_mark)
    table.pages.delete_pages(TABLE, 0, version // PAGE_CAPACITY)
    manifest = replace(
        head.manifest,
        revision=head.manifest.revision + 1,
        increments=tuple(increments),
        segments=segments,
    )
    table.pages.set_manifest(TABLE, manifest)


@dataclass
class Plan:
    """What one plan asked for. A round is what is asked for at once."""

    requests: Requests = field(default_factory=Requests)
    rounds: int = 0

    @property
    def asked(self) -> int:
        return self.requests.counts["get"] + self.requests.counts["dynamo_reads"]

    def overlap(self, first: Callable[[], T], second: Callable[[], object]) -> T:
        """Do two things in turn, and count the rounds of the one that has more."""
        began = self.rounds
        result = first()
        ended, self.rounds = self.rounds, began
        second()
        self.rounds = max(ended, self.rounds)
        return result

    def count(self, ask: Callable[[], T]) -> T:
        """Count a round; in DynamoDB all requests for some blobs, as one may follow another."""
        before = self.requests.counts["dynamo_reads"]
        found = ask()
        self.rounds += max(1, self.requests.counts["dynamo_reads"] - before)
        return found


class _Blobs:
    def __init__(self, inner: BlobStore, plan: Plan) -> None:
        self._inner, self._plan = inner, plan

    def get(self, blob_ids: Sequence[str]) -> list[bytes]:
        return self._plan.count(lambda: self._inner.get(blob_ids)) if blob_ids else []

    def stream(self, blob_ids: Sequence[str]) -> Iterator[bytes]:
        yield from self.get(blob_ids)

    def get_ranges(self, wanted: Sequence[BlobRange]) -> list[bytes]:
        return self._plan.count(lambda: self._inner.get_ranges(wanted)) if wanted else []


class _Pages:
    def __init__(self, inner: ItemPages, plan: Plan) -> None:
        self._inner, self._plan = inner, plan

    def head(self, table_id: str) -> Head | None:
        return self._plan.count(lambda: self._inner.head(table_id))

    def page(self, table_id: str, number: int) -> Page | None:
        return self._plan.count(lambda: self._inner.page(table_id, number))


PLANS = 20
"""So many processes plan a look-up of one key."""


def cold_plan(table: Table, wanted: KeyRange) -> Plan | None:
    """Return what a new process asks for to plan a look-up; None if it needs the whole state."""
    plan = Plan()
    reader = table.store(plan.requests, 5).reader
    counted: dict[str, Any] = {}
    for name in ("deltas", "segments", "snapshots"):
        counted[name] = _Blobs(getattr(reader, name), plan)
    pages: Any = _Pages(reader.log.pages, plan)
    seen: Any = replace(reader, log=replace(reader.log, pages=pages), **counted)
    part = PartialReads(seen, plan.overlap).part([wanted])
    return plan if part else None


def cold_plans(table: Table) -> list[Plan]:
    """Return the plans of so many processes that begin, each of another key."""
    random = Random(7)
    found = (cold_plan(table, KeyRange.exactly(key(random.randrange(KEYS)))) for _ in range(PLANS))
    return [plan for plan in found if plan]


def show_plans(of: str, at: int, plans: Sequence[Plan]) -> None:
    """Print the most that plans asked for.

    `whole` is the share of the look-ups that had to load the state, because a commit after all that
    is kept by keys may concern the key; the other figures are of those that had not.
    """
    if plans:
        emit(
            "cold_plan",
            of,
            at,
            requests=max(plan.asked for plan in plans),
            rounds=max(plan.rounds for plan in plans),
            bytes_read=max(plan.requests.read.total() for plan in plans),
            rru=max(plan.requests.counts["rru"] for plan in plans),
            whole=1 - len(plans) / PLANS,
        )
