"""Run ingest jobs in functions, and isolate a file that crashes them from the others of its job.

An attempt at a job is recorded before a file of it is read. So a reader that ends its process (out
of memory, time-out, a fault of a library) is known to the next one. The second attempt also records
each file before it reads it. After two attempts in a row crashed, the next one splits the job into
one job per file: the other files are ingested, and the one at which the second crashed is not read
again. It is handed to Spark. Without Spark it is refused, so that no audit sends it again, and its
message moves to the dead-letter queue, from where a person can redrive it; nothing else has it read
again, also if it is dropped again. If the second crashed
elsewhere, the runs of each file alone decide. Files that do not fit into the scratch space together
are split at once.
"""

from __future__ import annotations

from functools import partial

from msgspec import structs

from dormouse.errors import ContendedError, OutOfSpaceError, RefusedSourceError
from dormouse.features.ingest.ingest import (
    Write,
    ingest,
    is_ingested,
    refuse,
    subject_of,
    write_in_process,
)
from dormouse.jobs.crashes import CRASH_LIMIT, CRASHED, hand_to_spark, has_crashed
from dormouse.jobs.tracking import ISOLATED, is_isolated, record, tracked_job
from dormouse.messages.stages import IngestJob, OutboundMessage
from dormouse.model.jobs.job_events import Failed, Finished, Progressed
from dormouse.model.sources import Source, job_id_of
from dormouse.ports.services import JobRecord, Services
from dormouse.stored.names import dead_letter_queue

ISOLATED_AFTER_CRASHES = f"{CRASHED}: {ISOLATED}"
ENDS_ITS_READER = (
    f"{CRASH_LIMIT} attempts ended with their process while they worked on it: out of memory or "
    "time, or by a fault of a library that reads it"
)
WHAT_TO_DO = (
    "drop its rows in smaller files, or deploy with a larger RowsMemory or with Spark=yes, and "
    "then: dormouse dlq redrive ingest-jobs"
)
ISOLATED_FOR_SPACE = f"the files do not fit into the scratch space together: {ISOLATED}"


def ingest_or_isolate(services: Services, job: IngestJob) -> list[OutboundMessage]:
    """Ingest a job; if that is too much for a function, return smaller jobs or one for Spark.

    Raises:
        ContendedError: other jobs kept ingesting the same sources, or another attempt at this one
            may still live; the message should be retried.
    """
    known = services.tracker.get(job.table_id, job.job_id)
    _check_alone(services, job, known)
    if len(job.sources) == 1:
        return _ingest_single(services, job)
    if reason := _isolation_reason(known):
        return _isolate(services, job, reason, _suspect(job, known))
    try:
        return ingest(services, job, _marking(services, job, known))
    except OutOfSpaceError:
        return _isolate(services, job, ISOLATED_FOR_SPACE)


def _check_alone(services: Services, job: IngestJob, known: JobRecord | None) -> None:
    """Check that no other attempt at a job lives: one that does has not crashed.

    Raises:
        ContendedError: one may.
    """
    if known is None or known.state != "running":
        return
    if services.clock.now_ms() - known.started_ms < services.attempt_ms:
        raise ContendedError(f"another attempt at ingest job {job.job_id} may still be running")


def _marking(services: Services, job: IngestJob, known: JobRecord | None) -> Write:
    """Return what writes a job; after a crash, it records which file it is about to read."""
    if known is None or not known.crashed_attempts:
        return write_in_process

    def begins(source: Source | None) -> None:
        subject = subject_of(job) if source is None else source.key
        record(services, tracked_job(job), Progressed(subject=subject))

    return partial(write_in_process, begins=begins)


def _suspect(job: IngestJob, known: JobRecord | None) -> Source | None:
    """Return the file that the last attempt began to read; None if it had not begun, or had read
    all of them: see `_marking`.
    """
    subject = "" if known is None else known.subject
    return next((source for source in job.sources if source.key == subject), None)


def _ingest_single(services: Services, job: IngestJob) -> list[OutboundMessage]:
    """Ingest the only file of a job; give it up if its runs crashed."""
    table = services.table(job.table_id)
    refusal = _set_aside(services, job)
    if table is None or not (refusal or has_crashed(services, job.table_id, job.job_id)):
        return ingest(services, job)
    if is_ingested(services, table, job):  # its last run died after the commit
        return ingest(services, job)
    if refusal:
        refuse(services, table, job.sources[0], RefusedSourceError(refusal))  # who waits looks
        return []
    return _give_up(services, job)


def _set_aside(services: Services, job: IngestJob) -> str:
    """Return why the only file of a job was set aside; empty if it was not, or if a person wants it
    read after all. There may be other messages about it: it may have been dropped after each death.
    """
    known = services.tracker.get(job.table_id, job.sources[0].id)
    if job.after_all or known is None or known.state != "refused":
        return ""
    return known.reason if known.reason.startswith(ENDS_ITS_READER) else ""


def _give_up(services: Services, job: IngestJob) -> list[OutboundMessage]:
    """Hand the only file of a job to Spark, or refuse it."""
    if services.has_spark:
        return hand_to_spark(services, job, CRASHED)
    (source,) = job.sources
    error = RefusedSourceError(ENDS_ITS_READER, hint=WHAT_TO_DO)
    if (table := services.table(job.table_id)) is not None:
        refuse(services, table, source, error)
    record(services, tracked_job(job), Failed(error.explanation, subject=source.key, files=1))
    letter = structs.replace(job, after_all=True)
    return [OutboundMessage(dead_letter_queue("ingest-jobs"), letter, reason=error.explanation)]


def _isolate(
    services: Services, job: IngestJob, reason: str, suspect: Source | None = None
) -> list[OutboundMessage]:
    """Return a job for each file of a job; give the one up that is suspected."""
    record(services, tracked_job(job), Finished(reason=reason))
    messages: list[OutboundMessage] = []
    for source in job.sources:
        one = (source,)
        alone = IngestJob(job.table_id, job.generation, job_id_of(one, job.generation), one)
        if source == suspect:
            messages += _give_up(services, alone)
        else:
            messages.append(OutboundMessage("ingest-jobs", alone))
    return messages


def _isolation_reason(known: JobRecord | None) -> str:
    """Return why a job is to be split into one job per file; empty if it is not.

    A job that was split before is split again: an earlier run may have crashed between its record
    and its messages.
    """
    if known is None:
        return ""
    if is_isolated(known):
        return known.reason
    return ISOLATED_AFTER_CRASHES if known.crashed_attempts >= CRASH_LIMIT else ""
