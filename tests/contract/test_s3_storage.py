"""A data root on S3: what only a bucket can do wrong, and how many requests it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ResponseStreamingError

from dormouse.aws.storage import S3Storage
from dormouse.errors import (
    ContendedError,
    CorruptDataError,
    NotFoundError,
    OutcomeUnknownError,
    ServiceRefusedError,
    UnavailableError,
)
from dormouse.shards.stored_index import read_end
from tests.contract.mocked_aws import mocked_aws, s3_bucket
from tests.support.retries import WITHOUT_PAUSES
from tests.support.world import letters, letters_file

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@dataclass
class Wire:
    """The requests that went out, and answers to give to the next instead of those of S3."""

    sent: list[tuple[str, str]] = field(default_factory=list)
    answers: list[tuple[int, str]] = field(default_factory=list)

    def before_send(self, request: AWSPreparedRequest, **_: object) -> AWSResponse | None:
        asked = request.headers.get("Range", b"")
        assert isinstance(asked, bytes)
        self.sent.append((str(request.method), asked.decode()))
        if not self.answers:
            return None
        status, code = self.answers.pop(0)
        getattr(request.body, "read", bytes)()  # as sending it does
        body = f"<Error><Code>{code}</Code><Message>of this code</Message></Error>".encode()
        url, request.url = request.url, "http://nowhere"  # moto is asked as well: not its business
        return AWSResponse(url, status, HTTPHeaders(), _Raw(body))


class _Raw:
    """The body of an answer, as urllib3 gives it."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        yield self._body


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Client]:
    with mocked_aws(monkeypatch):
        yield s3_bucket("data")


@pytest.fixture
def storage(client: S3Client) -> S3Storage:
    return S3Storage(client, "data")


@pytest.fixture
def wire(client: S3Client) -> Wire:
    wire = Wire()
    events: Any = client.meta.events  # the stubs know of no handler that answers
    events.register_first("before-send.s3", wire.before_send)
    return wire


def test_opening_and_seeking_ask_nothing_and_each_read_asks_for_its_range_alone(
    storage: S3Storage, wire: Wire
) -> None:
    storage.put("t/a", b"0123456789")
    wire.sent.clear()
    with storage.open("t/a", 10) as opened:
        opened.seek(-4, 2)
        assert opened.read(3) == b"678"
        assert opened.tell() == 9
        assert opened.read() == b"9"
        assert opened.read() == opened.read(5) == b""
    assert wire.sent == [("GET", "bytes=6-8"), ("GET", "bytes=9-9")]


def test_a_footer_is_read_in_one_request(storage: S3Storage, wire: Wire) -> None:
    body = letters_file(letters("abc" * 10))
    storage.put("t/a.parquet", body)
    wire.sent.clear()
    with storage.open("t/a.parquet", len(body)) as opened:
        assert pq.read_metadata(opened).num_rows == 30
    assert len(wire.sent) == 1


@pytest.mark.parametrize("size_bytes", [3, 20])
def test_an_object_of_another_size_than_the_state_says_is_no_data(
    storage: S3Storage, size_bytes: int
) -> None:
    storage.put("t/a", b"0123456789")
    opened = storage.open("t/a", size_bytes)
    opened.seek(-1, 2)
    with pytest.raises(CorruptDataError, match=f"should have {size_bytes} bytes"):
        opened.read()


@pytest.mark.parametrize("size_bytes", [3, 20])
def test_a_stream_of_an_object_of_another_size_ends_with_an_error(
    storage: S3Storage, size_bytes: int
) -> None:
    storage.put("t/a", b"0123456789")
    with pytest.raises(CorruptDataError, match=f"should have {size_bytes} bytes"):
        list(storage.stream("t/a", size_bytes, 0, size_bytes))


class Interrupted:
    """A body of an answer that breaks off after some bytes."""

    def __init__(self, body: Any, most_bytes: int) -> None:
        self._body, self._left = body, most_bytes

    def read(self, size_bytes: int) -> bytes:
        if not self._left:
            raise ResponseStreamingError(error="the connection was reset")
        found: bytes = self._body.read(min(size_bytes, self._left))
        self._left -= len(found)
        return found


def interrupt(client: S3Client, monkeypatch: pytest.MonkeyPatch, *after: int) -> None:
    """Let the bodies of the next answers break off, each after so many bytes."""
    left, ask = list(after), client.get_object

    def get_object(**request: Any) -> Any:
        answer: Any = ask(**request)
        return answer | {"Body": Interrupted(answer["Body"], left.pop(0))} if left else answer

    monkeypatch.setattr(client, "get_object", get_object)


def test_a_stream_that_breaks_off_goes_on_where_it_broke_off(
    client: S3Client, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = S3Storage(client, "data", retry_policy=WITHOUT_PAUSES)
    storage.put("t/a", b"0123456789")
    wire.sent.clear()
    interrupt(client, monkeypatch, 3, 0, 4)
    assert b"".join(storage.stream("t/a", 10, 1, 10)) == b"123456789"
    assert [asked for _, asked in wire.sent] == ["bytes=1-9", "bytes=4-9", "bytes=4-9", "bytes=8-9"]


def test_a_stream_without_progress_ends_when_the_retry_policy_says_so(
    client: S3Client, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    policy = replace(WITHOUT_PAUSES, sleep=pauses.append, random=lambda: 1.0, attempts=3)
    storage = S3Storage(client, "data", retry_policy=policy)
    storage.put("t/a", b"0123456789")
    wire.sent.clear()
    interrupt(client, monkeypatch, 0, 1, 0, 0, 0)
    with pytest.raises(UnavailableError, match="connection was reset"):
        list(storage.stream("t/a", 10, 0, 10))
    assert len(wire.sent) == 4, "one without progress, one with, and two without any"
    assert pauses == [0.025, 0.025, 0.05]


def test_a_read_that_is_refused_is_not_repeated(client: S3Client, wire: Wire) -> None:
    storage = S3Storage(client, "data", retry_policy=WITHOUT_PAUSES)
    storage.put("t/a", b"0123456789")
    wire.answers = [(403, "AccessDenied")] * 2
    with pytest.raises(UnavailableError, match="AccessDenied"):
        list(storage.stream("t/a", 10, 0, 10))
    assert len(wire.answers) == 1


def test_a_put_that_crosses_another_is_repeated_until_one_has_won(
    storage: S3Storage, wire: Wire
) -> None:
    wire.answers = [(409, "ConditionalRequestConflict")] * 2
    assert storage.put("t/a", b"mine")
    assert storage.get("t/a") == b"mine"


def test_a_put_that_always_conflicts_with_others_raises(storage: S3Storage, wire: Wire) -> None:
    wire.answers = [(409, "ConditionalRequestConflict")] * 100
    with pytest.raises(ContendedError):
        storage.put("t/a", b"mine")


def test_a_repeated_upload_begins_at_the_start_of_the_file(
    storage: S3Storage, wire: Wire, tmp_path: Path
) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"all of it")
    wire.answers = [(409, "ConditionalRequestConflict")]
    assert storage.upload("t/a", local)
    assert storage.get("t/a") == b"all of it"


def test_a_put_that_was_refused_is_distinguished_from_one_that_may_have_landed(
    storage: S3Storage, wire: Wire
) -> None:
    wire.answers = [(403, "AccessDenied")]
    with pytest.raises(UnavailableError, match="AccessDenied"):
        storage.put("t/a", b"")
    wire.answers = [(500, "InternalError"), (403, "AccessDenied")]
    with pytest.raises(OutcomeUnknownError, match="AccessDenied"):
        storage.put("t/a", b"")


def test_a_bucket_that_is_not_there_is_no_missing_object(client: S3Client) -> None:
    storage = S3Storage(client, "elsewhere")
    with pytest.raises(UnavailableError, match="NoSuchBucket"):
        storage.get("t/a")
    with pytest.raises(UnavailableError, match="NoSuchBucket"):
        storage.open("t/a", 1).read()
    with pytest.raises(UnavailableError, match="NoSuchBucket"):
        list(storage.list(""))


def test_more_objects_than_a_request_takes_are_listed_and_deleted(
    storage: S3Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "5")  # in a page of a listing; S3 has 1,000
    paths = [f"t/{number:04}" for number in range(1001)]
    there = paths[:2] + paths[990:]  # a request deletes 1,000
    for path in there:
        storage.put(path, b"")
    assert [item.path for item in storage.list("t/")] == there
    storage.delete(paths)
    assert list(storage.list("t/")) == []


def test_objects_s3_was_too_busy_to_delete_are_deleted_again_and_only_they(
    storage: S3Storage, client: S3Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def busy(Delete: dict[str, Any], **_: Any) -> dict[str, object]:  # noqa: N803
        asked.append([each["Key"] for each in Delete["Objects"]])
        failed = {1: ["t/a", "t/c"], 2: ["t/c"]}.get(len(asked), [])
        return {"Errors": [{"Key": key, "Code": "SlowDown"} for key in failed]}

    monkeypatch.setattr(client, "delete_objects", busy)
    S3Storage(client, "data", retry_policy=WITHOUT_PAUSES).delete(["t/a", "t/b", "t/c"])
    assert asked == [["t/a", "t/b", "t/c"], ["t/a", "t/c"], ["t/c"]]


def test_objects_s3_stays_too_busy_to_delete_are_reported(
    client: S3Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(**_: Any) -> dict[str, object]:
        return {"Errors": [{"Key": "t/a", "Code": "SlowDown", "Message": "later"}]}

    monkeypatch.setattr(client, "delete_objects", busy)
    with pytest.raises(UnavailableError, match="1 of 1 objects .* 't/a': SlowDown later"):
        S3Storage(client, "data", retry_policy=WITHOUT_PAUSES).delete(["t/a"])


def test_an_object_that_was_not_deleted_is_reported(
    storage: S3Storage, client: S3Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> dict[str, object]:
        return {"Errors": [{"Key": "t/a", "Code": "AccessDenied", "Message": "no"}]}

    monkeypatch.setattr(client, "delete_objects", refuse)
    with pytest.raises(UnavailableError, match="1 of 2 objects .* 't/a': AccessDenied no"):
        storage.delete(["t/a", "t/b"])


@pytest.mark.parametrize("versioned", [False, True])
def test_a_mark_for_a_class_changes_no_object_and_brings_none_back(
    monkeypatch: pytest.MonkeyPatch, versioned: bool
) -> None:
    with mocked_aws(monkeypatch):
        s3 = s3_bucket("data", versioned=versioned)
        storage = S3Storage(s3, "data")
        storage.put("t/data/a.parquet", b"rows")
        storage.put("t/data/gone.parquet", b"purged")
        storage.delete(["t/data/gone.parquet"])
        before = [*storage.list("")]
        storage.mark_for_class(
            ["t/data/a.parquet", "t/data/gone.parquet", "t/data/never.parquet"], "X_IA"
        )
        assert [*storage.list("")] == before
        assert storage.get("t/data/a.parquet") == b"rows"
        tags = s3.get_object_tagging(Bucket="data", Key="t/data/a.parquet")["TagSet"]
        assert tags == [{"Key": "storage-class", "Value": "X_IA"}]
        assert len([*storage.list_noncurrent("t/data/a")]) == 0


def test_a_listing_says_which_class_each_object_has(monkeypatch: pytest.MonkeyPatch) -> None:
    with mocked_aws(monkeypatch):
        s3 = s3_bucket("data")
        s3.put_object(Bucket="data", Key="cold", Body=b"", StorageClass="GLACIER_IR")
        s3.put_object(Bucket="data", Key="hot", Body=b"")
        found = {each.path: each.storage_class for each in S3Storage(s3, "data").list("")}
        assert found == {"cold": "GLACIER_IR", "hot": "STANDARD"}


def test_an_archived_object_is_named_with_what_brings_it_back(client: S3Client) -> None:
    client.put_object(Bucket="data", Key="t/a", Body=b"rows", StorageClass="GLACIER")
    storage = S3Storage(client, "data")
    with pytest.raises(ServiceRefusedError, match="s3://data/t/a is archived") as refused:
        storage.open("t/a", 4).read()
    assert "restore-object" in refused.value.hint
    with pytest.raises(ServiceRefusedError, match="s3://data/t/a is archived"):
        storage.get("t/a")


@pytest.mark.parametrize(("length", "found"), [(4, b"rows"), (8, b"the rows"), (1000, b"the rows")])
def test_the_end_of_an_object_of_unknown_size_is_one_request(
    storage: S3Storage, wire: Wire, length: int, found: bytes
) -> None:
    storage.put("t/data/a.index", b"the rows")
    wire.sent.clear()
    assert read_end(storage, "t/data/a.index", length) == found
    assert wire.sent == [("GET", f"bytes=-{length}")]


def test_an_object_of_unknown_size_that_is_gone_is_told(storage: S3Storage) -> None:
    with pytest.raises(NotFoundError):
        read_end(storage, "t/data/gone.index", 4)
