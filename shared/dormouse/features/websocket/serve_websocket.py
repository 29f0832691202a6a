"""serve_websocket: what happens on a connection: it begins, brings a frame, ends.

Who connected is recorded when that is verified, under the id of the connection, and is looked up
for each frame: API Gateway verifies a signature at the beginning alone. The record is one of the
tracker, which forgets it after a week. Nothing else is kept: a token says where a page begins, and
a client says what it has seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

import msgspec

from dormouse.access.principals import NOBODY
from dormouse.client.instance import Instance
from dormouse.client.reading.queries import message_parameters
from dormouse.errors import DormouseError
from dormouse.features.http.calls import Call
from dormouse.features.http.problems import Problem, ProblemError, problem_of
from dormouse.features.http.resources.asked import cancel_query, send_query
from dormouse.features.websocket.result_pages import pages
from dormouse.features.websocket.tokens import Place, token_of
from dormouse.features.websocket.watching import watch
from dormouse.http.messages import HttpRequest
from dormouse.messages.base import ALL_ROWS
from dormouse.messages.queries import AnswerQuery
from dormouse.messages.socket_frames import (
    AcceptedFrame,
    AnswerFrame,
    AskedFrame,
    CancelFrame,
    CancellingFrame,
    PageFrame,
    PingFrame,
    PongFrame,
    ProblemFrame,
    QueryFrame,
    WatchFrame,
    encode_frame,
)
from dormouse.model.jobs.job_events import Finished, Started, TrackedRequest
from dormouse.ports.connections import (
    MOST_FRAME_BYTES,
    Connected,
    ConnectionGoneError,
    Disconnected,
    Received,
    Served,
    SocketEvent,
)
from dormouse.ports.services import Services
from dormouse.query.selection_codec import decode_selection
from dormouse.stored.decoding import decode_json

CONNECTIONS = "(connections)"
"""The id under which the tracker keeps the records of connections."""
PATH = "/websocket"
"""Where a server of this machine takes connections."""


_MOST_CHARACTERS = 2000
"""How much of a detail or a hint is sent: either may quote what the client sent."""


class _Identified(msgspec.Struct):
    """The part of a malformed frame that names it."""

    id: str = ""


def serve_websocket(instance: Instance, event: SocketEvent) -> Served:
    """Do what an event of a connection asks for; return whether the connection can go on.

    Raises:
        UnavailableError: a service does not answer.
    """
    services = instance.services
    match event:
        case Connected():
            if event.principal == NOBODY:
                return Served(HTTPStatus.FORBIDDEN)
            _record(services, event.connection, Started(who=event.principal))
            return Served()
        case Disconnected():
            _record(services, event.connection, Finished())
            return Served()
        case Received():
            return _receive(instance, event)


def _record(services: Services, connection: str, said: Started | Finished) -> None:
    request = TrackedRequest(CONNECTIONS, connection, "connection")
    services.tracker.record(request, said, services.clock.now_ms())


def _receive(instance: Instance, event: Received) -> Served:
    connections = instance.services.connections
    known = instance.services.tracker.get(CONNECTIONS, event.connection)
    if known is None or known.is_finished or known.who == NOBODY:
        connections.close(event.connection)
        return Served(HTTPStatus.FORBIDDEN)
    call = Call(instance, HttpRequest("GET", PATH, principal=known.who))
    try:
        problem = _answer(call, event)
    except ConnectionGoneError:
        return Served(HTTPStatus.GONE)
    return Served(problem=problem)


def _answer(call: Call, event: Received) -> str:
    """Send what answers a frame; what is wrong with it, or with what it names, is a problem. Return
    what the log should say. Raises ConnectionGoneError.
    """
    connections, connection = call.services.connections, event.connection
    try:
        for frame in _answered(call, _decoded(event.text), connection):
            connections.send(connection, encode_frame(frame))
    except ConnectionGoneError:
        raise
    except (ProblemError, DormouseError) as error:
        connections.send(connection, encode_frame(problem_frame(_name_of(event.text), error)))
        return problem_of(error).problem
    return ""


def problem_frame(name: str, error: ProblemError | DormouseError) -> ProblemFrame:
    """Return an error as the HTTP API shows it, for the request of a name."""
    shown = decode_json(problem_of(error).body, Problem)
    return ProblemFrame(
        id=name,
        status=shown.status,
        title=shown.title,
        detail=_shortened(shown.detail),
        hint=_shortened(shown.hint),
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


def _decoded(text: str) -> AskedFrame:
    if len(text.encode()) > MOST_FRAME_BYTES:
        raise ProblemError(
            413,
            f"a frame has at most {MOST_FRAME_BYTES:,} bytes",
            hint="ask for fewer keys or ranges at once",
        )
    try:
        frame: AskedFrame = decode_json(text, AskedFrame)
    except ValueError as error:
        raise ProblemError(
            400, f"this is no frame: {error}", hint="docs/http.md lists all frames"
        ) from error
    return frame


def _name_of(text: str) -> str:
    try:
        return decode_json(text, _Identified).id[:100]
    except ValueError:
        return ""


def _answered(call: Call, frame: AskedFrame, connection: str) -> Iterable[AnswerFrame]:
    match frame:
        case QueryFrame():
            return [_ask(call, frame, connection)]
        case PageFrame():
            return pages(call, frame, connection)
        case CancelFrame():
            cancel_query(call, frame.query_id)
            return [CancellingFrame(id=frame.id, query_id=frame.query_id)]
        case WatchFrame():
            return [watch(call, frame)]
        case PingFrame():
            return [PongFrame(id=frame.id)]


def _ask(call: Call, frame: QueryFrame, connection: str) -> AcceptedFrame:
    """Send a query to be answered; what can be refused at once is."""
    if bool(frame.table) == bool(frame.sql) or (frame.sql and frame.selection != ALL_ROWS):
        raise ProblemError(
            422, "a query has either a table or a statement in sql", hint="send one of them"
        )
    if frame.sql:
        parameters = message_parameters(dict(frame.parameters))
        asked = AnswerQuery(query_id="-", sql=frame.sql, parameters=parameters, format="arrow")
    else:
        seen = call.table(frame.table).seen
        decode_selection(
            frame.selection,
            seen.table.schema,
            permission=seen.permission,
            version=0,
            time_ms=call.services.clock.now_ms(),
        )
        asked = AnswerQuery(query_id="-", table=seen.table.name, selection=frame.selection)
    asked = msgspec.structs.replace(asked, connection=connection)
    query_id = send_query(call, asked, frame.idempotency_key)
    return AcceptedFrame(id=frame.id, query_id=query_id, after=token_of(Place(query=query_id)))
