"""Queries over a WebSocket: rows as sub-queries end, from anywhere, with no right but to connect.

    from dormouse.client.socket import SocketClient

    with SocketClient("ws://127.0.0.1:40123/websocket", token="…") as client:
        for batch in client.query("flights", where="delay > 60"):
            ...

Rows are fetched in pages as they are taken, so a slow reader holds nothing up. A connection that
is closed meanwhile is opened again, and the pages go on after the token of the last one.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any, Self, TypeVar

from dormouse.errors import (
    DormouseError,
    ForbiddenError,
    InvalidRequestError,
    LimitExceededError,
    NotFoundError,
    TimedOutError,
    UnavailableError,
    VersionGoneError,
    needs_extra,
)
from dormouse.http.connections import MOST_FRAME_BYTES
from dormouse.messages.socket_frames import (
    AcceptedFrame,
    AnswerFrame,
    AskedFrame,
    CancelFrame,
    ChangedFrame,
    PageFrame,
    PingFrame,
    ProblemFrame,
    ProgressFrame,
    QueryFrame,
    RowsFrame,
    WatchFrame,
    encode_frame,
)
from dormouse.messages.stages import QueryId, SelectionMessage
from dormouse.stored.decoding import decode_json
from dormouse.system import TimeOrderedIds

if TYPE_CHECKING:
    import pyarrow as pa

with needs_extra("websocket", "a WebSocket"):
    from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
    from websockets.sync.client import ClientConnection, connect

ASK_SECONDS = 15.0
"""How long news of a query is waited for; then its next page is asked for again."""
ATTEMPTS = 5
"""How often a connection that is closed is opened again without an answer in between."""
_KINDS: Mapping[int, type[DormouseError]] = {
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    410: VersionGoneError,
    413: LimitExceededError,
    500: UnavailableError,
    503: UnavailableError,
    504: TimedOutError,
}
"""The class of error for the status of a problem; all others are `InvalidRequestError`."""
_Frame = TypeVar("_Frame", bound=AnswerFrame)
_CLOSED = "the connection is closed each time that it is used"
Progress = Callable[[ProgressFrame], None]


class SocketClient:
    """One connection at a time to an instance; for one thread. It is opened when it is needed."""

    def __init__(
        self, url: str = "", *, token: str = "", address: Callable[[], str] | None = None
    ) -> None:
        """`token` is that of a server of a machine. Where an address can be used once, or for a
        short time, as a signed one of AWS, `address` returns the next one.
        """
        self._address = address or (lambda: url)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connection: ClientConnection | None = None
        self._opened = ExitStack()
        self._names = count(1)
        self._ids = TimeOrderedIds()

    def query(
        self,
        table: str,
        *,
        where: str = "",
        columns: Sequence[str] = (),
        limit: int | None = None,
        keys: Sequence[Sequence[object]] = (),
        as_of: int | str | None = None,
        progress: Progress | None = None,
    ) -> SocketRows:
        """Ask for rows of a table, in key order; `progress` is called when sub-queries end.

        Raises:
            DormouseError: the question does not fit, or the caller may not ask it.
        """
        selection = SelectionMessage(
            keys=tuple(tuple(key) for key in keys),
            where=where,
            columns=tuple(columns),
            limit=limit,
            as_of=as_of,
        )
        frame = QueryFrame(
            id=self._name(), table=table, selection=selection, idempotency_key=self._ids.new()
        )
        return self._asked(frame, progress)

    def sql(
        self,
        text: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        progress: Progress | None = None,
    ) -> SocketRows:
        """Ask a statement in SQL; as `query`."""
        frame = QueryFrame(
            id=self._name(),
            sql=text,
            parameters=dict(parameters or {}),
            idempotency_key=self._ids.new(),
        )
        return self._asked(frame, progress)

    def resume(
        self, query_id: QueryId, after: str, *, progress: Progress | None = None
    ) -> SocketRows:
        """Return the rows of a query after a token, `SocketRows.after` of this client or another
        one of the same caller.
        """
        return SocketRows(self, query_id, after, progress)

    def watch(self, path: str, seen: str = "") -> ChangedFrame | None:
        """Return what a GET of the HTTP API at `path` returns now; None if it was `seen`."""
        found = self.ask(WatchFrame(id=self._name(), path=path, seen=seen))
        return found if isinstance(found, ChangedFrame) else None

    def ping(self) -> None:
        """Keep the connection alive."""
        self.ask(PingFrame(id=self._name()))

    def cancel(self, query_id: QueryId) -> None:
        """Cancel a query, unless it has ended."""
        self.ask(CancelFrame(id=self._name(), query_id=query_id))

    def close(self) -> None:
        """Close the connection; it is opened again if it is used."""
        self._connection = None
        self._opened.close()

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def _name(self) -> str:
        return str(next(self._names))

    def _asked(self, frame: QueryFrame, progress: Progress | None) -> SocketRows:
        found = self.ask(frame)
        if not isinstance(found, AcceptedFrame):
            raise _strange(found)
        return SocketRows(self, found.query_id, found.after, progress)

    def ask(self, frame: AskedFrame) -> AnswerFrame:
        """Send a frame, and return what answers it; news of queries meanwhile is dropped.

        It is sent again if the connection is closed before it is answered, so a query needs an
        `idempotency_key`, or may be asked several times.

        Raises:
            DormouseError: it is a problem.
            UnavailableError: the instance cannot be reached, or closes the connection each time.
        """
        for _ in range(ATTEMPTS):
            try:
                self.send(frame)
                while True:
                    found = self.receive(None, frame.id)
                    if found is not None and found.id == frame.id:
                        return found
            except ConnectionClosed:
                self.close()
        raise UnavailableError(_CLOSED)

    def send(self, frame: AskedFrame) -> None:
        """Send a frame. Raises ConnectionClosed."""
        text = encode_frame(frame)
        if len(text.encode()) > MOST_FRAME_BYTES:
            raise InvalidRequestError(
                f"a frame has at most {MOST_FRAME_BYTES:,} bytes",
                hint="ask for fewer keys or ranges at once",
            )
        if self._connection is None:
            self._connection = self._connect()
        self._connection.send(text)

    def receive(self, seconds: float | None, name: str) -> AnswerFrame | None:
        """Return the next frame; None if there is none for so long.

        Raises:
            DormouseError: it is a problem of the request of that name, or of no request.
        """
        if self._connection is None:  # its user closed it
            return None
        try:
            text = self._connection.recv(timeout=seconds)
        except TimeoutError:
            return None
        try:
            found: AnswerFrame = decode_json(text, AnswerFrame)
        except ValueError as error:
            raise UnavailableError(f"the instance sent what is no frame: {error}") from error
        if isinstance(found, ProblemFrame) and found.id in (name, ""):
            kind = _KINDS.get(found.status, InvalidRequestError)
            raise kind(found.detail, hint=found.hint)
        return found

    def _connect(self) -> ClientConnection:
        try:
            opening = connect(
                self._address(),
                additional_headers=self._headers,
                max_size=MOST_FRAME_BYTES,
                compression=None,
            )
            return self._opened.enter_context(opening)
        except InvalidStatus as error:
            status = error.response.status_code
            kind = _KINDS.get(status, UnavailableError)
            raise kind(f"the connection is refused with status {status}") from error
        except (OSError, InvalidHandshake, InvalidURI) as error:
            raise UnavailableError(f"the instance cannot be reached: {error}") from error


class SocketRows:
    """The rows of a query, as batches of Arrow, fetched while they are taken.

    `after` is the token of what follows the last batch that was returned: with it, `resume` goes
    on. It is empty when all rows were returned. `schema` is that of the rows, once some came.
    """

    def __init__(
        self, client: SocketClient, query_id: QueryId, after: str, progress: Progress | None
    ) -> None:
        """Begin after a token."""
        self._client, self.query_id, self.after = client, query_id, after
        self._progress = progress or (lambda frame: None)
        self._closed = 0
        self.schema: pa.Schema | None = None

    def cancel(self) -> None:
        """Cancel the query, unless it has ended: its rows cannot be read any more."""
        self._client.cancel(self.query_id)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are left.

        Raises:
            VersionGoneError: the query was cancelled, or its rows are not kept any more.
            DormouseError: the query failed.
        """
        while self.after:
            for page in self._pages():
                self.after = page.next
                yield from self._batches(page)

    def read_all(self) -> pa.Table:
        """Return all rows that are left; raises as iteration."""
        import pyarrow as pa

        batches = list(self)
        return pa.Table.from_batches(batches, self.schema)

    def _batches(self, page: RowsFrame) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        if page.arrow:
            with pa.ipc.open_stream(io.BytesIO(base64.b64decode(page.arrow))) as reader:
                self.schema = reader.schema
                yield from (batch for batch in reader if batch.num_rows)

    def _pages(self) -> Iterator[RowsFrame]:
        """Ask for some pages, and yield those that come; wait for news if there are none yet."""
        client, name = self._client, self._client._name()
        asked = PageFrame(id=name, query_id=self.query_id, after=self.after, form="arrow")
        left, has_news, is_waiting = asked.pages, False, False
        try:
            client.send(asked)
            while left and not (has_news and is_waiting):
                found = client.receive(ASK_SECONDS, name)
                if found is None:
                    return
                if isinstance(found, RowsFrame) and found.id == name:
                    self._closed = 0
                    left = left - 1 if found.next and found.count else 0
                    yield found
                elif isinstance(found, ProgressFrame) and found.query_id == self.query_id:
                    self._progress(found)
                    has_news, is_waiting = has_news or not found.id, is_waiting or bool(found.id)
        except ConnectionClosed as error:
            client.close()
            self._closed += 1
            if self._closed == ATTEMPTS:
                raise UnavailableError(
                    "the connection is closed each time that it is used"
                ) from error


def _strange(found: AnswerFrame) -> UnavailableError:
    return UnavailableError(f"the instance answered with {type(found).__name__}")
