"""Answer as S3 does, after a while, over links of limited width, and count what is asked.

The delay is before each answer, so requests that are in flight together wait together. One limit
is on all bytes in both directions, as on the network of a function, another on each answer and each
body by itself, as on a connection to S3. What the measured stages do not ask for is answered with
501, so that nothing is measured that S3 would have done otherwise.

Objects are files below a folder, one folder for each bucket. An object appears whole or not at all:
its file is written elsewhere and then linked, which fails if there is one. An input may be a
symbolic link to a file that somebody else keeps.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

PIECE_BYTES = 256 * 1024
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
        self._lock, self._values, self._in_flight = threading.Lock(), Counter[str](), 0

    @contextmanager
    def one(self, operation: str) -> Iterator[None]:
        """Count a request, which is in flight within the block."""
        with self._lock:
            self._values[operation] += 1
            self._in_flight += 1
            at_once = max(self._values["in_flight_at_once"], self._in_flight)
            self._values["in_flight_at_once"] = at_once
        try:
            yield
        finally:
            with self._lock:
                self._in_flight -= 1

    def add(self, name: str, number: int) -> None:
        with self._lock:
            self._values[name] += number

    def taken(self) -> dict[str, int]:
        with self._lock:
            values, self._values = dict(self._values), Counter[str]()
        return values


class Refusal(Exception):
    """S3's answer to a request that it does not fulfil: a status and one of its error codes."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


class Content(NamedTuple):
    file: Path
    start: int
    end: int


class Answer(NamedTuple):
    body: bytes | Content = b""
    headers: dict[str, str] = {}
    status: int = 200


class Server(ThreadingHTTPServer):
    """A server of the buckets below a folder, on a free port of the loopback interface."""

    request_queue_size = 128

    def __init__(self, root: Path, slowness: Slowness, pause: Pause = time.sleep) -> None:
        """Listen; `pause` is called with the seconds that an answer is to take."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.counts, self.pause, self.slowness = Counts(), pause, slowness
        self.link = Link(slowness.mb_per_second, pause)
        self.root, self.aside = root, root / ".uploads"
        self.aside.mkdir(exist_ok=True)
        self._numbers = itertools.count(1)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def new_path(self) -> Path:
        """Return where a body can be kept until it is an object, or the parts of an upload."""
        return self.aside / str(next(self._numbers))


_OPERATIONS = {
    ("GET", True, ""): "GetObject",
    ("GET", False, "list-type"): "ListObjectsV2",
    ("PUT", True, ""): "PutObject",
    ("PUT", True, "partNumber"): "UploadPart",
    ("POST", True, "uploads"): "CreateMultipartUpload",
    ("POST", True, "uploadId"): "CompleteMultipartUpload",
    ("POST", False, "delete"): "DeleteObjects",
}
"""By method, whether there is a key, and the first name of the query."""
_FIRST = ("list-type", "partNumber", "uploads", "uploadId", "delete")
_KNOWN = {*_FIRST, "prefix", "encoding-type", "max-keys"}


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection, one after the other."""

    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

    def do_GET(self) -> None:  # noqa: N802
        url, server = urlsplit(self.path), cast(Server, self.server)
        self.query = dict(parse_qsl(url.query, keep_blank_values=True))
        bucket, _, self.key = unquote(url.path)[1:].partition("/")
        self.bucket = server.root / bucket
        name = self._operation()
        with server.counts.one(name):
            body = server.new_path()
            with body.open("wb") as file:
                self._receive(file)
            try:
                answer: Answer = getattr(self, f"_{name}")(server, body)
            except Refusal as refusal:
                answer = _xml("Error", f"<Code>{refusal.code}</Code>", refusal.status)
            body.unlink(missing_ok=True)
            server.pause(server.slowness.delay_ms / 1000)
            self._send(answer)

    do_PUT = do_POST = do_HEAD = do_DELETE = do_GET

    def log_message(self, *_: object) -> None:
        pass

    def _operation(self) -> str:
        first = next((name for name in _FIRST if name in self.query), "")
        found = _OPERATIONS.get((self.command, bool(self.key), first), "")
        others = {name for name, value in self.query.items() if (name, value) != ("delimiter", "")}
        if not found or others - _KNOWN or "x-amz-copy-source" in self.headers:
            return "NotImplemented"
        return found

    def _receive(self, to: BinaryIO) -> None:
        pass_on = self._passing()
        buffer, left = memoryview(bytearray(PIECE_BYTES)), int(self.headers["content-length"] or 0)
        while left:
            count = self.rfile.readinto(buffer[:left])
            if not count:
                raise ConnectionError(f"{left} bytes of a body did not arrive")
            to.write(buffer[:count])
            left -= count
            pass_on(count)

    def _send(self, answer: Answer) -> None:
        body, server = answer.body, cast(Server, self.server)
        length = len(body) if isinstance(body, bytes) else body.end - body.start
        self.send_response_only(answer.status)
        for name, value in {**answer.headers, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()
        if isinstance(body, bytes):
            self.wfile.write(body)
            return
        pass_on, start = self._passing(), body.start
        with body.file.open("rb") as file:
            while start < body.end:
                piece = min(PIECE_BYTES, body.end - start)
                count = os.sendfile(self.connection.fileno(), file.fileno(), start, piece)
                start += count
                server.counts.add("sent_bytes", count)
                pass_on(count)

    def _passing(self) -> Callable[[int], None]:
        """Return what lets bytes of one body pass."""
        server = cast(Server, self.server)
        alone = Link(server.slowness.mb_per_second_each, server.pause)

        def pass_on(size_bytes: int) -> None:
            alone.pass_on(size_bytes)
            server.link.pass_on(size_bytes)

        return pass_on

    def _NotImplemented(self, server: Server, body: Path) -> Answer:  # noqa: N802
        raise Refusal(501, "NotImplemented")

    def _GetObject(self, server: Server, body: Path) -> Answer:  # noqa: N802
        file = self.bucket / self.key
        if not file.is_file():
            raise Refusal(404, "NoSuchKey")
        headers, size = {"ETag": _etag(file)}, file.stat().st_size
        if self.headers.get("if-match", headers["ETag"]) != headers["ETag"]:
            raise Refusal(412, "PreconditionFailed")
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", f"bytes=0-{size}"))
        if asked is None or int(asked[1]) >= max(size, 1):
            raise Refusal(416, "InvalidRange")
        start, end = int(asked[1]), min(int(asked[2]) + 1, size)
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        status = 206 if "range" in self.headers else 200
        return Answer(Content(file, start, end), headers, status)

    def _ListObjectsV2(self, server: Server, body: Path) -> Answer:  # noqa: N802
        """List all objects with a prefix in one page, which S3 would not do with a thousand."""
        files = (Path(at, name) for at, _, names in os.walk(self.bucket) for name in names)
        found = {file.relative_to(self.bucket).as_posix(): file for file in files}
        prefix = self.query.get("prefix", "")
        keys = [key for key in sorted(found) if key.startswith(prefix)]
        entries = "".join(_entry(key, found[key]) for key in keys)
        return _xml("ListBucketResult", f"<EncodingType>url</EncodingType>{entries}")

    def _PutObject(self, server: Server, body: Path) -> Answer:  # noqa: N802
        file = self.bucket / self.key
        file.parent.mkdir(parents=True, exist_ok=True)
        if self.headers.get("if-none-match") != "*":
            body.replace(file)
        else:
            try:
                file.hardlink_to(body)
            except FileExistsError as error:
                raise Refusal(412, "PreconditionFailed") from error
        return Answer(headers={"ETag": _etag(file)})

    def _CreateMultipartUpload(self, server: Server, body: Path) -> Answer:  # noqa: N802
        parts = server.new_path()
        parts.mkdir()
        return _xml("InitiateMultipartUploadResult", f"<UploadId>{parts.name}</UploadId>")

    def _UploadPart(self, server: Server, body: Path) -> Answer:  # noqa: N802
        part = server.aside / self.query["uploadId"] / self.query["partNumber"]
        body.replace(part)
        return Answer(headers={"ETag": _etag(part)})

    def _CompleteMultipartUpload(self, server: Server, body: Path) -> Answer:  # noqa: N802
        """Make an object of the parts; if there is one already they stay, as those of S3 do."""
        parts = server.aside / self.query["uploadId"]
        whole = server.new_path()
        with whole.open("wb") as target:
            for number in re.findall(r"<PartNumber>(\d+)</PartNumber>", body.read_text()):
                with (parts / number).open("rb") as source:
                    shutil.copyfileobj(source, target, 1024**2)
        answer = self._PutObject(server, whole)
        shutil.rmtree(parts)
        etag = escape(answer.headers["ETag"])
        return _xml("CompleteMultipartUploadResult", f"<ETag>{etag}</ETag>")

    def _DeleteObjects(self, server: Server, body: Path) -> Answer:  # noqa: N802
        for key in re.findall("<Key>(.*?)</Key>", body.read_text(), re.DOTALL):
            (self.bucket / unescape(key)).unlink(missing_ok=True)
        return _xml("DeleteResult", "")


def _etag(file: Path) -> str:
    status = file.stat()
    return f'"{status.st_size:x}-{status.st_mtime_ns:x}"'


def _entry(key: str, file: Path) -> str:
    status = file.stat()
    modified = datetime.fromtimestamp(status.st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return (
        f"<Contents><Key>{quote(key)}</Key><LastModified>{modified}</LastModified>"
        f"<ETag>{escape(_etag(file))}</ETag><Size>{status.st_size}</Size></Contents>"
    )


def _xml(name: str, inside: str, status: int = 200) -> Answer:
    body = f"<{name}>{inside}</{name}>".encode()
    return Answer(body, {"Content-Type": "application/xml"}, status)


def serve(folder: str, *slowness: float) -> None:
    """Serve the buckets below a folder until standard input ends; print the URL of the server.

    Each line of standard input is answered by a line of JSON with the counts since the one before,
    and the CPU seconds that the server took.
    """
    with Server(Path(folder), Slowness(*slowness)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.endpoint, flush=True)
        cpu_seconds = time.process_time()
        for _ in sys.stdin:
            used, cpu_seconds = time.process_time() - cpu_seconds, time.process_time()
            print(json.dumps({**server.counts.taken(), "server_cpu_seconds": used}), flush=True)
        server.shutdown()
