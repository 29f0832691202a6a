"""Jobs that name more sources than a message or a command line holds: kept in the data bucket.

Who hands a bulk import over keeps its job, and the job itself forgets it when it is done: so one
that is not kept is done.
"""

from __future__ import annotations

from dormouse.errors import NotFoundError
from dormouse.messages import IngestJob, decode, encode
from dormouse.model.names import job_path
from dormouse.ports import Services


def keep_job(services: Services, job: IngestJob) -> None:
    """Keep a job; that it is kept already is fine."""
    services.storage.put(job_path(job.table_id, job.job_id), encode(job).encode())


def kept_job(services: Services, table_id: str, job_id: str) -> IngestJob | None:
    """Give a job; None if it is done.

    Raises:
        InvalidRequestError: what is kept is no such job.
    """
    try:
        body = services.storage.get(job_path(table_id, job_id))
    except NotFoundError:
        return None
    return decode(body, IngestJob)


def forget_job(services: Services, job: IngestJob) -> None:
    """Forget a job, when it is done and its messages are sent."""
    services.storage.delete([job_path(job.table_id, job.job_id)])
