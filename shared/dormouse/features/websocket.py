"""serve_websocket: what happens on a connection: it begins, brings a frame, ends.

Who connected is recorded when that is verified, under the id of the connection, and is looked up
for each frame: API Gateway verifies a signature at the beginning alone. The record is one of the
tracker, which forgets it after a week. Nothing else is kept: a token says where a page begins, and
a client says what it has seen.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from http import HTTPStatus

import msgspec
import pyarrow as pa

from dormouse.access import NOBODY
from dormouse.arrow.types import conform, frame_schema
from dormouse.client.instance import Instance
from dormouse.client.queries import QUEUE, failure_of, message_parameters
from dormouse.errors import DormouseError, NotFoundError
from dormouse.features.access import check_readable
from dormouse.features.http import queries, tables, upkeep
from dormouse.features.http.calls import Call
from dormouse.features.http.forms import sealed, unsealed
from dormouse.features.http.problems import Problem, ProblemError, problem_of
from dormouse.features.http.queries import cancel_query, own_query, send_query
from dormouse.features.http.serve_http import find_route
from dormouse.features.queries import Query, QueryEnd, TaskEnd, load_end, load_query, parts_of
from dormouse.features.query_runs import may_follow
from dormouse.files.results import ResultFormat, json_objects, read_rows, read_schema, write_rows
from dormouse.http.connections import (
    IDLE_SECONDS,
    MOST_FRAME_BYTES,
    MOST_SECONDS,
    Connected,
    ConnectionGoneError,
    Disconnected,
    HeldConnections,
    Received,
    Served,
    SocketEvent,
)
from dormouse.http.messages import Answer, HttpRequest, HttpResponse, Socket, SocketClosedError
from dormouse.messages.socket_frames import (
    AcceptedFrame,
    AnswerFrame,
    AskedFrame,
    CancelFrame,
    CancellingFrame,
    ChangedFrame,
    ColumnFrame,
    PageFrame,
    PingFrame,
    PongFrame,
    ProblemFrame,
    ProgressFrame,
    QueryFrame,
    RowsForm,
    RowsFrame,
    UnchangedFrame,
    WatchFrame,
    encode_frame,
)
from dormouse.messages.stages import ALL_ROWS, AnswerQuery, FollowQuery, OutboundMessage
from dormouse.ports import Clock, Services
from dormouse.query.selection import decode_selection
from dormouse.state.jobs import Finished, JobRecord, Started, TrackedRequest
from dormouse.state.sources import WholeNumber
from dormouse.stored.decoding import decode_json
from dormouse.stored.paths import query_prefix, task_of

# Tokens: where the next page of a query begins, as a text that the client hands back.
#
# A token names the query, one of its sub-queries, a file and a row. It gives its holder no right:
# only the asker of the query gets its pages, on any connection. Its checksum only tells a damaged
# one from one that does not fit.

_SEND_TOKEN = "send the token that came with the last page of this query, or ask the query again"


class Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a page begins: at a row of a file, counted from 0, of a sub-query of a query."""

    query: str
    task: WholeNumber = 0
    file: WholeNumber = 0
    row: WholeNumber = 0
    v: int = 1


def token_of(place: Place) -> str:
    """Return a place as text that needs no quoting anywhere."""
    return sealed(msgspec.json.encode(place))


def place_of(token: str, query_id: str) -> Place:
    """Return what a token says; without one, the beginning of the query.

    Raises:
        ProblemError: it is damaged, or of another query, and so of another table or version.
    """
    if not token:
        return Place(query=query_id)
    try:
        found = decode_json(unsealed(token), Place)
    except ValueError as error:
        raise ProblemError(400, "`after` is no token, or is damaged", hint=_SEND_TOKEN) from error
    if found.v != 1 or found.query != query_id:
        raise ProblemError(
            422,
            "`after` is the token of another query, and so of other rows or another version",
            hint=_SEND_TOKEN,
        )
    return found


# The pages of a query: rows of the files that its sub-queries have written, in their order.
#
# A sub-query that is done has an end that never changes (`features.queries`), so a page is the same
# whenever it is asked for, before the query has ended and after. A page is as long as a frame can
# be.

FIRST_GUESS = 1024
"""How many rows the first page of a request may have."""
MOST_SKIPPED = 50
"""How many sub-queries without rows one request looks at: each is two reads, and a function has
half a minute.
"""
_GROWTH = 4
"""How many times as many rows as the page before a page may have."""
_GONE = "rows of this query are not kept any more"
_ASK_AGAIN = "ask the query again"


def pages(call: Call, asked: PageFrame, connection: str) -> Iterator[RowsFrame | ProgressFrame]:
    """Yield the pages that a client asks for, as far as there are any yet.

    Raises:
        ProblemError: the caller has no such query; the token does not fit; the query was cancelled,
            or its rows are not kept any more; or a row is longer than a frame.
        ForbiddenError: rules do not let the caller read a table any more.
        DormouseError: the query failed with it.
    """
    place = place_of(asked.after, asked.query_id)
    record = own_query(call, asked.query_id)
    end = _end(call, record, asked.query_id)
    query = load_query(call.services.results, asked.query_id)
    if query is None and end is not None:
        raise ProblemError(410, _GONE, hint=_ASK_AGAIN)
    if query is None:
        yield ProgressFrame(id=asked.id, query_id=asked.query_id, state="waiting")
        return
    if end is None:
        _follow(call, query, connection)
    left, guess, skipped = asked.pages, FIRST_GUESS, 0
    while left:
        task_end = _task_end(call, query, place.task)
        if task_end is None:
            yield _not_yet(call, asked, query, place.task, record, end)
            return
        reader, before = _Reader(call, asked, query, task_end, place), left
        for page in reader.pages(left, guess):
            yield page
            left -= 1
            guess = page.count * _GROWTH
        place = reader.place
        skipped += before == left
        if skipped == MOST_SKIPPED:
            yield _empty(asked, task_end.schema, token_of(place))
            return


def _follow(call: Call, query: Query, connection: str) -> None:
    """Let a connection that goes on with a query of another one have its news."""
    if not may_follow(call.services.results, query, connection):
        return
    message = FollowQuery(query_id=query.id, connection=connection, who=call.principal)
    call.instance.queues.send([OutboundMessage(QUEUE, message)])


def _not_yet(
    call: Call,
    asked: PageFrame,
    query: Query,
    task: int,
    record: JobRecord | None,
    end: QueryEnd | None,
) -> RowsFrame | ProgressFrame:
    """Return what is answered where a sub-query has no end: the end of the query, or that there is
    more to come. Raises as `pages`; and ProblemError: the sub-query has written rows that are gone.
    """
    if end is not None:
        _check(call, end)
        if any(task_of(file.name) >= task for file in end.files):
            raise ProblemError(410, _GONE, hint=_ASK_AGAIN)
        return _empty(asked, end.schema, "")
    return ProgressFrame(
        id=asked.id,
        query_id=query.id,
        state="running",
        parts=query.tasks,
        parts_done=record.parts_done if record is not None else 0,
        rows=record.rows if record is not None else 0,
    )


def _end(call: Call, record: JobRecord | None, query_id: str) -> QueryEnd | None:
    """Return how a query has finished; None if it has not ended. Raises as `pages`."""
    end = load_end(call.services.results, query_id)
    if end is None:
        if record is not None and record.is_finished:
            raise ProblemError(410, _GONE, hint=_ASK_AGAIN)
        return None
    if end.state == "cancelled":
        raise ProblemError(410, "the query was cancelled", hint=_ASK_AGAIN)
    if end.state == "failed":
        raise failure_of(end)
    return end


def _task_end(call: Call, query: Query, task: int) -> TaskEnd | None:
    """Return the end of the sub-query at a place; None if there is none, or not yet."""
    try:
        (found,) = parts_of(call.services.results, query.id).load_ends([task])
    except NotFoundError:
        return None
    _check(call, found)
    return found


def _check(call: Call, end: TaskEnd | QueryEnd) -> None:
    """Check that the caller may still see what was read."""
    check_readable(call.services, call.principal, end.versions, end.columns)
    if any(call.services.table(table_id) is None for table_id in end.columns):
        raise ProblemError(410, "a table of this query was deleted", hint="ask another query")


@dataclass
class _Reader:
    """Reads the files of one sub-query, from a place on; `place` is where the next page begins."""

    call: Call
    asked: PageFrame
    query: Query
    end: TaskEnd
    place: Place

    def pages(self, most: int, guess: int) -> Iterator[RowsFrame]:
        """Yield up to `most` pages; if there are fewer, go on to the next sub-query."""
        while self.place.file < len(self.end.files):
            for page in self._pages_of_file(guess):
                yield page
                most -= 1
                guess = page.count * _GROWTH
                if not most:
                    return
            self.place = _replace(self.place, file=self.place.file + 1, row=0)
        self.place = _replace(self.place, task=self.place.task + 1, file=0, row=0)

    def _pages_of_file(self, guess: int) -> Iterator[RowsFrame]:
        file = self.end.files[self.place.file]
        if self.place.row >= file.rows:
            return
        schema = read_schema(self.end.schema, self.query.id)
        path = query_prefix(self.query.id) + file.name
        form = ResultFormat(self.query.asked.format)
        try:
            for batch in read_rows(
                self.call.services.results,
                form,
                schema,
                path,
                file.size_bytes,
                file.rows,
                self.place.row,
            ):
                while batch.num_rows:
                    page = self._page(batch.slice(0, guess))
                    batch, guess = batch.slice(page.count), page.count * _GROWTH
                    yield page
        except NotFoundError as error:
            raise ProblemError(410, _GONE, hint=_ASK_AGAIN) from error

    def _page(self, batch: pa.RecordBatch) -> RowsFrame:
        """Return the first rows of a batch, as many as fit into a frame."""
        count = batch.num_rows
        while True:
            after = _replace(self.place, row=self.place.row + count)
            page = _encoded(self.asked, batch.slice(0, count), token_of(after))
            size_bytes = len(encode_frame(page).encode())
            if size_bytes <= MOST_FRAME_BYTES:
                self.place = after
                return page
            if count == 1:
                raise ProblemError(
                    413,
                    f"a row takes more than the {MOST_FRAME_BYTES:,} bytes of a frame",
                    hint="ask for fewer columns, or by HTTP with Prefer: respond-async",
                )
            count = max(1, min(count // 2, count * MOST_FRAME_BYTES // size_bytes))


def _replace(place: Place, **changes: int) -> Place:
    return msgspec.structs.replace(place, **changes)


def _empty(asked: PageFrame, schema: str, after: str) -> RowsFrame:
    """Return a page without rows. Raises ProblemError: its columns are longer than a frame."""
    columns = frame_schema(read_schema(schema, asked.query_id))
    page = _encoded(asked, pa.RecordBatch.from_pylist([], columns), after)
    if len(encode_frame(page).encode()) > MOST_FRAME_BYTES:
        raise ProblemError(
            413,
            f"the columns take more than the {MOST_FRAME_BYTES:,} bytes of a frame",
            hint="ask for fewer columns",
        )
    return page


def _encoded(asked: PageFrame, batch: pa.RecordBatch, after: str) -> RowsFrame:
    schema = frame_schema(batch.schema)
    rows, form = conform(batch, schema), asked.form
    columns, objects, arrow = _content(form, rows, schema)
    return RowsFrame(
        id=asked.id,
        query_id=asked.query_id,
        columns=columns,
        rows=objects,
        arrow=arrow,
        count=batch.num_rows,
        next=after,
    )


def _content(
    form: RowsForm, rows: pa.RecordBatch, schema: pa.Schema
) -> tuple[tuple[ColumnFrame, ...], tuple[msgspec.Raw, ...], str]:
    if form == "arrow":
        sink = io.BytesIO()
        write_rows(ResultFormat.arrow, [rows], schema, sink)
        return (), (), base64.b64encode(sink.getvalue()).decode()
    columns = tuple(ColumnFrame(name=each.name, type=str(each.type)) for each in schema)
    return columns, tuple(msgspec.Raw(msgspec.json.encode(row)) for row in json_objects(rows)), ""


# What has changed since a client asked last: jobs, metrics, and other lists of the HTTP API.
#
# Nothing is kept about watchers, and nothing runs for it: the client asks from time to time, which
# keeps its connection alive as well, and is sent what differs from what it has seen.

WATCHED: tuple[Callable[..., object], ...] = (
    tables.list_tables,
    tables.show_table,
    tables.show_metrics,
    tables.show_status,
    upkeep.list_jobs,
    upkeep.list_other_jobs,
    upkeep.list_refused_files,
    upkeep.list_queues,
    upkeep.show_request,
    upkeep.show_file,
    queries.list_queries,
)
"""What can be watched: routes of the group `read` whose answers change by themselves."""


def watch(call: Call, frame: WatchFrame) -> ChangedFrame | UnchangedFrame:
    """Return what is at a path of the API, unless the client has seen it.

    Raises:
        ProblemError: there is no such path; or it cannot be watched, or is too long for a frame.
        DormouseError: as the route of the path.
    """
    path, _, query_string = frame.path.partition("?")
    request = HttpRequest("GET", path, query_string, principal=call.principal)
    route, names = find_route(request)
    if route.answer not in WATCHED:
        raise ProblemError(
            422,
            "this path cannot be watched",
            hint="watch tables, their status, metrics, jobs and files, queries, queues or requests",
        )
    inner = Call(call.instance, request)
    content = msgspec.json.encode(route.answer(inner, **names, **route.arguments(inner)))
    seen = blake2b(content, digest_size=12).hexdigest()
    if seen == frame.seen:
        return UnchangedFrame(id=frame.id, path=frame.path)
    found = ChangedFrame(id=frame.id, path=frame.path, seen=seen, content=msgspec.Raw(content))
    if len(encode_frame(found).encode()) > MOST_FRAME_BYTES:
        raise ProblemError(
            413,
            f"it takes more than the {MOST_FRAME_BYTES:,} bytes of a frame",
            hint="ask for a part, by `limit` in the path",
        )
    return found


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


# The WebSockets of a server of this machine: at one path, for an instance in a folder.

_GOING_AWAY, _NOT_ALLOWED = 1001, 1008


def with_websocket(answer: Answer, instance: Instance) -> Answer:
    """Return what answers requests for a WebSocket of an instance in a folder, all others with
    `answer`.
    """

    def answered(request: HttpRequest) -> HttpResponse:
        if request.path != PATH or request.method != "GET":
            return answer(request)
        return socket_response(lambda socket: talk(instance, request.principal, socket))

    return answered


def socket_response(talks: Callable[[Socket], None], url: str = "") -> HttpResponse:
    """Return the answer at the path of WebSockets: to a request for none, where they are; without
    a URL, that is here.
    """
    body = json.dumps({"url": url or PATH}).encode()
    return HttpResponse(200, {"content-type": "application/json"}, body, socket=talks)


def talk(instance: Instance, principal: str, socket: Socket) -> None:
    """Serve one connection until it is closed, at the latest when it would be on AWS."""
    held = instance.services.connections
    if not isinstance(held, HeldConnections):
        socket.close(1011, "this instance takes no connections here")
        return

    def send(text: str) -> None:
        try:
            socket.send(text)
        except SocketClosedError as error:
            raise ConnectionGoneError("the connection is closed") from error

    name = held.hold(send, lambda: socket.close(_NOT_ALLOWED, "connect again"))
    try:
        if serve_websocket(instance, Connected(name, principal)).status is HTTPStatus.OK:
            _serve(instance, name, socket)
    except SocketClosedError:
        return
    finally:
        held.drop(name)
        serve_websocket(instance, Disconnected(name))


def _serve(instance: Instance, name: str, socket: Socket) -> None:
    for text in frames(socket, instance.services.clock):
        try:
            serve_websocket(instance, Received(name, text))
        except DormouseError as error:  # of the registry itself; the client can try again
            socket.send(encode_frame(problem_frame("", error)))


def frames(socket: Socket, clock: Clock) -> Iterator[str]:
    """Yield what a client sends, until nothing comes for too long, or it is connected too long."""
    until_ms = clock.now_ms() + MOST_SECONDS * 1000
    while True:
        left = (until_ms - clock.now_ms()) / 1000
        text = socket.receive(min(IDLE_SECONDS, left)) if left > 0 else None
        if text is None:
            socket.close(_GOING_AWAY, "idle" if left > IDLE_SECONDS else "connected for two hours")
            return
        yield text
