"""WebSockets of a server of this machine: who may open one, and when it is closed."""

from __future__ import annotations

import json
import socket as sockets
from collections.abc import Iterator
from functools import partial
from http.client import HTTPConnection

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from dormouse.client.instance import Instance
from dormouse.features.http.problems import guarded, refusal
from dormouse.features.http.serve_http import serve_http
from dormouse.features.websocket import frames, with_websocket
from dormouse.http.connections import IDLE_SECONDS, MOST_FRAME_BYTES, MOST_SECONDS
from dormouse.http.loopback import LoopbackServer
from dormouse.http.messages import HttpResponse, Socket, SocketClosedError
from tests.support.waiting import LIMIT_SECONDS, eventually

KEY = "key"


@pytest.fixture
def server(instance: Instance) -> Iterator[LoopbackServer]:
    answer = with_websocket(partial(serve_http, instance), instance)
    with LoopbackServer(guarded(answer, KEY), refuse=refusal) as running:
        yield running


def url_of(server: LoopbackServer, query: str = f"?token={KEY}") -> str:
    return f"ws{server.url.removeprefix('http')}/websocket{query}"


def asked(server: LoopbackServer, path: str, **headers: str) -> int:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=LIMIT_SECONDS)
    connection.request("GET", path, headers=headers)
    return connection.getresponse().status


def test_a_token_in_the_address_is_for_websockets_alone(server: LoopbackServer) -> None:
    with connect(url_of(server)) as socket:
        socket.send('{"type":"ping","id":"1"}')
        assert json.loads(socket.recv(LIMIT_SECONDS)) == {"type": "pong", "id": "1"}
    assert asked(server, f"/tables?token={KEY}") == 401
    assert asked(server, "/websocket", Authorization=f"Bearer {KEY}") == 200
    with pytest.raises(InvalidStatus, match="401"):
        connect(url_of(server, "?token=other")).__enter__()


def test_a_page_of_another_server_opens_none(server: LoopbackServer) -> None:
    with pytest.raises(InvalidStatus, match="403"):
        connect(url_of(server), origin="https://evil.example").__enter__()  # type: ignore[arg-type]
    own = f"http://127.0.0.1:{server.server_port}"
    with connect(url_of(server), origin=own):  # type: ignore[arg-type]
        pass


def test_a_frame_that_is_too_long_closes_the_connection(server: LoopbackServer) -> None:
    with connect(url_of(server)) as socket:
        socket.send("x" * (MOST_FRAME_BYTES + 1))
        with pytest.raises(ConnectionClosed, match="1009"):
            socket.recv(LIMIT_SECONDS)


def test_a_frame_of_bytes_closes_the_connection(server: LoopbackServer) -> None:
    with connect(url_of(server)) as socket:
        socket.send(b"{}")
        with pytest.raises(ConnectionClosed, match="1003"):
            socket.recv(LIMIT_SECONDS)


def test_a_request_that_is_no_handshake_is_refused(server: LoopbackServer) -> None:
    headers = {"Authorization": f"Bearer {KEY}", "Upgrade": "websocket"}
    assert asked(server, "/websocket", **headers) in (400, 426)
    assert asked(server, "/tables", Authorization=f"Bearer {KEY}") == 200


@pytest.mark.parametrize(
    ("line", "more", "status"),
    [
        (" HTTP/1.1", "X: folded\r\n line\r\n", b"400"),
        (" HTTP/1.0", "", b"505"),
        (" HTTP/1.1", "X: " + "a" * 20_000 + "\r\n", b"431"),
        (" HTTP/1.1", "", b"101"),
    ],
)
def test_a_request_that_the_library_does_not_take_is_answered_too(
    server: LoopbackServer, line: str, more: str, status: bytes
) -> None:
    head = (
        f"GET /websocket{line}\r\nHost: 127.0.0.1:{server.server_port}\r\n{more}"
        f"Authorization: Bearer {KEY}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    address = ("127.0.0.1", server.server_port)
    with sockets.create_connection(address, timeout=LIMIT_SECONDS) as connection:
        connection.sendall(head.encode())
        assert connection.recv(100).split()[1] == status


def test_a_client_that_goes_without_a_word_is_forgotten(
    server: LoopbackServer, instance: Instance
) -> None:
    with connect(url_of(server)) as socket:
        socket.socket.shutdown(sockets.SHUT_RDWR)
    with connect(url_of(server)) as other:
        other.send('{"type":"ping","id":"1"}')
        assert other.recv(LIMIT_SECONDS)


class Silent:
    """A client that sends some frames, and then none."""

    def __init__(self, *texts: str, takes_ms: int = 0) -> None:
        self.texts, self.takes_ms, self.time_ms = list(texts), takes_ms, 0
        self.waited: list[float] = []
        self.closed = ""

    def receive(self, seconds: float) -> str | None:
        self.waited.append(seconds)
        self.time_ms += self.takes_ms
        return self.texts.pop(0) if self.texts else None

    def send(self, text: str) -> None:
        raise SocketClosedError

    def close(self, code: int, reason: str) -> None:
        self.closed = f"{code} {reason}"

    def now_ms(self) -> int:
        return self.time_ms


def test_an_idle_connection_is_closed() -> None:
    client = Silent("one", "two")
    assert list(frames(client, client)) == ["one", "two"]
    assert client.waited == [IDLE_SECONDS] * 3
    assert client.closed == "1001 idle"


def test_a_connection_is_closed_after_two_hours_whatever_comes() -> None:
    client = Silent(*"abcdefghij", takes_ms=MOST_SECONDS * 1000 // 4)
    assert list(frames(client, client)) == list("abcd")
    assert client.closed == "1001 connected for two hours"


def test_a_reader_that_takes_nothing_loses_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dormouse.http.websocket.SEND_SECONDS", 0.05)
    ended: list[type[Exception]] = []

    def flood(socket: Socket) -> None:
        try:
            for _ in range(10_000):
                socket.send("x" * MOST_FRAME_BYTES)
        except SocketClosedError as error:
            ended.append(type(error))

    flooding = LoopbackServer(lambda request: HttpResponse(200, socket=flood))
    with flooding as server, connect(url_of(server), max_queue=1):
        eventually(lambda: ended == [SocketClosedError])
