"""Send the progress of a query to the connection on which it was asked.

What is sent is news, not the result: rows are fetched by their tokens. So a message may be lost or
come twice. Who follows a query may lose the connection and come back with another, which then
follows the query, too. A query that nobody follows `GRACE_SECONDS` after a connection was found to
be closed is cancelled. Queries that were asked without a connection are followed by nobody, and go
on.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from dormouse.errors import NotFoundError, UnavailableError
from dormouse.features.queries.limits import Spent
from dormouse.features.queries.query import Query, QueryEnd
from dormouse.jobs.tracking import record
from dormouse.messages.queries import AnswerQuery, LeaveQuery
from dormouse.messages.socket_frames import ProgressFrame, encode_frame
from dormouse.messages.stages import OutboundMessage
from dormouse.model.jobs.job_events import Progressed
from dormouse.ports.connections import ConnectionGoneError
from dormouse.ports.services import Services, Storage
from dormouse.stored.paths import (
    connection_of,
    query_follower_path,
    query_followers_prefix,
)

GRACE_SECONDS = 60
"""How long a client has to come back; it asks for its next page after a quarter of that."""


def report_progress(services: Services, query: Query, done: int, spent: Spent) -> bool:
    """Record and send that so many sub-queries are done, and what the query has spent; return
    whether anybody follows it.
    """
    progress = Progressed(
        rows=spent.rows,
        size_bytes=spent.read_bytes,
        requests=spent.requests,
        parts=query.tasks,
        parts_done=done,
    )
    record(services, query.tracked_job, progress)
    return _send(services, query.asked, _progress(query, done, spent.rows))


def look_again(query: Query, *, is_followed: bool) -> list[OutboundMessage]:
    """Return a message to look again at a query that nobody seems to follow."""
    if is_followed:
        return []
    message = LeaveQuery(query_id=query.id, who=query.asked.who)
    return [OutboundMessage("queries", message, GRACE_SECONDS)]


def is_followed(services: Services, query: Query, done: int) -> bool:
    """Return whether anybody takes the news of a query."""
    return _send(services, query.asked, _progress(query, done, 0))


def may_follow(results: Storage, query: Query, connection: str) -> bool:
    """Return whether a connection that reads a query does not follow it yet, but can.

    A query that was asked without a connection sends no news, and needs nobody to go on.
    """
    if not query.asked.connection or query.asked.connection == connection:
        return False
    try:
        results.get(query_follower_path(query.id, connection))
    except NotFoundError:
        return True
    return False


def follow(services: Services, query: Query, connection: str, done: int) -> None:
    """Let another connection follow a query, and send it the progress.

    One that follows it already is sent nothing: a client that asks for its page again when there is
    news would never stop.
    """
    if services.results.put(query_follower_path(query.id, connection), b""):
        _reaches(services, connection, _progress(query, done, 0))


def send_end(services: Services, asked: AnswerQuery, end: QueryEnd) -> None:
    """Send how a query has ended to those who follow it."""
    _send(services, asked, _ended(end))


def send_end_to(services: Services, connection: str, end: QueryEnd) -> None:
    """Send how a query has ended to one connection."""
    _reaches(services, connection, _ended(end))


def _progress(query: Query, done: int, rows: int) -> ProgressFrame:
    return ProgressFrame(
        query_id=query.id, state="running", parts=query.tasks, parts_done=done, rows=rows
    )


def _ended(end: QueryEnd) -> ProgressFrame:
    return ProgressFrame(
        query_id=end.query, state=end.state, parts=end.tasks, parts_done=end.tasks, rows=end.rows
    )


def _send(services: Services, asked: AnswerQuery, frame: ProgressFrame) -> bool:
    """Send news to the connection that asked; if it is closed, to the others. Return whether it
    reached anybody, as far as that is known.
    """
    if asked.connection is UNSET or _reaches(services, asked.connection, frame):
        return True
    others = [_reaches(services, each, frame) for each in _followers(services, asked.query_id)]
    return any(others)


def _followers(services: Services, query_id: str) -> Iterator[str]:
    for stored in services.results.list(query_followers_prefix(query_id)):
        yield connection_of(stored.path)


def _reaches(services: Services, connection: str, frame: ProgressFrame) -> bool:
    try:
        services.connections.send(connection, encode_frame(frame))
    except ConnectionGoneError:
        return False
    except UnavailableError:  # it may be there: who waits asks again
        return True
    return True
