"""Follows the log of one table: keeps the newest state it has seen, and folds what is new into it.

Used by `engine`, which also learns from it what became of its own transactions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.model.fold import Verdict, apply
from dormouse.model.state import TableState
from dormouse.model.transactions import Entry
from dormouse.statestore.bodies import Bodies, Snapshots
from dormouse.statestore.codec import decode_delta
from dormouse.statestore.log import Log
from dormouse.statestore.pages import Root

_FETCHES_AT_ONCE = 16


@dataclass(slots=True)
class Awaited:
    """A delta of this process on its way: its entries, and their verdicts once it is folded."""

    entries: tuple[Entry, ...]
    verdicts: tuple[Verdict, ...] | None = None


def fold_delta(
    state: TableState, entries: Sequence[Entry]
) -> tuple[TableState, tuple[Verdict, ...]]:
    """Give the state one version on, with all entries of a delta applied in order, each for itself.

    The version counts deltas, whatever their verdicts, so that it is the place in the log.
    """
    version, verdicts = state.version + 1, []
    for entry in entries:
        state, verdict = apply(state, entry)
        verdicts.append(verdict)
    return replace(state, version=version), tuple(verdicts)


class Follower:
    """The state of one table as last seen; safe for many threads.

    One thread reads at a time; it folds for those that wait what they wait for.
    """

    def __init__(self, log: Log, deltas: Bodies, snapshots: Snapshots) -> None:
        """Begin cold; nothing is read yet."""
        self._log, self._deltas, self._snapshots = log, deltas, snapshots
        self._state: TableState | None = None
        self._awaited: dict[str, Awaited] = {}
        self._lock = threading.Lock()

    def newest(self) -> TableState:
        """Give the newest version: at least every append that ended before the call began."""
        with self._lock:
            return self._refresh()

    def last_seen(self) -> TableState:
        """Give a version seen before, without reading if there is one."""
        with self._lock:
            return self._state or self._refresh()

    def verdicts(self, delta_id: str) -> tuple[Verdict, ...]:
        """Give the verdicts on an awaited delta that is in the log."""
        with self._lock:
            awaited = self._awaited[delta_id]
            if awaited.verdicts is None:
                self._refresh()
            if awaited.verdicts is None:
                raise CorruptDataError(f"delta {delta_id} was appended but is not in the log")
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
        state = self._state or self._load()
        ids = self._log.ids_after(state.version)
        folded: list[tuple[str, tuple[Verdict, ...]]] = []
        for delta_id, entries in zip(ids, self._entries(ids), strict=True):
            state, verdicts = fold_delta(state, entries)
            folded.append((delta_id, verdicts))
        self._state = state
        for delta_id, verdicts in folded:
            if awaited := self._awaited.get(delta_id):
                awaited.verdicts = verdicts
        return state

    def _load(self) -> TableState:
        root, missed = self._root(), None
        while root is not None and root != missed:
            try:
                state = self._snapshots.load(root)
            except NotFoundError:  # a newer snapshot may have taken its place since
                root, missed = self._root(), root
                continue
            if state.version != root.version:
                raise CorruptDataError(f"snapshot {root.id} is not of version {root.version}")
            return state
        if missed is not None:
            raise self._lost(f"snapshot {missed.id}")
        return TableState()

    def _root(self) -> Root | None:
        head = self._log.head()
        return head.root if head else None

    def _entries(self, ids: Sequence[str]) -> list[tuple[Entry, ...]]:
        if len(ids) < 2:
            return [self._delta(delta_id) for delta_id in ids]
        with ThreadPoolExecutor(min(len(ids), _FETCHES_AT_ONCE)) as pool:
            return list(pool.map(self._delta, ids))

    def _delta(self, delta_id: str) -> tuple[Entry, ...]:
        if mine := self._awaited.get(delta_id):
            return mine.entries
        try:
            body = self._deltas.get(delta_id)
        except NotFoundError as error:
            self._log.head()  # raises if it is gone because the table is
            raise self._lost(f"delta {delta_id}") from error
        return decode_delta(body, f"delta {delta_id}")

    def _lost(self, path: str) -> CorruptDataError:
        return CorruptDataError(
            f"the state of table {self._log.table_id} lacks {path}",
            hint="the log names it: bring it back from a backup or an older object version",
        )
