"""The Lambda Runtime API for one function process; `sandbox` gives it events and reads signals.

What AWS's `awslambdaric` asks of it: `GET …/invocation/next` waits for the next event, and `POST`
to `…/{id}/response`, `…/{id}/error` or `…/init/error` reports its outcome.
"""

import queue
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Invocation:
    """One event for a function."""

    request_id: str
    event: bytes
    function_arn: str
    timeout_seconds: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The process has asked for an event: its initialisation is over."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The process has got its event; the function's time runs from here."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The handler has returned (`failed` is False) or raised; `payload` is JSON."""

    request_id: str
    payload: bytes
    failed: bool


@dataclass(frozen=True, slots=True)
class InitFailed:
    """The function's module could not be loaded; `payload` is the error as JSON."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Exited:
    """The process has ended."""

    code: int


Signal = Ready | Delivered | Answered | InitFailed | Exited


class RuntimeApi(ThreadingHTTPServer):
    """Serves one function process on a free port of loopback, until closed."""

    daemon_threads = True

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` gives Unix seconds, for the deadline in the function's event headers."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.now = now
        self.invocations: queue.SimpleQueue[Invocation | None] = queue.SimpleQueue()
        self.signals: queue.SimpleQueue[Signal] = queue.SimpleQueue()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def address(self) -> str:
        """Host and port, as `AWS_LAMBDA_RUNTIME_API` wants them."""
        return f"127.0.0.1:{self.server_port}"

    def close(self) -> None:
        """Stop serving; a process that waits for an event gets none."""
        self.invocations.put(None)
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over a connection that broke: the process was killed, which `Exited` reports."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # with it, each event would wait for a delayed ACK
    wbufsize = -1
    server: RuntimeApi

    def do_GET(self) -> None:
        self.server.signals.put(Ready())
        invocation = self.server.invocations.get()
        if invocation is None:
            self.close_connection = True
            return
        deadline = self.server.now() + invocation.timeout_seconds
        self.server.signals.put(Delivered())
        self._reply(
            200,
            invocation.event,
            {
                "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
                "Lambda-Runtime-Deadline-Ms": str(int(deadline * 1000)),
                "Lambda-Runtime-Invoked-Function-Arn": invocation.function_arn,
                "Lambda-Runtime-Trace-Id": "Root=1-00000000-000000000000000000000000;Sampled=0",
            },
        )

    def do_POST(self) -> None:
        payload = self.rfile.read(int(self.headers["Content-Length"]))
        match self.path.split("/")[-2:]:
            case ["init", "error"]:
                self.server.signals.put(InitFailed(payload))
            case [request_id, "response" | "error" as kind]:
                self.server.signals.put(Answered(request_id, payload, kind == "error"))
            case _:
                self._reply(404, b"{}", {})
                return
        self._reply(202, b'{"status":"OK"}', {})

    def _reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: one line for each event would only hide the function's own log."""
