"""Record what happens to a job, for the tracker and for metrics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from dormouse.errors import DormouseError
from dormouse.model.job_records import JobKind, JobState
from dormouse.model.metrics import Metric
from dormouse.ports import NO_TABLE, JobRecord, Services
from dormouse.replies import Reply

OUTCOME_UNKNOWN = "the job is over; it ended without recording an outcome"
"""The reason in the record of a job that ended without a record of its outcome."""
ALREADY_INGESTED = "already ingested: nothing was added; to add the same rows again, ask for that"
"""The reason in the record of an ingest whose sources were all ingested before."""
ISOLATED = "each file is ingested by a job of its own"
"""How the reason ends in the record of an ingest that was split into one job per file."""


@contextmanager
def tracked(
    services: Services,
    table_id: str,
    job_id: str,
    kind: JobKind,
    *,
    subject: str = "",
    files: int = 0,
    size_bytes: int = 0,
) -> Iterator[None]:
    """Record a job as running, and as failed with the reason if the block raises a
    DormouseError.
    """
    record(
        services,
        table_id,
        job_id,
        kind,
        "running",
        subject=subject,
        files=files,
        size_bytes=size_bytes,
    )
    try:
        yield
    except DormouseError as error:
        record(services, table_id, job_id, kind, "failed", reason=error.explanation)
        raise


def record(
    services: Services,
    table_id: str,
    job_id: str,
    kind: JobKind,
    state: JobState,
    *,
    subject: str = "",
    reason: str = "",
    rows: int = 0,
    files: int = 0,
    size_bytes: int = 0,
    rows_read: int = 0,
) -> None:
    """Write the newest record of a job. `files` and `size_bytes` are its input's; `rows` are its
    output.

    The tracker derives the begin and end of the job and the number of attempts. The counts of a
    record are also published as metrics.
    """
    made = JobRecord(
        table_id,
        job_id,
        kind,
        state,
        subject,
        reason,
        rows,
        services.clock.now_ms(),
        files,
        size_bytes,
        rows_read,
    )
    services.tracker.record(made)
    if _counts(made):
        table = services.tables.get(table_id) if table_id != NO_TABLE else None
        publish_counts(services, table.name if table else NO_TABLE, made)


def publish_counts(services: Services, table_name: str, known: JobRecord) -> None:
    """Publish the counts of a record as metrics."""
    if counts := _counts(known):
        services.metrics.emit(table_name, counts)


def record_request(services: Services, table_id: str, reply: Reply, subject: str) -> None:
    """Write the record of a request, as its reply describes it, under the table that it is
    about.
    """
    counts = reply.counts
    services.tracker.record(
        JobRecord(
            table_id,
            reply.request_id,
            reply.request,
            reply.outcome,
            subject,
            reply.reason,
            rows=counts.rows or counts.removed,
            updated_ms=services.clock.now_ms(),
            files=counts.files,
            size_bytes=counts.size_bytes,
        )
    )


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
        record(services, table_id, job_id, kind, "finished", reason=OUTCOME_UNKNOWN)


def _counts(known: JobRecord) -> dict[Metric, float]:
    match known.kind, known.state:
        case "ingest", "finished":
            return {Metric.ROWS_INGESTED: known.rows}
        case "compaction", "finished":
            return {Metric.ROWS_COMPACTED: known.rows}
        case "garbage", "finished":
            return {Metric.SHARDS_DELETED: known.files}
        case "ingest", "refused":
            return {Metric.FILES_REFUSED: 1}
        case _, "failed":
            return {Metric.JOBS_FAILED: 1}
    return {}
