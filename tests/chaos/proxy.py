"""A proxy on loopback between functions and AWS that injects faults into some requests."""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.chaos.answers import SERVICES, Answer, Request, broken, busy, hold_back
from tests.chaos.faults import LATE_SECONDS, Fault, FaultRates, FaultSchedule, Kind
from tests.chaos.tally import Tally

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "expect"}
_UPSTREAM_SECONDS = 120


class FaultProxy(ThreadingHTTPServer):
    """Forwards what it is sent to `upstream`, ``host:port``, byte for byte; not all of it.

    Nothing goes wrong before `break_things` and after `stop_faults`.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, seed: int, tally: Tally, rates: FaultRates | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = ""
        self.tally = tally
        self._faults = {s: FaultSchedule(s, seed, rates or FaultRates()) for s in SERVICES}
        self._lock = threading.Lock()
        self._since: float | None = None
        threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True).start()

    @property
    def url(self) -> str:
        """The endpoint that clients are to use."""
        return f"http://127.0.0.1:{self.server_port}"

    def break_things(self) -> None:
        """Begin to inject faults."""
        self._since = time.monotonic()

    def stop_faults(self) -> None:
        """Forward everything from now on."""
        self._since = None

    def close(self) -> None:
        """Serve no more."""
        self.shutdown()
        self.server_close()

    def fault(self, request: Request) -> Fault | None:
        """Choose what goes wrong with a request, and count it."""
        service = request.service
        self.tally.count("requests", service)
        if request.attempt > 1:
            self.tally.count("retries", service)
        since = self._since
        if since is None or service not in self._faults:
            return None
        with self._lock:
            fault = self._faults[service].fault(time.monotonic() - since)
        if fault is not None and fault.kind is Kind.PARTIAL and hold_back(request, 0) is None:
            return None
        if fault is not None:
            self.tally.count(f"faults {service}", fault.kind.name.lower())
        return fault

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over connections that broke: a function was killed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: FaultProxy

    def do_GET(self) -> None:
        if self.headers.get("Transfer-Encoding"):
            self.send_error(411)  # no client of ours sends bodies of unknown length
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:  # its sender died: AWS does nothing with a part of a request
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._handle(Request(self.command, self.path, headers, body))

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET

    def _handle(self, request: Request) -> None:
        fault = self.server.fault(request)
        if fault is None:
            self._reply(self._forward(request.body))
            return
        match fault.kind:
            case Kind.REFUSED:
                self._reply(busy(request.service, fault.share))
            case Kind.DROPPED:
                self._break_off()
            case Kind.UNANSWERED:
                self._forward(request.body)
                self._break_off()
            case Kind.FAILED:
                self._forward(request.body)
                self._reply(broken(request.service))
            case Kind.CUT:
                self._cut(self._forward(request.body), fault.share)
            case Kind.PARTIAL:
                held = hold_back(request, fault.share)
                assert held is not None, "the proxy has looked"
                self._reply(held.recorded(request, self._forward(held.body)))
            case Kind.LATE:
                time.sleep(fault.share * LATE_SECONDS)
                self._reply(self._forward(request.body))

    def _forward(self, body: bytes) -> Answer:
        host, _, port = self.server.upstream.partition(":")
        connection = HTTPConnection(host, int(port), timeout=_UPSTREAM_SECONDS)
        try:
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                if name.lower() not in {*_HOP_BY_HOP, "content-length"}:
                    connection.putheader(name, value)
            if body or "Content-Length" in self.headers:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return Answer(answer.status, tuple(answer.getheaders()), answer.read())
        except (OSError, HTTPException) as error:  # AWS itself has stopped
            raise ConnectionAbortedError(f"no answer from {self.server.upstream}") from error
        finally:
            connection.close()

    def _raw(self, answer: Answer) -> bytes:
        lines = [f"HTTP/1.1 {answer.status} {self.responses.get(answer.status, ('',))[0]}"]
        for name, value in answer.headers:
            is_length = name.lower() == "content-length" and self.command != "HEAD"
            if name.lower() not in _HOP_BY_HOP and not is_length:
                lines.append(f"{name}: {value}")
        if self.command != "HEAD" and answer.status not in (204, 304):
            lines.append(f"Content-Length: {len(answer.body)}")
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        return head if self.command == "HEAD" else head + answer.body

    def _reply(self, answer: Answer) -> None:
        self.wfile.write(self._raw(answer))
        self.wfile.flush()

    def _cut(self, answer: Answer, share: float) -> None:
        raw = self._raw(answer)
        self.wfile.write(raw[: int(share * len(raw))])
        self.wfile.flush()
        self._break_off()

    def _break_off(self) -> None:
        """Close the connection so that the other end sees a reset, or an end, but no answer."""
        now = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
        self.close_connection = True
        with suppress(OSError):  # the other end, killed perhaps, was first
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
