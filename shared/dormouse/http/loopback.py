"""A server for programs of this machine alone, at a port of its loopback address.

A web page could make a browser send requests to it by a name of its own that leads to loopback. So
requests are answered only that name the server by its address, or as localhost.
"""

import socket
import sys
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from dormouse.access import LOCAL
from dormouse.errors import InvalidRequestError
from dormouse.http import messages

HOST = "127.0.0.1"
MOST_BODY_BYTES = 10_000_000
"""The longest body that is read, as of an HTTP API on AWS."""
MOST_STREAMED_BYTES = 5 * 10**12
"""The longest body that is read as it arrives, as an object of S3 has at most."""
IDLE_SECONDS = 60
"""How long a connection may take over its next line, or be idle."""
LINGER_SECONDS = 5
"""How long what follows a refused request is read, at most."""
METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")


class LoopbackServer(ThreadingHTTPServer):
    """Answers requests, each in a thread, between `start` and `close`, or as a context manager."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = False  # it would take a port that another server uses
    request_queue_size = 1024  # by default 5: of many clients that come at once, most would wait

    def __init__(
        self,
        answer: messages.Responder,
        port: int = 0,
        *,
        refuse: messages.Refuse = messages.catalog_refusal,
        streamed: Collection[str] = (),
    ) -> None:
        """Take a port; 0 is a free one. What is no request, or too long, is answered by `refuse`.

        Bodies of the methods `streamed` can have any length, and are read by what answers.
        Raises InvalidRequestError: it cannot be used.
        """
        self.answer, self.refuse, self.streamed = answer, refuse, streamed
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise InvalidRequestError(
                f"port {port} cannot be used: {getattr(error, 'strerror', error)}",
                hint="name another one, or 0 for a free one",
            ) from error
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it answers, without a path."""
        return f"http://{HOST}:{self.server_port}"

    def start(self) -> None:
        """Begin to answer, from threads of its own."""
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering, and free the port."""
        if self._thread is not None:
            self.shutdown()
            self._thread.join()
        self.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over a connection that the other side broke; show any other error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.0"  # else what is no request is answered without a status
    disable_nagle_algorithm = True  # with it, each response would wait for a delayed ACK
    timeout = IDLE_SECONDS
    wbufsize = 65_536  # head and body of a small response are sent at once
    server: LoopbackServer
    _lingers = False

    def _serve(self) -> None:
        self._send(self._refusal() or self._answered())

    do_DELETE = do_GET = do_HEAD = do_OPTIONS = do_PATCH = do_POST = do_PUT = _serve

    def _refusal(self) -> messages.HttpResponse | None:
        """Return why this request is not answered by what this server serves."""
        if any(len(self.headers.get_all(name, ())) > 1 for name in ("Host", "Content-Length")):
            return self._ended(400, "a Host or Content-Length is given twice")  # RFC 9112, 3.2, 6.3
        if not _is_here(self.headers.get("Host", ""), self.server.server_port):
            return self._ended(403, f"ask by {self.server.url}")
        if "Transfer-Encoding" in self.headers:
            return self._ended(411, "a body needs a Content-Length")
        length = self.headers.get("Content-Length", "0")
        if not (length.isascii() and length.isdecimal()):
            return self._ended(400, "the Content-Length is no number")
        most = MOST_STREAMED_BYTES if self.command in self.server.streamed else MOST_BODY_BYTES
        if len(length) > 15 or int(length) > most:
            return self._ended(413, f"a body has at most {most:,} bytes")
        return None

    def _ended(self, status: int, reason: str) -> messages.HttpResponse:
        """Return an error after which the connection cannot be used: its body is not read."""
        self.close_connection = self._lingers = True
        refusal = self.server.refuse(status, reason)
        return replace(refusal, headers={**refusal.headers, "connection": "close"})

    def _answered(self) -> messages.HttpResponse:
        path, _, query_string = self.path.partition("?")
        body = messages.BodyStream(self.rfile, int(self.headers.get("Content-Length", "0")))
        headers = _joined(self.headers.items())
        request = messages.HttpRequest(self.command, path, query_string, headers, principal=LOCAL)
        try:
            if self.command in self.server.streamed:
                return self.server.answer(replace(request, stream=body))
            return self.server.answer(replace(request, body=body.read()))
        except ConnectionAbortedError as error:
            return self._ended(400, str(error))
        except TimeoutError:
            return self._ended(408, "the rest of the body did not come in time")
        except Exception:  # the server goes on; what happened is shown
            self.server.handle_error(self.request, self.client_address)
            return self.server.refuse(500, "this is a bug: see the server's log")
        finally:
            if body.left:  # what is left of it is no request
                self.close_connection = True

    def _send(self, response: messages.HttpResponse) -> None:
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        has_length = "content-length" in response.headers
        if response.status != HTTPStatus.NO_CONTENT and not has_length:
            self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        if self.command != "HEAD":
            for piece in (response.body,) if response.pieces is None else response.pieces:
                self.wfile.write(piece)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is no HTTP, or too long, or has an unknown method."""
        self.command = getattr(self, "command", None) or "GET"
        if code != HTTPStatus.NOT_IMPLEMENTED:
            self._send(self._ended(code, HTTPStatus(code).phrase))
            return
        refusal = self._ended(405, "there is no such method here")
        self._send(replace(refusal, headers={**refusal.headers, "allow": ", ".join(METHODS)}))

    def handle_expect_100(self) -> bool:
        """Let a client go on that waits for a yes before it sends a body."""
        goes_on = super().handle_expect_100()
        self.wfile.flush()
        return goes_on

    def finish(self) -> None:
        """End a connection, once its client had time to read why it is refused."""
        super().finish()
        if self._lingers:
            _linger(self.connection)

    def version_string(self) -> str:
        """Name this server."""
        return "dormouse"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: engines ask several times for each query."""


def _linger(connection: socket.socket) -> None:
    """Say that nothing more is answered, and read on until the client has ended too.

    A connection that is closed with bytes unread is reset, and a reset takes from the client what
    it has not read yet: the answer that says why the rest was not read (RFC 9112, 9.6).
    """
    deadline, rest_bytes = time.monotonic() + LINGER_SECONDS, 2 * MOST_BODY_BYTES
    with suppress(OSError):  # the client has gone, or sends no more
        connection.shutdown(socket.SHUT_WR)
        while rest_bytes > 0 and (seconds := deadline - time.monotonic()) > 0:
            connection.settimeout(seconds)
            if not (size := len(connection.recv(65_536))):
                return
            rest_bytes -= size


def _is_here(host: str, port: int) -> bool:
    """Return whether a Host header names this server."""
    name, _, port_text = host.strip().lower().partition(":")
    return name in (HOST, "localhost") and port_text in ("", str(port))


def _joined(headers: Any) -> Mapping[str, str]:
    """Return headers by their names in lower case; the values of a repeated one are joined."""
    by_name: dict[str, str] = {}
    for name, value in headers:
        key = name.lower()
        by_name[key] = f"{by_name[key]},{value}" if key in by_name else value
    return by_name
