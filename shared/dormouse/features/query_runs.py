"""What becomes of a query that runs: its progress, its end, and statements that Spark computes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import Any, TypeAlias

import msgspec

from dormouse import errors
from dormouse.features import queries
from dormouse.features.access import check_readable
from dormouse.features.versions import unpin
from dormouse.files.results import READABLE, ResultFormat, json_objects, read_rows, read_schema
from dormouse.jobs import grouped, permanent_failure, record, tracked_job
from dormouse.messages.stages import OutboundMessage, StatementJob
from dormouse.ports import Services, Storage
from dormouse.showing import json_lines
from dormouse.state.jobs import Cancelled, Failed, Finished, Progressed, Started
from dormouse.stored.paths import query_manifest_path, query_prefix


def report_progress(
    services: Services, query: queries.Query, done: int, usage: queries.Spent
) -> None:
    """Record that so many sub-queries are done, and what the query has spent."""
    progress = Progressed(
        rows=usage.rows,
        size_bytes=usage.read_bytes,
        requests=usage.requests,
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
_EVENTS: Mapping[queries.EndState, type[Finished | Failed | Cancelled]] = {
    "finished": Finished,
    "failed": Failed,
    "cancelled": Cancelled,
}


@contextmanager
def failing(services: Services, query: queries.Query) -> Iterator[None]:
    """End a query if the block fails with an error that a retry cannot cure.
    Raises UnavailableError: a service does not answer; the message can be retried.
    """
    try:
        yield
    except errors.DormouseError as error:
        if not (reason := permanent_failure(error)):
            raise
        settle(services, save_early(services, query, "failed", reason, error.class_name))


def save_early(
    services: Services, query: queries.Query, state: queries.EndState, reason: str, error: str = ""
) -> queries.QueryEnd:
    """Save that a query ended without a result, which another may have said first; the next message
    about the query settles that.
    """
    return _save_end(services, query, state, reason=reason, error=error)


def _save_end(
    services: Services, query: queries.Query, state: queries.EndState, **more: Any
) -> queries.QueryEnd:
    end = queries.QueryEnd(
        query=query.id,
        state=state,
        question=query.question,
        ended_ms=services.clock.now_ms(),
        begun_ms=query.begun_ms,
        who=query.asked.who,
        to=query.asked.to,
        format=query.asked.format,
        **more,
    )
    return queries.END.save(services.results, query_manifest_path(end.query), end)


def finish(services: Services, query: queries.Query, ends: Iterable[queries.TaskEnd]) -> None:
    """Put the manifest of a query whose sub-queries are done, in their order.
    Raises ForbiddenError: rules have changed meanwhile, and do not let who asked read it any more.
    """
    parts = list(ends)
    versions: dict[str, tuple[int, ...]] = {}  # all sub-queries have read the same of a table
    columns: dict[str, set[str]] = {}
    for part in parts:
        versions |= part.versions
        for table_id, names in part.columns.items():
            columns.setdefault(table_id, set()).update(names)
    check_readable(services, query.asked.who, versions, columns)
    usage = queries.total(parts)
    end = _save_end(
        services,
        query,
        "finished",
        schema=parts[0].schema,
        versions=versions,
        columns={table_id: tuple(sorted(names)) for table_id, names in columns.items()},
        files=tuple(file for part in parts for file in part.files),
        rows=usage.rows,
        size_bytes=usage.result_bytes,
        tasks=query.tasks,
        requests=usage.requests,
        read_bytes=usage.read_bytes,
        function_milliseconds=usage.milliseconds,
    )
    settle(services, end)


def settle(services: Services, end: queries.QueryEnd) -> None:
    """Send how a query ended to its queue, if it names one, then record it, and let go of the
    versions that a finished one read.
    """
    last = services.tracker.get(queries.tracked_query(end.query).table_id, end.query)
    if last is None or not last.is_finished:
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
        record(services, queries.tracked_query(end.query), event)
    if end.state == "finished":
        for table_id in end.columns:
            table = services.table(table_id)
            if table is not None:
                unpin(services, table, end.query)


def _deliver(services: Services, end: queries.QueryEnd) -> str:
    """Send how a query ended to its queue; return why that cannot be, empty if it was done.
    Raises UnavailableError: some messages may not have been sent; deliver again.
    """
    try:
        texts = [_text(message) for message in messages_of(services.results, end)]
        services.result_queues.send(end.to, end.query, texts)
    except (errors.UnavailableError, errors.OutcomeUnknownError):
        raise
    except errors.DormouseError as error:
        return end.reason or f"the result is complete, but was not sent: {error.explanation}"
    return ""


# A statement that Spark computes: what its job does, which has no access to queues.
#
# The driver saves the end of the only sub-query, or that the query has failed. After the run, a
# message to `answer_query` goes on from there: it puts the manifest, sends it and records it.

Compute: TypeAlias = Callable[[queries.Query], queries.TaskEnd]
"""Writes the rows of a statement, and returns where they are."""


def is_computed(services: Services, job: StatementJob) -> bool:
    """Return whether Spark has no more to do: the rows are there, or the query has ended."""
    query = queries.load_query(services.results, job.query_id)
    return (
        query is None
        or queries.load_end(services.results, query.id) is not None
        or bool(queries.done_tasks(services.results, query))
    )


def compute(services: Services, job: StatementJob, compute: Compute) -> None:
    """Compute the statement of a job, unless that is done; an error that a retry cannot cure fails
    the query.
    Raises UnavailableError: a service does not answer, or Spark failed; the job can be run again.
    """
    query = queries.load_query(services.results, job.query_id)
    if query is None or is_computed(services, job):
        return
    tracked = tracked_job(job)
    record(services, tracked, Started(subject=query.id, who=query.asked.who))
    try:
        queries.check_time(query.asked.limits, query.begun_ms, services.clock.now_ms())
        end = compute(query)
        queries.parts_of(services.results, query.id).end(0, end)
        record(services, tracked, Finished(rows=end.spent.rows, size_bytes=end.spent.read_bytes))
    except queries.EndedError:
        record(services, tracked, Finished("its query has ended meanwhile"))
    except errors.DormouseError as error:
        record(services, tracked, Failed(error.explanation))
        if isinstance(error, errors.UnavailableError | errors.OutcomeUnknownError):
            raise
        fail(services, job, error.explanation, error.class_name)


def fail(services: Services, job: StatementJob, reason: str, error: str) -> None:
    """Save that the query of a job has failed, unless it has ended."""
    query = queries.load_query(services.results, job.query_id)
    if query is not None:
        save_early(services, query, "failed", reason, error)


def following(services: Services, job: StatementJob) -> list[OutboundMessage]:
    """Return the message with which the query of a job goes on."""
    query = queries.load_query(services.results, job.query_id)
    return [] if query is None else queries.task_messages(query, [0])


# Send the result of a query to a queue: rows as JSON if they are few, else where the files are.
#
# Messages are numbered from 1 and say how many there are, so a receiver knows what it has twice and
# what is missing: they may come twice or in another order, but what a number has never changes. A
# query that has no result sends why. They are sent after the manifest was put, which is what the
# message of a large result leads to, and before the end of the query is recorded: a crash between
# sends them again.

MESSAGE_BYTES = 240 * 1024
"""The most bytes of the rows of one message; queues of SQS take 256 KiB at least."""
MOST_MESSAGES = 16
"""A result that needs more messages is not sent, but where it is."""


class ResultMessage(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    kw_only=True,
    tag="query_result",
    tag_field="type",
):
    """What is sent of a query: message `part`, from 1, of `parts`; `is_last` for the last.

    `rows` are objects as in JSON lines. Of a large result there is one message, with the URI of the
    `manifest`, which names its files. `total` is the number of rows of the whole result.
    """

    query_id: str
    state: str
    part: int
    parts: int
    is_last: bool
    total: int = 0
    manifest: str = ""
    reason: str = ""
    error: str = ""
    rows: tuple[msgspec.Raw, ...] = ()


def messages_of(results: Storage, end: queries.QueryEnd) -> Iterator[ResultMessage]:
    """Yield the messages of a query that has ended; each call yields the same."""
    if end.state != "finished":
        common: dict[str, Any] = {"reason": end.reason, "error": end.error}
        yield _message(end, 1, 1, common)
        return
    groups = _row_groups(results, end)
    if groups is None:
        yield _message(end, 1, 1, {"manifest": f"{results.uri}/{query_manifest_path(end.query)}"})
        return
    for part, rows in enumerate(groups, start=1):
        yield _message(end, part, len(groups), {"rows": tuple(map(msgspec.Raw, rows))})


def _message(end: queries.QueryEnd, part: int, parts: int, more: dict[str, Any]) -> ResultMessage:
    return ResultMessage(
        query_id=end.query,
        state=end.state,
        part=part,
        parts=parts,
        is_last=part == parts,
        total=end.rows,
        **more,
    )


def _text(message: ResultMessage) -> str:
    return msgspec.json.encode(message).decode()


def _row_groups(results: Storage, end: queries.QueryEnd) -> list[tuple[bytes, ...]] | None:
    """Return the rows of each message as JSON; None if they are too many or too large, or JSON
    lacks a value.
    """
    form = ResultFormat(end.format)
    if form not in READABLE or end.size_bytes > MOST_MESSAGES * MESSAGE_BYTES:
        return None
    limit = (lambda line: len(line) + 1), MESSAGE_BYTES + 1  # with a comma after each but the last
    groups: list[tuple[bytes, ...]] = []
    try:
        for group in grouped(_lines(results, end, form), inf, limit):
            # a line that is too large is a group of its own: no others are made ready for nothing
            if len(groups) == MOST_MESSAGES or len(group[0]) > MESSAGE_BYTES:
                return None
            groups.append(group)
    except errors.InvalidRequestError:
        return None
    return groups or [()]


def _lines(results: Storage, end: queries.QueryEnd, form: ResultFormat) -> Iterator[bytes]:
    schema = read_schema(end.schema, end.query)
    for file in end.files:
        path = query_prefix(end.query) + file.name
        for batch in read_rows(results, form, schema, path, file.size_bytes, file.rows):
            for row in json_objects(batch):
                yield json_lines([row]).rstrip(b"\n")
