"""The WebSocket API of a deployment, at the port of its HTTP API; started by `stack`.

Connections and what is sent on them become the events that AWS makes of them. Functions send on
connections below `@connections`, as at API Gateway. Nobody is asked for a signature: every caller
is the user ``local`` of the stack's account, who has the token of the stack.
"""

import json
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from dormouse.features.websocket import PATH, frames, socket_response
from dormouse.http.connections import MOST_FRAME_BYTES
from dormouse.http.messages import (
    Answer,
    HttpRequest,
    HttpResponse,
    Socket,
    SocketClosedError,
    json_response,
)
from dormouse.system import SystemClock
from dormouse_cli.local.http_api import Invoke, caller_arn

CONNECTIONS = "/@connections/"
"""Below this path, functions send on connections. An id is known to its client and them alone."""
_FAILED = '{"message":"Internal server error"}'


class WebSocketApi:
    """Serves connections by one function."""

    def __init__(
        self,
        function: str,
        invoke: Invoke,
        account: str,
        now: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        """`now` gives Unix seconds, for the events."""
        self._function, self._invoke, self._account = function, invoke, account
        self._now, self._new_id = now, new_id
        self._lock = threading.Lock()
        self._sockets: dict[str, Socket] = {}

    def with_connections(self, answer: Answer) -> Answer:
        """Return what answers requests for connections and on them, all others with `answer`."""

        def answered(request: HttpRequest) -> HttpResponse:
            path = unquote(request.path)
            if path == PATH and request.method == "GET":
                return socket_response(self._talk)
            if path.startswith(CONNECTIONS):
                return self._manage(request.method, path.removeprefix(CONNECTIONS), request.body)
            return answer(request)

        return answered

    def _manage(self, method: str, name: str, body: bytes) -> HttpResponse:
        with self._lock:
            socket = self._sockets.get(name)
        if socket is None:
            return _error(HTTPStatus.GONE, "GoneException")
        if len(body) > MOST_FRAME_BYTES:
            return _error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "PayloadTooLargeException")
        if method == "DELETE":
            socket.close(1008, "")
            return HttpResponse(HTTPStatus.NO_CONTENT)
        try:
            socket.send(body.decode())
        except SocketClosedError:
            return _error(HTTPStatus.GONE, "GoneException")
        return HttpResponse(HTTPStatus.OK)

    def _talk(self, socket: Socket) -> None:
        name = self._new_id()
        if self._happened(name, "CONNECT") != HTTPStatus.OK:
            socket.close(1008, "the connection is refused")
            return
        with self._lock:
            self._sockets[name] = socket
        try:
            for text in frames(socket, SystemClock()):
                if self._happened(name, "MESSAGE", text) == HTTPStatus.INTERNAL_SERVER_ERROR:
                    socket.send(_FAILED)
        except SocketClosedError:
            return
        finally:
            with self._lock:
                del self._sockets[name]
            self._happened(name, "DISCONNECT")

    def _happened(self, name: str, kind: str, text: str = "") -> int:
        event = event_of(name, kind, text, self._account, self._new_id(), self._now())
        outcome = self._invoke(self._function, json.dumps(event).encode())
        if outcome.failed:
            return HTTPStatus.INTERNAL_SERVER_ERROR
        return int(json.loads(outcome.payload)["statusCode"])


def event_of(
    connection: str, kind: str, text: str, account: str, request_id: str, now: float
) -> dict[str, Any]:
    """Return the event that AWS makes of what happens to a connection."""
    route = {"CONNECT": "$connect", "MESSAGE": "$default", "DISCONNECT": "$disconnect"}[kind]
    identity = {"userArn": caller_arn(account)} if kind == "CONNECT" else {}
    event: dict[str, Any] = {
        "requestContext": {
            "routeKey": route,
            "eventType": kind,
            "connectionId": connection,
            "requestId": request_id,
            "requestTimeEpoch": int(now * 1000),
            "identity": {"sourceIp": "127.0.0.1", **identity},
            "stage": "local",
            "apiId": "local",
        },
        "isBase64Encoded": False,
    }
    return event | ({"body": text} if kind == "MESSAGE" else {})


def _error(status: HTTPStatus, kind: str) -> HttpResponse:
    return json_response(status, {"message": status.phrase}, x_amzn_errortype=kind)
