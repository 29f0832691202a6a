"""export_rows: plan the export of one version of a table as tasks, and start them.

Order: the version is pinned, the tasks are saved, then the export, which makes them valid. If
several deliveries plan tasks at once, all of the version that the first pinned, the first export
saved decides which task files are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b

from dormouse.access.rules import EVERYTHING
from dormouse.errors import AlreadyExistsError, InvalidRequestError
from dormouse.features.export.export import Export
from dormouse.features.export.manifests import load_manifest
from dormouse.features.export.pins import pin_export
from dormouse.features.export.stored import export_messages, load_export, save_export, save_tasks
from dormouse.features.requests.outcomes import UNKNOWN_OUTCOME, JobCheck, JobOutcome
from dormouse.features.requests.resolve_table import resolve_live_table
from dormouse.features.requests.work import RequestResult, StoredWork
from dormouse.features.versions.as_of import read_as_of
from dormouse.jobs.tracking import record
from dormouse.keys.ranges import KeyRange
from dormouse.messages.replies import Counts
from dormouse.messages.requests import ExportRows
from dormouse.messages.stages import OutboundMessage
from dormouse.model.jobs.job_events import Assigned
from dormouse.model.state import TableState
from dormouse.ports.services import Services
from dormouse.query.pieces import bytes_to_read, plan_tasks
from dormouse.query.planner import selected_ranges
from dormouse.query.selection_codec import decode_selection
from dormouse.storage import check_path
from dormouse.tables.spark_options import SparkOptions
from dormouse.tables.table import Table


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
