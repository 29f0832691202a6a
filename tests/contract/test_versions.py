"""What a versioned bucket keeps of deleted objects is found, read as it was, and brought back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from dormouse.aws.storage import S3Storage
from dormouse.errors import NotFoundError, ServiceRefusedError
from tests.contract.mocked_aws import mocked_aws, s3_bucket

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Client]:
    with mocked_aws(monkeypatch):
        yield s3_bucket("data", versioned=True)


@pytest.fixture
def storage(client: S3Client) -> S3Storage:
    return S3Storage(client, "data")


def read(storage: S3Storage) -> dict[str, bytes]:
    """Return what is kept of earlier objects."""
    return {
        found.stored.path: found.storage.open(found.stored.path, found.stored.size_bytes).read()
        for found in storage.list_noncurrent("t/data/")
    }


def expire_after(client: S3Client, days: int, status: str = "Enabled") -> None:
    rule = {
        "ID": "earlier",
        "Status": status,
        "Filter": {"Prefix": ""},
        "NoncurrentVersionExpiration": {"NoncurrentDays": days},
    }
    client.put_bucket_lifecycle_configuration(
        Bucket="data",
        LifecycleConfiguration={"Rules": [rule]},  # type: ignore[list-item]
    )


def test_what_was_deleted_or_replaced_is_found_below_the_prefix_and_nothing_else(
    storage: S3Storage,
) -> None:
    for path in ("t/data/a", "t/data/b", "t/data/c", "t/state/a", "t1/data/a"):
        storage.put(path, f"first {path}".encode())
    assert read(storage) == {}
    storage.delete(["t/data/a", "t/data/b", "t/state/a", "t1/data/a"])
    storage.put("t/data/b", b"another")
    assert read(storage) == {"t/data/a": b"first t/data/a", "t/data/b": b"first t/data/b"}
    assert storage.get("t/data/b") == b"another"


def test_an_object_of_which_many_versions_are_kept_is_found_as_often(
    client: S3Client, storage: S3Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        storage.put("t/data/a", str(number).encode())
        storage.delete(["t/data/a"])
    found = [
        (each.stored.path, each.storage.open("t/data/a", 1))
        for each in storage.list_noncurrent("t/")
    ]
    assert sorted(opened.read() for _, opened in found) == [b"0", b"1", b"2"]


def test_a_bucket_without_versions_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with mocked_aws(monkeypatch):
        storage = S3Storage(s3_bucket("data"), "data")
        storage.put("t/data/a", b"a")
        storage.put("t/data/b", b"b")
        storage.delete(["t/data/a"])
        assert list(storage.list_noncurrent("t/")) == []


def test_a_version_that_expired_since_it_was_listed_is_gone_and_not_damaged(
    client: S3Client, storage: S3Storage
) -> None:
    storage.put("t/data/a", b"a")
    storage.delete(["t/data/a"])
    (found,) = storage.list_noncurrent("t/")
    for version in client.list_object_versions(Bucket="data")["Versions"]:
        client.delete_object(Bucket="data", Key="t/data/a", VersionId=version["VersionId"])
    with pytest.raises(NotFoundError):
        found.storage.open("t/data/a", 1).read()


def test_how_long_it_is_kept_is_what_the_bucket_says_counted_from_the_deletion(
    client: S3Client, storage: S3Storage
) -> None:
    storage.put("t/data/a", b"a")
    storage.delete(["t/data/a"])
    (for_good,) = storage.list_noncurrent("t/")
    assert for_good.until_ms is None
    expire_after(client, 30)
    (found,) = storage.list_noncurrent("t/")
    (marker,) = client.list_object_versions(Bucket="data")["DeleteMarkers"]
    assert found.until_ms is not None
    ends = datetime.fromtimestamp(found.until_ms / 1000, UTC)
    assert abs(ends - marker["LastModified"] - timedelta(days=31)) < timedelta(seconds=1)
    expire_after(client, 30, "Disabled")
    (for_good,) = storage.list_noncurrent("t/")
    assert for_good.until_ms is None


def test_a_server_that_has_no_versions_or_no_rules_keeps_nothing_or_says_not_for_how_long(
    client: S3Client, storage: S3Storage
) -> None:
    """Not every server has these requests; another refusal is none of that kind."""
    storage.put("t/data/a", b"a")
    storage.delete(["t/data/a"])
    events: Any = client.meta.events

    def refusing(code: str, status: int) -> Callable[..., None]:
        def refuse(model: Any, **_: object) -> None:
            said = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
            raise ClientError(said, model.name)  # type: ignore[arg-type]  # as much as is read

        return refuse

    lacking, forbidden = refusing("NotImplemented", 501), refusing("AccessDenied", 403)
    events.register("before-call.s3.GetBucketLifecycleConfiguration", lacking)
    (found,) = storage.list_noncurrent("t/")
    assert found.until_ms is None
    events.register("before-call.s3.ListObjectVersions", lacking)
    assert list(storage.list_noncurrent("t/")) == []
    events.unregister("before-call.s3.ListObjectVersions", lacking)
    events.register("before-call.s3.ListObjectVersions", forbidden)
    with pytest.raises(ServiceRefusedError, match="AccessDenied"):
        list(storage.list_noncurrent("t/"))
