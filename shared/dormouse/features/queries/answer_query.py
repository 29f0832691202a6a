"""answer_query: begin queries that messages ask, answer their sub-queries, cancel them.

A query that is not cut is answered at once by the delivery that begins it; others send a message
for each sub-query, or for the next one if a limit may make it needless. A statement in SQL is never
cut; one for Spark is a job of Spark's (`by_spark`). The delivery that finds all sub-queries done
puts the manifest. The end of a query is put once, so messages may come twice, late or side by side:
each query has one outcome. If two attempts at a sub-query crash (out of memory, time-out), the
third delivery fails the query.

Order of writes: what `planning` says; what `sub_query` says, for each sub-query; the manifest; then
what `ending` says. A crash between the last end of a sub-query and the manifest leaves a query that
the redelivery of that sub-query, or the sweep, finishes.
"""

from __future__ import annotations

from collections.abc import Iterable

from dormouse.access.doors import administers_instance
from dormouse.errors import InvalidRequestError, JobTooLargeError, NotFoundError
from dormouse.features.queries.answering.sub_query import ResultAttempts, answer
from dormouse.features.queries.beginning.planning import begin_query
from dormouse.features.queries.ending import (
    CANCELLED,
    CANCELLED_BY_ADMINISTRATOR,
    LEFT,
    end_early,
    failing,
    finish,
    settle,
)
from dormouse.features.queries.following import (
    follow,
    is_followed,
    look_again,
    report_progress,
    send_end_to,
)
from dormouse.features.queries.limits import Spent, check_spent, check_time
from dormouse.features.queries.query import Query, TaskEnd, question
from dormouse.features.queries.stored import (
    done_tasks,
    load_end,
    load_query,
    load_task_ends,
    save_task_end,
    spark_job,
    task_messages,
)
from dormouse.jobs.attempts import crashed_attempts, record_attempt
from dormouse.jobs.crashes import CRASH_LIMIT
from dormouse.jobs.tracking import record
from dormouse.messages.queries import (
    AnswerQuery,
    CancelQuery,
    FollowQuery,
    LeaveQuery,
    QueryMessage,
    QueryTask,
)
from dormouse.messages.stages import OutboundMessage
from dormouse.model.jobs.job_events import Started
from dormouse.ports.services import Services
from dormouse.stored.paths import query_attempts_prefix

_CRASHED = f"{CRASH_LIMIT} attempts at it crashed, out of time or memory"
_LESS = "ask for less at once, lower query_task_bytes, or export the rows with Spark"


def answer_query(services: Services, message: QueryMessage) -> list[OutboundMessage]:
    """Do what a message asks, unless its query has ended.

    Raises:
        UnavailableError: a service does not answer; the message can be retried.
        InvalidRequestError: another query has this id.
        NotFoundError: the query was asked by somebody else.
    """
    end = load_end(services.results, message.query_id)
    if end is not None:
        if isinstance(message, AnswerQuery) and end.question:
            _check_same(message, end.question, end.who)
        settle(services, end)
        if isinstance(message, FollowQuery) and message.who == end.who and message.connection:
            send_end_to(services, message.connection, end)
        return []
    match message:
        case AnswerQuery():
            return _begin(services, message)
        case CancelQuery():
            return _cancel(services, message)
        case FollowQuery():
            _follow(services, message)
            return []
        case LeaveQuery():
            _leave(services, message)
            return []
        case QueryTask():
            query = _own_query(services, message)
            return [] if query is None else _continue(services, query, message.task)


def _begin(services: Services, asked: AnswerQuery) -> list[OutboundMessage]:
    query = load_query(services.results, asked.query_id)
    if query is not None:
        _check_same(asked, query.question, query.asked.who)
    else:
        with failing(services, asked, services.clock.now_ms()):
            query = begin_query(services, asked)
    if query is None:
        return []
    _check_same(asked, query.question, query.asked.who)
    subject = query.read.name if query.read is not None else "SQL"
    started = Started(subject=subject, who=asked.who, parts=query.tasks)
    record(services, query.tracked_job, started)
    end = load_end(services.results, query.id)
    if end is not None:  # meanwhile; the record must not say for good that the query has begun
        settle(services, end)
        return []
    if query.tasks == 1 or query.in_turn:
        return _continue(services, query, 0)
    return task_messages(query, done_tasks(services.results, query))


def _check_same(asked: AnswerQuery, digest: str, who: str) -> None:
    if question(asked) != digest or asked.who != who:
        raise InvalidRequestError(
            f"another query has the id {asked.query_id!r}", hint="give each query an id of its own"
        )


def _cancel(services: Services, message: CancelQuery) -> list[OutboundMessage]:
    """End a query without a result, for whoever asked it or administers the instance; one that has
    not begun never will.
    """
    query = load_query(services.results, message.query_id)
    if query is None:
        asked = AnswerQuery(query_id=message.query_id, table="-", who=message.who)
        end_early(services, asked, "cancelled", reason=CANCELLED, digest="")
        return []
    reason = CANCELLED
    if query.asked.who != message.who:
        if not administers_instance(services, message.who):
            raise _not_yours(message.query_id)
        reason = CANCELLED_BY_ADMINISTRATOR
    _end_cancelled(services, query, reason)
    return []


def _end_cancelled(services: Services, query: Query, reason: str) -> None:
    end_early(
        services,
        query.asked,
        "cancelled",
        begun_ms=query.begun_ms,
        reason=reason,
        digest=query.question,
    )


def _own_query(services: Services, message: LeaveQuery | QueryTask) -> Query | None:
    """Return the query of a message, which is from whoever asked it, or from the instance itself:
    its own messages say who asked. None if the query has not begun.

    Others could end the query: by leaving it, or by starting so many attempts at a sub-query side
    by side that they count as crashed.
    """
    query = load_query(services.results, message.query_id)
    if query is not None and query.asked.who != message.who:
        raise _not_yours(message.query_id)
    return query


def _not_yours(query_id: str) -> NotFoundError:
    return NotFoundError(
        f"you have no query {query_id!r}",
        hint="who asked a query or administers the instance can cancel it, and the sweep "
        "continues it",
    )


def _follow(services: Services, message: FollowQuery) -> None:
    """Let another connection of the principal that asked a query follow it."""
    query = load_query(services.results, message.query_id)
    if query is not None and query.asked.who == message.who and message.connection:
        done = len(done_tasks(services.results, query))
        follow(services, query, message.connection, done)


def _leave(services: Services, message: LeaveQuery) -> None:
    """Cancel a query that nobody follows any more."""
    query = _own_query(services, message)
    if query is None or is_followed(services, query, len(done_tasks(services.results, query))):
        return
    _end_cancelled(services, query, LEFT)


def _continue(services: Services, query: Query, task: int) -> list[OutboundMessage]:
    """Answer a sub-query, unless that is done; go on with what follows."""
    if not 0 <= task < query.tasks:
        raise InvalidRequestError(f"query {query.id!r} has no sub-query {task}")
    with failing(services, query.asked, query.begun_ms, query.question):
        return _answered(services, query, task)
    return []


def _answered(services: Services, query: Query, task: int) -> list[OutboundMessage]:
    check_time(query.asked.limits, query.begun_ms, services.clock.now_ms())
    done = done_tasks(services.results, query)
    if query.in_turn and task not in done:
        task = len(done)  # whatever a message says: those before leave a part of the limit
    if task not in done and query.views:
        return [spark_job(query)]
    if task not in done:
        before = _spent(load_task_ends(services.results, query.id, done))
        check_spent(query.asked.limits, before, services.memory_bytes)
        end = _attempted(services, query, task, before)
        if end is None:  # the query has ended meanwhile
            return []
        save_task_end(services.results, query.id, task, end)
        done = done_tasks(services.results, query)
    if len(done) == query.tasks:
        finish(services, query, load_task_ends(services.results, query.id, done))
        return []
    return _next(services, query, done)


def _attempted(services: Services, query: Query, task: int, before: Spent) -> TaskEnd | None:
    attempts = ResultAttempts(services.results, services.ids)
    prefix = query_attempts_prefix(query.id, task)
    if len(crashed_attempts(attempts, prefix)) >= CRASH_LIMIT:
        raise JobTooLargeError(f"sub-query {task}: {_CRASHED}", hint=_LESS)
    with record_attempt(attempts, prefix):
        if services.compute is None:
            return answer(services, query, task, before)
        services.compute(query.id, task)
    if task not in done_tasks(services.results, query):
        return None
    return load_task_ends(services.results, query.id, [task])[0]


def compute_task(services: Services, query_id: str, task: int) -> None:
    """Answer a sub-query and save its end, for the process whose `Services.compute` this is.

    Raises:
        DormouseError: the query fails with it.
    """
    query = load_query(services.results, query_id)
    if query is None:
        return
    done = done_tasks(services.results, query)
    before = _spent(load_task_ends(services.results, query_id, done))
    end = answer(services, query, task, before)
    if end is not None:  # else the query has ended meanwhile
        save_task_end(services.results, query_id, task, end)


def _next(services: Services, query: Query, done: list[int]) -> list[OutboundMessage]:
    """Record the progress; return the message of the next sub-query, if they come in turn.

    A limit that is reached leaves nothing for the others: they are not answered.
    """
    ends = load_task_ends(services.results, query.id, done)
    spent = _spent(ends)
    if query.in_turn and query.limit is not None and spent.rows >= query.limit:
        finish(services, query, ends)
        return []
    looks = look_again(query, is_followed=report_progress(services, query, len(done), spent))
    following = task_messages(query, done) if query.in_turn else []
    return [*following, *looks]


def _spent(ends: Iterable[TaskEnd]) -> Spent:
    spent = Spent()
    for end in ends:
        size_bytes = sum(file.size_bytes for file in end.files)
        one = Spent(end.rows, size_bytes, end.requests, end.read_bytes, end.milliseconds)
        spent = spent.plus(one)
    return spent
