"""A server of this machine: what it refuses by itself, and what it goes on after."""

from __future__ import annotations

import json
import select
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection

import pytest

from dormouse.errors import InvalidRequestError
from dormouse.features.http.calls import refusal
from dormouse.http.loopback import METHODS, MOST_BODY_BYTES, LoopbackServer
from dormouse.http.messages import HttpRequest, HttpResponse, error_response, json_response
from tests.support.waiting import LIMIT_SECONDS

HERE = "Host: 127.0.0.1\r\n"


def echo(request: HttpRequest) -> HttpResponse:
    """Answer with what was asked."""
    if request.path == "/broken":
        raise RuntimeError("secret of the server")
    if request.path == "/nothing":
        return HttpResponse(204)
    found = {
        "method": request.method,
        "path": request.path,
        "query": dict(request.query),
        "x": request.headers.get("x-more"),
        "body": request.body.decode(),
    }
    return json_response(200, found)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(echo) as running:
        yield running


def connect(server: LoopbackServer) -> HTTPConnection:
    return HTTPConnection("127.0.0.1", server.server_port, timeout=LIMIT_SECONDS)


def raw(server: LoopbackServer, request: str) -> tuple[int, bytes]:
    """Send bytes as they are; return the status, and all else until the server closes."""
    with socket.create_connection(
        ("127.0.0.1", server.server_port), timeout=LIMIT_SECONDS
    ) as connection:
        connection.sendall(request.encode("latin-1"))
        connection.shutdown(socket.SHUT_WR)
        found = b""
        while part := connection.recv(65536):
            found += part
    head, _, body = found.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


@pytest.mark.parametrize("method", METHODS)
def test_a_request_arrives_as_it_was_sent(server: LoopbackServer, method: str) -> None:
    connection = connect(server)
    for _ in range(2):  # by one connection
        connection.request(method, "/a%1Fb?q=1%2B1&empty=", body=b"all", headers={"X-More": "y"})
        response = connection.getresponse()
        body = response.read()
        assert response.status == 200
        if method == "HEAD":
            assert (body, int(response.headers["Content-Length"]) > 0) == (b"", True)
            continue
        assert json.loads(body) == {
            "method": method,
            "path": "/a%1Fb",
            "query": {"q": "1+1", "empty": ""},
            "x": "y",
            "body": "all",
        }
    connection.close()


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "", "127.0.0.1:1", "[::1]"],
)
def test_a_name_that_leads_here_is_refused(server: LoopbackServer, host: str) -> None:
    sent = host.format(port=server.server_port)
    status, body = raw(server, f"GET /a HTTP/1.1\r\nHost: {sent}\r\n\r\n")
    assert status == 403
    assert server.url in json.loads(body)["error"]["message"]


def test_a_request_without_a_name_is_refused(server: LoopbackServer) -> None:
    assert raw(server, "GET /a HTTP/1.0\r\n\r\n")[0] == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:{port}", "127.0.0.1:{port}"])
def test_the_own_names_are_answered(server: LoopbackServer, host: str) -> None:
    sent = host.format(port=server.server_port)
    request = f"GET /a HTTP/1.1\r\nHost: {sent}\r\nConnection: close\r\n\r\n"
    assert raw(server, request)[0] == 200


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (f"GET /{'x' * 70_000} HTTP/1.1\r\n{HERE}\r\n", 414),
        ("GARBAGE\r\n\r\n", 400),
        (f"PROPFIND / HTTP/1.1\r\n{HERE}\r\n", 405),
        (f"POST / HTTP/1.1\r\n{HERE}Content-Length: {MOST_BODY_BYTES + 1}\r\n\r\n", 413),
        (f"POST / HTTP/1.1\r\n{HERE}Content-Length: {'9' * 400}\r\n\r\n", 413),
        (f"POST / HTTP/1.1\r\n{HERE}Content-Length: -1\r\n\r\n", 400),
        (f"POST / HTTP/1.1\r\n{HERE}Content-Length: ten\r\n\r\n", 400),
        (f"POST / HTTP/1.1\r\n{HERE}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (f"GET / HTTP/1.1\r\n{HERE}Host: evil.example\r\n\r\n", 400),
        (f"POST / HTTP/1.1\r\n{HERE}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (f"GET / HTTP/1.1\r\n{HERE}X: {'x' * 70_000}\r\n\r\n", 431),
        (f"GET / HTTP/1.1\r\n{HERE}" + "X: y\r\n" * 5000 + "\r\n", 431),
    ],
)
def test_what_is_no_request_is_refused(
    server: LoopbackServer, request_text: str, status: int
) -> None:
    found, body = raw(server, request_text)
    assert found == status
    assert json.loads(body)["error"]["code"] == status
    with_server = connect(server)
    with_server.request("GET", "/still")
    assert with_server.getresponse().status == 200
    with_server.close()


def test_a_client_that_still_sends_reads_why_it_is_refused(server: LoopbackServer) -> None:
    refused = f"GET /{'x' * 70_000} HTTP/1.1\r\n{HERE}\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.server_port), LIMIT_SECONDS) as connection:
        connection.sendall(refused)
        answer = b""
        while part := connection.recv(65536):
            answer += part
        for _ in range(128):  # 8 MB: more than wait unread in any connection
            connection.sendall(b"x" * 65_536)
        connection.shutdown(socket.SHUT_WR)
    assert answer.startswith(b"HTTP/1.1 414 ")


def test_a_client_that_is_refused_and_does_not_end_is_cut_off(server: LoopbackServer) -> None:
    refused = f"POST / HTTP/1.1\r\n{HERE}Content-Length: {MOST_BODY_BYTES + 1}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.server_port), LIMIT_SECONDS) as connection:
        connection.sendall(refused)
        with pytest.raises(ConnectionError):
            for _ in range(10):  # 100 MB
                connection.sendall(b"x" * MOST_BODY_BYTES)


def test_refusals_are_those_of_what_is_served() -> None:
    with LoopbackServer(echo, refuse=refusal) as server:
        for text, status in (
            ("GARBAGE\r\n\r\n", 400),
            (f"GET / HTTP/1.1\r\n{HERE}X: {'x' * 70_000}\r\n\r\n", 431),
        ):
            found, body = raw(server, text)
            problem = json.loads(body)
            assert (found, problem["status"], bool(problem["title"])) == (status, status, True)


def test_a_long_body_is_read_as_it_arrives_and_never_held() -> None:
    """The pieces of an upload are handed on before all of it was sent."""
    began = threading.Event()

    def count(request: HttpRequest) -> HttpResponse:
        assert request.stream is not None and request.body == b""
        first = request.stream.read(10)
        began.set()
        size_bytes = len(first)
        while piece := request.stream.read(1024 * 1024):
            size_bytes += len(piece)
        return json_response(200, size_bytes)

    length = MOST_BODY_BYTES + 1
    with LoopbackServer(count, streamed=("PUT",)) as server:
        connection = connect(server)
        connection.putrequest("PUT", "/file")
        connection.putheader("Content-Length", str(length))
        connection.endheaders()
        connection.send(b"x" * 10)
        assert began.wait(LIMIT_SECONDS)
        connection.send(b"x" * (length - 10))
        assert json.loads(connection.getresponse().read()) == length
        connection.close()
        head = f"POST / HTTP/1.1\r\n{HERE}Content-Length: {length}\r\n\r\n"
        assert raw(server, head)[0] == 413, "of other methods a body is held, and so limited"


def test_an_upload_that_is_refused_is_not_read() -> None:
    with LoopbackServer(lambda request: HttpResponse(401), streamed=("PUT",)) as server:
        head = f"PUT /file HTTP/1.1\r\n{HERE}Content-Length: 5000000000\r\n\r\nx"
        assert raw(server, head) == (401, b"")


def test_a_body_that_breaks_off_is_no_body(capfd: pytest.CaptureFixture[str]) -> None:
    ends: list[str] = []

    def read(request: HttpRequest) -> HttpResponse:
        assert request.stream is not None
        try:
            request.stream.read()
        except ConnectionAbortedError as error:
            ends.append(str(error))
            raise
        return HttpResponse(200)

    with LoopbackServer(read, streamed=("PUT",)) as server:
        half = f"PUT /file HTTP/1.1\r\n{HERE}Content-Length: 50\r\n\r\nhalf"
        assert raw(server, half)[0] == 400
    assert ends == ["a body broke off before its end"]
    assert capfd.readouterr().err == ""


def test_of_a_body_that_breaks_off_nothing_is_taken(server: LoopbackServer) -> None:
    half = f'POST /rows HTTP/1.1\r\n{HERE}Content-Length: 50\r\n\r\n{{"id": 1}}\n'
    status, found = raw(server, half)
    assert (status, b"broke off" in found) == (400, True)


def test_a_body_of_which_nothing_more_comes_is_answered(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server.RequestHandlerClass, "timeout", 0.1)
    half = f'POST /rows HTTP/1.1\r\n{HERE}Content-Length: 50\r\n\r\n{{"id": 1}}\n'
    with socket.create_connection(("127.0.0.1", server.server_port)) as stalled:
        stalled.sendall(half.encode())
        assert stalled.recv(100).startswith(b"HTTP/1.1 408 ")
    assert capfd.readouterr().err == ""


def test_a_long_answer_is_sent_in_pieces(server: LoopbackServer) -> None:
    def pieces(request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, {"content-length": "6"}, pieces=iter([b"abc", b"def"]))

    with LoopbackServer(pieces) as serving:
        connection = connect(serving)
        for method, body in (("GET", b"abcdef"), ("HEAD", b""), ("GET", b"abcdef")):
            connection.request(method, "/")
            response = connection.getresponse()
            assert (response.read(), response.headers["Content-Length"]) == (body, "6")
        connection.close()


def test_a_fault_of_the_server_is_shown_here_and_not_there(
    server: LoopbackServer, capfd: pytest.CaptureFixture[str]
) -> None:
    connection = connect(server)
    connection.request("GET", "/broken")
    response = connection.getresponse()
    body = response.read().decode()
    assert response.status == 500
    assert "secret" not in body and "Traceback" not in body
    assert "secret of the server" in capfd.readouterr().err
    connection.request("GET", "/nothing")
    assert (connection.getresponse().status) == 204
    connection.close()


def test_a_client_that_breaks_off_is_passed_over(
    server: LoopbackServer, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = socket.create_connection(("127.0.0.1", server.server_port))
    broken.sendall(b"GET / HT")
    broken.close()
    assert raw(server, f"GET / HTTP/1.1\r\n{HERE}Connection: close\r\n\r\n")[0] == 200
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a connection takes a moment")
def test_many_clients_can_connect_at_once() -> None:
    waiting = LoopbackServer(echo)  # which answers nobody yet
    with closing(waiting), ExitStack() as open_sockets:
        clients = [open_sockets.enter_context(socket.socket()) for _ in range(64)]
        for each in clients:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", waiting.server_port))
        _, connected, _ = select.select([], clients, [], 0)
    assert len(connected) == len(clients)


def test_a_port_that_is_taken_or_is_none_is_refused(server: LoopbackServer) -> None:
    for port in (server.server_port, 70_000):
        with pytest.raises(InvalidRequestError, match=f"port {port} cannot be used"):
            LoopbackServer(echo, port)


def test_only_this_machine_reaches_it(server: LoopbackServer) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"


def test_an_error_has_the_form_that_clients_read() -> None:
    response = error_response(404, "NoSuchTableException", "gone", x_more="y")
    assert json.loads(response.body) == {
        "error": {"message": "gone", "type": "NoSuchTableException", "code": 404}
    }
    assert response.headers == {"content-type": "application/json", "x-more": "y"}


def test_a_client_that_waits_for_a_yes_before_it_sends_a_body_gets_one(
    server: LoopbackServer,
) -> None:
    place = ("127.0.0.1", server.server_port)
    with socket.create_connection(place, timeout=LIMIT_SECONDS) as connection:
        head = f"POST /a HTTP/1.1\r\n{HERE}Content-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"rows")
        found = b""
        while b'"body":"rows"' not in found:
            found += connection.recv(65536)
        assert found.startswith(b"HTTP/1.1 200 ")
