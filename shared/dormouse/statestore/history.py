"""Earlier versions of a table: which are kept, and how one is read again; used by `engine`.

A version is kept while the root's oldest snapshot is not newer: snapshots and segments leave the
root once no version needs them that was current within the time to keep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain

from dormouse.errors import CorruptDataError, InvalidRequestError, NotFoundError
from dormouse.model.state import TableState
from dormouse.statestore.log import CollectedError
from dormouse.statestore.pages import BEGINNING, Root, Snapshot
from dormouse.statestore.reading import Reader, fold_delta

_SNAPSHOTS_PER_TIME_KEPT = 4


def state_at(reader: Reader, *, version: int | None, time_ms: int | None) -> TableState:
    """Return the state at a version, or the newest one whose time is not after `time_ms`.

    Raises:
        NotFoundError: it is not kept any more, or the version is yet to come.
        InvalidRequestError: neither or both are given.
    """
    if version is not None and time_ms is None:
        state = _last(reader, lambda at, _: at <= version, f"version {version}")
        if state.version != version:
            raise NotFoundError(f"there is no version {version}; the newest is {state.version}")
        return state
    if time_ms is not None and version is None:
        return _last(reader, lambda _, at_ms: at_ms <= time_ms, f"the version of {time_ms} ms")
    raise InvalidRequestError("a state is read at a version or at a time, one of both")


def with_snapshot(root: Root, snapshot: Snapshot, keep_ms: int) -> Root | None:
    """Return the root with one snapshot more; None if it has one as new.

    Of snapshots close in time the one before gives way: it would help only to read the past. The
    first one of a log without segments comes after the beginning: versions between are kept too.
    """
    if root.newest and root.newest.version >= snapshot.version:
        return None
    kept = root.snapshots or (() if root.segments else (BEGINNING,))
    if len(kept) > 1 and kept[-1].time_ms - kept[-2].time_ms < keep_ms // _SNAPSHOTS_PER_TIME_KEPT:
        kept = kept[:-1]
    return replace(root, revision=root.revision + 1, snapshots=(*kept, snapshot))


def without_versions_before(root: Root, time_ms: int) -> Root:
    """Return the root, its revision unchanged, without what only versions before a time need.

    The version that was current at that time can still be read.
    """
    old = sum(snapshot.time_ms <= time_ms for snapshot in root.snapshots)
    if not old:
        return root
    kept = root.snapshots[old - 1 :]
    needed = tuple(s for s in root.segments if s.version > kept[0].version)
    return replace(root, snapshots=kept, segments=needed)


def _last(reader: Reader, is_wanted: Callable[[int, int], bool], name: str) -> TableState:
    """Return the last state whose version and time are wanted."""
    missed: Root | None = None
    while (root := reader.root()) != missed:
        before = [s for s in root.snapshots if is_wanted(s.version, s.time_ms)]
        if not before and root.beginning > 0:
            raise NotFoundError(
                f"{name} of table {reader.log.table_id} is not kept any more",
                hint="versions are kept for as long as the delay of garbage collection",
            )
        try:
            state = reader.snapshot(before[-1]) if before else TableState()
            covered = root.segments[-1].version if root.segments else state.version
            deltas = chain(
                reader.from_segments(root.segments, state.version),
                reader.from_pages(max(covered, state.version)),
            )
            for delta in deltas:
                following, _ = fold_delta(state, delta.entries)
                if not is_wanted(following.version, following.time_ms):
                    break
                state = following
            return state
        except CollectedError:
            missed = root
    raise CorruptDataError(f"the root of table {reader.log.table_id} names what is not there")
