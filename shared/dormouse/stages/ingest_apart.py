"""ingest, as functions do it: a file that no process survives takes no other files along.

A function that runs out of memory or time, or crashes, says nothing. The tracker shows such a run
as one that still goes on. When two runs of a job ended so, the next one gives each of its files a
job of its own: the others are ingested, and the one that is to blame is a dead letter alone.
"""

from __future__ import annotations

from dormouse.messages import IngestJob, Outgoing
from dormouse.model.sources import job_id_of
from dormouse.ports import Services
from dormouse.stages.ingest import ingest
from dormouse.stages.tracking import record

SILENT_RUNS = 2
"""One run that died may have been any function's bad luck. A message is given up after three."""
APART = f"{SILENT_RUNS} runs ended without a word: each file is ingested by itself"


def ingest_or_part(services: Services, job: IngestJob) -> list[Outgoing]:
    """Ingest a job; give a job for each of its files if runs of it ended without a word.

    A run that still goes on is taken for one that ended, if the job comes twice more meanwhile;
    then some of its files are looked at twice, and ingested once.

    Raises:
        ContendedError: others kept ingesting the same sources; the message should come again.
    """
    if len(job.sources) == 1 or not _is_to_part(services, job):
        return ingest(services, job)
    record(services, job.table_id, job.job_id, "ingest", "finished", reason=APART)
    generation, alone = job.generation, [(source,) for source in job.sources]
    return [
        Outgoing(
            "ingest-jobs", IngestJob(job.table_id, generation, job_id_of(one, generation), one)
        )
        for one in alone
    ]


def _is_to_part(services: Services, job: IngestJob) -> bool:
    """Tell whether runs ended without a word, or the job was taken apart: if it comes once more,
    the jobs of its files may not have been sent.
    """
    known = services.tracker.get(job.table_id, job.job_id)
    if known is None:
        return False
    ended_silently = known.state == "running" and known.attempts >= SILENT_RUNS
    return ended_silently or known.reason == APART
