"""The run marker: an object that says that a run has written all its shards.

It is like Hadoop's `_SUCCESS`.

Usually the last shard of a run says in its footer that it is the last. A run needs a marker where
no shard can say so. A compaction whose rules removed all rows has no output: only its marker
records that its inputs are replaced, and repeats what their footers say of other shards. And shards
that several tasks write in parallel do not know which of them is the last.

A marker is put after all shards are written and before the commit. If a run is cancelled, its
marker is deleted first. A marker lists the numbers of the shards that are committed: a process that
was believed dead may write other shards of the run at any later time, and these never count.
docs/shard-format.md describes the format.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dormouse.errors import AlreadyExistsError, CorruptDataError, NotFoundError
from dormouse.ports import Storage
from dormouse.shards import footer
from dormouse.state.state import TableState
from dormouse.state.versions import Provenance
from dormouse.stored import paths
from dormouse.stored.decoding import decode_stored, encode_stored, raise_corrupt

FORMAT = 1
_KIND = "a run marker"
_HINT = (
    "bring it back from an older object version; if there is none, delete it when `dormouse check "
    "NAME` finds nothing wrong and gc_delay_seconds of the table have gone by since it was put"
)


@dataclass(frozen=True, slots=True)
class RunMarker:
    """The marker of a run, with the provenance that a last shard without rows would have.

    `provenance.number` counts the run's shards; `numbers` are their numbers in the run.
    """

    run: str
    provenance: Provenance
    numbers: tuple[int, ...] = ()


class _Stored(footer.StoredProvenance, frozen=True, forbid_unknown_fields=True):
    numbers: tuple[int, ...] = ()


def put_run_marker(storage: Storage, table_id: str, marker: RunMarker) -> None:
    """Put the marker of a run. If an earlier attempt put one with the same shards, it stays.

    Raises:
        AlreadyExistsError: the marker of an earlier attempt lists other shards.
        CorruptDataError: the marker of an earlier attempt is damaged.
    """
    parts = footer.StoredProvenance.parts(marker.provenance)
    body = _Stored(**parts, numbers=marker.numbers)
    path = paths.RUN_MARKERS.path(table_id, marker.run)
    if storage.put(path, encode_stored(_KIND, FORMAT, path, body)):
        return
    if _read(storage, path).numbers != marker.numbers:
        raise AlreadyExistsError(f"{path} lists other shards than this attempt wrote")


def check_no_run_marker(storage: Storage, table_id: str, run: str) -> None:
    """Check that a run that was written as a whole has no marker of an earlier attempt in parts.
    Raises AlreadyExistsError: it has; a rebuild would believe the marker and leave out the whole.
    """
    path = paths.RUN_MARKERS.path(table_id, run)
    if any(stored.path == path for stored in storage.list(path)):
        raise AlreadyExistsError(f"{path} lists shards that an earlier attempt wrote in parts")


def read_run_markers(storage: Storage, table_id: str) -> list[RunMarker]:
    """Return all run markers of a table. Raises CorruptDataError: a marker is damaged."""
    markers, damaged = list_readable_run_markers(storage, table_id)
    for error in damaged:
        raise error
    return markers


def list_readable_run_markers(
    storage: Storage, table_id: str
) -> tuple[list[RunMarker], list[CorruptDataError]]:
    """Return all run markers that can be read, and the errors of the others."""
    markers, damaged = [], []
    for stored in storage.list(paths.RUN_MARKERS.prefix(table_id)):
        try:
            markers.append(_read(storage, stored.path))
        except NotFoundError:
            continue  # deleted since it was listed
        except CorruptDataError as error:
            damaged.append(error)
    return markers, damaged


def _read(storage: Storage, path: str) -> RunMarker:
    body = storage.get(path)
    with raise_corrupt(f"{path} is damaged", hint=_HINT):
        stored = decode_stored(_KIND, FORMAT, path, body, _Stored)
        provenance = stored.provenance(len(stored.numbers), last=True)
        return RunMarker(paths.RUN_MARKERS.name_of(path), provenance, stored.numbers)


def discard_shards(
    storage: Storage, table_id: str, shards: Iterable[str], state: TableState
) -> None:
    """Delete shards that no commit names or will name; `state` is the newest known.

    The object that shows that a run is complete is deleted first: its marker, or its last shard. A
    run that has one of these but lacks other shards would be taken for a committed run. The marker
    stays if the state has other shards of the run.
    """
    committed = {paths.run_of_shard(shard)[0] for shard in state.shards}
    runs: dict[str, list[str]] = {}
    for shard in shards:
        runs.setdefault(paths.run_of_shard(shard)[0], []).append(shard)
    ends, others = [], []
    for run, objects in runs.items():
        *before, last = sorted(objects, key=paths.run_of_shard)
        ends += [] if run in committed else [paths.RUN_MARKERS.path(table_id, run)]
        ends += paths.paths_of_shard(table_id, last)
        others += [path for shard in before for path in paths.paths_of_shard(table_id, shard)]
    storage.delete(ends)
    storage.delete(others)


def obsolete_run_markers(
    storage: Storage, table_id: str, current: Callable[[], TableState], *, before_ms: int
) -> tuple[list[str], list[CorruptDataError]]:
    """Return the paths of run markers that are no longer needed, and the errors of damaged ones.

    A marker is obsolete if the state has nothing that it mentions. The state is read after the
    markers were listed, so it includes everything that was committed before a marker was put.
    Markers put after `before_ms` are kept, because their runs may not be committed yet.
    """
    objects = storage.list(paths.RUN_MARKERS.prefix(table_id))
    old = {
        paths.RUN_MARKERS.name_of(stored.path)
        for stored in objects
        if stored.modified_ms <= before_ms
    }
    markers, damaged = list_readable_run_markers(storage, table_id)
    if not markers:
        return [], damaged
    state = current()
    runs = frozenset(paths.run_of_shard(shard)[0] for shard in state.shards)
    obsolete = [
        paths.RUN_MARKERS.path(table_id, marker.run)
        for marker in markers
        if marker.run in old and not _is_needed(marker, runs, state)
    ]
    return obsolete, damaged


def _is_needed(marker: RunMarker, runs: frozenset[str], state: TableState) -> bool:
    """Return whether the state still has anything of a marker; `runs` are those of the state."""
    if marker.run in runs or marker.run in state.jobs:
        return True
    lineage = marker.provenance.lineage
    shards = (*(shard for shard, _ in marker.provenance.merged), *lineage.completed)
    return any(paths.run_of_shard(shard)[0] in runs for shard in shards) or any(
        source in state.sources for source in lineage.sources
    )
