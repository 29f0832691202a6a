"""What is told of a compaction that left no rows: a note in the place of an output.

Without it nothing would tell that the inputs do not count any more, nor carry on what their footers
told of others. A note is put before the commit, as outputs are. Its form is described in
docs/shard-format.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.model.names import ending_path, ending_prefix, run_of
from dormouse.model.origins import Lineage, Origin
from dormouse.model.state import TableState
from dormouse.ports import Storage
from dormouse.shards.footer import key_of_stored, stored_key


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    v: int
    partition: str
    splits: tuple[str, ...]
    job: str
    written_ms: int
    generation: int
    sources: tuple[str, ...]
    inputs: tuple[str, ...]
    superseded: tuple[str, ...]
    completed: tuple[str, ...]


def put_ending(storage: Storage, table_id: str, origin: Origin) -> None:
    """Note that a job left no rows; that it was noted before is fine."""
    lineage = origin.lineage
    body = _Stored(
        v=1,
        partition=origin.partition,
        splits=tuple(stored_key(key) for key in origin.splits),
        job=origin.job,
        written_ms=origin.written_ms,
        generation=origin.generation,
        sources=lineage.sources,
        inputs=lineage.inputs,
        superseded=lineage.superseded,
        completed=lineage.completed,
    )
    storage.put(ending_path(table_id, origin.job), msgspec.json.encode(body))


def read_endings(storage: Storage, table_id: str) -> Iterator[tuple[str, Origin]]:
    """Give the path and content of each note there is.

    Raises:
        CorruptDataError: one is damaged.
    """
    for stored in storage.list(ending_prefix(table_id)):
        try:
            yield stored.path, _origin(stored.path, storage.get(stored.path))
        except NotFoundError:
            continue  # deleted since it was listed


def _origin(path: str, body: bytes) -> Origin:
    try:
        note = msgspec.json.decode(body, type=_Stored)
        if note.v != 1:
            raise CorruptDataError(f"{path} is of the unknown version {note.v}")
        return Origin(
            partition=note.partition,
            splits=tuple(key_of_stored(key) for key in note.splits),
            job=note.job,
            written_ms=note.written_ms,
            lineage=Lineage(note.sources, note.inputs, note.superseded, note.completed),
            generation=note.generation,
        )
    except (msgspec.DecodeError, ValueError) as error:
        raise CorruptDataError(f"{path} is damaged: {error}") from error


def spent_endings(storage: Storage, table_id: str, state: TableState, now_ms: int) -> list[str]:
    """Give the paths of notes that tell nothing any more: all they speak of is gone."""
    runs = {run_of(shard)[0] for shard in state.shards}
    return [
        path
        for path, origin in read_endings(storage, table_id)
        if origin.job not in state.jobs
        and not any(
            run_of(shard)[0] in runs
            for shard in (
                *origin.lineage.inputs,
                *origin.lineage.superseded,
                *origin.lineage.completed,
            )
        )
        and not any(state.has_ingested(source, now_ms) for source in origin.lineage.sources)
    ]
