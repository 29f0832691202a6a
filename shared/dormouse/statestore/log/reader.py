"""Reads what a table's log leads to: snapshots, and deltas from segments or one by one.

What is gone because it was collected is reported as CollectedError: then the head names a newer
place of it. What the head names and is gone all the same is lost, and reported as CorruptDataError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dormouse.errors import CorruptDataError
from dormouse.fold.fold import Verdict, apply
from dormouse.model.state import TableState
from dormouse.model.transactions import Entry
from dormouse.state_store import REBUILD
from dormouse.statestore.blobs import BlobRange, BlobStore, MissingBlobError
from dormouse.statestore.deltas import Delta, identity_of, open_delta
from dormouse.statestore.log.carrying import carriers
from dormouse.statestore.log.log import CollectedError, Log
from dormouse.statestore.log.pages import Increment, Manifest, Segment, Snapshot, place_after
from dormouse.stored.decoding import raise_corrupt

if TYPE_CHECKING:
    from dormouse.statestore.segments import StoredSegment
    from dormouse.statestore.snapshot.changes import StateChanges

_DELTAS_AT_ONCE = 256
_SEGMENTS_AT_ONCE = 16
LARGE_BYTES = 1024 * 1024
"""Of a snapshot of this size only that is fetched which is decoded: a request more, but a third of
the bytes less."""


def fold_delta(
    state: TableState, entries: Sequence[Entry], earlier: TableState | None = None
) -> tuple[TableState, tuple[Verdict, ...]]:
    """Return the state one version on: all entries of a delta applied in order, each for itself.

    The version counts deltas, whatever their verdicts, so that it is the place in the log.
    `earlier` is the version that an entry restores, if one does.
    """
    version, verdicts = state.version + 1, []
    for entry in entries:
        state, verdict = apply(state, entry, earlier)
        verdicts.append(verdict)
    return replace(state, version=version), tuple(verdicts)


@dataclass(frozen=True, slots=True)
class Reader:
    """One table's log, and the three kinds of blobs that it leads to.

    Some deltas carry those before them (`carrying`) if `carries`.
    """

    log: Log
    deltas: BlobStore
    segments: BlobStore
    snapshots: BlobStore
    carries: bool = False

    def manifest(self) -> Manifest:
        """Return the head's manifest, or the empty one of a log that has not begun."""
        head = self.log.head()
        return head.manifest if head else Manifest()

    def fold(self, state: TableState, delta: Delta) -> tuple[TableState, tuple[Verdict, ...]]:
        """Return the state after the delta that follows it, and the verdicts on its entries.

        A delta that restores a version has the snapshot of it under its own id.

        Raises:
            CollectedError: the snapshot was collected with the delta.
            CorruptDataError: it is lost or damaged.
        """
        earlier = self._restored(delta.id, state.version) if delta.restores else None
        return fold_delta(state, delta.entries, earlier)

    def _restored(self, delta_id: str, after: int) -> TableState:
        """Return the version that the delta which follows version `after` restores."""
        try:
            return self._snapshot(delta_id)
        except MissingBlobError as error:
            raise self._gone(error, after >= self.manifest().beginning) from error

    def snapshot(self, snapshot: Snapshot, increments: Sequence[Increment] = ()) -> TableState:
        """Return the state of a snapshot, or after the increments which follow it.

        Raises:
            CollectedError: a newer manifest has replaced the one that named them.
            CorruptDataError: one is lost, or not what the manifest says.
        """
        try:
            changed = self._changes(increments)
            body = self._without_key_index(snapshot)
        except MissingBlobError as error:
            manifest = self.manifest()
            known = {each.id for each in manifest.snapshots}
            known |= {each.id for each in manifest.increments}
            raise self._gone(error, error.blob_id in known) from error
        state = self._decoded(snapshot.id, body, changed)
        if (state.version if changed is None else changed.after) != snapshot.version:
            raise self._of_another_version("snapshot", snapshot)
        return state

    def _without_key_index(self, snapshot: Snapshot) -> bytes:
        """Return the body of a snapshot; of a large one without its key index, a third of it."""
        size = snapshot.size_bytes
        if size >= LARGE_BYTES:
            from dormouse.statestore.by_key.blocks import place_of_key_index, tail_bytes

            end = BlobRange(snapshot.id, size, size - tail_bytes(size), size)
            (tail,) = self.ranges(self.snapshots, [end])
            start, stop = place_of_key_index(tail, size)
            if 0 < start < stop:
                (front,) = self.ranges(self.snapshots, [BlobRange(snapshot.id, size, 0, start)])
                return front + tail[len(tail) - (size - stop) :]
        (body,) = self.snapshots.get([snapshot.id])
        return body

    def changes(self, increment: Increment) -> StateChanges:
        """Return what an increment says, with the rows of its key index. Raises as `snapshot`."""
        try:
            changes = self._changes([increment], by_key=True)
        except MissingBlobError as error:
            known = {known.id for known in self.manifest().increments}
            raise self._gone(error, increment.id in known) from error
        assert changes is not None
        return changes

    def _changes(
        self, increments: Sequence[Increment], *, by_key: bool = False
    ) -> StateChanges | None:
        """Return all increments as one; None if there are none. Raises MissingBlobError."""
        from dormouse.statestore.snapshot.changes import decode_increment, joined

        changes: StateChanges | None = None
        bodies = self.snapshots.get([each.id for each in increments])
        for increment, body in zip(increments, bodies, strict=True):
            with self.damage_reported():
                name = f"increment {increment.id}"
                found = decode_increment(self.log.table_id, body, name, by_key=by_key)
            if (found.after, found.version) != (increment.after, increment.version):
                raise self._of_another_version("increment", increment)
            changes = found if changes is None else joined(changes, found)
        return changes

    def _of_another_version(self, kind: str, named: Snapshot | Increment) -> CorruptDataError:
        return CorruptDataError(
            f"{kind} {named.id} of {self.log.title} is not of version {named.version}",
            hint=REBUILD,
        )

    def _snapshot(self, snapshot_id: str) -> TableState:
        (body,) = self.snapshots.get([snapshot_id])
        return self._decoded(snapshot_id, body, None)

    def _decoded(self, snapshot_id: str, body: bytes, changes: StateChanges | None) -> TableState:
        from dormouse.statestore.snapshot.codec import decode_snapshot

        with self.damage_reported():
            name = f"snapshot {snapshot_id}"
            return decode_snapshot(self.log.table_id, body, name, changes)

    def from_segments(self, segments: Iterable[Segment], version: int) -> Iterator[Delta]:
        """Yield the deltas that follow a version, as far as segments go. Raises as `snapshot`."""
        wanted = [segment for segment in segments if segment.version > version]
        if wanted:
            from dormouse.statestore.segments import decode_segment  # loads Arrow
        for start in range(0, len(wanted), _SEGMENTS_AT_ONCE):
            some = wanted[start : start + _SEGMENTS_AT_ONCE]
            for segment, body in zip(some, self._segment_bodies(some), strict=True):
                known = max(version - segment.after, 0)
                with self.damage_reported():
                    name = f"segment {segment.id}"
                    deltas = decode_segment(body, self.log.table_id, name, without=known)
                if known + len(deltas) != segment.version - segment.after:
                    raise CorruptDataError(
                        f"segment {segment.id} of {self.log.title} lacks deltas",
                        hint=REBUILD,
                    )
                yield from deltas

    def joined(self, segments: Sequence[Segment], *more: StoredSegment) -> bytes:
        """Return the body of one segment in place of several, and of `more` that follow them.

        Raises: as `snapshot`.
        """
        from dormouse.statestore.segments import StoredSegment, join_segments  # loads Arrow

        parts = [
            StoredSegment(body, f"segment {each.id}", each.version - each.after)
            for each, body in zip(segments, self._segment_bodies(segments), strict=True)
        ]
        with self.damage_reported():
            return join_segments([*parts, *more], self.log.table_id)

    def from_pages(
        self,
        version: int,
        known: Mapping[str, tuple[Entry, ...]] | None = None,
        *,
        at_once: bool = False,
    ) -> Iterator[Delta]:
        """Yield the deltas that follow a version, by the pages of the log.

        Deltas that are `known` are not fetched.

        Raises:
            CollectedError: not all of them are in pages any more.
            CorruptDataError: one is lost.
        """
        ids = self.log.ids_after(version)
        for start in range(0, len(ids), _DELTAS_AT_ONCE):
            some = ids[start : start + _DELTAS_AT_ONCE]
            yield from self.by_id(some, version + start, known or {}, at_once=at_once)

    def by_id(
        self,
        ids: Sequence[str],
        version: int,
        known: Mapping[str, tuple[Entry, ...]],
        *,
        at_once: bool = False,
    ) -> Iterator[Delta]:
        """Yield the deltas of `ids`, the first of which follows `version`.

        Those that should carry all others are fetched first, then what they lack. `at_once` fetches
        all in one round: for deltas of writers that did not know of one another. The first are then
        yielded, and folded, while others are on their way.
        """
        found = {delta_id: known[delta_id] for delta_id in ids if delta_id in known}
        if self.carries and not at_once:
            for _ in self._fetch(carriers(ids, version, found), ids, version, found):
                pass
        rest = self._fetch([each for each in ids if each not in found], ids, version, found)
        for delta_id in ids:
            while delta_id not in found:
                next(rest)
            yield Delta(delta_id, found[delta_id])

    def _fetch(
        self,
        wanted: Sequence[str],
        ids: Sequence[str],
        version: int,
        found: dict[str, tuple[Entry, ...]],
    ) -> Iterator[None]:
        """Add deltas to those that were found, with those of `ids` that they carry, one a step."""
        bodies = self.deltas.stream(wanted)
        for delta_id in wanted:
            try:
                body = next(bodies, None)
                if body is None:
                    raise MissingBlobError(delta_id, f"delta {delta_id}")
            except MissingBlobError as error:
                place = version + ids.index(error.blob_id)
                needed = place_after(place)[0] >= self.manifest().covered_pages
                raise self._gone(error, needed) from error
            with self.damage_reported():
                identity = identity_of(self.log.table_id, delta_id)
                stored = open_delta(body, identity, f"delta {delta_id}")
                found[delta_id] = stored.entries
                for carried in stored.carried.keys() & set(ids) - found.keys():
                    found[carried] = stored.entries_of(carried)
            yield

    def _segment_bodies(self, segments: Sequence[Segment]) -> list[bytes]:
        whole = [BlobRange(s.id, s.size_bytes, 0, s.size_bytes) for s in segments]
        try:
            # Of a known size: that spares DynamoDB a round.
            return self.ranges(self.segments, whole)
        except MissingBlobError as error:
            known = {segment.id for segment in self.manifest().segments}
            raise self._gone(error, error.blob_id in known) from error

    def ranges(self, blobs: BlobStore, wanted: Sequence[BlobRange]) -> list[bytes]:
        """Return parts of this table's blobs. Raises as `BlobStore.get_ranges`, with a hint."""
        with self.damage_reported():
            return blobs.get_ranges(wanted)

    def damage_reported(self) -> AbstractContextManager[None]:
        """Raise as CorruptDataError what shows that the state is damaged."""
        return raise_corrupt(f"the state of {self.log.title} is damaged", hint=REBUILD)

    def _gone(self, error: MissingBlobError, is_needed: bool) -> CollectedError | CorruptDataError:
        if not is_needed:
            return CollectedError()
        return CorruptDataError(
            f"the state of {self.log.title} lacks {error}",
            hint=f"bring it back from a backup or an older object version; or {REBUILD}",
        )
