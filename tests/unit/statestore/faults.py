"""A table whose every request to pages and storage can fail, crash, or meet another writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from unittest.mock import patch

from dormouse.model.state import TableState
from dormouse.model.transactions import Entry
from dormouse.statestore import collection, consolidation, pages
from dormouse.statestore.codec import decode_delta
from dormouse.statestore.engine import DEFAULTS, Options
from dormouse.statestore.log import Log
from dormouse.statestore.memory_pages import MemoryPages
from dormouse.statestore.pages import Head, Page
from dormouse.statestore.patience import WITHOUT_PAUSES, Patience
from dormouse.statestore.reading import fold_delta
from dormouse.statestore.s3 import S3StateStore
from dormouse.storage import MemoryStorage
from dormouse.stored.paths import delta_prefix
from tests.support.adapters import CountingIds, FakeClock

Hook = Callable[[str], None]


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


class RecordingPages(MemoryPages):
    """Pages that remember every id there ever was in the log, by version."""

    ever_in_log: dict[int, str]

    def append(
        self, table_id: str, number: int, delta_id: str, position: int | None = None
    ) -> Page | None:
        try:
            return super().append(table_id, number, delta_id, position)
        finally:
            log = self._logs.get(table_id)
            page = log.pages.get(number) if log else None
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
    patience: Patience = WITHOUT_PAUSES
    options: Options = DEFAULTS

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.ids = CountingIds(self.clock)
        self.storage = HookedStorage(self._pass)
        self.pages = RecordingPages(
            before=lambda call: self._pass(f"before {call}"),
            after=lambda call: self._pass(f"after {call}"),
        )
        self.pages.ever_in_log = {}
        self._silent = False

    def store(self, **changes: Any) -> S3StateStore:
        """A store with a cold cache, as another process has; `changes` to the rig's options."""
        return S3StateStore(
            "t",
            self.storage,
            self.pages,
            self.clock,
            self.ids,
            patience=self.patience,
            options=replace(self.options, **changes),
        )

    def log(self) -> Log:
        return Log("t", self.pages, self.patience)

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
        state = TableState()
        for delta_id in self.ids_in_log()[:version]:
            path = f"{delta_prefix('t')}{delta_id}.parquet"
            state, _ = fold_delta(state, _entries(self.storage.ever_put[path]))
        return state

    def stored(self, kind: str) -> list[str]:
        """Return the ids of what lies in storage: ``deltas``, ``segments`` or ``snapshots``."""
        prefix = f"t/state/{kind}/"
        found = self.storage.list(prefix)
        return [item.path.removeprefix(prefix).removesuffix(".parquet") for item in found]

    def head(self) -> Head:
        """Return the head past the hooks."""
        self._silent = True
        try:
            head = self.pages.head("t")
        finally:
            self._silent = False
        assert head
        return head

    _watch: Hook | None = None

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


@lru_cache(1000)
def _entries(body: bytes) -> tuple[Entry, ...]:
    return decode_delta(body, "a delta")


def fail(error: Exception) -> Callable[[], None]:
    """Return an action that raises."""

    def action() -> None:
        raise error

    return action


@contextmanager
def small_pages(capacity: int) -> Iterator[None]:
    """Let everything be due early, so that short tests turn pages, merge, snapshot and collect."""
    with (
        patch.multiple(pages, PAGE_CAPACITY=capacity),
        patch.multiple(
            consolidation, SEGMENTS_PER_LEVEL=2, LEAST_BYTES_TO_SNAPSHOT=3000, SNAPSHOT_SHARE=1000
        ),
        patch.multiple(collection, PAGES_PER_ROUND=2),
    ):
        yield
