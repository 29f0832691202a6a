"""A statement that Spark computes: what its job does, which has no access to queues.

The driver saves the end of the only sub-query, or that the query has failed. After the run, a
message to `answer_query` goes on from there: it puts the manifest, sends it and records it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dormouse.errors import DormouseError, OutcomeUnknownError, UnavailableError
from dormouse.features.queries.ending import save_early
from dormouse.features.queries.limits import EndedError, check_time
from dormouse.features.queries.query import Query, TaskEnd
from dormouse.features.queries.stored import (
    done_tasks,
    load_end,
    load_query,
    save_task_end,
    task_messages,
)
from dormouse.jobs.tracking import record, tracked_job
from dormouse.messages.stages import OutboundMessage, StatementJob
from dormouse.model.jobs.job_events import Failed, Finished, Started
from dormouse.ports.services import Services

Compute: TypeAlias = Callable[[Query], TaskEnd]
"""Writes the rows of a statement, and returns where they are."""


def is_computed(services: Services, job: StatementJob) -> bool:
    """Return whether Spark has no more to do: the rows are there, or the query has ended."""
    query = load_query(services.results, job.query_id)
    return (
        query is None
        or load_end(services.results, query.id) is not None
        or bool(done_tasks(services.results, query))
    )


def compute(services: Services, job: StatementJob, compute: Compute) -> None:
    """Compute the statement of a job, unless that is done; an error that a retry cannot cure fails
    the query.

    Raises:
        UnavailableError: a service does not answer, or Spark failed; the job can be run again.
    """
    query = load_query(services.results, job.query_id)
    if query is None or is_computed(services, job):
        return
    tracked = tracked_job(job)
    record(services, tracked, Started(subject=query.id, who=query.asked.who))
    try:
        check_time(query.asked.limits, query.begun_ms, services.clock.now_ms())
        end = compute(query)
        save_task_end(services.results, query.id, 0, end)
        record(services, tracked, Finished(rows=end.rows, size_bytes=end.read_bytes))
    except EndedError:
        record(services, tracked, Finished("its query has ended meanwhile"))
    except DormouseError as error:
        record(services, tracked, Failed(error.explanation))
        if isinstance(error, UnavailableError | OutcomeUnknownError):
            raise
        fail(services, job, error.explanation, error.class_name)


def fail(services: Services, job: StatementJob, reason: str, error: str) -> None:
    """Save that the query of a job has failed, unless it has ended."""
    query = load_query(services.results, job.query_id)
    if query is not None:
        save_early(
            services,
            query.asked,
            "failed",
            begun_ms=query.begun_ms,
            reason=reason,
            error=error,
            digest=query.question,
        )


def following(services: Services, job: StatementJob) -> list[OutboundMessage]:
    """Return the message with which the query of a job goes on."""
    query = load_query(services.results, job.query_id)
    return [] if query is None else task_messages(query, [0])
