"""An answer that breaks off, wherever it does, is no answer: least of all "there is nothing"."""

from __future__ import annotations

import json
import socketserver
import threading
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config

from dormouse.aws.clients import client
from dormouse.aws.items import DynamoItems, attributes_of
from dormouse.aws.queues import SqsOutbox
from dormouse.aws.storage import S3Sources, S3Storage
from dormouse.aws.uploads import S3IngestBucket
from dormouse.errors import OutcomeUnknownError, UnavailableError
from dormouse.items.records import ItemTracker, put_record
from dormouse.messages.stages import OutboundMessage, TableChanged
from dormouse.state.jobs import JobRecord
from dormouse.state.sources import Source
from dormouse.stored.paths import InstanceNames
from dormouse.system import RetryPolicy
from tests.support.depth import in_turn
from tests.support.retries import WITHOUT_PAUSES

THRICE = replace(WITHOUT_PAUSES, attempts=3)
ONCE = Config(retries={"total_max_attempts": 1})
NAMES = InstanceNames("test", "123456789012")
_STORED = attributes_of(put_record(JobRecord("x", "x", "x", "x", rows=7), None))
_JOB = {**_STORED, "body_sum": {"B": b64encode(bytes(_STORED["body_sum"]["B"])).decode()}}
_LISTING = (
    '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>'
    "<IsTruncated>false</IsTruncated><Contents><Key>t/a</Key><Size>4</Size>"
    "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents></ListBucketResult>"
)


class Breaking(socketserver.ThreadingTCPServer):
    """Sends `answers`, one to each request, then always `answer`; and hangs up."""

    daemon_threads = allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = b""
        self.answers: list[bytes] = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


class _Handler(socketserver.StreamRequestHandler):
    server: Breaking

    def handle(self) -> None:
        length = 0
        while (line := self.rfile.readline()).strip():
            name, _, value = line.decode().partition(":")
            if name.lower() == "content-length":
                length = int(value)
            if name.lower() == "expect":
                self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.rfile.read(length)
        answers = self.server.answers
        self.wfile.write(answers.pop(0) if answers else self.server.answer)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Breaking]:
    with Breaking() as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{running.server_address[1]}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "test")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
        yield running
        running.shutdown()


def answer(body: str, *headers: str, chunked: bool = False) -> bytes:
    """A whole answer; the header with its length is in the middle of the others."""
    if chunked:
        end, text = "Transfer-Encoding: chunked", f"{len(body):x}\r\n{body}\r\n0\r\n\r\n"
    else:
        end, text = f"Content-Length: {len(body)}", body
    lines = ["HTTP/1.1 200 OK", "Server: x", end, *headers, "x-amz-request-id: 1"]
    return ("\r\n".join(lines) + "\r\n\r\n" + text).encode()


def beginnings(whole: bytes) -> Iterator[bytes]:
    """The answer broken off after each line and each name, within those, and within the body."""
    ends = [i + 2 for i in range(len(whole)) if whole[i : i + 2] in (b"\r\n", b": ")]
    for end in sorted(
        {0, *ends, *(end - part for end in ends for part in (5, 29)), len(whole) - 3}
    ):
        if 0 <= end < len(whole):
            yield whole[:end]


def job_rows(_: Path) -> object:
    record = ItemTracker(DynamoItems(client("dynamodb", ONCE), {"jobs": "jobs"})).get("x", "x")
    return record.rows if record else None


def stored(_: Path) -> object:
    return S3Storage(client("s3", ONCE), "bucket").get("t/a")


def part(_: Path) -> object:
    return S3Storage(client("s3", ONCE), "bucket", retry_policy=THRICE).open("t/a", 10).read(4)


def listed(_: Path) -> object:
    return [found.path for found in S3Storage(client("s3", ONCE), "bucket").list("t/")]


def downloaded(folder: Path) -> object:
    source = Source("bucket", "t/a.jsonl", "e", 4)
    S3Sources(client("s3", ONCE), "bucket").download(source, folder / "local")
    return (folder / "local").read_bytes()


def dropped(folder: Path) -> object:
    (folder / "local").write_bytes(b"rows")
    return S3IngestBucket(client("s3", ONCE), "bucket").drop("t/a", folder / "local").etag


def refused_entry(_: Path) -> object:
    once = RetryPolicy(lambda _: None, lambda: 0.0, attempts=1)
    outbox = SqsOutbox(client("sqs", ONCE), NAMES, once)
    outbox._queues._urls["files"] = "http://localhost/files"  # it is not asked for
    try:
        outbox.send([OutboundMessage("files", TableChanged("t"))])
    except UnavailableError as error:
        return "did not take 1" in str(error) or error
    return "all was sent"


ITEM = json.dumps({"Item": _JOB})
CHECKSUM = f"x-amz-crc32: {zlib.crc32(ITEM.encode())}"
DATE = "Last-Modified: Sat, 21 Nov 2026 19:00:00 GMT"
CALLS: dict[str, tuple[Callable[[Path], object], bytes, object]] = {
    "an item": (job_rows, answer(ITEM, CHECKSUM), 7),
    "an object": (stored, answer("body", DATE), b"body"),
    "a part of an object": (part, answer("body", DATE, "Content-Range: bytes 0-3/10"), b"body"),
    "a listing": (listed, answer(_LISTING), ["t/a"]),
    "a listing in chunks": (listed, answer(_LISTING, chunked=True), ["t/a"]),
    "a dropped file": (downloaded, answer("rows", DATE), b"rows"),
    "a file to drop": (dropped, answer("", 'ETag: "e"'), "e"),
    "a message not taken": (
        refused_entry,
        answer(json.dumps({"Failed": [{"Id": "0", "Code": "Busy", "SenderFault": False}]})),
        True,
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_answer_that_breaks_off_anywhere_is_a_failure_or_says_what_the_whole_one_does(
    server: Breaking, tmp_path: Path, call: str
) -> None:
    ask, whole, expected = CALLS[call]
    server.answer = whole
    assert ask(tmp_path) == expected
    failures = 0
    for server.answer in in_turn(list(beginnings(whole)), parts=3):
        try:
            found: Any = ask(tmp_path)
        except (UnavailableError, OutcomeUnknownError):
            failures += 1
        else:
            is_failure = isinstance(found, UnavailableError)
            assert is_failure or found == expected, server.answer
            failures += is_failure
    assert failures


def test_a_request_is_repeated_whose_answer_broke_off(server: Breaking) -> None:
    whole = answer(ITEM, CHECKSUM)
    server.answer, server.answers = (
        whole,
        [whole[:40], whole[: whole.index(b"crc32") + 7], whole[:-3]],
    )
    twice = Config(retries={"mode": "standard", "total_max_attempts": 4})
    record = ItemTracker(DynamoItems(client("dynamodb", twice), {"jobs": "jobs"})).get("x", "x")
    assert record is not None
    assert record.rows == 7
    assert not server.answers


@pytest.mark.parametrize("call", ["an object", "a part of an object", "a dropped file"])
def test_a_body_that_breaks_off_midway_is_requested_again(
    server: Breaking, tmp_path: Path, call: str
) -> None:
    """The SDK does not, once an answer has begun."""
    ask, whole, expected = CALLS[call]
    server.answer, server.answers = whole, [whole[:-3], whole[:-1]]
    assert ask(tmp_path) == expected
    assert not server.answers
