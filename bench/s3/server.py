"""Answer as S3 does, after a while, over links of limited width, and count what is asked.

The delay is before each answer, so requests that are in flight together wait together. One limit
is on all bytes in both directions, as on the network of a function, another on each answer and each
body by itself, as on a connection to S3.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import cast

from bench.s3.messages import Answer, Refusal, Request, read_request, receive, send
from bench.s3.objects import Objects
from bench.s3.operations import OPERATIONS, operation_of, refused

Pause = Callable[[float], object]


@dataclass(frozen=True, slots=True)
class Slowness:
    """The time before each answer in ms, and the limits in MB/s; 0 is none."""

    delay_ms: float = 0
    mb_per_second: float = 0
    mb_per_second_each: float = 0


class Link:
    """Something that bytes pass one after the other, at most so many a second."""

    def __init__(self, mb_per_second: float, pause: Pause) -> None:
        """Let all bytes pass at once if the rate is 0."""
        self._seconds_per_byte = mb_per_second and 1e-6 / mb_per_second
        self._pause, self._lock, self._free_at = pause, threading.Lock(), 0.0

    def pass_on(self, size_bytes: int) -> None:
        """Return once so many bytes have passed."""
        if not self._seconds_per_byte:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(now, self._free_at) + size_bytes * self._seconds_per_byte
            left = self._free_at - now
        self._pause(left)


class Counts:
    """What was asked so far, by operation, and the most requests that were in flight at once."""

    def __init__(self) -> None:
        """Begin at 0."""
        self._lock, self._values, self._in_flight = threading.Lock(), Counter[str](), 0

    def began(self, operation: str) -> None:
        """Count a request."""
        with self._lock:
            self._values[operation] += 1
            self._in_flight += 1
            at_once = max(self._values["in_flight_at_once"], self._in_flight)
            self._values["in_flight_at_once"] = at_once

    def ended(self) -> None:
        """Note that a request was answered."""
        with self._lock:
            self._in_flight -= 1

    def add(self, name: str, number: int) -> None:
        """Add to a count."""
        with self._lock:
            self._values[name] += number

    def taken(self) -> dict[str, int]:
        """Return all counts, and begin at 0 again."""
        with self._lock:
            values, self._values = dict(self._values), Counter[str]()
        return values


class Server(ThreadingTCPServer):
    """A server of the buckets below a folder, on a free port of the loopback interface."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, root: Path, slowness: Slowness, pause: Pause = time.sleep) -> None:
        """Listen; `pause` is called with the seconds that an answer is to take."""
        super().__init__(("127.0.0.1", 0), _Connection)
        self.objects, self.counts, self.pause = Objects(root), Counts(), pause
        self.slowness = slowness
        self.link = Link(slowness.mb_per_second, pause)

    @property
    def endpoint(self) -> str:
        """The URL to give to clients."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Connection(StreamRequestHandler):
    """Answers the requests of one connection, one after the other."""

    disable_nagle_algorithm = True

    def handle(self) -> None:
        try:
            while request := read_request(self.rfile):
                self._answer(request)
        except ConnectionError:
            return  # clients close connections as they like

    def _answer(self, request: Request) -> None:
        server = cast(Server, self.server)
        try:
            operation = operation_of(request)
        except Refusal:
            operation = "NotImplemented"
        server.counts.began(operation)
        try:
            answer = self._done(server, operation, request)
            server.pause(server.slowness.delay_ms / 1000)
            bodiless = request.method == "HEAD"
            send(answer, self.connection, bodiless=bodiless, seen=self._seen("sent_bytes"))
        finally:
            server.counts.ended()

    def _done(self, server: Server, operation: str, request: Request) -> Answer:
        body = server.objects.new_file()
        try:
            with body.open("wb") as file:
                received = self._seen("received_bytes")
                receive(request, self.rfile, self.connection, file, received)
            if operation == "NotImplemented":
                return refused(Refusal(501, operation))
            return OPERATIONS[operation](server.objects, request, body)
        except Refusal as refusal:
            return refused(refusal)
        finally:
            body.unlink(missing_ok=True)

    def _seen(self, name: str) -> Callable[[int], None]:
        """Return what lets bytes of one body pass, and counts them."""
        server = cast(Server, self.server)
        alone = Link(server.slowness.mb_per_second_each, server.pause)

        def seen(size_bytes: int) -> None:
            server.counts.add(name, size_bytes)
            alone.pass_on(size_bytes)
            server.link.pass_on(size_bytes)

        return seen
