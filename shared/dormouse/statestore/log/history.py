"""Earlier versions of a table: which are kept, and how one is read again.

A version is kept while the manifest's oldest snapshot is not newer: snapshots and segments leave
the manifest once no version needs them that was current within the time to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

from dormouse.errors import CorruptDataError, InvalidRequestError, NotBegunError, NotFoundError
from dormouse.fold.fold import Verdict
from dormouse.model.state import TableState
from dormouse.model.transactions import AddShards, change_name
from dormouse.model.versions.as_of import iso_time
from dormouse.state_store import VersionRecord
from dormouse.statestore.deltas import Delta
from dormouse.statestore.log.log import CollectedError
from dormouse.statestore.log.pages import Increment, Manifest, Snapshot
from dormouse.statestore.log.reader import Reader

_SNAPSHOTS_PER_TIME_KEPT = 4


def state_at(reader: Reader, *, version: int | None, time_ms: int | None) -> TableState:
    """Return the state at a version, or the newest one whose time is not after `time_ms`.

    Raises:
        NotFoundError: it is no longer kept, or there is no such version yet.
        NotBegunError: it is from before the first version.
        InvalidRequestError: neither or both are given.
    """
    if version is not None and time_ms is None:
        state = _last(reader, lambda at, _: at <= version, f"version {version}")
        if state.version != version:
            raise NotFoundError(
                f"{reader.log.title} has no version {version}; the newest is {state.version}"
            )
        return state
    if time_ms is not None and version is None:
        return _last(reader, lambda _, at_ms: at_ms <= time_ms, f"version of {iso_time(time_ms)}")
    raise InvalidRequestError("a state is read at a version or at a time, one of both")


def with_snapshot(manifest: Manifest, snapshot: Snapshot, keep_ms: int) -> Manifest | None:
    """Return the manifest with one snapshot more; None if it has one, or an increment, as new.

    Of snapshots close in time the one before is replaced: it would help only to read the past. With
    versions kept for 60 minutes, snapshots of minute 0 and 10, and one more of minute 20: that of
    minute 10 is dropped, because it is less than 15 minutes after the one before.
    """
    if manifest.cuts and manifest.cuts[-1] >= snapshot.version:
        return None
    kept = manifest.snapshots
    if len(kept) > 1 and kept[-1].time_ms - kept[-2].time_ms < keep_ms // _SNAPSHOTS_PER_TIME_KEPT:
        kept = kept[:-1]
    snapshots = (*kept, snapshot)
    return replace(manifest, revision=manifest.revision + 1, snapshots=snapshots, increments=())


def with_increment(manifest: Manifest, made: Increment) -> Manifest | None:
    """Return the manifest with an increment, in place of those that follow where it begins.

    None if it has one as new, or does not end an increment or the newest snapshot there any more.
    """
    if made.after not in manifest.cuts or made.version <= manifest.cuts[-1]:
        return None
    kept = tuple(each for each in manifest.increments if each.version <= made.after)
    return replace(manifest, revision=manifest.revision + 1, increments=(*kept, made))


def without_versions_before(manifest: Manifest, time_ms: int) -> Manifest:
    """Return the manifest, its revision unchanged, without what only versions before a time need.

    The version that was current at that time can still be read.
    """
    old = sum(snapshot.time_ms <= time_ms for snapshot in manifest.snapshots)
    if not old:
        return manifest
    kept = manifest.snapshots[old - 1 :]
    needed = tuple(s for s in manifest.segments if s.version > kept[0].version)
    return replace(manifest, snapshots=kept, segments=needed)


def kept_versions(reader: Reader) -> list[VersionRecord]:
    """Return the versions that can be read from the manifest and the log, the oldest first.

    The first of them, unless it is version 1, is known by its snapshot alone: its changes are not.
    """
    missed: Manifest | None = None
    while (manifest := reader.manifest()) != missed:
        try:
            first, found = TableState(), []
            if manifest.beginning:
                first = reader.snapshot(manifest.snapshots[0])
                found = [VersionRecord(first.version, first.time_ms, (), (), first.rows)]
            folded = _following(reader, manifest, first)
            return found + [_record(state, delta, verdicts) for delta, state, verdicts in folded]
        except CollectedError:
            missed = manifest
    raise _misnamed(reader)


def _record(state: TableState, delta: Delta, verdicts: tuple[Verdict, ...]) -> VersionRecord:
    pairs = zip(delta.entries, verdicts, strict=True)
    accepted = [e.transaction for e, made in pairs if not (made.violations or made.repeated)]
    jobs = dict.fromkeys(job for each in accepted if (job := getattr(each, "job", "")))
    changes = dict.fromkeys(change_name(each) for each in accepted)
    added = [new.shard for each in accepted if isinstance(each, AddShards) for new in each.shards]
    made = state.version, state.time_ms, tuple(changes), tuple(jobs), state.rows
    return VersionRecord(*made, tuple(added))


def _following(
    reader: Reader, manifest: Manifest, state: TableState
) -> Iterator[tuple[Delta, TableState, tuple[Verdict, ...]]]:
    """Yield the deltas after a state, each with the state that it makes and its verdicts."""
    covered = manifest.segments[-1].version if manifest.segments else state.version
    deltas = chain(
        reader.from_segments(manifest.segments, state.version),
        reader.from_pages(max(covered, state.version)),
    )
    for delta in deltas:
        state, verdicts = reader.fold(state, delta)
        yield delta, state, verdicts


def _last(reader: Reader, is_wanted: Callable[[int, int], bool], name: str) -> TableState:
    """Return the last state whose version and time are wanted; `name` says in errors which."""
    missed: Manifest | None = None
    while (manifest := reader.manifest()) != missed:
        before = [s for s in manifest.snapshots if is_wanted(s.version, s.time_ms)]
        if not before and manifest.beginning > 0:
            oldest = manifest.snapshots[0]
            raise NotFoundError(
                f"{reader.log.title} keeps no {name}: the oldest kept is version {oldest.version}, "
                f"of {iso_time(oldest.time_ms)}",
                hint="versions are kept for as long as the delay of garbage collection",
            )
        try:
            state = TableState()
            if before:
                following = manifest.increments if before[-1] == manifest.newest else ()
                wanted = [each for each in following if is_wanted(each.version, each.time_ms)]
                state = reader.snapshot(before[-1], wanted)
            for _, later, _ in _following(reader, manifest, state):
                if not is_wanted(later.version, later.time_ms):
                    if not state.version:
                        raise NotBegunError(
                            f"{reader.log.title} has no {name}: its first is "
                            f"version {later.version}, of {iso_time(later.time_ms)}"
                        )
                    break
                state = later
            return state
        except CollectedError:
            missed = manifest
    raise _misnamed(reader)


def _misnamed(reader: Reader) -> CorruptDataError:
    return CorruptDataError(f"the manifest of {reader.log.title} names what is not there")
