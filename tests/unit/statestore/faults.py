"""A table whose every request to its log and blobs can fail, crash, or meet another writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, wraps
from typing import Any, Literal, ParamSpec, TypeVar
from unittest.mock import patch

from dormouse.items import blobs
from dormouse.items.pages import ItemPages
from dormouse.log import compaction, pages
from dormouse.log import compaction as collection
from dormouse.log.blobs import ABOVE_ALL_IDS, BlobStore, identity_of
from dormouse.log.engine import DEFAULTS, Options, StateStore
from dormouse.log.log import Log, fold_delta
from dormouse.log.pages import Head, Page
from dormouse.state.state import Entry, RestoreTable, TableState, without_expired
from dormouse.stored.paths import blob_prefix
from dormouse.system import RetryPolicy
from tests.support.adapters import CountingIds, FakeClock
from tests.support.deltas import decode_delta
from tests.support.hooked_pages import HookedPages
from tests.support.memory_dynamodb import MemoryDynamoDB
from tests.support.memory_storage import MemoryStorage
from tests.support.retries import WITHOUT_PAUSES
from tests.support.stores import items_store, objects_store

T = TypeVar("T")
OptionsOfRig = ParamSpec("OptionsOfRig")
Hook = Callable[[str], None]
Home = Literal["objects", "items"]
"""Where a state store keeps its blobs."""


class Crash(Exception):
    """The process died here."""


class HookedStorage(MemoryStorage):
    """Storage whose calls can be stopped before and after their effect."""

    def __init__(self, hook: Hook) -> None:
        super().__init__()
        self._hook = hook
        self.ever_put: dict[str, bytes] = {}

    def get(self, path: str) -> bytes:
        self._hook("before get")
        body = super().get(path)
        self._hook("after get")
        return body

    def stream(self, path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
        self._hook("before stream")
        yield from super().stream(path, size_bytes, start, end)
        self._hook("after stream")

    def put(self, path: str, body: bytes) -> bool:
        self._hook("before put")
        done = super().put(path, body)
        self.ever_put[path] = body
        self._hook("after put")
        return done

    def delete(self, paths: Sequence[str]) -> None:
        self._hook("before delete")
        super().delete(paths)
        self._hook("after delete")


class RecordingPages(HookedPages):
    """Pages that remember every id there ever was in the log, by version."""

    ever_in_log: dict[int, str]

    def append(self, table_id: str, number: int, delta_id: str) -> Page | None:
        try:
            return super().append(table_id, number, delta_id)
        finally:
            page = ItemPages.page(self, table_id, number)
            for each in page.ids if page else ():
                version = page.version_of(each)
                assert self.ever_in_log.setdefault(version, each) == each, "the order changed"


@dataclass
class Rig:
    """One table; `calls` are the places passed, "before append" and so on, with their effect.

    `at` maps the number of a place to what is done there: raise an error, or act as another writer.
    Whatever is called within an action is not counted.
    """

    at: dict[int, Callable[[], None]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    retry_policy: RetryPolicy = WITHOUT_PAUSES
    options: Options = DEFAULTS
    home: Home = "objects"

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.ids = CountingIds(self.clock)
        self.storage = HookedStorage(self._pass)
        self.dynamodb = MemoryDynamoDB(self._pass)
        self.pages = RecordingPages(
            before=lambda call: self._pass(f"before {call}"),
            after=lambda call: self._pass(f"after {call}"),
        )
        self.pages.ever_in_log = {}
        self._silent = False

    def copy(self) -> Rig:
        """Return another table with all that this one has, of which no place was passed yet."""
        made = Rig(retry_policy=self.retry_policy, options=self.options, home=self.home)
        made.clock.ms, made.ids.count = self.clock.ms, self.ids.count
        made.storage._objects = dict(self.storage._objects)
        made.storage.ever_put = dict(self.storage.ever_put)
        made.dynamodb.kept = dict(self.dynamodb.kept)
        made.dynamodb.ever_put = dict(self.dynamodb.ever_put)
        made.dynamodb._newest = self.dynamodb._newest
        made.pages._items.kept = dict(self.pages._items.kept)  # pins are among them
        made.pages.ever_in_log = dict(self.pages.ever_in_log)
        return made

    def store(self, **changes: Any) -> StateStore:
        """A store with a cold cache, as another process has; `changes` to the rig's options."""
        tools: Any = {
            "retry_policy": self.retry_policy,
            "options": replace(self.options, **changes),
        }
        made = self.pages, self.clock, self.ids
        if self.home == "items":
            return items_store("t", self.dynamodb.items(), *made, **tools)
        return objects_store("t", self.storage, *made, **tools)

    def log(self) -> Log:
        return Log("t", self.pages, self.retry_policy)

    def on(self, call: str, action: Callable[[], None], *, skip: int = 0) -> None:
        """Do `action` the next time `call` is passed, after passing it `skip` times."""

        def watch(passed: str) -> None:
            nonlocal skip
            if passed == call:
                skip -= 1
                if skip < 0:
                    self._watch = None
                    action()

        self._watch = watch

    def quiet(self) -> None:
        """Pass every place without effect from here on."""
        self.at, self._watch = {}, None
        self.calls.clear()

    def ids_in_log(self) -> list[str]:
        """Return every id that was ever in the log, in order."""
        ever = self.pages.ever_in_log
        assert sorted(ever) == [*range(1, len(ever) + 1)]
        return [ever[version] for version in sorted(ever)]

    def replay(self, version: int | None = None) -> TableState:
        """Fold the whole log delta by delta, as it was stored once, up to a version."""
        return self.states(version)[-1]

    def states(self, version: int | None = None) -> list[TableState]:
        """Fold the whole log delta by delta, as it was stored once; return every version."""
        states = [TableState()]
        for delta_id in self.ids_in_log()[:version]:
            entries = self._entries_of(delta_id)
            restores = [e.transaction for e in entries if isinstance(e.transaction, RestoreTable)]
            earlier = without_expired(states[restores[0].version]) if restores else None
            states.append(fold_delta(states[-1], entries, earlier)[0])
        return states

    def stored(self, kind: str) -> list[str]:
        """Return the ids of the blobs there are: ``deltas``, ``segments`` or ``snapshots``."""
        if self.home == "items":
            return self.dynamodb.ids(kind.removesuffix("s"))
        prefix = f"t/state/{kind}/"
        found = self.storage.list(prefix)
        return sorted(item.path.rpartition("/")[2].partition(".")[0] for item in found)

    def put_blob(self, kind: str, blob_id: str, body: bytes) -> None:
        """Store a blob past the hooks: ``deltas``, ``segments`` or ``snapshots``."""
        self._silently(lambda: self._blobs(kind).put(blob_id, body))

    def blob(self, kind: str, blob_id: str) -> bytes:
        """Return a blob past the hooks."""
        return self._silently(lambda: self._blobs(kind).get([blob_id]))[0]

    def lose_blob(self, kind: str, blob_id: str) -> None:
        """Delete a blob, all of it, past the hooks."""
        kept = set(self.stored(kind)) - {blob_id}
        self._silently(lambda: self._blobs(kind).delete_stale(ABOVE_ALL_IDS, kept))

    def head(self) -> Head:
        """Return the head past the hooks."""
        head = self._silently(lambda: self.pages.head("t"))
        assert head
        return head

    _watch: Hook | None = None

    def _blobs(self, kind: str) -> BlobStore:
        blobs: BlobStore = getattr(self.store().reader, kind)
        return blobs

    def _silently(self, act: Callable[[], T]) -> T:
        was_silent, self._silent = self._silent, True
        try:
            return act()
        finally:
            self._silent = was_silent

    def _entries_of(self, delta_id: str) -> tuple[Entry, ...]:
        if self.home == "objects":
            path = f"{blob_prefix('t', 'delta')}{delta_id[-1]}/{delta_id}.delta"
            return _entries(self.storage.ever_put[path], delta_id)
        put = self.dynamodb.ever_put
        count = int.from_bytes(put[f"{delta_id}#0000"]["body"]["B"][:4])
        parts = [put[f"{delta_id}#{part:04d}"]["body"]["B"][4:] for part in range(count)]
        return _entries(b"".join(parts), delta_id)

    def _pass(self, call: str) -> None:
        if self._silent:
            return
        action = self.at.get(len(self.calls))
        self.calls.append(call)
        self._silent = True
        try:
            if action:
                action()
            if self._watch:
                self._watch(call)
        finally:
            self._silent = False


def made_once(make: Callable[OptionsOfRig, Rig]) -> Callable[OptionsOfRig, Rig]:
    """Let `make` run once for the same arguments; who calls it gets a copy.

    All that call it must have the same patches; ``make.__wrapped__`` is for those with others.
    """
    kept = cache(make)

    @wraps(make)
    def made(*args: OptionsOfRig.args, **options: OptionsOfRig.kwargs) -> Rig:
        return kept(*args, **options).copy()

    return made


@lru_cache(1000)
def _entries(body: bytes, delta_id: str) -> tuple[Entry, ...]:
    return decode_delta(body, identity_of("t", delta_id), "a delta")


def fail(error: Exception) -> Callable[[], None]:
    """Return an action that raises."""

    def action() -> None:
        raise error

    return action


@contextmanager
def small_pages(capacity: int) -> Iterator[None]:
    """Let everything be due early, so that short tests turn pages, merge, snapshot and collect."""
    due, small = compaction.is_snapshot_due, 18
    with (
        patch.multiple(pages, PAGE_CAPACITY=capacity),
        patch.multiple(compaction, LEAST_BYTES_TO_SNAPSHOT=550),
        patch.multiple(compaction, is_snapshot_due=lambda manifest, _: due(manifest, small)),
        patch.multiple(pages, PAGES_PER_SEGMENT=2, SEGMENTS_PER_LEVEL=2),
        patch.multiple(pages, HISTORY_PER_LEVEL=2, MOST_SEGMENTS=2),
        patch.multiple(collection, PAGES_PER_ROUND=2),
    ):
        yield


@contextmanager
def small_items() -> Iterator[None]:
    """Let snapshots be cut into several items, under few hash keys, so that requests are few."""
    buckets = {"delta": 1, "segment": 1, "snapshot": 2}
    with patch.multiple(blobs, PART_BYTES=6000, BUCKETS=buckets, _PUTS_AT_ONCE=1):
        yield
