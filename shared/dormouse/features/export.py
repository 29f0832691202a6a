"""An export of one version of a table: its request, its tasks, and the files they wrote.

All that the tasks need is fixed when the export begins (`long_jobs`); a pin of the version keeps
the shards that hold the rows (`features.versions`). The export is deleted first: if it exists, all
objects of its tasks do too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace as replace_fields

from dormouse.access import EVERYTHING
from dormouse.errors import AlreadyExistsError, InvalidRequestError
from dormouse.features import requests
from dormouse.features.long_jobs import Parts, ReadTable
from dormouse.features.requests import Kind, ManifestKind, ResultFile, delete_below, list_jobs
from dormouse.features.versions import LONGEST_MS, pin_version, read_as_of
from dormouse.jobs import SweepCheck, record
from dormouse.key_codec import KeyCodec
from dormouse.messages.requests import Counts, ExportRows
from dormouse.messages.stages import ExportJob, ExportTask, OutboundMessage
from dormouse.ports import Services, Storage
from dormouse.query.selection import bytes_to_read, decode_selection, plan_tasks, selected_ranges
from dormouse.state.jobs import Assigned, TrackedJob
from dormouse.state.state import TableState
from dormouse.state.versions import OwnerKind, PinOwner
from dormouse.storage import check_path
from dormouse.stored import paths
from dormouse.tables.properties import SparkOptions
from dormouse.tables.table import Table


class ExportRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which rows are exported, and where to.

    `to` is the prefix in the results bucket. `cut` is the id of the task files: if several
    deliveries plan tasks at once, the export that is saved first names the files that are used.
    `tasks` is their number, and `size_bytes` about how much of shards they read. If `spark` has
    options, one Spark job sized for `size_bytes` runs all tasks; otherwise functions do. With
    `skip_damaged`, rows of shards that are lost or damaged are left out, and the manifest names
    these shards.
    """

    id: str
    to: str
    read: ReadTable
    cut: str = ""
    tasks: int = 0
    size_bytes: int = 0
    spark: SparkOptions | None = None
    skip_damaged: bool = False

    @property
    def tracked_job(self) -> TrackedJob:
        """Its job in the tracker."""
        return TrackedJob(self.read.id, self.id, "export")


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


class TaskFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The files that a finished task wrote, and the shards that it left out."""

    files: tuple[ResultFile, ...]
    skipped: tuple[SkippedShard, ...] = ()


TASK = "a task of an export"
EXPORT = Kind(
    "an export",
    ExportRequest,
    "request the export again, and delete the object <table id>/exports/<export id>.json; the "
    "sweep deletes its other objects",
)
FILES = Kind(
    "the files of a task of an export", TaskFiles, "the export has failed: request it again"
)


def load_export(services: Services, table_id: str, export_id: str) -> ExportRequest | None:
    """Return a running export; None if it has ended.
    Raises CorruptDataError: the stored export is damaged.
    """
    return EXPORT.get(services.storage, paths.EXPORTS.path(table_id, export_id))


def parts_of(storage: Storage, export: ExportRequest) -> Parts[TaskFiles]:
    """Return the tasks of an export."""
    table_id, export_id = export.read.id, export.id
    path = partial(paths.export_task_path, table_id, export_id, export.cut)
    return Parts(storage, TASK, path, FILES, partial(paths.export_done_path, table_id, export_id))


def export_messages(services: Services, export: ExportRequest) -> list[OutboundMessage]:
    """Return the messages that start or continue an export: one for Spark, or those of tasks."""
    if export.spark is None:
        return task_messages(services, export)
    return [OutboundMessage("spark-jobs", ExportJob(export.read.id, export.id, export.spark))]


def task_messages(services: Services, export: ExportRequest) -> list[OutboundMessage]:
    """Return the messages that make functions run the unfinished tasks; if there are none, one
    task, which finishes the export.
    """
    tasks = unfinished_tasks(services.storage, export) or [0]
    return [
        OutboundMessage("exports", ExportTask(export.read.id, export.id, task)) for task in tasks
    ]


def unfinished_tasks(storage: Storage, export: ExportRequest) -> list[int]:
    """Return the tasks that are not finished."""
    return sorted({*range(export.tasks)}.difference(parts_of(storage, export).ended(export.tasks)))


def delete_export(services: Services, export: ExportRequest) -> None:
    """Delete the stored state of an export; after a crash the sweep deletes the rest."""
    services.storage.delete([paths.EXPORTS.path(export.read.id, export.id)])
    delete_below(services.storage, paths.EXPORTS.parts(export.read.id, export.id))


JsonKey = tuple[object, ...]


class ExportManifest(msgspec.Struct, frozen=True):
    """The content of an export's prefix. It is written last: if it exists, the export is complete.
    The names of its files sort in key order.

    `schema` is the table's, `columns` are those of the files. `ranges` are pairs of keys, each a
    list of parts: the first inclusive, the second exclusive, null for an open end. `skipped`
    are the shards that are lost or damaged, of which an export with `skip_damaged` has no rows;
    unset if there are none.
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
    files: tuple[ResultFile, ...]
    rows: int
    size_bytes: int
    skipped: tuple[SkippedShard, ...] | UnsetType = UNSET


MANIFESTS = ManifestKind("the manifest of an export", ExportManifest, "export the rows again")


def build_manifest(export: ExportRequest, tasks: Sequence[TaskFiles]) -> ExportManifest:
    """Return the manifest of a finished export; every run that finishes it builds the same."""
    schema, selection = export.read.schema, export.read.selection
    codec = KeyCodec(schema)
    files = tuple(file for task in tasks for file in task.files)
    skipped = {shard.shard: shard for task in tasks for shard in task.skipped}
    return ExportManifest(
        export.id,
        export.read.name,
        export.read.id,
        selection.version,
        selection.time_ms,
        schema.to_json(),
        selection.columns,
        tuple(
            (codec.to_json(span.min), None if span.max is None else codec.to_json(span.max))
            for span in selection.ranges
        ),
        selection.where,
        files,
        sum(file.rows for file in files),
        sum(file.size_bytes for file in files),
        tuple(skipped.values()) or UNSET,
    )


def save_manifest(services: Services, export: ExportRequest, manifest: ExportManifest) -> None:
    """Put the manifest beside its files; if this export has put it before, do nothing.
    Raises AlreadyExistsError: the manifest of another export is there.
    """
    if MANIFESTS.put(services.results, manifest_path(export.to), manifest):
        return
    earlier = load_manifest(services.results, export.to)
    if earlier is None or earlier.export != export.id:
        raise AlreadyExistsError(
            f"the manifest of another export lies below {export.to!r} already",
            hint="export to a prefix of its own",
        )


def load_manifest(results: Storage, to: str) -> ExportManifest | None:
    """Return the manifest below a prefix; None if no export is complete there.
    Raises CorruptDataError: the object is damaged or is no manifest.
    """
    return MANIFESTS.get(results, manifest_path(to))


def manifest_path(to: str) -> str:
    """Return the path of the manifest below a prefix."""
    return f"{to}/{paths.MANIFEST}"


# export_rows: plan the export of one version of a table as tasks, and start them.
#
# Order: the version is pinned, the tasks are saved, then the export, which makes them valid. If
# several deliveries plan tasks at once, all of the version that the first pinned, the first export
# saved decides which task files are used.


class ExportWork(requests.StoredWork, frozen=True, tag="export"):
    """The export of a request, and the prefix of its manifest."""

    to: str

    def unfinished_messages(self, services: Services, table: Table) -> list[OutboundMessage]:
        """Return the messages of all tasks, if the export is running."""
        export = load_export(services, table.id, self.ids[0])
        return export_messages(services, export) if export is not None else []

    def outcomes(self, check: requests.JobCheck) -> Iterator[requests.JobOutcome]:
        """Yield the outcome of the export: finished if its manifest exists."""
        (export_id,) = self.ids
        if load_export(check.services, check.table.id, export_id) is not None:
            yield check.unfinished(self.kind, export_id, check.record(export_id))
            return
        manifest = load_manifest(check.services.results, self.to)
        if manifest is None or manifest.export != export_id:
            record = check.record(export_id)
            has_failed = record is not None and record.state == "failed"
            reason = record.reason if record and has_failed else requests.UNKNOWN_OUTCOME
            yield requests.JobOutcome(self.kind, export_id, "failed", reason)
            return
        files, size_bytes = len(manifest.files), manifest.size_bytes
        counts = Counts(finished=1, files=files, rows=manifest.rows, size_bytes=size_bytes)
        yield requests.JobOutcome(self.kind, export_id, counts=counts)


def request_export(services: Services, table: Table, request: ExportRows) -> requests.RequestResult:
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
    export_id = export_id_of(request.request_id)
    export = load_export(services, table.id, export_id)
    if export is None:
        table, state = read_as_of(services, table, request.selection.as_of)
        export = _new_export(services, table, state.version, request)
        if not _is_free(services, export):
            return requests.RequestResult(work=ExportWork((export.id,), export.to))
        export = _begin(services, table, state, export, request)
    record(services, export.tracked_job, Assigned(subject=export.to))
    messages = export_messages(services, export)
    return requests.RequestResult(messages, ExportWork((export.id,), export.to))


def export_id_of(request_id: str) -> str:
    """Return the id of the export of a request, derived from the request's id."""
    return blake2b(request_id.encode(), digest_size=8).hexdigest()


def destination(request: ExportRows) -> str:
    """Return the prefix of a request's files; by default the table's name and the export's id.
    Raises InvalidRequestError: `to` is not a valid prefix.
    """
    return prefix_of(request.to, f"{request.name}/{export_id_of(request.request_id)}")


def prefix_of(to: str, default: str) -> str:
    """Return a prefix of the results bucket. Raises InvalidRequestError: `to` is none."""
    try:
        return check_path(to.rstrip("/") or default)
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"{to!r} is no prefix of the results bucket: {error}",
            hint="give the prefix alone, as flights/2026-01; the bucket is the instance's",
        ) from error


def _new_export(
    services: Services, table: Table, version: int, request: ExportRows
) -> ExportRequest:
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
    return ExportRequest(
        id=export_id_of(request.request_id),
        to=destination(request),
        read=ReadTable.of(table, selection),
        skip_damaged=request.skip_damaged,
    )


def _is_free(services: Services, export: ExportRequest) -> bool:
    """Return True if the prefix is empty, False if this export is already complete there.
    Raises AlreadyExistsError: there are other objects below the prefix.
    """
    if next(services.results.list(f"{export.to}/"), None) is None:
        return True
    manifest = load_manifest(services.results, export.to)
    if manifest is not None and manifest.export == export.id:
        return False
    raise prefix_taken(export.to)


def prefix_taken(prefix: str) -> AlreadyExistsError:
    """Return the error for a prefix below which there are objects."""
    return AlreadyExistsError(
        f"there are files below {prefix!r} in the results bucket already",
        hint="export to a prefix of its own",
    )


def _begin(
    services: Services, table: Table, state: TableState, export: ExportRequest, request: ExportRows
) -> ExportRequest:
    owner = PinOwner(OwnerKind.EXPORT, export.id)
    state = pin_version(services, table, state, owner, LONGEST_MS)[1]
    source = ReadTable.of(table, replace(export.read.selection, version=state.version))
    ranges = selected_ranges(source.table, source.selection)
    export = replace_fields(export, read=source, cut=services.ids.new())
    least, options = table.properties.export_spark_bytes, request.spark or None
    size_bytes = bytes_to_read(state, ranges) if options or least else 0
    if options or 0 < least <= size_bytes:
        export = replace_fields(export, size_bytes=size_bytes, spark=options or SparkOptions())
    tasks = parts_of(services.storage, export).save(plan_tasks(state, ranges))
    export = replace_fields(export, tasks=tasks)
    path = paths.EXPORTS.path(table.id, export.id)
    if EXPORT.put(services.storage, path, export):
        return export
    return load_export(services, table.id, export.id) or replace_fields(export, tasks=0)


def overdue_exports(check: SweepCheck) -> Iterator[OutboundMessage]:
    """Yield messages of exports that are due; delete the objects that finished exports left."""
    services, table = check.services, check.table
    oldest_ms = services.clock.now_ms() - table.properties.job_retry_seconds * 1000
    begun_ms, leftovers = list_jobs(services.storage, paths.EXPORTS.prefix(table.id), oldest_ms)
    services.storage.delete(leftovers)
    for export_id in sorted(begun_ms.keys() - check.with_spark):
        if check.is_due(begun_ms[export_id]) or check.is_lost(export_id):
            with check.going_on():
                export = load_export(services, table.id, export_id)
                yield from export_messages(services, export) if export is not None else ()
