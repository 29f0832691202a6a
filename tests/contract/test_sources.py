"""What the ingest bucket promises the stages: in memory, in a folder, on S3 with and without
versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from dormouse.aws import storage
from dormouse.aws.storage import S3Sources
from dormouse.errors import RefusedSourceError, UnavailableError
from dormouse.folder.inbox import Inbox
from dormouse.ports import Sources, StoppedError
from dormouse.state.sources import Source
from tests.contract.folders import database_in
from tests.contract.mocked_aws import mocked_aws, s3_bucket
from tests.support.adapters import FakeClock, MemorySources
from tests.support.stray_objects import FILES, STRAYS

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class Bucket(Protocol):
    """An ingest bucket that can be changed from outside."""

    @property
    def sources(self) -> Sources:
        """What the stages see of it."""

    def drop(self, key: str, body: bytes) -> Source:
        """Put an object; return the source its notification names."""

    def remove(self, key: str) -> None:
        """Delete an object."""


@dataclass
class InMemory:
    sources: MemorySources

    def drop(self, key: str, body: bytes) -> Source:
        return self.sources.drop(key, body)

    def remove(self, key: str) -> None:
        del self.sources.objects[key]


@dataclass
class InFolder:
    root: Path
    sources: Inbox

    def drop(self, key: str, body: bytes) -> Source:
        if key.endswith("/"):  # how S3 stands for an empty folder
            (self.root / key).mkdir(parents=True)
            return Source(self.sources.name, key, "", 0)
        with NamedTemporaryFile() as local:
            local.write(body)
            local.flush()
            return self.sources.drop(key, Path(local.name))

    def remove(self, key: str) -> None:
        (self.root / key).unlink()


@dataclass
class OnS3:
    client: S3Client
    sources: S3Sources

    def drop(self, key: str, body: bytes) -> Source:
        answer = self.client.put_object(Bucket="ingest", Key=key, Body=body)
        etag, version = answer["ETag"].strip('"'), answer.get("VersionId", "")
        return Source("ingest", key, etag, len(body), version)

    def remove(self, key: str) -> None:
        self.client.delete_object(Bucket="ingest", Key=key)


@pytest.fixture
def on_s3(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[OnS3]:
    with mocked_aws(monkeypatch):
        client = s3_bucket("ingest", versioned=getattr(request, "param", False))
        yield OnS3(client, S3Sources(client, "ingest"))


@pytest.fixture(params=["memory", "folder", "s3", "versioned s3"])
def bucket(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bucket]:
    if request.param == "memory":
        yield InMemory(MemorySources(FakeClock()))
        return
    if request.param == "folder":
        with database_in(tmp_path / "mice") as database:
            yield InFolder(root := tmp_path / "inbox", Inbox(root, database, FakeClock()))
        return
    with mocked_aws(monkeypatch):
        client = s3_bucket("ingest", versioned=request.param == "versioned s3")
        yield OnS3(client, S3Sources(client, "ingest"))


def listed(bucket: Bucket, table_name: str = "t") -> list[Source]:
    return list(bucket.sources.list(f"{table_name}/", since_ms=0))


def test_a_source_is_downloaded_as_it_was_dropped(bucket: Bucket, tmp_path: Path) -> None:
    source = bucket.drop("t/ü b+c.csv", b"\x00rows\xff")
    bucket.sources.download(source, tmp_path / "local")
    assert (tmp_path / "local").read_bytes() == b"\x00rows\xff"


def test_a_listing_and_a_notification_mean_the_same_source(bucket: Bucket, tmp_path: Path) -> None:
    notified = bucket.drop("t/a.csv", b"rows")
    (found,) = listed(bucket)
    assert found.id == notified.id
    assert (found.key, found.size_bytes) == ("t/a.csv", 4)
    bucket.sources.download(found, tmp_path / "local")
    assert (tmp_path / "local").read_bytes() == b"rows"


def test_the_same_content_dropped_again_is_the_same_source(bucket: Bucket) -> None:
    assert bucket.drop("t/a.csv", b"rows").id == bucket.drop("t/a.csv", b"rows").id
    assert bucket.drop("t/a.csv", b"rows").id != bucket.drop("t/a.csv", b"more").id


def test_a_listing_holds_the_newest_of_each_key_of_just_one_table(bucket: Bucket) -> None:
    for key in ("t/b.csv", "t/a/a.csv", "tt/a.csv", "t.csv", "t/folder/", "t/gone.csv"):
        bucket.drop(key, b"rows")
    bucket.drop("t/b.csv", b"newer rows")
    bucket.remove("t/gone.csv")
    assert [(s.key, s.size_bytes) for s in listed(bucket)] == [("t/a/a.csv", 4), ("t/b.csv", 10)]
    assert listed(bucket, "none") == []


def test_a_listing_has_files_alone_by_what_lies_below_the_folder_that_is_named(
    bucket: Bucket,
) -> None:
    for name in (*STRAYS, *FILES):
        bucket.drop(f"t/{name}", b"rows")
    assert [source.key for source in listed(bucket)] == sorted(f"t/{name}" for name in FILES)
    named = bucket.sources.list("t/_temporary/0/", since_ms=0)
    assert [each.key for each in named] == ["t/_temporary/0/task_0_m_0/p=1/part-0.csv"]


def test_objects_dropped_before_the_given_time_are_left_out(bucket: Bucket) -> None:
    bucket.drop("t/a.csv", b"rows")
    year_3000_ms = 32_503_680_000_000
    assert list(bucket.sources.list("t/", since_ms=year_3000_ms)) == []


def test_an_object_dropped_in_the_given_second_is_listed_although_s3_rounds_its_time_down(
    on_s3: OnS3,
) -> None:
    on_s3.drop("t/a.csv", b"rows")
    (stored,) = on_s3.client.list_objects_v2(Bucket="ingest")["Contents"]
    second_ms = int(stored["LastModified"].timestamp()) * 1000
    at_its_end, after_it = (
        [source.key for source in on_s3.sources.list("t/", since_ms=second_ms + more_ms)]
        for more_ms in (999, 1000)
    )
    assert (at_its_end, after_it) == (["t/a.csv"], [])


def test_a_listing_found_content_overwritten_since_is_refused(
    bucket: Bucket, tmp_path: Path
) -> None:
    bucket.drop("t/a.csv", b"rows")
    (found,) = listed(bucket)
    bucket.drop("t/a.csv", b"other rows")
    with pytest.raises(RefusedSourceError, match="'t/a.csv' was overwritten"):
        bucket.sources.download(found, tmp_path / "local")


def test_a_source_deleted_since_it_was_listed_is_refused(bucket: Bucket, tmp_path: Path) -> None:
    bucket.drop("t/a.csv", b"rows")
    (found,) = listed(bucket)
    bucket.remove("t/a.csv")
    with pytest.raises(RefusedSourceError, match="'t/a.csv'"):
        bucket.sources.download(found, tmp_path / "local")


def test_what_a_job_names_in_another_bucket_is_not_read_for_it(
    bucket: Bucket, tmp_path: Path
) -> None:
    """As a shard of another table, which the function may read and the sender may not."""
    source = replace(bucket.drop("t/a.csv", b"rows"), bucket="data")
    with pytest.raises(RefusedSourceError, match="not in the ingest bucket"):
        bucket.sources.download(source, tmp_path / "local")
    assert not (tmp_path / "local").exists()


def test_a_shard_of_another_table_cannot_be_had_by_a_job_that_names_it(
    on_s3: OnS3, tmp_path: Path
) -> None:
    on_s3.client.create_bucket(Bucket="data")
    etag = on_s3.client.put_object(Bucket="data", Key="other/data/1.parquet", Body=b"rows")["ETag"]
    shard = Source("data", "other/data/1.parquet", etag.strip('"'), 4)
    with pytest.raises(RefusedSourceError, match="not in the ingest bucket"):
        on_s3.sources.download(shard, tmp_path / "local")


@pytest.mark.parametrize("on_s3", [True], indirect=True)
def test_a_notified_version_outlives_being_overwritten_and_deleted(
    on_s3: OnS3, tmp_path: Path
) -> None:
    source = on_s3.drop("t/a.csv", b"rows")
    on_s3.drop("t/a.csv", b"other rows")
    on_s3.remove("t/a.csv")
    on_s3.sources.download(source, tmp_path / "local")
    assert (tmp_path / "local").read_bytes() == b"rows"


@pytest.mark.parametrize("on_s3", [True], indirect=True)
def test_a_version_deleted_for_good_is_refused(on_s3: OnS3, tmp_path: Path) -> None:
    source = on_s3.drop("t/a.csv", b"rows")
    on_s3.drop("t/a.csv", b"other rows")
    on_s3.client.delete_object(Bucket="ingest", Key="t/a.csv", VersionId=source.version)
    with pytest.raises(RefusedSourceError, match="'t/a.csv' was deleted"):
        on_s3.sources.download(source, tmp_path / "local")


@pytest.mark.parametrize("code", ["NoSuchKey", "NoSuchVersion", "MethodNotAllowed"])
def test_a_source_of_which_a_marker_is_left_or_nothing_is_refused_and_not_tried_for_ever(
    on_s3: OnS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    source = on_s3.drop("t/a.csv", b"rows")

    def gone(*_: object, **__: object) -> object:
        raise ClientError({"Error": {"Code": code, "Message": ""}}, "GetObject")

    monkeypatch.setattr(storage, "get_object", gone)
    with pytest.raises(RefusedSourceError, match="was deleted before it was ingested"):
        on_s3.sources.download(source, tmp_path / "local")


def test_an_archived_source_is_refused_and_keeps_no_other_from_being_ingested(
    on_s3: OnS3, tmp_path: Path
) -> None:
    source = on_s3.drop("t/a.csv", b"rows")
    on_s3.client.copy_object(
        Bucket="ingest", Key="t/a.csv", CopySource="ingest/t/a.csv", StorageClass="GLACIER"
    )
    with pytest.raises(RefusedSourceError, match="'t/a.csv' is archived"):
        on_s3.sources.download(replace(source, version=""), tmp_path / "local")


def test_a_listing_longer_than_a_page_is_whole(
    on_s3: OnS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "5")  # S3 has 1,000
    for number in range(11):
        on_s3.drop(f"t/{number:04}", b"")
    assert len(listed(on_s3)) == 11


def test_a_download_that_breaks_off_is_retried_a_bounded_number_of_times(
    on_s3: OnS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = on_s3.drop("t/a.csv", b"rows")
    breaks = [True, True, False]

    class Body:
        def read(self, _: int) -> bytes:
            if breaks and breaks.pop(0):
                raise ReadTimeoutError(endpoint_url="s3")
            return b""

    monkeypatch.setattr(on_s3.client, "get_object", lambda **_: {"Body": Body()})
    on_s3.sources.download(source, tmp_path / "local")
    breaks += [True] * 3
    with pytest.raises(UnavailableError):
        on_s3.sources.download(source, tmp_path / "local")


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few bytes be too many for one part."""
    monkeypatch.setattr(storage, "DOWNLOAD_PART_BYTES", 4)


def requested(on_s3: OnS3) -> list[str]:
    """Note the ranges of all requests for objects from now on."""
    ranges: list[str] = []
    events: Any = on_s3.client.meta.events
    events.register(
        "before-parameter-build.s3.GetObject",
        lambda params, **_: ranges.append(params.get("Range", "all")),
    )
    return ranges


@pytest.mark.parametrize("on_s3", [False, True], indirect=True)
@pytest.mark.usefixtures("in_parts")
def test_a_large_source_is_downloaded_in_parts(on_s3: OnS3, tmp_path: Path) -> None:
    source = on_s3.drop("t/a.csv", b"0123456789")
    ranges = requested(on_s3)
    on_s3.sources.download(source, tmp_path / "local")
    assert (tmp_path / "local").read_bytes() == b"0123456789"
    assert sorted(ranges) == ["bytes=0-3", "bytes=4-7", "bytes=8-9"]


def test_a_small_source_is_downloaded_by_one_request(on_s3: OnS3, tmp_path: Path) -> None:
    source = on_s3.drop("t/a.csv", b"0123456789")
    ranges = requested(on_s3)
    on_s3.sources.download(source, tmp_path / "local")
    assert ranges == ["all"]


def test_what_is_named_as_arrived_is_in_the_file_and_all_of_a_large_source_is_named(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "DOWNLOAD_PART_BYTES", 4)
    body, local = b"0123456789", tmp_path / "local"
    found: list[tuple[int, int]] = []

    def arrived(start: int, end: int) -> None:
        assert local.stat().st_size == len(body)
        assert local.read_bytes()[start:end] == body[start:end]
        found.append((start, end))

    bucket.sources.download(bucket.drop("t/a.csv", body), local, arrived)
    named = sorted(at for start, end in found for at in range(start, end))
    assert named in ([], list(range(len(body)))), "none of it, or all"
    assert bool(named) == isinstance(bucket, OnS3)


@pytest.mark.usefixtures("in_parts")
def test_the_end_of_a_large_source_is_requested_first(
    on_s3: OnS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There a Parquet file says where its rows are; its footer may begin in the part before."""
    monkeypatch.setattr(storage, "PARTS_AT_ONCE", 1)
    source = on_s3.drop("t/a.csv", b"0123456789abcd")
    ranges = requested(on_s3)
    on_s3.sources.download(source, tmp_path / "local")
    assert ranges == ["bytes=8-11", "bytes=12-13", "bytes=0-3", "bytes=4-7"]


@pytest.mark.usefixtures("in_parts")
def test_a_download_ends_when_nobody_wants_what_arrives(on_s3: OnS3, tmp_path: Path) -> None:
    source = on_s3.drop("t/a.csv", b"0123456789abcd")

    def arrived(start: int, end: int) -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        on_s3.sources.download(source, tmp_path / "local", arrived)


def test_a_small_source_is_used_when_its_checksum_was_compared(on_s3: OnS3, tmp_path: Path) -> None:
    source = on_s3.drop("t/a.csv", b"0123456789")
    on_s3.sources.download(source, tmp_path / "local", lambda start, end: pytest.fail("too early"))


@pytest.mark.usefixtures("in_parts")
def test_no_part_of_other_content_is_taken_for_a_large_source(on_s3: OnS3, tmp_path: Path) -> None:
    source = on_s3.drop("t/a.csv", b"0123456789")
    on_s3.drop("t/a.csv", b"9876543210")
    with pytest.raises(RefusedSourceError, match="'t/a.csv' was overwritten"):
        on_s3.sources.download(source, tmp_path / "local")
    on_s3.remove("t/a.csv")
    with pytest.raises(RefusedSourceError, match="'t/a.csv' was deleted"):
        on_s3.sources.download(source, tmp_path / "local")


@pytest.mark.parametrize("on_s3", [True], indirect=True)
@pytest.mark.usefixtures("in_parts")
def test_the_version_of_a_large_source_that_was_notified_is_downloaded(
    on_s3: OnS3, tmp_path: Path
) -> None:
    source = on_s3.drop("t/a.csv", b"0123456789")
    on_s3.drop("t/a.csv", b"9876543210")
    on_s3.remove("t/a.csv")
    on_s3.sources.download(source, tmp_path / "local")
    assert (tmp_path / "local").read_bytes() == b"0123456789"


def test_a_bucket_that_cannot_be_read_refuses_no_source(on_s3: OnS3, tmp_path: Path) -> None:
    source = replace(on_s3.drop("t/a.csv", b"rows"), bucket="elsewhere")
    with pytest.raises(UnavailableError, match="NoSuchBucket"):
        S3Sources(on_s3.client, "elsewhere").download(source, tmp_path / "local")
