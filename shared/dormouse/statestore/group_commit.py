"""Group commit: threads that commit at the same time share one delta."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from dormouse.model.transactions import Entry
from dormouse.state_store import Outcome

Entries = tuple[Entry, ...]
Outcomes = tuple[Outcome, ...]


@dataclass(slots=True, eq=False)
class PendingCommit:
    """One thread's entries, and their outcomes. Its turn comes when they are decided, or when
    the thread is to commit for all that wait."""

    entries: Entries
    turn: threading.Event = field(default_factory=threading.Event)
    outcomes: Outcomes | None = None
    failure: BaseException | None = None


class GroupCommit:
    """One commit at a time: threads that come meanwhile share the next. A lone one never waits."""

    def __init__(self, commit: Callable[[Entries], Outcomes]) -> None:
        """Commit with `commit`, which returns an outcome for each entry."""
        self._commit = commit
        self._lock = threading.Lock()
        self._waiting: list[PendingCommit] = []
        self._is_busy = False

    def commit(self, entries: Entries) -> Outcomes:
        """Commit entries, in one delta with those of other threads; raise what `commit` raises."""
        own = PendingCommit(entries)
        with self._lock:
            self._waiting.append(own)
            leads = not self._is_busy
            self._is_busy = True
        if not leads:
            own.turn.wait()
        if own.outcomes is None and own.failure is None:
            self._lead()
        if own.failure is not None:
            raise own.failure
        return own.outcomes or ()

    def _lead(self) -> None:
        """Commit for all that wait, and let one of those that came meanwhile lead next."""
        with self._lock:
            sharing, self._waiting = self._waiting, []
        try:
            outcomes = self._commit(tuple(entry for each in sharing for entry in each.entries))
            for each in sharing:
                each.outcomes = outcomes[: len(each.entries)]
                outcomes = outcomes[len(each.entries) :]
        except BaseException as failure:  # whatever it is, no thread may wait for ever
            for each in sharing:
                each.failure = failure
        finally:
            with self._lock:
                following = self._waiting[:1]
                self._is_busy = bool(following)
            for each in (*sharing, *following):
                each.turn.set()
