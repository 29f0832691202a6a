"""Answer as S3 does, after a while, over links of limited width, and count what is asked.

The delay is before each answer, so requests that are in flight together wait together. One limit
is on all bytes in both directions, as on the network of a function, another on each answer and each
body by itself, as on a connection to S3. What an instance does not need to move its rows (versions,
copies, tags, access control) is answered with 501, so that nothing is measured that S3 would have
done otherwise.

Objects are files below a folder, one folder for each bucket. An object appears whole or not at all:
its file is written elsewhere and then linked, which fails if there is one. An input may be a
symbolic link to a file that somebody else keeps. Unlike on S3, no key can begin with that of
another object and a slash.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from http import HTTPStatus
from io import BufferedIOBase
from pathlib import Path
from socket import socket
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import BinaryIO, cast
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

Sent = Callable[[int], None]
"""Is called with the number of bytes that were just received or sent, and may take its time."""
PIECE_BYTES = 256 * 1024
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Refusal(Exception):
    """S3's answer to a request that it does not fulfil."""

    def __init__(self, status: int, code: str) -> None:
        """Answer with a status and one of S3's error codes."""
        super().__init__(code)
        self.status, self.code = status, code


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked: header names are in lower case, and `length` bytes of body follow."""

    method: str
    bucket: str
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]

    @property
    def length(self) -> int:
        """The length of the body, in bytes."""
        return int(self.headers.get("content-length", "0"))


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered: `body`, or `length` bytes of `file` from `start`."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    file: Path | None = None
    start: int = 0
    length: int = 0


def read_request(stream: BufferedIOBase) -> Request | None:
    """Return the next request of a connection, without its body; None if the client closed it."""
    first = stream.readline().split()
    if len(first) != 3:
        return None
    headers = {}
    while line := stream.readline().strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    url = urlsplit(first[1].decode())
    bucket, _, key = unquote(url.path)[1:].partition("/")
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    return Request(first[0].decode(), bucket, key, query, headers)


def receive(
    request: Request, stream: BufferedIOBase, connection: socket, to: BinaryIO, seen: Sent
) -> None:
    """Write the body of a request to a file.

    Raises:
        ConnectionError: it ended early.
    """
    if request.headers.get("expect", "").lower() == "100-continue":
        connection.sendall(_CONTINUE)
    buffer, left = memoryview(bytearray(PIECE_BYTES)), request.length
    while left:
        count = stream.readinto(buffer[:left])
        if not count:
            raise ConnectionError(f"{left} of {request.length} bytes of a body did not arrive")
        to.write(buffer[:count])
        left -= count
        seen(count)


def send(answer: Answer, connection: socket, *, bodiless: bool, seen: Sent) -> None:
    """Send an answer; one to a HEAD is `bodiless`, but has the length of the body."""
    length = answer.length if answer.file else len(answer.body)
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    lines += [f"Content-Length: {length}", "", ""]
    head = "\r\n".join(lines).encode("latin-1")
    connection.sendall(head if bodiless else head + answer.body)
    if answer.file and not bodiless:
        with answer.file.open("rb") as file:
            _send_file(file.fileno(), answer.start, length, connection, seen)


def _send_file(file: int, start: int, length: int, connection: socket, seen: Sent) -> None:
    end = start + length
    while start < end:
        count = os.sendfile(connection.fileno(), file, start, min(PIECE_BYTES, end - start))
        start += count
        seen(count)


MIN_PART_BYTES = 5 * 1024**2
"""What each part of an upload must have, except the last one."""
_ASIDE = ".uploads"


@dataclass(frozen=True, slots=True)
class Found:
    """An object: its key, file, size, ETag, and the time at which it was written."""

    key: str
    file: Path
    size_bytes: int
    etag: str
    modified_s: float


class Objects:
    """The objects of all buckets, and the uploads in progress; safe for many threads."""

    def __init__(self, root: Path) -> None:
        """Keep buckets in folders below `root`; a folder that is there is a bucket."""
        self._root = root
        self._numbers = itertools.count(1)
        (root / _ASIDE).mkdir(parents=True, exist_ok=True)

    def new_file(self) -> Path:
        """Return where the next body can be kept until it becomes an object or a part."""
        return self._root / _ASIDE / f"body-{next(self._numbers)}"

    def create_bucket(self, bucket: str) -> None:
        """Create a bucket; one that is there is no error."""
        (self._root / bucket).mkdir(exist_ok=True)

    def find(self, bucket: str, key: str) -> Found:
        """Return an object.

        Raises:
            Refusal: there is none.
        """
        file = self._bucket(bucket) / key
        if not file.is_file():
            raise Refusal(404, "NoSuchKey")
        return _found(key, file)

    def list(self, bucket: str, prefix: str, after: str) -> Iterator[Found]:
        """Return the objects whose key begins with `prefix` and follows `after`, in order."""
        top = self._bucket(bucket)
        files = (Path(at, name) for at, _, names in os.walk(top) for name in names)
        keys = sorted(file.relative_to(top).as_posix() for file in files)
        for key in keys:
            if key.startswith(prefix) and key > after:
                yield _found(key, top / key)

    def put(self, bucket: str, key: str, body: Path, *, once: bool) -> Found:
        """Make the file `body` an object; with `once`, only if there is none.

        Raises:
            Refusal: there is one.
        """
        file = self._bucket(bucket) / key
        file.parent.mkdir(parents=True, exist_ok=True)
        if once:
            try:
                file.hardlink_to(body)
            except FileExistsError as error:
                raise Refusal(412, "PreconditionFailed") from error
            finally:
                body.unlink()
        else:
            body.replace(file)
        return _found(key, file)

    def delete(self, bucket: str, key: str) -> None:
        """Delete an object; one that is not there is no error."""
        (self._bucket(bucket) / key).unlink(missing_ok=True)

    def begin(self, bucket: str) -> str:
        """Begin an upload in parts, and return its id."""
        self._bucket(bucket)
        upload = f"upload-{next(self._numbers)}"
        (self._root / _ASIDE / upload).mkdir()
        return upload

    def put_part(self, upload: str, number: int, body: Path) -> Found:
        """Make the file `body` a part of an upload, instead of an earlier one of this number."""
        file = self._upload(upload) / str(number)
        body.replace(file)
        return _found(str(number), file)

    def complete(
        self, bucket: str, key: str, upload: str, parts: Sequence[tuple[int, str]], *, once: bool
    ) -> Found:
        """Make an object of the parts with these numbers and ETags.

        Raises:
            Refusal: a part is missing, another one, or too small, or there is an object already.
        """
        folder = self._upload(upload)
        files = [folder / str(number) for number, _ in parts]
        for file, (_, etag) in zip(files, parts, strict=True):
            if not file.is_file() or _found("", file).etag != etag:
                raise Refusal(400, "InvalidPart")
        if any(file.stat().st_size < MIN_PART_BYTES for file in files[:-1]):
            raise Refusal(400, "EntityTooSmall")
        if [number for number, _ in parts] != sorted({number for number, _ in parts}) or not parts:
            raise Refusal(400, "InvalidPartOrder")
        if once and (self._bucket(bucket) / key).exists():
            raise Refusal(412, "PreconditionFailed")  # the parts stay, as those of S3 do
        whole = self.new_file()
        files[0].rename(whole)
        with whole.open("ab") as target:
            for file in files[1:]:
                with file.open("rb") as source:
                    shutil.copyfileobj(source, target, 1024**2)
        shutil.rmtree(folder)
        return self.put(bucket, key, whole, once=once)

    def abort(self, upload: str) -> None:
        """Delete the parts of an upload."""
        shutil.rmtree(self._upload(upload))

    def _bucket(self, bucket: str) -> Path:
        if not (self._root / bucket).is_dir():
            raise Refusal(404, "NoSuchBucket")
        return self._root / bucket

    def _upload(self, upload: str) -> Path:
        folder = self._root / _ASIDE / upload
        if not upload or not folder.is_dir():
            raise Refusal(404, "NoSuchUpload")
        return folder


def _found(key: str, file: Path) -> Found:
    status = file.stat()
    etag = f'"{status.st_size:x}-{status.st_mtime_ns:x}"'
    return Found(key, file, status.st_size, etag, status.st_mtime)


Operation = Callable[[Objects, Request, Path], Answer]
"""Answers a request whose body, if it has one, is in a file."""
KEYS_PER_PAGE = 1000
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_PART = re.compile(r"<Part>(.*?)</Part>", re.DOTALL)


def operation_of(request: Request) -> str:
    """Return S3's name of what is asked.

    Raises:
        Refusal: it is none of `OPERATIONS`.
    """
    of_object, query = bool(request.key), request.query
    match request.method:
        case "GET" if of_object and not {"uploadId", "tagging", "versionId"} & set(query):
            return "GetObject"
        case "GET" if query.get("list-type") == "2":
            return "ListObjectsV2"
        case "HEAD" if of_object:
            return "HeadObject"
        case "PUT" if not of_object and not query:
            return "CreateBucket"
        case "PUT" if of_object and "x-amz-copy-source" not in request.headers:
            return "UploadPart" if "partNumber" in query else "PutObject"
        case "POST" if of_object and "uploads" in query:
            return "CreateMultipartUpload"
        case "POST" if of_object and "uploadId" in query:
            return "CompleteMultipartUpload"
        case "POST" if "delete" in query:
            return "DeleteObjects"
        case "DELETE" if of_object:
            return "AbortMultipartUpload" if "uploadId" in query else "DeleteObject"
    raise Refusal(501, "NotImplemented")


def refused(refusal: Refusal) -> Answer:
    """Return the answer to a request that is not fulfilled."""
    return _xml("Error", f"<Code>{refusal.code}</Code><Message>as S3</Message>", refusal.status)


def _get(objects: Objects, request: Request, body: Path) -> Answer:
    found = objects.find(request.bucket, request.key)
    if request.headers.get("if-match", found.etag) != found.etag:
        raise Refusal(412, "PreconditionFailed")
    headers = _headers(found)
    if "range" not in request.headers:
        return Answer(200, headers, file=found.file, length=found.size_bytes)
    start, end = _range(request.headers["range"], found.size_bytes)
    headers["Content-Range"] = f"bytes {start}-{end - 1}/{found.size_bytes}"
    return Answer(206, headers, file=found.file, start=start, length=end - start)


def _range(asked: str, size_bytes: int) -> tuple[int, int]:
    """Return where a range begins and ends, in bytes.

    Raises:
        Refusal: the object has nothing there.
    """
    match = _RANGE.fullmatch(asked)
    first, last = match.groups() if match else ("", "")
    if first:
        start, end = int(first), min(int(last or size_bytes) + 1, size_bytes)
    else:
        start, end = max(0, size_bytes - int(last or 0)), size_bytes
    if start >= end:
        raise Refusal(416, "InvalidRange")
    return start, end


def _list(objects: Objects, request: Request, body: Path) -> Answer:
    prefix, delimiter = request.query.get("prefix", ""), request.query.get("delimiter", "")
    limit = int(request.query.get("max-keys", KEYS_PER_PAGE))
    after = request.query.get("continuation-token", request.query.get("start-after", ""))
    entries, folders, last = [], [], ""
    found = objects.list(request.bucket, prefix, after)
    for each in itertools.islice(found, limit):
        last = each.key
        before, cut, _ = each.key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
        if cut:
            folders.append(f"{prefix}{before}{cut}")
        else:
            entries.append(each)
    more = next(found, None) is not None
    text = "<EncodingType>url</EncodingType>" + "".join(map(_entry, entries))
    for folder in dict.fromkeys(folders):
        text += f"<CommonPrefixes><Prefix>{quote(folder)}</Prefix></CommonPrefixes>"
    if more:
        text += f"<NextContinuationToken>{escape(last)}</NextContinuationToken>"
    return _xml("ListBucketResult", f"{text}<IsTruncated>{str(more).lower()}</IsTruncated>")


def _entry(found: Found) -> str:
    modified = datetime.fromtimestamp(found.modified_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return (
        f"<Contents><Key>{quote(found.key)}</Key><LastModified>{modified}</LastModified>"
        f"<ETag>{escape(found.etag)}</ETag><Size>{found.size_bytes}</Size></Contents>"
    )


def _head(objects: Objects, request: Request, body: Path) -> Answer:
    found = objects.find(request.bucket, request.key)
    return Answer(200, _headers(found), file=found.file, length=found.size_bytes)


def _create_bucket(objects: Objects, request: Request, body: Path) -> Answer:
    objects.create_bucket(request.bucket)
    return Answer()


def _put(objects: Objects, request: Request, body: Path) -> Answer:
    found = objects.put(request.bucket, request.key, body, once=_once(request))
    return Answer(200, {"ETag": found.etag, **_checksums(request)})


def _put_part(objects: Objects, request: Request, body: Path) -> Answer:
    number = int(request.query["partNumber"])
    found = objects.put_part(request.query["uploadId"], number, body)
    return Answer(200, {"ETag": found.etag, **_checksums(request)})


def _begin(objects: Objects, request: Request, body: Path) -> Answer:
    upload = objects.begin(request.bucket)
    return _xml("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")


def _complete(objects: Objects, request: Request, body: Path) -> Answer:
    parts = [
        (int(_element(part, "PartNumber")), unescape(_element(part, "ETag"), {"&quot;": '"'}))
        for part in _PART.findall(body.read_text())
    ]
    upload = request.query["uploadId"]
    found = objects.complete(request.bucket, request.key, upload, parts, once=_once(request))
    return _xml("CompleteMultipartUploadResult", f"<ETag>{escape(found.etag)}</ETag>")


def _abort(objects: Objects, request: Request, body: Path) -> Answer:
    objects.abort(request.query["uploadId"])
    return Answer(204)


def _delete(objects: Objects, request: Request, body: Path) -> Answer:
    objects.delete(request.bucket, request.key)
    return Answer(204)


def _delete_many(objects: Objects, request: Request, body: Path) -> Answer:
    for key in re.findall("<Key>(.*?)</Key>", body.read_text(), re.DOTALL):
        objects.delete(request.bucket, unescape(key))
    return _xml("DeleteResult", "")


OPERATIONS: Mapping[str, Operation] = {
    "GetObject": _get,
    "ListObjectsV2": _list,
    "HeadObject": _head,
    "CreateBucket": _create_bucket,
    "PutObject": _put,
    "UploadPart": _put_part,
    "CreateMultipartUpload": _begin,
    "CompleteMultipartUpload": _complete,
    "AbortMultipartUpload": _abort,
    "DeleteObject": _delete,
    "DeleteObjects": _delete_many,
}


def _once(request: Request) -> bool:
    return request.headers.get("if-none-match") == "*"


def _headers(found: Found) -> dict[str, str]:
    modified = formatdate(found.modified_s, usegmt=True)
    return {"ETag": found.etag, "Last-Modified": modified, "Accept-Ranges": "bytes"}


def _checksums(request: Request) -> dict[str, str]:
    """Return the checksums that came with a body, which S3 repeats; they are not checked."""
    names = (name for name in request.headers if name.startswith("x-amz-checksum-"))
    return {name: request.headers[name] for name in names}


def _element(text: str, name: str) -> str:
    found = re.search(f"<{name}>(.*?)</{name}>", text, re.DOTALL)
    if found is None:
        raise Refusal(400, "MalformedXML")
    return found[1]


def _xml(name: str, inside: str, status: int = 200) -> Answer:
    return Answer(
        status, {"Content-Type": "application/xml"}, f"<{name}>{inside}</{name}>".encode()
    )


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
