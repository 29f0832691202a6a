"""Reads what a table's log leads to: snapshots, and deltas from segments or one by one.

Whatever is gone because it was collected shows as CollectedError: then the head names better.
Used by `follower`, `history` and `consolidation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TypeVar

from dormouse.errors import CorruptDataError, NewerRulesError, NotFoundError
from dormouse.fold.fold import Verdict, apply
from dormouse.model.state import TableState
from dormouse.model.transactions import RULES, Entry
from dormouse.state_store import REBUILD
from dormouse.statestore.bodies import Bodies, Snapshots
from dormouse.statestore.codec import decode_delta
from dormouse.statestore.codec_segment import Delta, decode_segment
from dormouse.statestore.log import CollectedError, Log
from dormouse.statestore.pages import BEGINNING, Root, Segment, Snapshot, place_after
from dormouse.stored.decoding import raise_corrupt

_FETCHES_AT_ONCE = 16
_DELTAS_AT_ONCE = 256

_Key = TypeVar("_Key")
_Fetched = TypeVar("_Fetched")


def fold_delta(
    state: TableState, entries: Sequence[Entry]
) -> tuple[TableState, tuple[Verdict, ...]]:
    """Return the state one version on, with all entries of a delta applied in order, each for
    itself.

    The version counts deltas, whatever their verdicts, so that it is the place in the log.

    Raises:
        NewerRulesError: an entry raises the rules beyond those known here.
    """
    version, verdicts = state.version + 1, []
    for entry in entries:
        state, verdict = apply(state, entry)
        check_rules(state.rules, version)
        verdicts.append(verdict)
    return replace(state, version=version), tuple(verdicts)


def check_rules(rules: int, version: int) -> None:
    """Refuse to go by rules which this release does not know.

    Raises:
        NewerRulesError: a later release raised them; two releases must not judge one entry.
    """
    if rules > RULES:
        raise NewerRulesError(
            f"version {version} of the table is judged by rules {rules}; those known here are "
            f"{RULES}",
            hint="a later release of Dormouse raised them: upgrade this one",
        )


@dataclass(frozen=True, slots=True)
class Reader:
    """One table's log, and where its bodies lie; `segments` is None where there are none."""

    log: Log
    deltas: Bodies
    segments: Bodies | None
    snapshots: Snapshots

    def root(self) -> Root:
        """Return what the head names, or the root of a log that has not begun."""
        head = self.log.head()
        return head.root if head else Root()

    def snapshot(self, snapshot: Snapshot) -> TableState:
        """Return the state of a snapshot.

        Raises:
            CollectedError: a newer root has taken the place of the one that named it.
            CorruptDataError: it is lost, or not what the root says.
        """
        if snapshot == BEGINNING:
            return TableState()
        try:
            with self._told():
                state = self.snapshots.load(snapshot)
        except NotFoundError as error:
            known = {known.id for known in self.root().snapshots}
            raise self._gone(f"snapshot {snapshot.id}", snapshot.id in known) from error
        check_rules(state.rules, state.version)
        if state.version != snapshot.version:
            raise CorruptDataError(
                f"snapshot {snapshot.id} of table {self.log.table_id} is not of version "
                f"{snapshot.version}",
                hint=REBUILD,
            )
        return state

    def from_segments(self, segments: Iterable[Segment], version: int) -> Iterator[Delta]:
        """Return the deltas that follow a version, as far as segments go. Raises as `snapshot`."""
        wanted = [segment for segment in segments if segment.version > version]
        for segment, body in zip(wanted, fetch(self._segment, wanted), strict=True):
            with self._told():
                deltas = decode_segment(body, f"segment {segment.id}")
            if len(deltas) != segment.version - segment.after:
                raise CorruptDataError(
                    f"segment {segment.id} of table {self.log.table_id} lacks deltas", hint=REBUILD
                )
            yield from deltas[max(version - segment.after, 0) :]

    def from_pages(
        self, version: int, known: Mapping[str, tuple[Entry, ...]] | None = None
    ) -> Iterator[Delta]:
        """Return the deltas that follow a version, by the pages of the log; `known` needs no fetch.

        Raises:
            CollectedError: they are not all there one by one any more.
            CorruptDataError: one is lost.
        """
        ids = self.log.ids_after(version)
        for start in range(0, len(ids), _DELTAS_AT_ONCE):
            some = ids[start : start + _DELTAS_AT_ONCE]
            yield from self.by_id(some, version + start, known or {})

    def by_id(
        self, ids: Sequence[str], version: int, known: Mapping[str, tuple[Entry, ...]]
    ) -> list[Delta]:
        """Return the deltas of `ids`, the first of which follows `version`."""

        def one(place: int) -> Delta:
            delta_id = ids[place]
            if (entries := known.get(delta_id)) is not None:
                return Delta(delta_id, entries)
            try:
                body = self.deltas.get(delta_id)
            except NotFoundError as error:
                needed = place_after(version + place)[0] >= self.root().covered_pages
                raise self._gone(f"delta {delta_id}", needed) from error
            with self._told():
                return Delta(delta_id, decode_delta(body, f"delta {delta_id}"))

        return fetch(one, range(len(ids)))

    def _segment(self, segment: Segment) -> bytes:
        if self.segments is None:
            raise CorruptDataError(
                f"the root of table {self.log.table_id} names segments", hint=REBUILD
            )
        try:
            return self.segments.get(segment.id)
        except NotFoundError as error:
            raise self._gone(f"segment {segment.id}", segment in self.root().segments) from error

    def _told(self) -> AbstractContextManager[None]:
        return raise_corrupt(f"the state of table {self.log.table_id} is damaged", hint=REBUILD)

    def _gone(self, name: str, is_needed: bool) -> CollectedError | CorruptDataError:
        if not is_needed:
            return CollectedError()
        return CorruptDataError(
            f"the state of table {self.log.table_id} lacks {name}",
            hint=f"bring it back from a backup or an older object version; or {REBUILD}",
        )


def fetch(get: Callable[[_Key], _Fetched], keys: Sequence[_Key]) -> list[_Fetched]:
    """Return `get` of each key, in order, several at once."""
    if len(keys) < 2:
        return [get(key) for key in keys]
    with ThreadPoolExecutor(min(len(keys), _FETCHES_AT_ONCE)) as pool:
        return list(pool.map(get, keys))
