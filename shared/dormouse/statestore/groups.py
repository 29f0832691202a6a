"""Lets what threads commit at the same time travel in one delta; used by `engine`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from dormouse.model.transactions import Entry
from dormouse.state_store import Outcome

Entries = tuple[Entry, ...]
Outcomes = tuple[Outcome, ...]


@dataclass(slots=True, eq=False)
class _Passenger:
    """One thread's entries, and what became of them. Its turn comes when they are decided, or when
    the thread is to commit for all that wait."""

    entries: Entries
    turn: threading.Event = field(default_factory=threading.Event)
    outcomes: Outcomes | None = None
    failure: BaseException | None = None


class Group:
    """One commit at a time: who comes meanwhile goes with the next. A lone thread never waits."""

    def __init__(self, commit: Callable[[Entries], Outcomes]) -> None:
        """Commit with `commit`, which gives an outcome for each entry."""
        self._commit = commit
        self._lock = threading.Lock()
        self._waiting: list[_Passenger] = []
        self._is_busy = False

    def commit(self, entries: Entries) -> Outcomes:
        """Commit entries, in one delta with those of other threads; raise what `commit` raises."""
        own = _Passenger(entries)
        with self._lock:
            self._waiting.append(own)
            leads = not self._is_busy
            self._is_busy = True
        if not leads:
            own.turn.wait()
        if own.outcomes is None and own.failure is None:
            self._drive()
        if own.failure is not None:
            raise own.failure
        return own.outcomes or ()

    def _drive(self) -> None:
        """Commit for all that wait, and let one of those that came meanwhile drive next."""
        with self._lock:
            aboard, self._waiting = self._waiting, []
        try:
            outcomes = self._commit(tuple(entry for each in aboard for entry in each.entries))
            for each in aboard:
                each.outcomes = outcomes[: len(each.entries)]
                outcomes = outcomes[len(each.entries) :]
        except BaseException as failure:  # whatever it is, nobody may wait for ever
            for each in aboard:
                each.failure = failure
        finally:
            with self._lock:
                following = self._waiting[:1]
                self._is_busy = bool(following)
            for each in (*aboard, *following):
                each.turn.set()
