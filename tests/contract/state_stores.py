"""Every state store there is, for the contract tests: where it keeps its order and its bodies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from dormouse.folder.sqlite import SqliteItems
from dormouse.items import blobs
from dormouse.items.pages import ItemPages
from dormouse.items.store import ItemStore
from dormouse.log.engine import DEFAULTS, Options, StateStore
from dormouse.ports import Storage
from dormouse.storage import FolderStorage
from dormouse.system import Ids
from tests.contract import endpoint
from tests.contract.folders import database_in
from tests.contract.state_items import blob_names, dynamodb_tables
from tests.contract.state_pages import dynamodb_pages
from tests.support.adapters import FakeClock
from tests.support.depth import in_turn
from tests.support.hooked_pages import HookedPages
from tests.support.memory_dynamodb import MemoryDynamoDB
from tests.support.memory_storage import MemoryStorage
from tests.support.stores import files_store, items_store, objects_store

AT_ENDPOINTS = ("endpoint objects", "endpoint items")
STORES = (
    ("memory", "folder", "items", *in_turn(("dynamodb", "dynamodb items"), parts=2))
    if endpoint.DYNAMODB is None
    else AT_ENDPOINTS
)
"""Objects in memory; files with pages in SQLite; objects in memory with pages in DynamoDB; items in
memory and in DynamoDB. If the environment names endpoints: just objects and items there."""
DELTAS = ("t/state/deltas/", "t#delta")
SNAPSHOTS = ("t/state/snapshots/", "t#snapshot")
"""How the names begin of what either store keeps."""


_PART = re.compile(r"#\d{4}$")
"""The number of an item among those of a blob."""


class UniqueIds:
    """Ids for many threads: counting is one step of the interpreter."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock, self._numbers = clock, count(1)

    def new(self) -> str:
        return f"{self._clock.now_ms():012x}{next(self._numbers):020x}"


@dataclass
class Instance:
    """Makes stores of tables, each with a cold cache, as another process would have.

    `kept` gives how what is kept beside the log is named, its place or that of its like.
    """

    store: Callable[[str], StateStore]
    clock: FakeClock
    kept: Callable[[], list[str]]
    is_remote: bool = False

    def count(self, *kinds: str) -> int:
        """Count what is kept beside the log whose name begins so; items of one blob are one."""
        found = (name.rpartition("/")[2] for name in self.kept() if name.startswith(kinds))
        return len({_PART.sub("", name) for name in found})


@contextmanager
def instance_of(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    """Return a new instance of one of `STORES`."""
    # Both compact as soon as a page is full, so that a test of one tests the other.
    monkeypatch.setattr(blobs, "SNAPSHOT_SHARE", 3)
    clock = FakeClock()
    ids = UniqueIds(clock)
    pages = HookedPages()
    match kind:
        case "memory":
            yield in_objects(MemoryStorage(), pages, clock, ids)
        case "folder":
            with database_in(folder) as database:
                yield in_files(folder / "tables", SqliteItems(database), clock, ids)
        case "dynamodb":
            with dynamodb_pages(monkeypatch) as remote:
                made = in_objects(MemoryStorage(), remote, clock, ids)
                yield replace(made, is_remote=True)
        case "items":
            dynamodb = MemoryDynamoDB()
            kept = lambda: [f"{key}/{name}" for _, key, name in dynamodb.kept]  # noqa: E731
            yield in_items(dynamodb.items(), pages, clock, ids, kept)
        case "dynamodb items":
            with dynamodb_tables(monkeypatch) as (items, remote):
                names = partial(blob_names, items)
                made = in_items(items, remote, clock, ids, names)
                yield replace(made, is_remote=True)
        case "endpoint objects":
            with endpoint.endpoint() as there:
                made = in_objects(there.storage, there.pages, clock, ids)
                yield replace(made, is_remote=True)
        case "endpoint items":
            with endpoint.endpoint() as there:
                names = partial(blob_names, there.items)
                made = in_items(there.items, there.pages, clock, ids, names)
                yield replace(made, is_remote=True)


def in_objects(storage: Storage, pages: ItemPages, clock: FakeClock, ids: Ids) -> Instance:
    def store(table: str, options: Options = DEFAULTS) -> StateStore:
        return objects_store(table, storage, pages, clock, ids, options=options)

    return Instance(store, clock, lambda: [stored.path for stored in storage.list("")])


def in_files(root: Path, items: SqliteItems, clock: FakeClock, ids: Ids) -> Instance:
    storage, pages = FolderStorage(root), ItemPages(items)

    def store(table: str, options: Options = DEFAULTS) -> StateStore:
        made = storage, items, pages, clock, ids
        return files_store(table, *made, options=options, defer=items.defer)

    def kept() -> list[str]:
        return [each.path for each in storage.list("")] + blob_names(items)

    return Instance(store, clock, kept)


def in_items(
    items: ItemStore, pages: ItemPages, clock: FakeClock, ids: Ids, kept: Callable[[], list[str]]
) -> Instance:
    def store(table: str, options: Options = DEFAULTS) -> StateStore:
        return items_store(table, items, pages, clock, ids, options=options)

    return Instance(store, clock, kept)
