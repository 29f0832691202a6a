"""ingest, as functions do it: a file that no process survives takes no other files along.

A function that runs out of memory or time, or crashes, says nothing. The tracker shows such a run
as one that still goes on. When two runs of a job in a row ended so, the next one gives each of its
files a job of its own: the others are ingested, and the one that is to blame is a dead letter
alone. Files that do not fit into the scratch space together are taken apart at once.
"""

from __future__ import annotations

from dormouse.errors import CrowdedError
from dormouse.messages import IngestJob, Outgoing
from dormouse.model.sources import job_id_of
from dormouse.ports import Services
from dormouse.stages.ingest import ingest
from dormouse.stages.tracking import record

SILENT_RUNS = 2
"""One run that died may have been any function's bad luck. A message is given up after three."""
APART = "each file is ingested by itself"
SILENT = f"{SILENT_RUNS} runs ended without a word: {APART}"
CROWDED = f"the files do not fit into the scratch space together: {APART}"


def ingest_or_part(services: Services, job: IngestJob) -> list[Outgoing]:
    """Ingest a job; give a job for each of its files if they can or may be too much together.

    A run that still goes on is taken for one that ended, if the job comes twice more meanwhile;
    then some of its files are looked at twice, and ingested once.

    Raises:
        ContendedError: others kept ingesting the same sources; the message should come again.
    """
    if len(job.sources) == 1:
        return ingest(services, job)
    if reason := _why_to_part(services, job):
        return _part(services, job, reason)
    try:
        return ingest(services, job)
    except CrowdedError:
        return _part(services, job, CROWDED)


def _part(services: Services, job: IngestJob, reason: str) -> list[Outgoing]:
    record(services, job.table_id, job.job_id, "ingest", "finished", reason=reason)
    generation, alone = job.generation, [(source,) for source in job.sources]
    return [
        Outgoing(
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
    if known.reason in (SILENT, CROWDED):
        return known.reason
    return SILENT if known.silent >= SILENT_RUNS else ""
