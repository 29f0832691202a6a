"""export_rows: run one task of an export; the last task to finish writes the manifest.

Each finished task saves the list of its files. A run that then finds all tasks finished completes
the export; completing it twice changes nothing. A heavy export is one job, whose tasks run in
parallel on Spark; it completes in the same way. If two runs of a task crash (out of memory,
time-out), the whole export is handed to Spark; without Spark the export fails, and its reason says
what to do.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from pathlib import Path
from typing import Protocol

import msgspec
import pyarrow as pa

from dormouse import errors, jobs
from dormouse.arrow.order import OrderCheck, row_key, row_span
from dormouse.arrow.types import arrow_schema
from dormouse.features import export as exports
from dormouse.features.requests import ResultFile
from dormouse.files import results
from dormouse.key_codec import KeyCodec
from dormouse.keys import Key, decode_key, encode_key
from dormouse.messages.stages import ExportJob, ExportTask, OutboundMessage
from dormouse.ports import Objects, Services, Storage, Upload
from dormouse.query.rows import QueryResources, query_slices
from dormouse.query.selection import slices_from
from dormouse.schema.schema import ASKED, Schema
from dormouse.shards.footer import read_metadata
from dormouse.shards.reading import Slice, verify_shard
from dormouse.state.jobs import Failed, Finished, Started
from dormouse.state.state import Piece
from dormouse.stored.decoding import decode_json, raise_corrupt
from dormouse.stored.paths import export_attempts_prefix, exported_file, exported_prefix, shard_path
from dormouse.system import OwnFolder

# Write sorted rows to one Parquet file of an export; files are divided between row keys.
#
# The footer of a file names its export, task and number, and the key at which the next file begins.
# So the files alone say where the next run of a task continues.

METADATA_KEY = "dormouse-export"
FILE_BYTES = 256 * 1024 * 1024
"""About the size at which a file of an export ends."""


@dataclass(frozen=True, slots=True)
class FileId:
    """Which file of an export: file `number` of a task, from 0."""

    export: str
    task: int
    number: int


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file's number of rows, and the row key at which the next file of its task begins.

    `rest` is None for the last file of a task.
    """

    rows: int
    rest: Key | None


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON form; the key is a hexadecimal `encode_key`."""

    export: str
    task: int
    number: int
    rest: str | None
    v: int = 1


def write_file(
    batches: Iterable[pa.RecordBatch],
    local: Path,
    place: FileId,
    schema: Schema,
    columns: Sequence[str],
    *,
    is_late: Callable[[], bool] = lambda: False,
    written: Callable[[int], None] = lambda final_bytes: None,
) -> WrittenFile:
    """Write sorted rows to `local`, up to about `FILE_BYTES`; without rows no file is made.

    The batches have the keys and `columns`, the file only `columns`. Once so much is written, or if
    `is_late`, the file ends before the next row key: all rows of one row key are in one file. For
    row keys a, b, b, b, c and a limit reached after the first b, the file has a, b, b, b, and the
    next begins at c. So the next file begins at a key, and no row is written twice. `written` is
    called with how many bytes of the file are there and will not change.
    Raises UnsortedRowsError: the rows are not sorted.
    """
    rows = (batch for batch in batches if batch.num_rows)
    if (first := next(rows, None)) is None:
        return WrittenFile(0, None)
    whole = arrow_schema(schema.with_values(*(f for f in ASKED if f.name in columns)))
    shown = pa.schema([whole.field(name) for name in columns])
    # rows are sorted by the keys up to the first that is not selected
    leading = takewhile(lambda field: field.name in columns, schema.keys)
    with pa.OSFile(str(local), "wb") as sink:
        sorted_by = [columns.index(field.name) for field in leading]
        file = results.ParquetRows(sink, shown, sorted_by=sorted_by)

        def is_full() -> bool:
            return bool(file.rows) and (sink.tell() >= FILE_BYTES or is_late())

        def write(batch: pa.RecordBatch) -> None:
            file.write(batch.select(columns).cast(shown))
            written(sink.tell())

        try:
            rest = _write_rows(chain([first], rows), schema, file, write, is_full)
            key = None if rest is None else encode_key(rest).hex()
            form = _Stored(place.export, place.task, place.number, key)
            file.close({METADATA_KEY: msgspec.json.encode(form).decode()})
            return WrittenFile(file.rows, rest)
        finally:
            file.end()


def _write_rows(
    batches: Iterable[pa.RecordBatch],
    schema: Schema,
    file: results.ParquetRows,
    write: Callable[[pa.RecordBatch], None],
    is_full: Callable[[], bool],
) -> Key | None:
    """Write rows, from `is_full` on only those with the last row key; return the next row key."""
    check = OrderCheck(schema)
    last: Key = ()
    for batch in batches:
        check.see(batch)
        while batch.num_rows:
            if is_full():
                same = row_span(batch, last, schema)[1]
                write(batch.slice(0, same))
                if same < batch.num_rows:
                    return row_key(batch, same, schema)
                break
            count = min(file.room, batch.num_rows)
            write(batch.slice(0, count))
            last = row_key(batch, count - 1, schema)
            batch = batch.slice(count)
    return None


def read_existing(objects: Objects, path: str, size_bytes: int, place: FileId) -> WrittenFile:
    """Return the content of a file that an earlier run put.

    Raises:
        AlreadyExistsError: the file is not this file of this export.
        CorruptDataError: the file is damaged.
    """
    metadata = read_metadata(objects, path, size_bytes, is_shard=False)
    body = (metadata.metadata or {}).get(METADATA_KEY.encode())
    if body is None:
        raise _foreign(path)
    with raise_corrupt(f"{path} is damaged"):
        form = decode_json(body, _Stored)
        rest = None if form.rest is None else decode_key(bytes.fromhex(form.rest))
    if FileId(form.export, form.task, form.number) != place:
        raise _foreign(path)
    return WrittenFile(metadata.num_rows, rest)


def _foreign(path: str) -> errors.AlreadyExistsError:
    return errors.AlreadyExistsError(
        f"{path} exists already, and is not a file of this export",
        hint="export to a prefix of its own",
    )


# Write the Parquet files of one export task, in a function or in a Spark executor.
#
# Each file is put once, under a name made from the numbers of its task and file. Its footer has the
# key at which the next file begins, so a later run continues where the last file ends.


class ExportWorker(QueryResources, Protocol):
    """What a task needs of the process that runs it; `ports.Services` has it."""

    @property
    def results(self) -> Storage:
        """The storage of the files."""


def write_task(
    worker: ExportWorker,
    export: exports.ExportRequest,
    task: int,
    *,
    is_late: Callable[[], bool] = lambda: False,
) -> bool:
    """Write the missing files of a task, then save the list of its files.

    Return False if `is_late` before the task is finished; at least one file is written in any case.
    Raises NotFoundError: a shard that the task needs was collected, or the export has ended.
    """
    parts = exports.parts_of(worker.storage, export)
    pieces = parts.pieces(task)
    skipped: tuple[exports.SkippedShard, ...] = ()
    if export.skip_damaged:
        pieces, skipped = intact_pieces(worker.storage, export, pieces)
    files = _TaskRun(worker, export, task, is_late).write(pieces)
    if files is None:
        return False
    parts.end(task, exports.TaskFiles(tuple(files), skipped))
    return True


def intact_pieces(
    storage: Storage, export: exports.ExportRequest, pieces: Sequence[Piece]
) -> tuple[tuple[Piece, ...], tuple[exports.SkippedShard, ...]]:
    """Return pieces without the shards that are lost, or damaged in any byte, and these shards.

    Each shard is read once more for that, whole: a part of one that seems right may be of a shard
    whose other parts show that its bytes are not what was written.
    """
    codec, skipped = KeyCodec(export.read.schema), {}
    for shard in {shard.id: shard for piece in pieces for shard in piece.shards}.values():
        path = shard_path(export.read.id, shard.id)
        try:
            verify_shard(storage, path, export.read.id, shard)
        except errors.NotFoundError:
            reason = "there is no such object"
        except errors.CorruptDataError as error:
            reason = str(error)
        else:
            continue
        ends = codec.to_json(shard.min_key), codec.to_json(shard.max_key)
        skipped[shard.id] = exports.SkippedShard(path, shard.rows, *ends, reason)

    def without(piece: Piece) -> Piece:
        return replace(piece, shards=tuple(s for s in piece.shards if s.id not in skipped))

    return tuple(map(without, pieces)), tuple(skipped.values())


@dataclass(frozen=True, slots=True)
class _TaskRun:
    worker: ExportWorker
    export: exports.ExportRequest
    task: int
    is_late: Callable[[], bool]

    def write(self, pieces: Sequence[Piece]) -> list[ResultFile] | None:
        """Write the missing files and return all; None if `is_late` before the task is finished."""
        files, rest = self._existing_files()
        has_written = False
        while rest is not None:
            if has_written and self.is_late():
                return None
            rest = self._write_next(files, slices_from(pieces, rest))
            has_written = True
        return files

    def _existing_files(self) -> tuple[list[ResultFile], Key | None]:
        """Return the files that earlier runs put, and the key at which the next file begins."""
        files: list[ResultFile] = []
        rest: Key | None = ()
        for item in self.worker.results.list(self._path(exported_prefix(self.task))):
            place = FileId(self.export.id, self.task, len(files))
            name = exported_file(self.task, place.number)
            if item.path == self._path(name):
                file = read_existing(self.worker.results, item.path, item.size_bytes, place)
                files.append(ResultFile(name, file.rows, item.size_bytes))
                rest = file.rest
        return files, rest

    def _write_next(self, files: list[ResultFile], parts: list[list[Slice]]) -> Key | None:
        """Write the next file, if rows are left; return the key at which its successor begins."""
        place = FileId(self.export.id, self.task, len(files))
        name = exported_file(self.task, place.number)
        with OwnFolder(dir=self.worker.scratch) as folder:
            local = Path(folder) / name
            upload = self.worker.results.start_upload(self._path(name), local)
            try:
                file = self._write_local(local, place, parts, upload)
                if not file.rows:
                    return None
                file, size_bytes = self._publish(local, upload, place, file)
            finally:
                upload.abort()
        files.append(ResultFile(name, file.rows, size_bytes))
        return file.rest

    def _write_local(
        self, local: Path, place: FileId, parts: list[list[Slice]], upload: Upload
    ) -> WrittenFile:
        source = self.export.read
        keys = (field.name for field in source.schema.keys)
        columns = tuple(dict.fromkeys((*keys, *source.selection.columns)))
        selection = replace(source.selection, columns=columns)
        with closing(
            query_slices(self.worker, source.table, parts, selection, as_stored=True)
        ) as rows:
            return write_file(
                rows,
                local,
                place,
                source.schema,
                source.selection.columns,
                is_late=self.is_late,
                written=upload.advance,
            )

    def _publish(
        self, local: Path, upload: Upload, place: FileId, file: WrittenFile
    ) -> tuple[WrittenFile, int]:
        """Put a file; return its content and size, or those of the file that another run put."""
        if upload.complete():
            return file, local.stat().st_size
        path, there = self._path(exported_file(self.task, place.number)), self.worker.results
        (item,) = [each for each in there.list(path) if each.path == path]
        return read_existing(there, path, item.size_bytes, place), item.size_bytes

    def _path(self, name: str) -> str:
        return f"{self.export.to}/{name}"


WHAT_TO_DO = (
    "export it in parts, by ranges of keys, or deploy with a larger RowsMemory or with "
    "Spark=yes; then request it again"
)
STEP_SECONDS = 240
"""How long a run of a task takes before it ends its file and continues with a new message."""

WriteTasks = Callable[[exports.ExportRequest, Sequence[int]], object]
"""Write some tasks of an export, in this process or on a cluster."""


def export_rows(services: Services, message: ExportTask) -> list[OutboundMessage]:
    """Run a task of an export, unless the export has ended.
    Raises UnavailableError: a service does not answer; the task can be retried.
    """
    export = _running(services, message.table_id, message.export_id)
    if export is None:
        return []
    end_ms = services.clock.now_ms() + STEP_SECONDS * 1000

    def is_late() -> bool:
        return services.clock.now_ms() >= end_ms

    manifest = None
    runs = export_attempts_prefix(export.read.id, export.id, message.task)
    is_done = exports.parts_of(services.storage, export).has_ended(message.task)
    crashes = [] if is_done else jobs.crashed_attempts(services.storage, runs)
    has_failed = len(crashes) >= jobs.CRASH_LIMIT
    if has_failed and services.has_spark:
        return jobs.hand_to_spark(services, ExportJob(export.read.id, export.id), jobs.CRASHED)
    with _fail_on_permanent_error(services, export):
        if has_failed:
            raise errors.JobTooLargeError(
                f"{jobs.CRASHED}, in task {message.task}", hint=WHAT_TO_DO
            )
        if not is_done:
            _record_running(services, export)
            with jobs.record_attempt(services.storage, services.ids, runs):
                is_whole = write_task(services, export, message.task, is_late=is_late)
            if not is_whole:
                return [OutboundMessage("exports", message)]
        manifest = _manifest_if_done(services, export)
    _finish(services, export, manifest)
    return []


def export_all(services: Services, job: ExportJob, write: WriteTasks) -> None:
    """Run all unfinished tasks of an export, unless the export has ended.
    Raises UnavailableError: a service does not answer; the rest can be retried.
    """
    export = _running(services, job.table_id, job.job_id)
    if export is None:
        return
    manifest = None
    with _fail_on_permanent_error(services, export):
        _record_running(services, export)
        write(export, exports.unfinished_tasks(services.storage, export))
        manifest = _manifest_if_done(services, export)
    _finish(services, export, manifest)


def _running(services: Services, table_id: str, export_id: str) -> exports.ExportRequest | None:
    export = exports.load_export(services, table_id, export_id)
    return None if export is None or services.table(table_id) is None else export


@contextmanager
def _fail_on_permanent_error(services: Services, export: exports.ExportRequest) -> Iterator[None]:
    """Record why the block fails; an error that a retry cannot cure ends the export."""
    try:
        yield
    except (errors.UnavailableError, errors.OutcomeUnknownError) as error:
        jobs.record(services, export.tracked_job, Failed(error.explanation))
        raise
    except errors.DormouseError as error:
        if exports.load_export(services, export.read.id, export.id) is not None:  # still running
            reason = error.explanation
            if isinstance(error, errors.NotFoundError):
                what_to_do = "request the export again, and if it fails again, check the table"
                reason = f"{error}; {what_to_do}"
            jobs.record(services, export.tracked_job, Failed(reason))
            exports.delete_export(services, export)


def _manifest_if_done(
    services: Services, export: exports.ExportRequest
) -> exports.ExportManifest | None:
    """Write the manifest if all tasks are finished, and return it."""
    parts = exports.parts_of(services.storage, export)
    tasks = parts.ended(export.tasks)
    if len(tasks) < export.tasks:
        return None
    manifest = exports.build_manifest(export, parts.load_ends(tasks))
    exports.save_manifest(services, export, manifest)
    return manifest


def _finish(
    services: Services, export: exports.ExportRequest, manifest: exports.ExportManifest | None
) -> None:
    """Record that an export is finished, then delete its stored state.

    The manifest is written, so an error here must not record the export as failed.
    """
    if manifest is not None:
        jobs.record(services, export.tracked_job, Finished(rows=manifest.rows))
        exports.delete_export(services, export)


def _record_running(services: Services, export: exports.ExportRequest) -> None:
    newest = services.tracker.get(export.read.id, export.id)
    if newest is None or newest.state not in ("running", "finished"):
        jobs.record(services, export.tracked_job, Started())
