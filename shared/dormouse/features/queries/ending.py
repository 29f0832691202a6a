"""How a query ends: its manifest is put once, then it is recorded, and its pins are removed.

A crash after the manifest leaves the record and the pins; each later delivery of a message of the
query settles them, and so does the sweep. What a query stored that failed or was cancelled is
deleted by the sweep, which finds it by its pins: the function has no right to delete objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from dormouse.access.results import check_readable
from dormouse.errors import DormouseError, OutcomeUnknownError, UnavailableError
from dormouse.features.queries.following import send_end
from dormouse.features.queries.pinning import unpin
from dormouse.features.queries.query import (
    EndState,
    Query,
    QueryEnd,
    TaskEnd,
    all_columns,
    all_versions,
    question,
    tracked_query,
)
from dormouse.features.queries.stored import save_end
from dormouse.jobs.tracking import record
from dormouse.messages.queries import AnswerQuery
from dormouse.model.jobs.job_events import Cancelled, Failed, Finished
from dormouse.ports.services import Services

CANCELLED = "it was cancelled"
CANCELLED_BY_ADMINISTRATOR = "it was cancelled by someone who administers the instance"
LEFT = "its connection was closed, and nobody waits for it"
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
        end_early(
            services,
            asked,
            "failed",
            begun_ms=begun_ms,
            reason=error.explanation,
            error=error.class_name,
            digest=digest,
        )


def end_early(
    services: Services,
    asked: AnswerQuery,
    state: EndState,
    *,
    begun_ms: int = 0,
    reason: str = "",
    error: str = "",
    digest: str | None = None,
) -> None:
    """End a query without a result; `digest` is that of its question, if it has begun."""
    end = save_early(
        services,
        asked,
        state,
        begun_ms=begun_ms,
        reason=reason,
        error=error,
        digest=digest,
    )
    settle(services, end)
    send_end(services, asked, end)


def save_early(
    services: Services,
    asked: AnswerQuery,
    state: EndState,
    *,
    begun_ms: int,
    reason: str,
    error: str,
    digest: str | None,
) -> QueryEnd:
    """Save that a query ended without a result, which another may have said first; the next message
    about the query settles that.
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
    return save_end(services.results, end)


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
    end = save_end(services.results, end)
    settle(services, end)
    send_end(services, query.asked, end)


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
    from dormouse.features.queries.delivery import deliver  # it needs Arrow; few queries do

    try:
        deliver(services, end, end.to)
    except (UnavailableError, OutcomeUnknownError):
        raise
    except DormouseError as error:
        return end.reason or f"the result is complete, but was not sent: {error.explanation}"
    return ""
