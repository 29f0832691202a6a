"""Follows the log of one table: keeps the newest state it has seen, and folds what is new into it.

Used by `engine`, which also learns from it what became of its own transactions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dormouse.errors import CorruptDataError
from dormouse.fold.fold import Verdict
from dormouse.model.state import TableState
from dormouse.model.transactions import Entry
from dormouse.statestore.codec_segment import Delta
from dormouse.statestore.log import CollectedError
from dormouse.statestore.pages import Root
from dormouse.statestore.reading import Reader, fold_delta


@dataclass(slots=True)
class Awaited:
    """A delta of this process on its way: its entries, and their verdicts once it is folded."""

    entries: tuple[Entry, ...]
    verdicts: tuple[Verdict, ...] | None = None


class Follower:
    """The state of one table as last seen; safe for many threads.

    One thread reads at a time; it folds for those that wait what they wait for.
    """

    def __init__(self, reader: Reader) -> None:
        """Begin cold; nothing is read yet."""
        self._reader = reader
        self._state: TableState | None = None
        self._awaited: dict[str, Awaited] = {}
        self._lock = threading.Lock()

    def newest(self) -> TableState:
        """Return the newest version: at least every append that ended before the call began."""
        with self._lock:
            return self._refresh()

    def forget(self) -> None:
        """Be cold again."""
        with self._lock:
            self._state = None

    def last_seen(self) -> TableState:
        """Return a version seen before, without reading if there is one."""
        with self._lock:
            return self._state or self._refresh()

    def verdicts(self, delta_id: str) -> tuple[Verdict, ...]:
        """Return the verdicts on an awaited delta that is in the log."""
        with self._lock:
            awaited = self._awaited[delta_id]
            if awaited.verdicts is None:
                self._refresh()
            if awaited.verdicts is None:
                raise CorruptDataError(f"delta {delta_id} was appended but not seen in the log")
            return awaited.verdicts

    @contextmanager
    def awaiting(self, delta_id: str, entries: tuple[Entry, ...]) -> Iterator[None]:
        """Keep the verdicts on a delta of this process, which needs not be fetched."""
        self._awaited[delta_id] = Awaited(entries)
        try:
            yield
        finally:
            del self._awaited[delta_id]

    def _refresh(self) -> TableState:
        """Fold what is new; a reader that was overtaken goes by the root, then by the pages."""
        state, missed = self._state, None
        if state is None:
            state, missed = self._by_root(None)
        while True:
            try:
                known = {each: own.entries for each, own in self._awaited.copy().items()}
                self._state = self._fold(state, self._reader.from_pages(state.version, known))
                return self._state
            except CollectedError:
                state, root = self._by_root(state)
                if root == missed:
                    raise CorruptDataError(
                        f"the log of table {self._reader.log.table_id} has a gap"
                    ) from None
                missed = root

    def _by_root(self, state: TableState | None) -> tuple[TableState, Root]:
        """Return a state as far as segments and snapshots go, from `state` on if they reach it."""
        missed: Root | None = None
        while True:
            root = self._reader.root()
            if root == missed:
                raise CorruptDataError(
                    f"the root of table {self._reader.log.table_id} names what is not there"
                )
            try:
                start = self._start(root, state)
                return self._fold(
                    start, self._reader.from_segments(root.segments, start.version)
                ), root
            except CollectedError:
                missed = root

    def _start(self, root: Root, state: TableState | None) -> TableState:
        if state is not None and state.version >= root.beginning:
            return state
        return self._reader.snapshot(root.newest) if root.newest else TableState()

    def _fold(self, state: TableState, deltas: Iterable[Delta]) -> TableState:
        for delta in deltas:
            state, verdicts = fold_delta(state, delta.entries)
            if awaited := self._awaited.get(delta.id):
                awaited.verdicts = verdicts
        return state
