"""A table whose every request to pages and storage can fail, crash, or meet another writer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dormouse.model.names import delta_prefix
from dormouse.model.state import TableState
from dormouse.statestore.codec import decode_delta
from dormouse.statestore.follower import fold_delta
from dormouse.statestore.log import Log
from dormouse.statestore.pages import MemoryPages
from dormouse.statestore.patience import WITHOUT_PAUSES, Patience
from dormouse.statestore.s3 import S3StateStore
from dormouse.storage import MemoryStorage
from tests.support.adapters import CountingIds, FakeClock

Hook = Callable[[str], None]


class Crash(Exception):
    """The process died here."""


class HookedStorage(MemoryStorage):
    """Storage whose calls can be stopped before and after their effect."""

    def __init__(self, hook: Hook) -> None:
        super().__init__()
        self._hook = hook

    def get(self, path: str) -> bytes:
        self._hook("before get")
        body = super().get(path)
        self._hook("after get")
        return body

    def put(self, path: str, body: bytes) -> bool:
        self._hook("before put")
        done = super().put(path, body)
        self._hook("after put")
        return done


@dataclass
class Rig:
    """One table; `calls` are the places passed, "before append" and so on, with their effect.

    `at` maps the number of a place to what is done there: raise an error, or act as another writer.
    Whatever is called within an action is not counted.
    """

    at: dict[int, Callable[[], None]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    patience: Patience = WITHOUT_PAUSES

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.ids = CountingIds(self.clock)
        self.storage = HookedStorage(self._pass)
        self.pages = MemoryPages(
            before=lambda call: self._pass(f"before {call}"),
            after=lambda call: self._pass(f"after {call}"),
        )
        self._silent = False

    def store(self) -> S3StateStore:
        """A store with a cold cache, as another process has."""
        return S3StateStore(
            "t", self.storage, self.pages, self.clock, self.ids, patience=self.patience
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
        """Read the log past the hooks."""
        self._silent = True
        try:
            return self.log().ids_after(0)
        finally:
            self._silent = False

    def replay(self) -> TableState:
        """Fold the whole log delta by delta, as stored, without any snapshot."""
        self.quiet()
        state = TableState()
        for delta_id in self.log().ids_after(0):
            path = f"{delta_prefix('t')}{delta_id}.parquet"
            state, _ = fold_delta(state, decode_delta(self.storage.get(path), path))
        self.calls.clear()
        return state

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


def fail(error: Exception) -> Callable[[], None]:
    """Give an action that raises."""

    def action() -> None:
        raise error

    return action
