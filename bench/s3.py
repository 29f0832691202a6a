"""A local S3 in a process of its own, and clients of it: it answers as S3 does, after a while, over
links of limited width, and counts what is asked.

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
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NamedTuple
from unittest.mock import patch
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from botocore.config import Config

from bench.measure import command, environment
from dormouse.aws.clients import client
from dormouse.aws.storage import S3Sources, S3Storage
from dormouse.aws.wiring import CLIENT_CONFIG

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


PIECE_BYTES = 256 * 1024
Pause = Callable[[float], object]


MB_PER_SECOND_EACH = 80
"""What one connection to S3 carries, roughly."""


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


class Answer(NamedTuple):
    """What is sent: some bytes, or those of a file from `start` up to `end`."""

    body: bytes | Path = b""
    headers: dict[str, str] = {}
    status: int = 200
    start: int = 0
    end: int = 0


class Server(ThreadingHTTPServer):
    """A server of the buckets below a folder, on a free port of the loopback interface."""

    request_queue_size = 128

    def __init__(
        self, root: Path, delay_ms: float, mb_per_second: float, pause: Pause = time.sleep
    ) -> None:
        """Listen; `pause` is called with the seconds that an answer is to take.

        Each is delayed by so much; all bytes together pass at a rate, which is no limit if it is 0.
        """
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pause, self.delay_seconds = pause, delay_ms / 1000
        self.link = Link(mb_per_second, pause)
        self.root, self.aside = root, root / ".uploads"
        self.aside.mkdir(exist_ok=True)
        self._numbers, self._lock = itertools.count(1), threading.Lock()
        self._counts, self._in_flight = Counter[str](), 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def new_path(self) -> Path:
        """Return where a body can be kept until it is an object, or the parts of an upload."""
        return self.aside / str(next(self._numbers))

    @contextmanager
    def one(self, operation: str) -> Iterator[None]:
        """Count a request, which is in flight within the block."""
        with self._lock:
            self._counts[operation] += 1
            self._in_flight += 1
            at_once = max(self._counts["in_flight_at_once"], self._in_flight)
            self._counts["in_flight_at_once"] = at_once
        yield
        with self._lock:
            self._in_flight -= 1

    def add_sent(self, size_bytes: int) -> None:
        with self._lock:
            self._counts["sent_bytes"] += size_bytes

    def taken(self) -> dict[str, int]:
        """Return what was counted since the last call."""
        with self._lock:
            counts, self._counts = dict(self._counts), Counter[str]()
        return counts


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
    server: Server

    def do_GET(self) -> None:  # noqa: N802
        url = urlsplit(self.path)
        self.query = dict(parse_qsl(url.query, keep_blank_values=True))
        bucket, _, self.key = unquote(url.path)[1:].partition("/")
        self.bucket = self.server.root / bucket
        name = self._operation()
        with self.server.one(name):
            body = self.server.new_path()
            with body.open("wb") as file:
                self._receive(file)
            answer: Answer = getattr(self, f"_{name}")(body)
            body.unlink(missing_ok=True)
            self.server.pause(self.server.delay_seconds)
            self._send(answer)

    do_PUT = do_POST = do_HEAD = do_DELETE = do_GET

    def log_message(self, *_: object) -> None:
        pass

    def _operation(self) -> str:
        first = next((name for name in _FIRST if name in self.query), "")
        found = _OPERATIONS.get((self.command, bool(self.key), first), "")
        others = {name for name, value in self.query.items() if (name, value) != ("delimiter", "")}
        is_known = found and not others - _KNOWN and "x-amz-copy-source" not in self.headers
        return found if is_known else "NotImplemented"

    def _receive(self, to: BinaryIO) -> None:
        alone = Link(MB_PER_SECOND_EACH, self.server.pause)
        buffer, left = memoryview(bytearray(PIECE_BYTES)), int(self.headers["content-length"] or 0)
        while left:
            count = self.rfile.readinto(buffer[:left])
            if not count:
                raise ConnectionError(f"{left} bytes of a body did not arrive")
            to.write(buffer[:count])
            left -= count
            alone.pass_on(count)
            self.server.link.pass_on(count)

    def _send(self, answer: Answer) -> None:
        body, start = answer.body, answer.start
        length = len(body) if isinstance(body, bytes) else answer.end - start
        self.send_response_only(answer.status)
        for name, value in {**answer.headers, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()
        if isinstance(body, bytes):
            self.wfile.write(body)
            return
        alone = Link(MB_PER_SECOND_EACH, self.server.pause)
        with body.open("rb") as file:
            while start < answer.end:
                piece = min(PIECE_BYTES, answer.end - start)
                count = os.sendfile(self.connection.fileno(), file.fileno(), start, piece)
                start += count
                self.server.add_sent(count)
                alone.pass_on(count)
                self.server.link.pass_on(count)

    def _NotImplemented(self, body: Path) -> Answer:  # noqa: N802
        return _refused(501, "NotImplemented")

    def _GetObject(self, body: Path) -> Answer:  # noqa: N802
        file = self.bucket / self.key
        if not file.is_file():
            return _refused(404, "NoSuchKey")
        headers, size = {"ETag": _etag(file)}, file.stat().st_size
        if self.headers.get("if-match", headers["ETag"]) != headers["ETag"]:
            return _refused(412, "PreconditionFailed")
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", f"bytes=0-{size}"))
        if asked is None or int(asked[1]) >= max(size, 1):
            return _refused(416, "InvalidRange")
        start, end = int(asked[1]), min(int(asked[2]) + 1, size)
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        return Answer(file, headers, 206 if "range" in self.headers else 200, start, end)

    def _ListObjectsV2(self, body: Path) -> Answer:  # noqa: N802
        """List all objects with a prefix in one page, which S3 would not do with a thousand."""
        files = (Path(at, name) for at, _, names in os.walk(self.bucket) for name in names)
        found = {file.relative_to(self.bucket).as_posix(): file for file in files}
        keys = [key for key in sorted(found) if key.startswith(self.query.get("prefix", ""))]
        entries = "".join(_entry(key, found[key]) for key in keys)
        return _xml("ListBucketResult", f"<EncodingType>url</EncodingType>{entries}")

    def _PutObject(self, body: Path) -> Answer:  # noqa: N802
        file = self.bucket / self.key
        file.parent.mkdir(parents=True, exist_ok=True)
        if self.headers.get("if-none-match") != "*":
            body.replace(file)
        else:
            try:
                file.hardlink_to(body)
            except FileExistsError:
                return _refused(412, "PreconditionFailed")
        return Answer(headers={"ETag": _etag(file)})

    def _CreateMultipartUpload(self, body: Path) -> Answer:  # noqa: N802
        parts = self.server.new_path()
        parts.mkdir()
        return _xml("InitiateMultipartUploadResult", f"<UploadId>{parts.name}</UploadId>")

    def _UploadPart(self, body: Path) -> Answer:  # noqa: N802
        part = self.server.aside / self.query["uploadId"] / self.query["partNumber"]
        body.replace(part)
        return Answer(headers={"ETag": _etag(part)})

    def _CompleteMultipartUpload(self, body: Path) -> Answer:  # noqa: N802
        """Make an object of the parts; if there is one already they stay, as those of S3 do."""
        parts, whole = self.server.aside / self.query["uploadId"], self.server.new_path()
        with whole.open("wb") as target:
            for number in re.findall(r"<PartNumber>(\d+)</PartNumber>", body.read_text()):
                with (parts / number).open("rb") as source:
                    shutil.copyfileobj(source, target, 1024**2)
        answer = self._PutObject(whole)
        if answer.status != 200:
            return answer
        shutil.rmtree(parts)
        etag = escape(answer.headers["ETag"])
        return _xml("CompleteMultipartUploadResult", f"<ETag>{etag}</ETag>")

    def _DeleteObjects(self, body: Path) -> Answer:  # noqa: N802
        for key in re.findall("<Key>(.*?)</Key>", body.read_text(), re.DOTALL):
            (self.bucket / unescape(key)).unlink(missing_ok=True)
        return _xml("DeleteResult", "")


def _etag(file: Path) -> str:
    status = file.stat()
    return f'"{status.st_size:x}-{status.st_mtime_ns:x}"'


def _entry(key: str, file: Path) -> str:
    modified = datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat()
    return (
        f"<Contents><Key>{quote(key)}</Key><LastModified>{modified}</LastModified>"
        f"<ETag>{escape(_etag(file))}</ETag><Size>{file.stat().st_size}</Size></Contents>"
    )


def _xml(name: str, inside: str, status: int = 200) -> Answer:
    body = f"<{name}>{inside}</{name}>".encode()
    return Answer(body, {"Content-Type": "application/xml"}, status)


def _refused(status: int, code: str) -> Answer:
    return _xml("Error", f"<Code>{code}</Code>", status)


def serve(folder: str, delay_ms: float, mb_per_second: float) -> None:
    """Serve the buckets below a folder until standard input ends; print the URL of the server.

    Each line of standard input is answered by a line of JSON with the counts since the one before,
    and the CPU seconds that the server took.
    """
    with Server(Path(folder), delay_ms, mb_per_second) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.endpoint, flush=True)
        cpu_seconds = time.process_time()
        for _ in sys.stdin:
            used, cpu_seconds = time.process_time() - cpu_seconds, time.process_time()
            print(json.dumps({**server.taken(), "server_cpu_seconds": used}), flush=True)
        server.shutdown()


DATA, SOURCES = "data", "sources"
_UNSIGNED = Config(s3={"payload_signing_enabled": False})
"""Over TLS bodies are not hashed to sign them; the server does without TLS, and they are not."""


class LocalS3:
    """A running server with two buckets, which are folders below `folder`."""

    def __init__(self, folder: Path, asked: IO[str], answers: IO[str]) -> None:
        self.folder = folder
        self._asked, self._answers = asked, answers

    @property
    def storage(self) -> S3Storage:
        return S3Storage(self.client(), DATA)

    @property
    def sources(self) -> S3Sources:
        return S3Sources(self.client(), SOURCES)

    def client(self) -> S3Client:
        return client("s3", CLIENT_CONFIG.merge(_UNSIGNED))

    def begin(self) -> None:
        """Count from here on: what the SDK does once is no part of what is measured."""
        next(self.storage.list(""), None)
        self.counts()

    def counts(self) -> dict[str, float]:
        """Return what was asked since the last call, and the CPU seconds that the server took."""
        self._asked.write("\n")
        self._asked.flush()
        counts: dict[str, float] = json.loads(self._answers.readline())
        return counts


@contextmanager
def local_s3(folder: Path, delay_ms: float = 0, mb_per_second: float = 0) -> Iterator[LocalS3]:
    """Serve buckets below `folder` as long as the context lasts; clients made in it find them."""
    for bucket in (DATA, SOURCES):
        (folder / bucket).mkdir(parents=True, exist_ok=True)
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    serving = command("s3:serve", folder, delay_ms, mb_per_second)
    with subprocess.Popen(serving, env=environment(), **pipes) as server:
        assert server.stdin and server.stdout
        variables = {
            "AWS_ENDPOINT_URL_S3": server.stdout.readline().strip(),
            "AWS_DEFAULT_REGION": "eu-west-2",
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }
        try:
            with patch.dict(os.environ, variables):
                yield LocalS3(folder, server.stdin, server.stdout)
        finally:
            server.terminate()
