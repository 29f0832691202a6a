"""The WebSocket API of a local stack: events as on AWS, and messages on connections."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from dormouse.aws.apis import socket_event_of
from dormouse.http.connections import Connected, Disconnected, Received
from dormouse.http.loopback import LoopbackServer
from dormouse.http.messages import HttpResponse
from dormouse_cli.local.lambda_host import Outcome
from dormouse_cli.local.websocket_api import WebSocketApi
from tests.support.waiting import LIMIT_SECONDS

CALLER = "arn:aws:iam::123456789012:user/local"


@dataclass
class Function:
    """A function that answers with a status, and keeps its events; one text makes it crash."""

    status: int = 200
    events: list[Any] = field(default_factory=list)

    def invoke(self, name: str, event: bytes) -> Outcome:
        assert name == "serve"
        self.events.append(json.loads(event))
        failed = self.events[-1].get("body") == "crash"
        return Outcome(json.dumps({"statusCode": self.status}).encode(), failed)


@pytest.fixture
def function() -> Function:
    return Function()


@pytest.fixture
def server(function: Function) -> Iterator[LoopbackServer]:
    ids = iter(f"id-{n}" for n in range(100))
    api = WebSocketApi(
        "serve", function.invoke, "123456789012", lambda: 1_700_000_000.5, lambda: next(ids)
    )
    with LoopbackServer(api.with_connections(lambda request: HttpResponse(404))) as running:
        yield running


def url_of(server: LoopbackServer) -> str:
    return f"ws{server.url.removeprefix('http')}/websocket"


def manage(server: LoopbackServer, method: str, name: str, body: bytes = b"") -> int:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=LIMIT_SECONDS)
    connection.request(method, f"/@connections/{name}", body)
    return connection.getresponse().status


def test_what_happens_to_a_connection_is_an_event_as_on_aws(
    server: LoopbackServer, function: Function
) -> None:
    with connect(url_of(server)) as socket:
        socket.send("crash")
        assert json.loads(socket.recv(LIMIT_SECONDS)) == {"message": "Internal server error"}
        assert manage(server, "POST", "id-0", b"news") == 200
        assert socket.recv(LIMIT_SECONDS) == "news"
        assert manage(server, "POST", "id-0", b"x" * 131_073) == 413
        assert manage(server, "DELETE", "id-0") == 204
        with pytest.raises(ConnectionClosed):
            socket.recv(LIMIT_SECONDS)
    server.close()
    found = [socket_event_of(event) for event in function.events[:2]]
    assert found == [Connected("id-0", CALLER), Received("id-0", "crash")]
    assert Disconnected("id-0") in [socket_event_of(event) for event in function.events]


def test_a_connection_that_is_not_there_is_gone(server: LoopbackServer) -> None:
    assert manage(server, "POST", "nobody", b"news") == 410


def test_a_connection_that_the_function_refuses_is_closed(
    server: LoopbackServer, function: Function
) -> None:
    function.status = 403
    with connect(url_of(server)) as socket, pytest.raises(ConnectionClosed, match="1008"):
        socket.recv(LIMIT_SECONDS)
