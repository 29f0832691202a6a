"""Record what happens to a job, for the tracker and for metrics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from dormouse.errors import DormouseError, is_panic
from dormouse.messages.replies import Reply
from dormouse.messages.stages import (
    CompactionJob,
    ExportJob,
    IngestJob,
    SparkJob,
    StatementJob,
)
from dormouse.model.jobs.job_events import (
    Accepted,
    Died,
    Failed,
    Finished,
    JobEvent,
    Refused,
    Started,
    TrackedJob,
    TrackedRequest,
)
from dormouse.model.jobs.job_records import JobKind, JobRecord
from dormouse.model.jobs.metrics import Metric
from dormouse.ports.services import NO_TABLE, Services

OUTCOME_UNKNOWN = "the job is over; it ended without recording an outcome"
"""The reason in the record of a job that ended without a record of its outcome."""
ALREADY_INGESTED = "already ingested: nothing was added; ask again to add the same rows once more"
"""The reason in the record of an ingest whose sources were all ingested before."""
INTERRUPTED = "the attempt was interrupted; another one follows"
FILE_REFUSED = "its file was refused"
"""The reason in the record of an ingest whose only file was refused, which has its own record."""
ISOLATED = "each file is ingested by a job of its own"
"""How the reason ends in the record of an ingest that was split into one job per file."""


def tracked_job(job: SparkJob) -> TrackedJob:
    """Return a job as the tracker knows it."""
    return TrackedJob(job.table_id, job.job_id, _kind_of(job))


def _kind_of(job: SparkJob) -> JobKind:
    match job:
        case IngestJob():
            return "ingest"
        case CompactionJob():
            return "compaction"
        case ExportJob():
            return "export"
        case StatementJob():
            return "query"


@contextmanager
def tracked(services: Services, job: TrackedJob, started: Started) -> Iterator[None]:
    """Record that a job started, and how the attempt ended if the block raises.

    That a person or a signal interrupted it, or that the system failed, is no fault of the job. An
    error that is not ours may quote rows, so only its type is recorded.
    """
    record(services, job, started)
    try:
        yield
    except DormouseError as error:
        record(services, job, Failed(error.explanation))
        raise
    except (KeyboardInterrupt, SystemExit):
        record(services, job, Failed(INTERRUPTED))
        raise
    except BaseException as error:
        if isinstance(error, Exception) or is_panic(error):
            ended = Failed if isinstance(error, OSError) else Died
            record(services, job, ended(f"it ended with {type(error).__name__}"))
        raise


def record(services: Services, job: TrackedJob, event: JobEvent) -> None:
    """Record what happened to a job just now, and publish its counts as metrics."""
    services.tracker.record(job, event, services.clock.now_ms())
    if counts := _counts(job.kind, event):
        table = services.tables.get(job.table_id) if job.table_id != NO_TABLE else None
        services.metrics.emit(table.name if table else NO_TABLE, counts)


def publish_counts(services: Services, table_name: str, known: JobRecord) -> None:
    """Publish the counts of a record as metrics."""
    if counts := _counts(known.kind, known):
        services.metrics.emit(table_name, counts)


_OUTCOMES: dict[str, type[Accepted | Finished | Failed | Refused]] = {
    "accepted": Accepted,
    "finished": Finished,
    "failed": Failed,
    "refused": Refused,
}
"""The event of each outcome of a request."""


def record_request(services: Services, table_id: str, reply: Reply, subject: str) -> None:
    """Record a request, as its reply describes it, under the table that it is about."""
    counts = reply.counts
    event = _OUTCOMES[reply.outcome](
        reply.reason,
        subject,
        files=counts.files,
        size_bytes=counts.size_bytes,
        rows=counts.rows or counts.removed,
    )
    request = TrackedRequest(table_id, reply.request_id, reply.request)
    services.tracker.record(request, event, services.clock.now_ms())


def is_isolated(record: JobRecord) -> bool:
    """Return whether an ingest was split into one job per file."""
    return record.reason.endswith(ISOLATED)


def finalise(services: Services, table_id: str, job_id: str, *, failed: bool = False) -> None:
    """Record that a job is over, if it ended without a record of its outcome.

    With `failed`, also if it was recorded as failed: its commit landed after all.
    """
    known = services.tracker.get(table_id, job_id)
    if known is None:
        return
    if not known.is_finished or (failed and known.state == "failed"):
        kind = cast(JobKind, known.kind)  # the record is that of a job, not of a request
        record(services, TrackedJob(table_id, job_id, kind), Finished(OUTCOME_UNKNOWN))


def _counts(kind: str, said: JobEvent | JobRecord) -> dict[Metric, float]:
    """Return what an event or a record of a job adds to the metrics of its table."""
    match kind, said.state:
        case "ingest", "finished":
            return {Metric.ROWS_INGESTED: said.rows}
        case "compaction", "finished":
            return {Metric.ROWS_COMPACTED: said.rows}
        case "garbage", "finished":
            return {Metric.SHARDS_DELETED: said.files}
        case "ingest", "refused":
            return {Metric.FILES_REFUSED: 1}
        case _, "failed":
            return {Metric.JOBS_FAILED: 1}
    return {}
