"""Run ingest jobs in functions, and isolate a file that crashes them from the others of its job.

After two runs of a job in a row crashed (out of memory, time-out), the next one splits it into one
job per file: the other files are ingested, and the one at fault is alone. If its own runs crash
too, it is handed to Spark. Without Spark it is refused, so that no audit sends it again, and its
message moves to the dead-letter queue, from where a person can redrive it. Files that do not fit
into the scratch space together are split at once.
"""

from __future__ import annotations

from dormouse.errors import OutOfSpaceError, RefusedSourceError
from dormouse.features.ingest.ingest import ingest, is_ingested, refuse
from dormouse.jobs.crashes import CRASHED, hand_to_spark, has_crashed
from dormouse.jobs.tracking import ISOLATED, is_isolated, record, tracked_job
from dormouse.messages.stages import IngestJob, OutboundMessage
from dormouse.model.jobs.job_events import Failed, Finished
from dormouse.model.sources import job_id_of
from dormouse.ports.services import Services
from dormouse.stored.names import dead_letter_queue

ISOLATED_AFTER_CRASHES = f"{CRASHED}: {ISOLATED}"
WHAT_TO_DO = (
    "drop its rows in smaller files, or deploy with a larger RowsMemory or with Spark=yes, and "
    "then: dormouse dlq redrive ingest-jobs"
)
ISOLATED_FOR_SPACE = f"the files do not fit into the scratch space together: {ISOLATED}"


def ingest_or_isolate(services: Services, job: IngestJob) -> list[OutboundMessage]:
    """Ingest a job; if that is too much for a function, return smaller jobs or one for Spark.

    A run that has not ended is taken for a crashed one if the job is delivered twice more
    meanwhile. Then some of its files are read twice, and ingested once.

    Raises:
        ContendedError: other jobs kept ingesting the same sources; the message should be retried.
    """
    if len(job.sources) == 1:
        return _ingest_single(services, job)
    if reason := _isolation_reason(services, job):
        return _isolate(services, job, reason)
    try:
        return ingest(services, job)
    except OutOfSpaceError:
        return _isolate(services, job, ISOLATED_FOR_SPACE)


def _ingest_single(services: Services, job: IngestJob) -> list[OutboundMessage]:
    """Ingest the only file of a job; hand it to Spark or refuse it if its runs crashed."""
    table = services.table(job.table_id)
    if table is None or not has_crashed(services, job.table_id, job.job_id):
        return ingest(services, job)
    if is_ingested(services, table, job):  # its last run died after the commit
        return ingest(services, job)
    if services.has_spark:
        return hand_to_spark(services, job, CRASHED)
    (source,) = job.sources
    error = RefusedSourceError(CRASHED, hint=WHAT_TO_DO)
    refuse(services, table, source, error)
    record(services, tracked_job(job), Failed(error.explanation))
    return [OutboundMessage(dead_letter_queue("ingest-jobs"), job, reason=error.explanation)]


def _isolate(services: Services, job: IngestJob, reason: str) -> list[OutboundMessage]:
    """Return a job for each file of a job."""
    record(services, tracked_job(job), Finished(reason=reason))
    generation, alone = job.generation, [(source,) for source in job.sources]
    return [
        OutboundMessage(
            "ingest-jobs", IngestJob(job.table_id, generation, job_id_of(one, generation), one)
        )
        for one in alone
    ]


def _isolation_reason(services: Services, job: IngestJob) -> str:
    """Return why a job is to be split into one job per file; empty if it is not.

    A job that was split before is split again: an earlier run may have crashed between its record
    and its messages.
    """
    known = services.tracker.get(job.table_id, job.job_id)
    if known is None:
        return ""
    if is_isolated(known):
        return known.reason
    return ISOLATED_AFTER_CRASHES if has_crashed(services, job.table_id, job.job_id) else ""
