"""The tail of a table's log: keeps the newest state seen, and folds into it what is new.

Used by `engine`, which also learns here which verdicts its own transactions got.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from dormouse.errors import CorruptDataError, InvalidRequestError, NotBegunError, NotFoundError
from dormouse.log.blobs import BlobRange, Delta
from dormouse.log.log import MOST_CARRIED, CollectedError, Reader, carried_before
from dormouse.log.pages import Increment, Manifest, Page, Snapshot, place_after
from dormouse.state.fold import Verdict
from dormouse.state.rules import VersionRecord
from dormouse.state.state import AddShards, Entry, HideRows, TableState, change_name
from dormouse.state.versions import iso_time

if TYPE_CHECKING:
    from dormouse.log.key_index import KeyIndex


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
                ids, version, own = page.ids[position:], self._state.version, self._known()
                self.overtaken = sum(delta_id not in own for delta_id in ids)
                deltas = self._reader.by_id(ids, version, own, at_once=True)
                self._state = self._fold(self._state, deltas)

    def _known(self) -> dict[str, tuple[Entry, ...]]:
        return {each: own.entries for each, own in self._awaited.copy().items()}

    def _refresh(self) -> TableState:
        """Fold what is new, by the pages.

        A reader that the collector overtook goes by the manifest first. For example: it knows
        version 100, pages 0 to 9 are deleted, and segments reach to version 480. It folds versions
        101 to 480 from segments, or begins with a snapshot, and goes on with page 10. If a page is
        missing again though the manifest is the same, nothing holds it any more: that is a gap.
        """
        state, previous = self._state, None
        if state is None:
            state, previous = self._by_manifest(None)
        while True:
            try:
                # Who was overtaken is among many writers, whose deltas do not carry one another.
                deltas = self._reader.from_pages(
                    state.version, self._known(), at_once=self.overtaken > 0
                )
                self._state = self._fold(state, deltas)
                return self._state
            except CollectedError:
                state, manifest = self._by_manifest(state)
                if manifest == previous:
                    raise CorruptDataError(
                        f"the log of {self._reader.log.title} has a gap"
                    ) from None
                previous = manifest

    def _by_manifest(self, state: TableState | None) -> tuple[TableState, Manifest]:
        """Return a state as far as segments and snapshots go, from `state` on if they reach it."""
        previous: Manifest | None = None
        while True:
            manifest = self._reader.manifest()
            if manifest == previous:
                raise _misnamed(self._reader)
            try:
                start = self._start(manifest, state)
                deltas = self._reader.from_segments(manifest.segments, start.version)
                return self._fold(start, deltas), manifest
            except CollectedError:
                previous = manifest

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


# Earlier versions of a table: which are kept, and how one is read again.
#
# A version is kept while the manifest's oldest snapshot is not newer: snapshots and segments leave
# the manifest once no version needs them that was current within the time to keep.

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
    runs = manifest.snapshots
    if len(runs) > 1 and runs[-1].time_ms - runs[-2].time_ms < keep_ms // _SNAPSHOTS_PER_TIME_KEPT:
        runs = runs[:-1]
    snapshots = (*runs, snapshot)
    return replace(manifest, revision=manifest.revision + 1, snapshots=snapshots, increments=())


def with_increment(manifest: Manifest, increment: Increment) -> Manifest | None:
    """Return the manifest with an increment, in place of those that follow where it begins.

    None if it has one as new, or does not end an increment or the newest snapshot there any more.
    """
    if increment.after not in manifest.cuts or increment.version <= manifest.cuts[-1]:
        return None
    earlier = tuple(each for each in manifest.increments if each.version <= increment.after)
    return replace(manifest, revision=manifest.revision + 1, increments=(*earlier, increment))


def without_versions_before(manifest: Manifest, time_ms: int) -> Manifest:
    """Return the manifest, its revision unchanged, without what only versions before a time need.

    The version that was current at that time can still be read.
    """
    old = sum(snapshot.time_ms <= time_ms for snapshot in manifest.snapshots)
    if not old:
        return manifest
    newer = manifest.snapshots[old - 1 :]
    segments = tuple(s for s in manifest.segments if s.version > newer[0].version)
    return replace(manifest, snapshots=newer, segments=segments)


def kept_versions(reader: Reader) -> list[VersionRecord]:
    """Return the versions that can be read from the manifest and the log, the oldest first.

    The first of them, unless it is version 1, is known by its snapshot alone: its changes are not.
    """
    previous: Manifest | None = None
    while (manifest := reader.manifest()) != previous:
        try:
            first, records = TableState(), []
            if manifest.beginning:
                first = reader.snapshot(manifest.snapshots[0])
                records = [VersionRecord(first.version, first.time_ms, (), (), first.rows)]
            steps = _following(reader, manifest, first)
            return records + [_record(state, delta, verdicts) for delta, state, verdicts in steps]
        except CollectedError:
            previous = manifest
    raise _misnamed(reader)


def _record(state: TableState, delta: Delta, verdicts: tuple[Verdict, ...]) -> VersionRecord:
    pairs = zip(delta.entries, verdicts, strict=True)
    accepted = [e.transaction for e, v in pairs if not (v.violations or v.repeated)]
    jobs = dict.fromkeys(job for each in accepted if (job := getattr(each, "job", "")))
    changes = dict.fromkeys(change_name(each) for each in accepted)
    new = [each.shard for add in accepted if isinstance(add, AddShards) for each in add.shards]
    shards = [state.shards.get(shard.id, shard) for shard in new]
    facts = state.version, state.time_ms, tuple(changes), tuple(jobs), state.rows
    deletions = [each.deletion for each in accepted if isinstance(each, AddShards | HideRows)]
    ids = {each.id for each in deletions if each is not None}
    present = [each for each in state.deletions if each.id in ids]
    return VersionRecord(*facts, tuple(shards), tuple(present))


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
    previous: Manifest | None = None
    while (manifest := reader.manifest()) != previous:
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
                increments = [each for each in following if is_wanted(each.version, each.time_ms)]
                state = reader.snapshot(before[-1], increments)
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
            previous = manifest
    raise _misnamed(reader)


def _misnamed(reader: Reader) -> CorruptDataError:
    return CorruptDataError(f"the manifest of {reader.log.title} names what is not there")


# Fetches the key indexes of a snapshot and of the increments after it, in one round.
#
# Only those of two objects are fetched, of the snapshot and of the newest increment: that has the
# indexes of the increments before it, too. What it lacks is fetched from each. The manifest says
# where the two lie; of another increment the end is fetched, which most likely has its index.

Run: TypeAlias = Snapshot | Increment
"""What a manifest says of an object that has a key index."""


def runs_of(manifest: Manifest) -> list[Run]:
    """Return what a manifest says of the newest snapshot and of the increments after it."""
    return [*([manifest.newest] if manifest.newest else ()), *manifest.increments]


def name_of(run: Run) -> str:
    """Return the name of an object in errors."""
    return f"{'increment' if isinstance(run, Increment) else 'snapshot'} {run.id}"


def key_indexes(
    reader: Reader, runs: Sequence[Run], cached: "Mapping[str, KeyIndex]"
) -> "dict[str, KeyIndex] | None":
    """Return the index of each run by its id, in order; None if one has none that is known here.

    Those that are `cached` are not fetched.

    Raises:
        CorruptDataError: one is damaged.
        MissingBlobError: a newer manifest has replaced the one that named them.
    """
    indexes = {run.id: cached[run.id] for run in runs if run.id in cached}
    ends = [run for run in runs if isinstance(run, Snapshot) or run == runs[-1]]
    for some in (ends, runs):
        more = _fetched(reader, [run for run in some if run.id not in indexes], runs)
        if more is None:
            return None
        indexes |= more
        indexes = {**indexes[runs[-1].id].earlier, **indexes} if runs else {}
    for run in runs:
        facts, after = indexes[run.id].facts, run.after if isinstance(run, Increment) else 0
        if (facts.after, facts.version) != (after, run.version):
            raise CorruptDataError(f"the key index of {name_of(run)} is of another version")
    return {run.id: indexes[run.id] for run in runs}


def _fetched(
    reader: Reader, targets: Sequence[Run], runs: Sequence[Run]
) -> "dict[str, KeyIndex] | None":
    """Return the indexes of some runs; None if one has none. The end of an object whose place of
    the index is not known is fetched again if it was too short.
    """
    from dormouse.log.key_index import bytes_needed, decode_key_index, without_footer

    indexes: dict[str, KeyIndex] = {}
    requests = [(run, _likely_end(run, runs)) for run in targets]
    while requests:
        bodies = reader.ranges(reader.snapshots, [place for _, place in requests])
        answered, requests = zip(requests, bodies, strict=True), []
        for (run, place), body in answered:
            end = place.end
            if run.index is None:
                size_bytes = bytes_needed(body)
                if size_bytes is None or size_bytes > run.size_bytes:
                    return None
                if size_bytes > len(body):
                    requests.append((run, replace(place, start=run.size_bytes - size_bytes)))
                    continue
                body = without_footer(body)
                end = place.start + len(body)
            with reader.damage_reported():
                index = decode_key_index(reader.log.table_id, body, end, name_of(run))
            if index is None:
                return None
            indexes[run.id] = index
    return indexes


def _likely_end(run: Run, runs: Sequence[Run]) -> BlobRange:
    """Return where the index of a run lies; if that is unknown, an end that likely has it."""
    from dormouse.log.key_index import tail_bytes

    size = run.size_bytes
    if run.index:
        end = size - run.index.bytes_after
        return BlobRange(run.id, size, end - run.index.size_bytes, end)
    before = sum(each.size_bytes for each in runs[:-1] if isinstance(each, Increment))
    return BlobRange(run.id, size, size - tail_bytes(size, before if run == runs[-1] else 0), size)
