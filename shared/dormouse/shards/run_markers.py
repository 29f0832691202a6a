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

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from dormouse.errors import AlreadyExistsError, CorruptDataError, NotFoundError
from dormouse.ports import Storage
from dormouse.shards.footer import (
    StoredSuperseded,
    decode_superseded,
    encode_superseded,
    key_to_hex,
    range_from_hex,
)
from dormouse.state.state import TableState
from dormouse.state.versions import Lineage, Provenance
from dormouse.stored.decoding import decode_stored, encode_stored, raise_corrupt
from dormouse.stored.paths import (
    paths_of_shard,
    run_marker_path,
    run_marker_prefix,
    run_of_marker,
    run_of_shard,
)

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


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    range_min: str
    range_max: str | None
    job: str
    written_ms: int
    generation: int
    sources: tuple[str, ...]
    inputs: tuple[str, ...]
    superseded: tuple[StoredSuperseded, ...]
    completed: tuple[str, ...]
    numbers: tuple[int, ...] = ()


def put_run_marker(storage: Storage, table_id: str, marker: RunMarker) -> None:
    """Put the marker of a run. If an earlier attempt put one with the same shards, it stays.

    Raises:
        AlreadyExistsError: the marker of an earlier attempt lists other shards.
        CorruptDataError: the marker of an earlier attempt is damaged.
    """
    provenance = marker.provenance
    lineage = provenance.lineage
    body = _Stored(
        range_min=key_to_hex(provenance.range.min),
        range_max=None if provenance.range.max is None else key_to_hex(provenance.range.max),
        job=provenance.job,
        written_ms=provenance.written_ms,
        generation=provenance.generation,
        sources=lineage.sources,
        inputs=lineage.inputs,
        superseded=encode_superseded(provenance),
        completed=lineage.completed,
        numbers=marker.numbers,
    )
    path = run_marker_path(table_id, marker.run)
    if storage.put(path, encode_stored(_KIND, FORMAT, path, body)):
        return
    if _read(storage, path).numbers != marker.numbers:
        raise AlreadyExistsError(f"{path} lists other shards than this attempt wrote")


def check_no_run_marker(storage: Storage, table_id: str, run: str) -> None:
    """Check that a run that was written as a whole has no marker of an earlier attempt in parts.

    Raises:
        AlreadyExistsError: it has; a rebuild would believe the marker and leave out the whole.
    """
    path = run_marker_path(table_id, run)
    if any(stored.path == path for stored in storage.list(path)):
        raise AlreadyExistsError(f"{path} lists shards that an earlier attempt wrote in parts")


def read_run_markers(storage: Storage, table_id: str) -> list[RunMarker]:
    """Return all run markers of a table.

    Raises:
        CorruptDataError: a marker is damaged.
    """
    markers, damaged = list_readable_run_markers(storage, table_id)
    for error in damaged:
        raise error
    return markers


def list_readable_run_markers(
    storage: Storage, table_id: str
) -> tuple[list[RunMarker], list[CorruptDataError]]:
    """Return all run markers that can be read, and the errors of the others."""
    markers, damaged = [], []
    for stored in storage.list(run_marker_prefix(table_id)):
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
        span = range_from_hex(stored.range_min, stored.range_max)
        superseded = decode_superseded(stored.superseded, span)
        provenance = Provenance(
            range=span,
            job=stored.job,
            written_ms=stored.written_ms,
            number=len(stored.numbers),
            lineage=Lineage(stored.sources, stored.inputs, superseded, stored.completed),
            generation=stored.generation,
        )
        return RunMarker(run_of_marker(path), provenance, stored.numbers)


def discard_shards(
    storage: Storage, table_id: str, shards: Iterable[str], state: TableState
) -> None:
    """Delete shards that no commit names or will name; `state` is the newest known.

    The object that shows that a run is complete is deleted first: its marker, or its last shard. A
    run that has one of these but lacks other shards would be taken for a committed run. The marker
    stays if the state has other shards of the run.
    """
    committed = {run_of_shard(shard)[0] for shard in state.shards}
    runs: dict[str, list[str]] = {}
    for shard in shards:
        runs.setdefault(run_of_shard(shard)[0], []).append(shard)
    ends, others = [], []
    for run, found in runs.items():
        *before, last = sorted(found, key=run_of_shard)
        ends += [] if run in committed else [run_marker_path(table_id, run)]
        ends += paths_of_shard(table_id, last)
        others += [path for shard in before for path in paths_of_shard(table_id, shard)]
    _delete(storage, ends)
    _delete(storage, others)


def _delete(storage: Storage, paths: Sequence[str]) -> None:
    if paths:
        storage.delete(paths)


def obsolete_run_markers(
    storage: Storage,
    table_id: str,
    current: Callable[[], TableState],
    *,
    before_ms: int,
) -> tuple[list[str], list[CorruptDataError]]:
    """Return the paths of run markers that are no longer needed, and the errors of damaged ones.

    A marker is obsolete if the state has nothing that it mentions. The state is read after the
    markers were listed, so it includes everything that was committed before a marker was put.
    Markers put after `before_ms` are kept, because their runs may not be committed yet.
    """
    objects = storage.list(run_marker_prefix(table_id))
    old = {run_of_marker(stored.path) for stored in objects if stored.modified_ms <= before_ms}
    markers, damaged = list_readable_run_markers(storage, table_id)
    if not markers:
        return [], damaged
    state = current()
    runs = frozenset(run_of_shard(shard)[0] for shard in state.shards)
    obsolete = [
        run_marker_path(table_id, marker.run)
        for marker in markers
        if marker.run in old and not _is_needed(marker, runs, state)
    ]
    return obsolete, damaged


def _is_needed(marker: RunMarker, runs: frozenset[str], state: TableState) -> bool:
    """Return whether the state still has anything that a marker mentions;
    `runs` are those of the state.
    """
    if marker.run in runs or marker.run in state.jobs:
        return True
    lineage = marker.provenance.lineage
    shards = (*(shard for shard, _ in marker.provenance.merged), *lineage.completed)
    return any(run_of_shard(shard)[0] in runs for shard in shards) or any(
        source in state.sources for source in lineage.sources
    )
