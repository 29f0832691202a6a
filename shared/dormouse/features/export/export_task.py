"""Write the Parquet files of one export task, in a function or in a Spark executor.

Each file is put once, under a name made from the numbers of its task and file. Its footer has the
key at which the next file begins, so a later run continues where the last file ends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.features.export.export import Export, ExportedFile, SkippedShard
from dormouse.features.export.files import (
    FILE_BYTES,
    FileId,
    WrittenFile,
    columns_to_read,
    read_existing,
    write_file,
)
from dormouse.features.export.stored import load_pieces, save_task_files
from dormouse.key_forms.codec import KeyCodec
from dormouse.keys.ranges import Key
from dormouse.model.state import Piece
from dormouse.ports.services import Storage
from dormouse.ports.uploads import Upload
from dormouse.query.planner import slices_from
from dormouse.query.result import QueryResult
from dormouse.query.rows import QueryResources, query_slices
from dormouse.readers.auditing import audit_shard
from dormouse.readers.reading import Slice
from dormouse.shards.format.footer import check_identity, read_metadata
from dormouse.stored.paths import exported_file, exported_prefix, shard_path


class Worker(QueryResources, Protocol):
    """What a task needs of the process that runs it; `ports.Services` has it."""

    @property
    def results(self) -> Storage:
        """The storage of the files."""


def write_task(
    worker: Worker,
    export: Export,
    task: int,
    *,
    is_late: Callable[[], bool] = lambda: False,
    file_bytes: int = FILE_BYTES,
) -> bool:
    """Write the missing files of a task, then save the list of its files.

    Return False if `is_late` before the task is finished; at least one file is written in any case.

    Raises:
        NotFoundError: a shard that the task needs was collected, or the export has ended.
    """
    pieces = load_pieces(worker.storage, export, task)
    skipped: tuple[SkippedShard, ...] = ()
    if export.skip_damaged:
        pieces, skipped = intact_pieces(worker.storage, export, pieces)
    files = _TaskRun(worker, export, task, is_late, file_bytes).write(pieces)
    if files is None:
        return False
    save_task_files(worker.storage, export, task, files, skipped)
    return True


def intact_pieces(
    storage: Storage, export: Export, pieces: Sequence[Piece]
) -> tuple[tuple[Piece, ...], tuple[SkippedShard, ...]]:
    """Return pieces without the shards that are lost, or damaged in any byte, and these shards.

    Each shard is read once more for that, whole: a part of one that seems right may be of a shard
    whose other parts show that its bytes are not what was written.
    """
    codec, skipped = KeyCodec(export.schema), {}
    for shard in {shard.id: shard for piece in pieces for shard in piece.shards}.values():
        path = shard_path(export.table_id, shard.id)
        try:
            metadata = read_metadata(storage, path, shard.size_bytes)
            check_identity(metadata, path, export.table_id, shard)
            audit_shard(storage, path, shard.size_bytes)
        except NotFoundError:
            reason = "there is no such object"
        except CorruptDataError as error:
            reason = str(error)
        else:
            continue
        ends = codec.to_json(shard.min_key), codec.to_json(shard.max_key)
        skipped[shard.id] = SkippedShard(path, shard.rows, *ends, reason)
    return tuple(_without(piece, skipped) for piece in pieces), tuple(skipped.values())


def _without(piece: Piece, skipped: Collection[str]) -> Piece:
    kept = [number for number, shard in enumerate(piece.shards) if shard.id not in skipped]
    rows = tuple(piece.rows[number] for number in kept) if piece.rows else ()
    return replace(piece, shards=tuple(piece.shards[number] for number in kept), rows=rows)


@dataclass(frozen=True, slots=True)
class _TaskRun:
    """One run of one task."""

    worker: Worker
    export: Export
    task: int
    is_late: Callable[[], bool]
    file_bytes: int

    def write(self, pieces: Sequence[Piece]) -> list[ExportedFile] | None:
        """Write the missing files and return all; None if `is_late` before the task is finished."""
        files, rest = self._existing_files()
        has_written = False
        while rest is not None:
            if has_written and self.is_late():
                return None
            rest = self._write_next(files, slices_from(pieces, rest))
            has_written = True
        return files

    def _existing_files(self) -> tuple[list[ExportedFile], Key | None]:
        """Return the files that earlier runs put, and the key at which the next file begins."""
        files: list[ExportedFile] = []
        rest: Key | None = ()
        for stored in self.worker.results.list(self._path(exported_prefix(self.task))):
            place = self._place(len(files))
            name = exported_file(place.task, place.number)
            if stored.path == self._path(name):
                found = read_existing(self.worker.results, stored.path, stored.size_bytes, place)
                files.append(ExportedFile(name, found.rows, stored.size_bytes))
                rest = found.rest
        return files, rest

    def _write_next(self, files: list[ExportedFile], parts: list[list[Slice]]) -> Key | None:
        """Write the next file, if rows are left; return the key at which its successor begins."""
        place = self._place(len(files))
        name = exported_file(place.task, place.number)
        with tempfile.TemporaryDirectory(dir=self.worker.scratch) as folder:
            local = Path(folder) / name
            upload = self.worker.results.start_upload(self._path(name), local)
            try:
                written = self._write_local(local, place, parts, upload)
                if not written.rows:
                    return None
                written, size_bytes = self._publish(local, upload, place, written)
            finally:
                upload.abort()
        files.append(ExportedFile(name, written.rows, size_bytes))
        return written.rest

    def _write_local(
        self, local: Path, place: FileId, parts: list[list[Slice]], upload: Upload
    ) -> WrittenFile:
        with closing(self._query(parts)) as rows:
            return write_file(
                rows,
                local,
                place,
                self.export.schema,
                self.export.selection.columns,
                file_bytes=self.file_bytes,
                is_late=self.is_late,
                written=upload.advance,
            )

    def _query(self, parts: list[list[Slice]]) -> QueryResult:
        export = self.export
        columns = columns_to_read(export.schema, export.selection.columns)
        selection = replace(export.selection, columns=tuple(columns))
        return query_slices(self.worker, export.table, parts, selection)

    def _publish(
        self, local: Path, upload: Upload, place: FileId, written: WrittenFile
    ) -> tuple[WrittenFile, int]:
        """Put a file; return its content and size, or those of the file that another run put."""
        if upload.complete():
            return written, local.stat().st_size
        path = self._path(exported_file(place.task, place.number))
        results = self.worker.results
        (stored,) = [found for found in results.list(path) if found.path == path]
        return read_existing(results, path, stored.size_bytes, place), stored.size_bytes

    def _place(self, number: int) -> FileId:
        return FileId(self.export.id, self.task, number)

    def _path(self, name: str) -> str:
        return f"{self.export.to}/{name}"
