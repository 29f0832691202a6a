"""export_rows: one task of an export → its Parquet files; the last one done writes the manifest.

A task is cut into files, each put once under a name that follows from the task. A file says at
which key the next begins, so a run that was cut off is gone on with where its last file ends. What
a finished task wrote is kept; whoever then finds all tasks done finishes the export, and does
nothing new if another has.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from dormouse.errors import (
    DormouseError,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from dormouse.messages import ExportTask, Outgoing
from dormouse.model.exports import Export, ExportedFile, Piece
from dormouse.model.keys import Key, KeyRange
from dormouse.model.names import exported_file, exported_prefix
from dormouse.ports import Services
from dormouse.shards.exporting import (
    FILE_BYTES,
    Place,
    Written,
    columns_to_read,
    read_written,
    write_file,
)
from dormouse.shards.predicates import parse_predicate
from dormouse.shards.querying import QueryResult, query_parts
from dormouse.shards.reading import Slice
from dormouse.stages.exports import (
    done_paths,
    files_of,
    forget_export,
    is_done,
    keep_done,
    kept_export,
    pieces_of,
)
from dormouse.stages.manifests import manifest_of, put_manifest
from dormouse.stages.tracking import record

STEP_SECONDS = 240
"""After how long a task ends its file and goes on by another message."""


def export_rows(
    services: Services,
    message: ExportTask,
    *,
    step_seconds: float = STEP_SECONDS,
    file_bytes: int = FILE_BYTES,
) -> list[Outgoing]:
    """Do a task of an export, unless the export has ended.

    Raises:
        UnavailableError: something did not answer for now; the task can be done later.
    """
    export = kept_export(services, message.table_id, message.export_id)
    if export is None or services.table(export.table_id) is None:
        return []
    try:
        if not is_done(services, export, message.task):
            _tell_running(services, export)
            files = _Run(services, export, message.task, step_seconds, file_bytes).write()
            if files is None:
                return [Outgoing("exports", message)]
            keep_done(services, export, message.task, files)
        _finish_if_done(services, export)
    except (UnavailableError, OutcomeUnknownError) as error:
        record(services, export.table_id, export.id, "export", "failed", reason=error.explanation)
        raise
    except DormouseError as error:
        if kept_export(services, export.table_id, export.id) is not None:  # nobody has ended it
            record(services, export.table_id, export.id, "export", "failed", reason=_reason(error))
            forget_export(services, export)
    return []


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of one task."""

    services: Services
    export: Export
    task: int
    step_seconds: float
    file_bytes: int

    def write(self) -> list[ExportedFile] | None:
        """Write what is not there yet of the task's files; None if there was no time for all."""
        pieces = pieces_of(self.services, self.export, self.task)
        end_ms = self.services.clock.now_ms() + self.step_seconds * 1000

        def is_late() -> bool:
            return self.services.clock.now_ms() >= end_ms

        files, rest = self._there()
        has_written = False
        while rest is not None:
            if has_written and is_late():
                return None
            rest = self._write_next(files, _beyond(pieces, rest), is_late)
            has_written = True
        return files

    def _there(self) -> tuple[list[ExportedFile], Key | None]:
        """Give the files that earlier runs put, and the key at which the next begins."""
        files: list[ExportedFile] = []
        rest: Key | None = ()
        for stored in self.services.results.list(self._path(exported_prefix(self.task))):
            place = self._place(len(files))
            name = exported_file(place.task, place.number)
            if stored.path == self._path(name):
                found = read_written(self.services.results, stored.path, stored.size_bytes, place)
                files.append(ExportedFile(name, found.rows, stored.size_bytes))
                rest = found.rest
        return files, rest

    def _write_next(
        self, files: list[ExportedFile], parts: list[list[Slice]], is_late: Callable[[], bool]
    ) -> Key | None:
        """Write the next file, unless there are no rows, and give the key at which it ends."""
        place = self._place(len(files))
        name = exported_file(place.task, place.number)
        with tempfile.TemporaryDirectory(dir=self.services.scratch) as folder:
            local = Path(folder) / name
            with closing(self._query(parts).reader) as rows:
                written = write_file(
                    rows,
                    local,
                    place,
                    self.export.schema,
                    self.export.columns,
                    file_bytes=self.file_bytes,
                    is_late=is_late,
                )
            if not written.rows:
                return None
            written, size_bytes = self._publish(local, place, written)
        files.append(ExportedFile(name, written.rows, size_bytes))
        return written.rest

    def _query(self, parts: list[list[Slice]]) -> QueryResult:
        export, services = self.export, self.services
        return query_parts(
            services.storage,
            export.table,
            export.version,
            parts,
            columns=columns_to_read(export.schema, export.columns),
            where=parse_predicate(export.where, export.schema) if export.where else None,
            now_ms=export.time_ms,
            memory_bytes=services.memory_bytes,
            cache=services.cache,
        )

    def _publish(self, local: Path, place: Place, written: Written) -> tuple[Written, int]:
        """Put a file; give what is in it, or in that which another run put before, and its size."""
        path = self._path(exported_file(place.task, place.number))
        results = self.services.results
        if results.upload(path, local):
            return written, local.stat().st_size
        (stored,) = [found for found in results.list(path) if found.path == path]
        return read_written(results, path, stored.size_bytes, place), stored.size_bytes

    def _place(self, number: int) -> Place:
        return Place(self.export.id, self.task, number)

    def _path(self, name: str) -> str:
        return f"{self.export.to}/{name}"


def _beyond(pieces: Iterable[Piece], start: Key) -> list[list[Slice]]:
    """Give what of pieces lies at a key and beyond."""
    parts = []
    for piece in pieces:
        span = piece.range.intersection(KeyRange(start))
        if not span.is_empty():
            shards = (s for s in piece.shards if span.overlaps_span(s.min_key, s.max_key))
            parts.append([Slice(shard, span) for shard in shards])
    return [part for part in parts if part]


def _finish_if_done(services: Services, export: Export) -> None:
    """Write the manifest if all tasks are done; a crash here has the redelivery do it again."""
    paths = done_paths(services, export.table_id, export.id)
    if len(paths) < export.tasks:
        return
    manifest = manifest_of(export, files_of(services, paths))
    put_manifest(services, export, manifest)
    record(services, export.table_id, export.id, "export", "finished", rows=manifest.rows)
    forget_export(services, export)


def _tell_running(services: Services, export: Export) -> None:
    told = services.tracker.get(export.table_id, export.id)
    if told is None or told.state != "running":
        record(services, export.table_id, export.id, "export", "running")


def _reason(error: DormouseError) -> str:
    if isinstance(error, NotFoundError):
        return f"{error}; raise gc_delay_seconds of the table, or export it in parts"
    return error.explanation
