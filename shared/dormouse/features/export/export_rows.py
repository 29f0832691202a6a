"""export_rows: run one task of an export; the last task to finish writes the manifest.

Each finished task saves the list of its files. A run that then finds all tasks finished completes
the export; completing it twice changes nothing. A heavy export is one job, whose tasks run in
parallel on Spark; it completes in the same way. If two runs of a task crash (out of memory,
time-out), the whole export is handed to Spark; without Spark the export fails, and its reason says
what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from dormouse.errors import (
    DormouseError,
    JobTooLargeError,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from dormouse.features.export.export import Export
from dormouse.features.export.export_task import write_task
from dormouse.features.export.files import FILE_BYTES
from dormouse.features.export.manifests import Manifest, build_manifest, save_manifest
from dormouse.features.export.stored import (
    delete_export,
    finished_task_paths,
    is_task_done,
    load_export,
    load_task_files,
    unfinished_tasks,
)
from dormouse.jobs.attempts import crashed_attempts, record_attempt
from dormouse.jobs.crashes import CRASH_LIMIT, CRASHED, hand_to_spark
from dormouse.jobs.tracking import record
from dormouse.messages.stages import ExportJob, ExportTask, OutboundMessage
from dormouse.model.jobs.job_events import Failed, Finished, Started
from dormouse.ports.services import Services
from dormouse.stored.paths import export_attempts_prefix

WHAT_TO_DO = (
    "export it in parts, by ranges of keys, or deploy with a larger RowsMemory or with "
    "Spark=yes; then request it again"
)
STEP_SECONDS = 240
"""How long a run of a task takes before it ends its file and continues with a new message."""

WriteTasks = Callable[[Export, Sequence[int]], object]
"""Write some tasks of an export, in this process or on a cluster."""


def export_rows(
    services: Services,
    message: ExportTask,
    *,
    step_seconds: float = STEP_SECONDS,
    file_bytes: int = FILE_BYTES,
) -> list[OutboundMessage]:
    """Run a task of an export, unless the export has ended.

    Raises:
        UnavailableError: a service does not answer; the task can be retried.
    """
    export = _running(services, message.table_id, message.export_id)
    if export is None:
        return []
    end_ms = services.clock.now_ms() + step_seconds * 1000

    def is_late() -> bool:
        return services.clock.now_ms() >= end_ms

    manifest = None
    runs = export_attempts_prefix(export.table_id, export.id, message.task)
    done = is_task_done(services.storage, export, message.task)
    has_failed = not done and len(crashed_attempts(services, runs)) >= CRASH_LIMIT
    if has_failed and services.has_spark:
        return hand_to_spark(services, ExportJob(export.table_id, export.id), CRASHED)
    with _fail_on_permanent_error(services, export):
        if has_failed:
            raise JobTooLargeError(f"{CRASHED}, in task {message.task}", hint=WHAT_TO_DO)
        if not done:
            _record_running(services, export)
            with record_attempt(services, runs):
                is_whole = write_task(
                    services, export, message.task, is_late=is_late, file_bytes=file_bytes
                )
            if not is_whole:
                return [OutboundMessage("exports", message)]
        manifest = _manifest_if_done(services, export)
    _finish(services, export, manifest)
    return []


def export_all(services: Services, job: ExportJob, write: WriteTasks) -> None:
    """Run all unfinished tasks of an export, unless the export has ended.

    Raises:
        UnavailableError: a service does not answer; the rest can be retried.
    """
    export = _running(services, job.table_id, job.job_id)
    if export is None:
        return
    manifest = None
    with _fail_on_permanent_error(services, export):
        _record_running(services, export)
        write(export, unfinished_tasks(services, export))
        manifest = _manifest_if_done(services, export)
    _finish(services, export, manifest)


def _running(services: Services, table_id: str, export_id: str) -> Export | None:
    export = load_export(services, table_id, export_id)
    return None if export is None or services.table(table_id) is None else export


@contextmanager
def _fail_on_permanent_error(services: Services, export: Export) -> Iterator[None]:
    """Record why the block fails; an error that a retry cannot cure ends the export."""
    try:
        yield
    except (UnavailableError, OutcomeUnknownError) as error:
        record(services, export.tracked_job, Failed(error.explanation))
        raise
    except DormouseError as error:
        if load_export(services, export.table_id, export.id) is not None:  # still running
            record(services, export.tracked_job, Failed(_reason(error)))
            delete_export(services, export)


def _manifest_if_done(services: Services, export: Export) -> Manifest | None:
    """Write the manifest if all tasks are finished, and return it."""
    paths = finished_task_paths(services, export.table_id, export.id)
    if len(paths) < export.tasks:
        return None
    manifest = build_manifest(export, *load_task_files(services, paths))
    save_manifest(services, export, manifest)
    return manifest


def _finish(services: Services, export: Export, manifest: Manifest | None) -> None:
    """Record that an export is finished, then delete its stored state.

    The manifest is written, so an error here must not record the export as failed.
    """
    if manifest is not None:
        record(services, export.tracked_job, Finished(rows=manifest.rows))
        delete_export(services, export)


def _record_running(services: Services, export: Export) -> None:
    known = services.tracker.get(export.table_id, export.id)
    if known is None or known.state not in ("running", "finished"):
        record(services, export.tracked_job, Started())


def _reason(error: DormouseError) -> str:
    if isinstance(error, NotFoundError):
        return f"{error}; request the export again, and if it fails again, check the table"
    return error.explanation
