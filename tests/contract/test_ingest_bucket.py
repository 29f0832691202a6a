"""Dropping files on S3: what a repeated or interrupted upload leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ConnectionClosedError

from dormouse.aws import uploads
from dormouse.aws.uploads import S3IngestBucket
from dormouse.errors import DormouseError, OutcomeUnknownError, UnavailableError
from dormouse.folder.inbox import Inbox
from tests.contract.folders import database_in
from tests.contract.mocked_aws import mocked_aws
from tests.support.adapters import FakeClock

BUCKET = "ingest"


class Interrupted:
    """An S3 client whose requests can be intercepted by name."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.instead: dict[str, Callable[[Callable[[], Any]], Any]] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name not in self.instead:
            return method
        return lambda **arguments: self.instead[name](lambda: method(**arguments))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Interrupted]:
    with mocked_aws(monkeypatch):
        s3 = boto3.client("s3", region_name="us-east-1")
        s3.create_bucket(Bucket=BUCKET)
        s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        yield Interrupted(s3)


@pytest.fixture
def bucket(client: Interrupted) -> S3IngestBucket:
    return S3IngestBucket(client, BUCKET)  # type: ignore[arg-type]  # wraps one


@pytest.fixture
def local(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"a,b\n1,2\n")
    return path


def versions(client: Interrupted) -> list[str]:
    listed = client.list_object_versions(Bucket=BUCKET)
    return [version["VersionId"] for version in listed.get("Versions", [])]


def test_the_source_is_the_version_just_made(
    client: Interrupted, bucket: S3IngestBucket, local: Path
) -> None:
    first = bucket.drop("t/rows.csv", local)
    local.write_bytes(b"a,b\n3,4\n5,6\n")
    second = bucket.drop("t/rows.csv", local)
    assert set(versions(client)) == {first.version, second.version}
    assert (first.size_bytes, second.size_bytes) == (8, 12)
    assert '"' not in first.etag
    assert first.id != second.id


def test_the_same_file_dropped_again_is_the_same_source(
    client: Interrupted, bucket: S3IngestBucket, local: Path
) -> None:
    first = bucket.drop("t/rows.csv", local)
    again = bucket.drop("t/rows.csv", local)
    assert len(versions(client)) == 2
    assert first.id == again.id


def test_an_upload_without_an_answer_is_not_called_a_failure(
    client: Interrupted, bucket: S3IngestBucket, local: Path
) -> None:
    def lost(put: Callable[[], Any]) -> Any:
        put()
        raise ConnectionClosedError(endpoint_url="s3")

    client.instead["put_object"] = lost
    with pytest.raises(OutcomeUnknownError):
        bucket.drop("t/rows.csv", local)


def test_a_large_file_goes_up_in_parts(
    client: Interrupted, local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = 5 * 1024 * 1024
    monkeypatch.setattr(uploads, "UPLOAD_PART_BYTES", part)
    content = bytes(range(256)) * (part // 256) * 2 + b"end"
    local.write_bytes(content)
    bucket = S3IngestBucket(client, BUCKET, single_bytes=part)  # type: ignore[arg-type]
    source = bucket.drop("t/rows.csv", local)
    found = client.get_object(Bucket=BUCKET, Key="t/rows.csv", VersionId=source.version)
    assert found["Body"].read() == content
    assert found["ETag"].strip('"') == source.etag


def test_an_upload_in_parts_that_fails_leaves_no_parts(client: Interrupted, local: Path) -> None:
    def fail(upload: Callable[[], Any]) -> Any:
        raise ConnectionClosedError(endpoint_url="s3")

    client.instead["upload_part"] = fail
    bucket = S3IngestBucket(client, BUCKET, single_bytes=0)  # type: ignore[arg-type]
    with pytest.raises(DormouseError):
        bucket.drop("t/rows.csv", local)
    assert "Uploads" not in client.list_multipart_uploads(Bucket=BUCKET)
    assert versions(client) == []


@pytest.mark.parametrize("single_bytes", [1024, 1])
def test_once_means_that_an_object_is_created_and_never_replaced(
    client: Interrupted, local: Path, single_bytes: int
) -> None:
    bucket = S3IngestBucket(client, BUCKET, single_bytes=single_bytes)  # type: ignore[arg-type]
    first = bucket.drop("t/once.csv", local, once=True)
    local.write_bytes(b"a,b\n3,4\n5,6\n")
    assert bucket.drop("t/once.csv", local, once=True) == first
    assert len(versions(client)) == 1
    assert bucket.drop("t/once.csv", local) != first


def test_an_object_that_is_deleted_meanwhile_is_created_after_all(
    client: Interrupted, bucket: S3IngestBucket, local: Path
) -> None:
    bucket.drop("t/once.csv", local)

    def deleted_first(head: Callable[[], Any]) -> Any:
        del client.instead["head_object"]
        client.delete_object(Bucket=BUCKET, Key="t/once.csv")
        return head()

    client.instead["head_object"] = deleted_first
    source = bucket.drop("t/once.csv", local, once=True)
    assert source.version in versions(client)


def test_a_bucket_that_does_not_say_what_is_there_is_unavailable(
    client: Interrupted, bucket: S3IngestBucket, local: Path
) -> None:
    bucket.drop("t/once.csv", local)

    def fail(head: Callable[[], Any]) -> Any:
        raise ConnectionClosedError(endpoint_url="s3")

    client.instead["head_object"] = fail
    with pytest.raises(UnavailableError):
        bucket.drop("t/once.csv", local, once=True)


def test_once_means_the_same_of_the_inbox_of_a_folder(local: Path, tmp_path: Path) -> None:
    with database_in(tmp_path / "mice") as database:
        inbox = Inbox(tmp_path / "inbox", database, FakeClock())
        first = inbox.drop("t/once.csv", local, once=True)
        local.write_bytes(b"a,b\n3,4\n5,6\n")
        assert inbox.drop("t/once.csv", local, once=True) == first
        assert inbox.drop("t/once.csv", local) != first
        assert [source.size_bytes for source in inbox.list("t/", since_ms=0)] == [12]
