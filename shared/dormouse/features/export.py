"""An export of one version of a table: its selection, its tasks, and the files they wrote.

All that the tasks need is fixed when the export begins: the schema, the row rules, and which shards
hold the rows. So all tasks read the same rows, whatever changes in the table meanwhile; a pin of
the version keeps those shards (`features.pins`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace as replace_fields

from dormouse.access import EVERYTHING
from dormouse.errors import AlreadyExistsError, CorruptDataError, InvalidRequestError, NotFoundError
from dormouse.features.pins import pin_export
from dormouse.features.requests import (
    UNKNOWN_OUTCOME,
    JobCheck,
    JobOutcome,
    RequestResult,
    StoredWork,
    resolve_live_table,
)
from dormouse.features.versions import read_as_of
from dormouse.jobs import SweepCheck, record
from dormouse.key_codec import KeyCodec
from dormouse.keys import KeyRange
from dormouse.messages.requests import Counts, ExportRows
from dormouse.messages.stages import ExportJob, ExportTask, OutboundMessage
from dormouse.ports import Services, Storage
from dormouse.query.selection import (
    Selection,
    StoredSelection,
    bytes_to_read,
    decode_pieces,
    decode_selection,
    encode_pieces,
    load_selection,
    plan_tasks,
    selected_ranges,
    store_selection,
)
from dormouse.schema.schema import Schema
from dormouse.state.jobs import Assigned, TrackedJob
from dormouse.state.state import Piece, TableState
from dormouse.storage import check_path
from dormouse.stored import checksums
from dormouse.stored.decoding import (
    check_format,
    decode_json,
    decode_stored,
    encode_stored,
    raise_corrupt,
    with_checksum,
)
from dormouse.stored.paths import (
    MANIFEST,
    export_done_path,
    export_done_prefix,
    export_parts_prefix,
    export_path,
    export_prefix,
    export_task_path,
    parse_export_path,
)
from dormouse.tables.properties import SparkOptions, properties_of
from dormouse.tables.table import Table


@dataclass(frozen=True, slots=True)
class Export:
    """Which rows are exported, and where to.

    `to` is the prefix in the results bucket. `selection` says which rows and columns of which
    version are read. `cut` is the id of the task files: if several deliveries plan tasks at
    once, the export that is saved first names the files that are used. `tasks` is their number, and
    `size_bytes` about how much of shards they read. If `spark` has options, one Spark job sized for
    `size_bytes` runs all tasks; otherwise functions do. With `skip_damaged`, rows of shards that
    are lost or damaged are left out, and the manifest names these shards.
    """

    id: str
    to: str
    table_id: str
    table_name: str
    schema: Schema
    selection: Selection
    filters: str = ""
    aggregations: str = ""
    cut: str = ""
    tasks: int = 0
    size_bytes: int = 0
    spark: SparkOptions | None = None
    skip_damaged: bool = False

    @property
    def tracked_job(self) -> TrackedJob:
        """Its job in the tracker."""
        return TrackedJob(self.table_id, self.id, "export")

    @property
    def table(self) -> Table:
        """The table when the export began, with the properties that reading its rows needs."""
        rules = {"filters": self.filters, "aggregations": self.aggregations}
        properties = properties_of({}, rules)
        return Table(self.table_id, self.table_name, self.schema, properties)


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file of an export; `name` is relative to the export's prefix."""

    name: str
    rows: int
    size_bytes: int


class SkippedShard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A shard of which an export left out all rows, because it is lost or damaged: the path of its
    object in the data root, how many rows it had, and their least and greatest row key as JSON.
    Rows are counted that were not selected, too, and those that are dead.
    """

    shard: str
    rows: int
    min_key: tuple[object, ...]
    max_key: tuple[object, ...]
    reason: str


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON form of an export."""

    id: str
    to: str
    table_id: str
    table_name: str
    selection: StoredSelection
    filters: str
    aggregations: str
    cut: str
    tasks: int
    size_bytes: int | UnsetType = UNSET
    spark: SparkOptions | UnsetType = UNSET
    skip_damaged: bool | UnsetType = UNSET


class _StoredFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    files: tuple[ExportedFile, ...]
    skipped: tuple[SkippedShard, ...] | UnsetType = UNSET


FORMAT = 1
TASK = "a task of an export"
"""The kind of the stored objects that have the pieces of tasks."""
_EXPORT, _FILES = "an export", "the files of a task of an export"
_ASK_AGAIN = (
    "request the export again, and delete the object <table id>/exports/<export id>.json; the "
    "sweep deletes its other objects"
)
_ENDED = "the export has failed: request it again"


def encode_export(export: Export, path: str) -> bytes:
    """Return the stored form of an export, for `path`."""
    body = _Stored(
        export.id,
        export.to,
        export.table_id,
        export.table_name,
        store_selection(export.selection, export.schema),
        export.filters,
        export.aggregations,
        export.cut,
        export.tasks,
        export.size_bytes or UNSET,
        export.spark or UNSET,
        export.skip_damaged or UNSET,
    )
    return encode_stored(_EXPORT, FORMAT, path, body)


def decode_export(stored: bytes, path: str) -> Export:
    """Parse the result of `encode_export`.

    Raises:
        CorruptDataError: the object at `path` is damaged or is no export.
    """
    with raise_corrupt(f"{path} is no export", hint=_ASK_AGAIN):
        body = decode_stored(_EXPORT, FORMAT, path, stored, _Stored)
        schema, selection = load_selection(body.selection)
        return Export(
            body.id,
            body.to,
            body.table_id,
            body.table_name,
            schema,
            selection,
            body.filters,
            body.aggregations,
            body.cut,
            body.tasks,
            body.size_bytes or 0,
            body.spark or None,
            bool(body.skip_damaged),
        )


def encode_files(
    files: Sequence[ExportedFile], path: str, skipped: Sequence[SkippedShard] = ()
) -> bytes:
    """Return the stored form of the list of files of a finished task, for `path`, and of the shards
    that it left out.
    """
    body = _StoredFiles(tuple(files), tuple(skipped) or UNSET)
    return encode_stored(_FILES, FORMAT, path, body)


def decode_files(
    stored: bytes, path: str
) -> tuple[tuple[ExportedFile, ...], tuple[SkippedShard, ...]]:
    """Parse the result of `encode_files`.

    Raises:
        CorruptDataError: the object at `path` is damaged or is no list of files.
    """
    with raise_corrupt(f"{path} names no files of an export", hint=_ENDED):
        body = decode_stored(_FILES, FORMAT, path, stored, _StoredFiles)
        return body.files, body.skipped or ()


# Save, load and delete the stored state of running exports.
#
# The export object is put last and deleted first: if it exists, all task objects do too.

OBJECTS_AT_ONCE = 8
BATCH = 1000


def load_export(services: Services, table_id: str, export_id: str) -> Export | None:
    """Return a running export; None if it has ended.

    Raises:
        CorruptDataError: the stored export is damaged.
    """
    path = export_path(table_id, export_id)
    try:
        return decode_export(services.storage.get(path), path)
    except NotFoundError:
        return None


def save_export(services: Services, export: Export) -> bool:
    """Save an export whose tasks are saved, so that it begins; False if it has begun already."""
    path = export_path(export.table_id, export.id)
    return services.storage.put(path, encode_export(export, path))


def save_tasks(services: Services, export: Export, tasks: Iterable[Sequence[Piece]]) -> int:
    """Save the pieces of each task, at least one task; return the number of tasks."""

    def save(numbered: tuple[int, Sequence[Piece]]) -> None:
        task, pieces = numbered
        path = export_task_path(export.table_id, export.id, export.cut, task)
        services.storage.put(path, encode_pieces(pieces, TASK, path))

    count = 0
    with ThreadPoolExecutor(OBJECTS_AT_ONCE) as threads:
        for window in _windows(tasks):
            for _ in threads.map(save, enumerate(window, start=count)):
                count += 1
    if not count:
        save((0, ()))
    return max(1, count)


def _windows(tasks: Iterable[Sequence[Piece]]) -> Iterable[list[Sequence[Piece]]]:
    """Yield tasks in groups, so that only a few are in memory."""
    window: list[Sequence[Piece]] = []
    for task in tasks:
        window.append(task)
        if len(window) == 4 * OBJECTS_AT_ONCE:
            yield window
            window = []
    if window:
        yield window


def export_messages(export: Export) -> list[OutboundMessage]:
    """Return the messages that start an export: one for Spark, or one for each task."""
    if export.spark is None:
        return task_messages(export, range(export.tasks))
    return [OutboundMessage("spark-jobs", ExportJob(export.table_id, export.id, export.spark))]


def task_messages(export: Export, tasks: Iterable[int]) -> list[OutboundMessage]:
    """Return the messages that make functions run tasks."""
    return [
        OutboundMessage("exports", ExportTask(export.table_id, export.id, task)) for task in tasks
    ]


def load_pieces(storage: Storage, export: Export, task: int) -> tuple[Piece, ...]:
    """Return the pieces of a task.

    Raises:
        NotFoundError: the export has ended, or has no such task.
        CorruptDataError: the stored task is damaged.
    """
    path = export_task_path(export.table_id, export.id, export.cut, task)
    return decode_pieces(storage.get(path), TASK, path)


def save_task_files(
    storage: Storage,
    export: Export,
    task: int,
    files: Sequence[ExportedFile],
    skipped: Sequence[SkippedShard] = (),
) -> None:
    """Save the list of files of a finished task, and of the shards that it left out; it marks the
    task as finished.
    """
    path = export_done_path(export.table_id, export.id, task)
    storage.put(path, encode_files(files, path, skipped))


def is_task_done(storage: Storage, export: Export, task: int) -> bool:
    """Return whether a task is finished."""
    path = export_done_path(export.table_id, export.id, task)
    try:
        storage.get(path)
    except NotFoundError:
        return False
    return True


def unfinished_tasks(services: Services, export: Export) -> list[int]:
    """Return the tasks that are not finished."""
    table_id, export_id = export.table_id, export.id
    done = set(finished_task_paths(services, table_id, export_id))
    tasks = range(export.tasks)
    return [task for task in tasks if export_done_path(table_id, export_id, task) not in done]


def finished_task_paths(services: Services, table_id: str, export_id: str) -> list[str]:
    """Return the paths of the lists of files of finished tasks, in the order of the tasks."""
    return [
        stored.path for stored in services.storage.list(export_done_prefix(table_id, export_id))
    ]


def load_task_files(
    services: Services, paths: Iterable[str]
) -> tuple[list[ExportedFile], list[SkippedShard]]:
    """Return the files that finished tasks wrote, and the shards that they left out, each once.

    Raises:
        NotFoundError: the export has ended meanwhile.
        CorruptDataError: a stored list is damaged.
    """

    def load(path: str) -> tuple[tuple[ExportedFile, ...], tuple[SkippedShard, ...]]:
        return decode_files(services.storage.get(path), path)

    with ThreadPoolExecutor(OBJECTS_AT_ONCE) as threads:
        tasks = list(threads.map(load, paths))
    skipped = {shard.shard: shard for _, shards in tasks for shard in shards}
    return [file for files, _ in tasks for file in files], list(skipped.values())


def delete_export(services: Services, export: Export) -> None:
    """Delete the stored state of an export; after a crash the sweep deletes the rest."""
    services.storage.delete([export_path(export.table_id, export.id)])
    parts = services.storage.list(export_parts_prefix(export.table_id, export.id))
    delete_all(services, [stored.path for stored in parts])


def delete_all(services: Services, paths: Sequence[str]) -> None:
    """Delete objects, in batches."""
    for start in range(0, len(paths), BATCH):
        services.storage.delete(paths[start : start + BATCH])


def list_exports(
    services: Services, table_id: str, before_ms: int
) -> tuple[dict[str, int], list[str]]:
    """Return the running exports that began before a time, and the paths of leftovers as old.

    Running exports are mapped to when they began. A leftover is the object of a task whose export
    has ended.
    """
    running: set[str] = set()
    begun_ms: dict[str, int] = {}
    parts: list[tuple[str, str]] = []
    for stored in services.storage.list(export_prefix(table_id)):
        export_id, is_export = parse_export_path(stored.path)
        if is_export:
            running.add(export_id)
        if stored.modified_ms > before_ms:
            continue
        if is_export:
            begun_ms[export_id] = stored.modified_ms
        else:
            parts.append((export_id, stored.path))
    return begun_ms, [path for export_id, path in parts if export_id not in running]


# The manifest of an export: its selection, the version it read, and every file with its rows.

MANIFEST_FORMAT = 1
JsonKey = tuple[object, ...]


class ManifestFile(msgspec.Struct, frozen=True):
    """A file of an export. `name` is relative to the manifest; names sort in key order."""

    name: str
    rows: int
    size_bytes: int


class Manifest(msgspec.Struct, frozen=True):
    """The content of an export's prefix. It is written last: if it exists, the export is complete.

    `schema` is the table's, `columns` are those of the files. `ranges` are pairs of keys, each a
    list of parts: the first inclusive, the second exclusive, null for an open end. `checksum`
    covers all bytes of the manifest except its own digits. `skipped` are the shards that are lost
    or damaged, of which an export with `skip_damaged` has no rows; unset if there are none.
    """

    export: str
    table: str
    table_id: str
    version: int
    time_ms: int
    schema: dict[str, Any]
    columns: tuple[str, ...]
    ranges: tuple[tuple[JsonKey, JsonKey | None], ...]
    where: str
    files: tuple[ManifestFile, ...]
    rows: int
    size_bytes: int
    skipped: tuple[SkippedShard, ...] | UnsetType = UNSET
    v: int = MANIFEST_FORMAT
    checksum: str = checksums.BLANK


def build_manifest(
    export: Export, files: Sequence[ExportedFile], skipped: Sequence[SkippedShard] = ()
) -> Manifest:
    """Return the manifest of a finished export; every run that finishes it builds the same."""
    schema, selection = export.schema, export.selection
    codec = KeyCodec(schema)
    return Manifest(
        export.id,
        export.table_name,
        export.table_id,
        selection.version,
        selection.time_ms,
        schema.to_json(),
        selection.columns,
        tuple(
            (
                codec.to_json(wanted.min),
                None if wanted.max is None else codec.to_json(wanted.max),
            )
            for wanted in selection.ranges
        ),
        selection.where,
        tuple(ManifestFile(file.name, file.rows, file.size_bytes) for file in files),
        sum(file.rows for file in files),
        sum(file.size_bytes for file in files),
        tuple(skipped) or UNSET,
    )


def save_manifest(services: Services, export: Export, manifest: Manifest) -> None:
    """Put the manifest beside its files; if this export has put it before, do nothing.

    Raises:
        AlreadyExistsError: the manifest of another export is there.
    """
    if services.results.put(manifest_path(export.to), encode_manifest(manifest)):
        return
    found = load_manifest(services.results, export.to)
    if found is None or found.export != export.id:
        raise AlreadyExistsError(
            f"the manifest of another export lies below {export.to!r} already",
            hint="export to a prefix of its own",
        )


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the stored form of a manifest, with its checksum."""
    return with_checksum(msgspec.json.format(msgspec.json.encode(manifest), indent=2))


def load_manifest(results: Storage, to: str) -> Manifest | None:
    """Return the manifest below a prefix; None if no export is complete there.

    Raises:
        CorruptDataError: the object is damaged or is no manifest.
    """
    path = manifest_path(to)
    try:
        body = results.get(path)
    except NotFoundError:
        return None
    with raise_corrupt(f"{path} is no manifest of an export", hint="export the rows again"):
        checksums.verify(body)
        manifest = decode_json(body, Manifest)
        check_format(manifest.v, MANIFEST_FORMAT)
        return replace_fields(manifest, checksum=checksums.BLANK)


def manifest_path(to: str) -> str:
    """Return the path of the manifest below a prefix."""
    return f"{to}/{MANIFEST}"


# export_rows: plan the export of one version of a table as tasks, and start them.
#
# Order: the version is pinned, the tasks are saved, then the export, which makes them valid. If
# several deliveries plan tasks at once, all of the version that the first pinned, the first export
# saved decides which task files are used.


class ExportWork(StoredWork, frozen=True, tag="export"):
    """The export of a request, and the prefix of its manifest."""

    export_id: str
    to: str

    @property
    def job_ids(self) -> list[str]:
        """The id of the export."""
        return [self.export_id]

    def unfinished_messages(self, services: Services, table: Table) -> list[OutboundMessage]:
        """Return the messages of all tasks, if the export is running."""
        export = load_export(services, table.id, self.export_id)
        return export_messages(export) if export is not None else []

    def outcomes(self, check: JobCheck) -> Iterator[JobOutcome]:
        """Yield the outcome of the export: finished if its manifest exists."""
        if load_export(check.services, check.table.id, self.export_id) is not None:
            yield check.unfinished(self.kind, self.export_id, check.record(self.export_id))
            return
        manifest = load_manifest(check.services.results, self.to)
        if manifest is None or manifest.export != self.export_id:
            known = check.record(self.export_id)
            reason = (
                known.reason if known is not None and known.state == "failed" else UNKNOWN_OUTCOME
            )
            yield JobOutcome(self.kind, self.export_id, "failed", reason)
            return
        files, size_bytes = len(manifest.files), manifest.size_bytes
        counts = Counts(finished=1, files=files, rows=manifest.rows, size_bytes=size_bytes)
        yield JobOutcome(self.kind, self.export_id, counts=counts)


def request_export(services: Services, request: ExportRows) -> RequestResult:
    """Save the export and its tasks, and return the messages that run them.

    A redelivery sends the messages again. If the request or the table's properties ask for Spark,
    one Spark job runs all tasks.

    Raises:
        InvalidRequestError: a key, column, condition, time or prefix is invalid.
        NotFoundError: no table has that name, or it is being deleted; or its version has expired
            or is about to, does not exist yet, or has rows of an earlier schema.
        ContendedError: to pin the version took too long; retry the message.
        AlreadyExistsError: there are objects below the prefix.
    """
    table = resolve_live_table(services, request)
    export_id = export_id_of(request.request_id)
    export = load_export(services, table.id, export_id)
    if export is None:
        table, state = read_as_of(services, table, request.selection.as_of)
        export = _wanted(services, table, state.version, request)
        if not _is_free(services, export):
            return RequestResult(work=ExportWork(export.id, export.to))
        export = _begin(services, table, state, export, request)
    record(services, export.tracked_job, Assigned(subject=export.to))
    return RequestResult(export_messages(export), ExportWork(export.id, export.to))


def export_id_of(request_id: str) -> str:
    """Return the id of the export of a request, derived from the request's id."""
    return blake2b(request_id.encode(), digest_size=8).hexdigest()


def destination(request: ExportRows) -> str:
    """Return the prefix of a request's files; by default the table's name and the export's id.

    Raises:
        InvalidRequestError: `to` is not a valid prefix.
    """
    to = request.to.rstrip("/") or f"{request.name}/{export_id_of(request.request_id)}"
    try:
        return check_path(to)
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"{request.to!r} is no prefix of the results bucket: {error}",
            hint="give the prefix alone, as flights/2026-01; the bucket is the instance's",
        ) from error


def _wanted(services: Services, table: Table, version: int, request: ExportRows) -> Export:
    """Return the requested export, validated against the table, without its tasks."""
    if request.selection.limit is not None:
        raise InvalidRequestError("an export has no limit", hint="select its rows by keys")
    now_ms = services.clock.now_ms()
    selection = decode_selection(
        request.selection,
        table.schema,
        permission=EVERYTHING,  # who may send requests may read every table
        version=version,
        time_ms=now_ms,
    )
    return Export(
        id=export_id_of(request.request_id),
        to=destination(request),
        table_id=table.id,
        table_name=table.name,
        schema=table.schema,
        selection=selection,
        filters=table.properties.filters,
        aggregations=table.properties.aggregations,
        skip_damaged=request.skip_damaged,
    )


def _is_free(services: Services, export: Export) -> bool:
    """Return True if the prefix is empty, False if this export is already complete there.

    Raises:
        AlreadyExistsError: there are other objects below the prefix.
    """
    if next(services.results.list(f"{export.to}/"), None) is None:
        return True
    manifest = load_manifest(services.results, export.to)
    if manifest is not None and manifest.export == export.id:
        return False
    raise AlreadyExistsError(
        f"there are files below {export.to!r} in the results bucket already",
        hint="export to a prefix of its own",
    )


def _begin(
    services: Services, table: Table, state: TableState, export: Export, request: ExportRows
) -> Export:
    state = pin_export(services, table, state, export.id)
    selection = replace(export.selection, version=state.version)
    ranges = selected_ranges(export.table, selection)
    export = replace(export, selection=selection, cut=services.ids.new())
    export = _for_spark(export, table, request.spark or None, state, ranges)
    tasks = save_tasks(services, export, plan_tasks(state, ranges))
    export = replace(export, tasks=tasks)
    if save_export(services, export):
        return export
    return load_export(services, table.id, export.id) or replace(export, tasks=0)


def _for_spark(
    export: Export,
    table: Table,
    asked: SparkOptions | None,
    state: TableState,
    ranges: Sequence[KeyRange],
) -> Export:
    """Return the export with Spark options, if the request has some or the export is large."""
    least = table.properties.export_spark_bytes
    if not asked and not least:
        return export
    size_bytes = bytes_to_read(state, ranges)
    if not asked and size_bytes < least:
        return export
    return replace(export, size_bytes=size_bytes, spark=asked or SparkOptions())


# Exports that have not ended in time, which a sweep continues.


def overdue_exports(check: SweepCheck) -> Iterator[OutboundMessage]:
    """Yield messages of exports that are due; delete the objects that finished exports left."""
    services, table = check.services, check.table
    oldest_ms = services.clock.now_ms() - table.properties.job_retry_seconds * 1000
    begun_ms, leftovers = list_exports(services, table.id, oldest_ms)
    delete_all(services, leftovers)
    for export_id in sorted(begun_ms.keys() - check.with_spark):
        if check.is_due(begun_ms[export_id]):
            try:
                yield from _remaining_tasks(services, table, export_id)
            except CorruptDataError as error:
                check.damaged.append(error)


def _remaining_tasks(services: Services, table: Table, export_id: str) -> list[OutboundMessage]:
    """Return the unfinished tasks of an export; if there are none, one task, which finishes it."""
    export = load_export(services, table.id, export_id)
    if export is None:
        return []
    if export.spark:
        return export_messages(export)
    return task_messages(export, unfinished_tasks(services, export) or [0])
