"""What becomes of a job that Spark is to do: whether it is settled, and what is done then.

The table's state decides, not what Spark says of a run: a driver may die after its commit, and one
that ends well may have done nothing.
"""

from __future__ import annotations

from dormouse.messages import IngestJob, Outgoing, SparkJob, TableChanged
from dormouse.model.state import TableState
from dormouse.ports import Services
from dormouse.stages.spark_requests import SparkRequest, forget
from dormouse.stages.tracking import record


def kind_of(job: SparkJob) -> str:
    """Give what the tracker calls such a job."""
    return "ingest" if isinstance(job, IngestJob) else "compaction"


def is_settled(services: Services, state: TableState, job: SparkJob) -> bool:
    """Tell whether nothing is left to do of a job.

    That is so if its table was emptied since; if a compaction is assigned no more; and if each
    source of an ingest is ingested, or known to be refused.
    """
    if job.generation < state.generation:
        return True
    if not isinstance(job, IngestJob):
        return job.job_id not in state.jobs
    now_ms = services.clock.now_ms()
    return all(
        state.has_ingested(source.id, now_ms) or _is_refused(services, job.table_id, source.id)
        for source in job.sources
    )


def finish(services: Services, job: SparkJob) -> list[Outgoing]:
    """Forget a job that is settled, and tell of it in case the driver could not."""
    known = services.tracker.get(job.table_id, job.job_id)
    if known is not None and not known.is_finished:
        reason = "nothing is left to do of it"
        record(services, job.table_id, job.job_id, kind_of(job), "finished", reason=reason)
    forget(services, job)
    return [Outgoing("table-changes", TableChanged(job.table_id))]


def age_seconds(services: Services, request: SparkRequest) -> float:
    """Give how long ago a job was first given to Spark."""
    return (services.clock.now_ms() - request.requested_ms) / 1000


def _is_refused(services: Services, table_id: str, source_id: str) -> bool:
    known = services.tracker.get(table_id, source_id)
    return known is not None and known.state == "refused"
