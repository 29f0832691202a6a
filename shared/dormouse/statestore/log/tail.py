"""The tail of a table's log: keeps the newest state seen, and folds into it what is new.

Used by `engine`, which also learns here which verdicts its own transactions got.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from dormouse.errors import CorruptDataError
from dormouse.fold.fold import Verdict
from dormouse.model.state import TableState
from dormouse.model.transactions import Entry
from dormouse.statestore.deltas import Delta
from dormouse.statestore.log.carrying import MOST_CARRIED, carried_before
from dormouse.statestore.log.log import CollectedError
from dormouse.statestore.log.pages import Manifest, Page, place_after
from dormouse.statestore.log.reader import Reader


@dataclass(slots=True)
class AwaitedDelta:
    """A delta of this process on its way: its entries, and their verdicts once it is folded."""

    entries: tuple[Entry, ...]
    verdicts: tuple[Verdict, ...] | None = None


class LogTail:
    """The state of one table as last seen; safe for many threads.

    One thread reads at a time. It also folds the deltas that other threads wait for.
    """

    def __init__(self, reader: Reader) -> None:
        """Begin cold; nothing is read yet."""
        self._reader = reader
        self._state: TableState | None = None
        self._cut: TableState | None = None
        self._awaited: dict[str, AwaitedDelta] = {}
        self._folded: deque[tuple[int, Delta]] = deque(maxlen=MOST_CARRIED)
        self._lock = threading.Lock()
        self.overtaken = 0
        """How many deltas of others came last between the newest state and a delta of its own."""

    def newest(self) -> TableState:
        """Return the newest version: at least every append that ended before the call began."""
        with self._lock:
            return self._refresh()

    @property
    def is_warm(self) -> bool:
        """Whether a version was seen, so that the next read begins there."""
        return self._state is not None

    def reset(self) -> None:
        """Drop the state that was seen; the next read begins cold."""
        with self._lock:
            self._state = self._cut = None

    @property
    def cut(self) -> TableState | None:
        """The state of the snapshot or increment from which `newest` was folded on, or which this
        process has kept since; None if there was none.
        """
        return self._cut

    def kept(self, state: TableState) -> None:
        """Take note that a state seen here is a snapshot or ends an increment now."""
        with self._lock:
            self._cut = state

    def last_seen(self) -> TableState:
        """Return a version seen before, without reading if there is one."""
        with self._lock:
            return self._state or self._refresh()

    def next_carried(self) -> list[Delta]:
        """Return what a delta that follows the newest state carries: a copy of each of some."""
        with self._lock:
            version = self._state.version if self._state else 0
            first = version - carried_before(version + 1)
            # A fold that failed half-way has left some twice.
            return [*{at: each for at, each in self._folded if first < at <= version}.values()]

    def verdicts(self, delta_id: str, page: Page) -> tuple[Verdict, ...]:
        """Return the verdicts on an awaited delta that `page` shows in the log."""
        with self._lock:
            awaited = self._awaited[delta_id]
            if awaited.verdicts is None:
                self._fold_page(page)
            if awaited.verdicts is None:
                self._refresh()
            if awaited.verdicts is None:
                raise CorruptDataError(f"delta {delta_id} was appended but not seen in the log")
            return awaited.verdicts

    @contextmanager
    def awaiting(self, delta_id: str, entries: tuple[Entry, ...]) -> Iterator[None]:
        """Keep the verdicts on a delta of this process, which need not be fetched."""
        self._awaited[delta_id] = AwaitedDelta(entries)
        try:
            yield
        finally:
            del self._awaited[delta_id]

    def _fold_page(self, page: Page) -> None:
        """Fold what a page shows, without reading it again, if the newest state ends in it.

        If the collector was quicker, nothing is folded.
        """
        if self._state is None:
            return
        number, position = place_after(self._state.version)
        if number == page.number:
            with suppress(CollectedError):
                ids, version, known = page.ids[position:], self._state.version, self._known()
                self.overtaken = sum(delta_id not in known for delta_id in ids)
                found = self._reader.by_id(ids, version, known, at_once=True)
                self._state = self._fold(self._state, found)

    def _known(self) -> dict[str, tuple[Entry, ...]]:
        return {each: own.entries for each, own in self._awaited.copy().items()}

    def _refresh(self) -> TableState:
        """Fold what is new, by the pages.

        A reader that the collector overtook goes by the manifest first. For example: it knows
        version 100, pages 0 to 9 are deleted, and segments reach to version 480. It folds versions
        101 to 480 from segments, or begins with a snapshot, and goes on with page 10. If a page is
        missing again though the manifest is the same, nothing holds it any more: that is a gap.
        """
        state, missed = self._state, None
        if state is None:
            state, missed = self._by_manifest(None)
        while True:
            try:
                # Who was overtaken is among many writers, whose deltas do not carry one another.
                found = self._reader.from_pages(
                    state.version, self._known(), at_once=self.overtaken > 0
                )
                self._state = self._fold(state, found)
                return self._state
            except CollectedError:
                state, manifest = self._by_manifest(state)
                if manifest == missed:
                    raise CorruptDataError(
                        f"the log of {self._reader.log.title} has a gap"
                    ) from None
                missed = manifest

    def _by_manifest(self, state: TableState | None) -> tuple[TableState, Manifest]:
        """Return a state as far as segments and snapshots go, from `state` on if they reach it."""
        missed: Manifest | None = None
        while True:
            manifest = self._reader.manifest()
            if manifest == missed:
                raise CorruptDataError(
                    f"the manifest of {self._reader.log.title} names what is not there"
                )
            try:
                start = self._start(manifest, state)
                deltas = self._reader.from_segments(manifest.segments, start.version)
                return self._fold(start, deltas), manifest
            except CollectedError:
                missed = manifest

    def _start(self, manifest: Manifest, state: TableState | None) -> TableState:
        if state is not None and state.version >= manifest.beginning:
            return state
        if manifest.newest is None:
            return TableState()
        self._cut = self._reader.snapshot(manifest.newest, manifest.increments)
        return self._cut

    def _fold(self, state: TableState, deltas: Iterable[Delta]) -> TableState:
        for delta in deltas:
            state, verdicts = self._reader.fold(state, delta)
            self._folded.append((state.version, delta))
            if awaited := self._awaited.get(delta.id):
                awaited.verdicts = verdicts
        return state
