"""The note that ends a run whose shards cannot: none of them says that it is the last.

A compaction that left no rows has no shard to tell that the inputs do not count any more, nor to
carry on what their footers told of others. Shards that were written side by side do not know which
of them is the last, so none tells that all are there. The note is put when all shards are written
and before the commit; of a run that is given up it is deleted first. Its form is described in
docs/shard-format.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.model.provenance import Lineage, Provenance
from dormouse.model.state import TableState
from dormouse.ports import Storage
from dormouse.shards.footer import key_to_hex, range_from_hex
from dormouse.stored.decoding import raise_corrupt
from dormouse.stored.json_objects import decode_stored, encode_stored
from dormouse.stored.names import (
    run_marker_path,
    run_marker_prefix,
    run_of_marker,
    run_of_shard,
    shard_path,
)

FORMAT = 3
_KIND = "the end of a run"
_HINT = (
    "bring it back from an older object version; if there is none, delete it when `dormouse check "
    "NAME` finds nothing wrong and gc_delay_seconds of the table have gone by since it was put"
)


@dataclass(frozen=True, slots=True)
class RunMarker:
    """A run's end: `origin` is that of a last shard without rows; its number counts the others."""

    run: str
    origin: Provenance


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    range_min: str
    range_max: str | None
    job: str
    written_ms: int
    generation: int
    sources: tuple[str, ...]
    inputs: tuple[str, ...]
    superseded: tuple[str, ...]
    completed: tuple[str, ...]
    shards: int = 0


def put_run_marker(storage: Storage, table_id: str, ending: RunMarker) -> None:
    """Note that a run is whole; that it was noted before is fine."""
    origin = ending.origin
    lineage = origin.lineage
    body = _Stored(
        range_min=key_to_hex(origin.range.min),
        range_max=None if origin.range.max is None else key_to_hex(origin.range.max),
        job=origin.job,
        written_ms=origin.written_ms,
        generation=origin.generation,
        sources=lineage.sources,
        inputs=lineage.inputs,
        superseded=lineage.superseded,
        completed=lineage.completed,
        shards=origin.number,
    )
    path = run_marker_path(table_id, ending.run)
    storage.put(path, encode_stored(_KIND, FORMAT, path, body))


def read_run_markers(storage: Storage, table_id: str) -> list[RunMarker]:
    """Return each note there is.

    Raises:
        CorruptDataError: one is damaged.
    """
    endings, damaged = list_readable_run_markers(storage, table_id)
    for error in damaged:
        raise error
    return endings


def list_readable_run_markers(
    storage: Storage, table_id: str
) -> tuple[list[RunMarker], list[CorruptDataError]]:
    """Return each note there is that can be read, and what is wrong with the others."""
    endings, damaged = [], []
    for stored in storage.list(run_marker_prefix(table_id)):
        try:
            body = storage.get(stored.path)
            endings.append(RunMarker(run_of_marker(stored.path), _origin(stored.path, body)))
        except NotFoundError:
            continue  # deleted since it was listed
        except CorruptDataError as error:
            damaged.append(error)
    return endings, damaged


def _origin(path: str, body: bytes) -> Provenance:
    with raise_corrupt(f"{path} is damaged", hint=_HINT):
        note = decode_stored(_KIND, FORMAT, path, body, _Stored)
        return Provenance(
            range=range_from_hex(note.range_min, note.range_max),
            job=note.job,
            written_ms=note.written_ms,
            number=note.shards,
            lineage=Lineage(note.sources, note.inputs, note.superseded, note.completed),
            generation=note.generation,
        )


def discard_shards(
    storage: Storage, table_id: str, shards: Iterable[str], state: TableState
) -> None:
    """Delete shards that no commit names or will name, `state` being the newest known.

    What tells that a run is whole goes first, its note or its last shard: a run that has that but
    lacks others is taken for one that was committed. If the state has others of a run, the note
    stays.
    """
    committed = {run_of_shard(shard)[0] for shard in state.shards}
    runs: dict[str, list[str]] = {}
    for shard in shards:
        runs.setdefault(run_of_shard(shard)[0], []).append(shard)
    ends, others = [], []
    for run, found in runs.items():
        *before, last = sorted(found, key=run_of_shard)
        ends += [] if run in committed else [run_marker_path(table_id, run)]
        ends.append(shard_path(table_id, last))
        others += [shard_path(table_id, shard) for shard in before]
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
    """Return the paths of notes that tell nothing any more, and what is wrong with damaged ones.

    All that such a note speaks of is gone from the state, which is read after the notes were
    listed: what was done when a note was put is in it. Notes put after `before_ms` are kept, for
    their run may not be committed yet.
    """
    listed = storage.list(run_marker_prefix(table_id))
    old = {run_of_marker(stored.path) for stored in listed if stored.modified_ms <= before_ms}
    endings, damaged = list_readable_run_markers(storage, table_id)
    if not endings:
        return [], damaged
    state = current()
    runs = frozenset(run_of_shard(shard)[0] for shard in state.shards)
    spent = [
        run_marker_path(table_id, ending.run)
        for ending in endings
        if ending.run in old and not _tells_something(ending, runs, state)
    ]
    return spent, damaged


def _tells_something(ending: RunMarker, runs: frozenset[str], state: TableState) -> bool:
    """Return whether anything a note speaks of is still there; `runs` are those of the state."""
    if ending.run in runs or ending.run in state.jobs:
        return True
    lineage = ending.origin.lineage
    shards = (*lineage.inputs, *lineage.superseded, *lineage.completed)
    return any(run_of_shard(shard)[0] in runs for shard in shards) or any(
        source in state.sources for source in lineage.sources
    )
