"""ingest, as functions do it: a file that no process survives takes no other files along.

When two runs of a job in a row ended without a word, the next one gives each of its files a job of
its own: the others are ingested, and the one that is to blame is alone. If that one's runs end so
too, it is given to Spark. Where there is none it is refused, so that no audit finds it again, and a
dead letter, so that a person can send it back. Files that do not fit into the scratch space
together are taken apart at once.
"""

from __future__ import annotations

from dormouse.errors import OutOfSpaceError, RefusedSourceError
from dormouse.features.ingest.ingest import ingest, is_known, refuse
from dormouse.jobs.crashes import CRASHED, hand_to_spark, has_crashed
from dormouse.jobs.tracking import ISOLATED, is_isolated, record
from dormouse.messages import IngestJob, OutboundMessage
from dormouse.model.sources import job_id_of
from dormouse.ports import Services
from dormouse.stored.names import dead_letter_queue

TAKEN_APART = f"{CRASHED}: {ISOLATED}"
WHAT_TO_DO = (
    "drop its rows in smaller files, or raise MemorySize of ingest, or deploy with Spark=yes, and "
    "then: dormouse dlq redrive ingest-jobs"
)
CROWDED = f"the files do not fit into the scratch space together: {ISOLATED}"


def ingest_or_part(services: Services, job: IngestJob) -> list[OutboundMessage]:
    """Ingest a job; return a job for each of its files if they are too much together, or one for
    Spark if a file is too much alone.

    A run that still goes on is taken for one that ended, if the job comes twice more meanwhile;
    then some of its files are looked at twice, and ingested once.

    Raises:
        ContendedError: others kept ingesting the same sources; the message should come again.
    """
    if len(job.sources) == 1:
        return _alone(services, job)
    if reason := _why_to_part(services, job):
        return _part(services, job, reason)
    try:
        return ingest(services, job)
    except OutOfSpaceError:
        return _part(services, job, CROWDED)


def _alone(services: Services, job: IngestJob) -> list[OutboundMessage]:
    """Ingest a file alone, unless that was in vain."""
    table = services.table(job.table_id)
    if table is None or not has_crashed(services, job.table_id, job.job_id):
        return ingest(services, job)
    if is_known(services, table, job):  # its last run died after the commit
        return ingest(services, job)
    if services.has_spark:
        return hand_to_spark(services, job, "ingest", CRASHED)
    (source,) = job.sources
    error = RefusedSourceError(CRASHED, hint=WHAT_TO_DO)
    refuse(services, table, source, error)
    record(services, job.table_id, job.job_id, "ingest", "failed", reason=error.explanation)
    return [OutboundMessage(dead_letter_queue("ingest-jobs"), job, reason=error.explanation)]


def _part(services: Services, job: IngestJob, reason: str) -> list[OutboundMessage]:
    record(services, job.table_id, job.job_id, "ingest", "finished", reason=reason)
    generation, alone = job.generation, [(source,) for source in job.sources]
    return [
        OutboundMessage(
            "ingest-jobs", IngestJob(job.table_id, generation, job_id_of(one, generation), one)
        )
        for one in alone
    ]


def _why_to_part(services: Services, job: IngestJob) -> str:
    """Tell that runs ended without a word, or that the job was taken apart: if it comes once more,
    the jobs of its files may not have been sent. Empty if neither.
    """
    known = services.tracker.get(job.table_id, job.job_id)
    if known is None:
        return ""
    if is_isolated(known):
        return known.reason
    return TAKEN_APART if has_crashed(services, job.table_id, job.job_id) else ""
