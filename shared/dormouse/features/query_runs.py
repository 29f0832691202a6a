"""What becomes of a query that runs: its progress, its end, and statements that Spark computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from dormouse.errors import DormouseError, OutcomeUnknownError, UnavailableError
from dormouse.features.access import check_readable
from dormouse.features.pins import unpin
from dormouse.features.queries import (
    END,
    EndedError,
    EndState,
    Query,
    QueryEnd,
    Spent,
    TaskEnd,
    all_columns,
    all_versions,
    check_time,
    done_tasks,
    load_end,
    load_query,
    parts_of,
    question,
    task_messages,
    tracked_query,
)
from dormouse.jobs import record, tracked_job
from dormouse.messages.stages import AnswerQuery, OutboundMessage, StatementJob
from dormouse.ports import Services
from dormouse.state.jobs import Cancelled, Failed, Finished, Progressed, Started
from dormouse.stored.paths import (
    query_manifest_path,
)

# How far a query is.


def report_progress(services: Services, query: Query, done: int, spent: Spent) -> None:
    """Record that so many sub-queries are done, and what the query has spent."""
    progress = Progressed(
        rows=spent.rows,
        size_bytes=spent.read_bytes,
        requests=spent.requests,
        parts=query.tasks,
        parts_done=done,
    )
    record(services, query.tracked_job, progress)


# How a query ends: its manifest is put once, then it is recorded, and its pins are removed.
#
# A crash after the manifest leaves the record and the pins; each later delivery of a message of the
# query settles them, and so does the sweep. What a query stored that failed or was cancelled is
# deleted by the sweep, which finds it by its pins: the function has no right to delete objects.

CANCELLED = "it was cancelled"
CANCELLED_BY_ADMINISTRATOR = "it was cancelled by someone who administers the instance"
_EVENTS: Mapping[EndState, type[Finished | Failed | Cancelled]] = {
    "finished": Finished,
    "failed": Failed,
    "cancelled": Cancelled,
}


@contextmanager
def failing(
    services: Services, asked: AnswerQuery, begun_ms: int, digest: str | None = None
) -> Iterator[None]:
    """End a query if the block fails with an error that a retry cannot cure.

    Raises:
        UnavailableError: a service does not answer; the message can be retried.
    """
    try:
        yield
    except (UnavailableError, OutcomeUnknownError):
        raise
    except DormouseError as error:
        reason, name = error.explanation, error.class_name
        end = save_early(services, asked, "failed", reason, name, begun_ms=begun_ms, digest=digest)
        end_early(services, asked, end)


def end_early(services: Services, asked: AnswerQuery, end: QueryEnd) -> None:
    """Go on after it was saved that a query ended without a result."""
    settle(services, end)


def save_early(
    services: Services,
    asked: AnswerQuery,
    state: EndState,
    reason: str,
    error: str = "",
    *,
    begun_ms: int = 0,
    digest: str | None = None,
) -> QueryEnd:
    """Save that a query ended without a result, which another may have said first; the next message
    about the query settles that. `digest` is that of its question, if it has begun.
    """
    end = QueryEnd(
        query=asked.query_id,
        state=state,
        question=question(asked) if digest is None else digest,
        ended_ms=services.clock.now_ms(),
        begun_ms=begun_ms,
        who=asked.who,
        reason=reason,
        error=error,
        to=asked.to,
        format=asked.format,
    )
    return END.save(services.results, query_manifest_path(end.query), end)


def finish(services: Services, query: Query, ends: Iterable[TaskEnd]) -> None:
    """Put the manifest of a query whose sub-queries are done, in their order.

    Raises:
        ForbiddenError: rules have changed meanwhile, and do not let who asked read it any more.
    """
    done = list(ends)
    versions, columns = all_versions(done), all_columns(done)
    check_readable(services, query.asked.who, versions, columns)
    files = tuple(file for end in done for file in end.files)
    end = QueryEnd(
        query=query.id,
        state="finished",
        question=query.question,
        ended_ms=services.clock.now_ms(),
        begun_ms=query.begun_ms,
        who=query.asked.who,
        to=query.asked.to,
        format=query.asked.format,
        schema=done[0].schema,
        versions=versions,
        columns=columns,
        files=files,
        rows=sum(end.rows for end in done),
        size_bytes=sum(file.size_bytes for file in files),
        tasks=query.tasks,
        requests=sum(end.requests for end in done),
        read_bytes=sum(end.read_bytes for end in done),
        function_milliseconds=sum(end.milliseconds for end in done),
    )
    end = END.save(services.results, query_manifest_path(end.query), end)
    settle(services, end)


def settle(services: Services, end: QueryEnd) -> None:
    """Send how a query ended to its queue, if it names one, then record it, and let go of the
    versions that a finished one read.
    """
    known = services.tracker.get(tracked_query(end.query).table_id, end.query)
    if known is None or not known.is_finished:
        undelivered = _deliver(services, end) if end.to else ""
        kind = Failed if undelivered else _EVENTS[end.state]
        event = kind(
            reason=undelivered or end.reason,
            rows=end.rows,
            files=len(end.files),
            size_bytes=end.read_bytes,
            who=end.who,
            parts=end.tasks,
            parts_done=end.tasks,
            requests=end.requests,
        )
        record(services, tracked_query(end.query), event)
    if end.state == "finished":
        for table_id in end.columns:
            table = services.table(table_id)
            if table is not None:
                unpin(services, table, end.query)


def _deliver(services: Services, end: QueryEnd) -> str:
    """Send how a query ended to its queue; return why that cannot be, empty if it was done."""
    from dormouse.features.query_delivery import deliver  # it needs Arrow; few queries do

    try:
        deliver(services, end, end.to)
    except (UnavailableError, OutcomeUnknownError):
        raise
    except DormouseError as error:
        return end.reason or f"the result is complete, but was not sent: {error.explanation}"
    return ""


# A statement that Spark computes: what its job does, which has no access to queues.
#
# The driver saves the end of the only sub-query, or that the query has failed. After the run, a
# message to `answer_query` goes on from there: it puts the manifest, sends it and records it.

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
        parts_of(services.results, query.id).end(0, end)
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
        begun_ms, digest = query.begun_ms, query.question
        save_early(services, query.asked, "failed", reason, error, begun_ms=begun_ms, digest=digest)


def following(services: Services, job: StatementJob) -> list[OutboundMessage]:
    """Return the message with which the query of a job goes on."""
    query = load_query(services.results, job.query_id)
    return [] if query is None else task_messages(query, [0])
