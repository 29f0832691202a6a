"""The local S3 of the benchmarks answers as S3 does, after a while, and counts what it is asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

from bench.s3 import DATA, SOURCES, Link, LocalS3, Server, local_s3
from dormouse.aws.clients import code_of
from dormouse.errors import CorruptDataError, NotFoundError, RefusedSourceError
from dormouse.state.sources import Source

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PART_BYTES = 5 * 1024**2


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalS3]:
    with local_s3(tmp_path_factory.mktemp("s3")) as started:
        yield started


@pytest.fixture
def s3(started: LocalS3) -> LocalS3:
    """One server for all tests, which begin with no counts and no objects."""
    storage = started.storage
    storage.delete([each.path for each in storage.list("")])
    started.counts()
    return started


def code(error: pytest.ExceptionInfo[ClientError]) -> str:
    return code_of(error.value)


def test_a_second_put_does_not_replace_the_object(s3: LocalS3) -> None:
    assert s3.storage.put("t/a b+ü", b"first")
    assert not s3.storage.put("t/a b+ü", b"second")
    assert s3.storage.get("t/a b+ü") == b"first"


def test_a_range_is_read_and_counted_and_nothing_else(s3: LocalS3, tmp_path: Path) -> None:
    body = bytes(range(256)) * 4000
    (tmp_path / "file").write_bytes(body)
    assert s3.storage.upload("t/a", tmp_path / "file")
    with s3.storage.open("t/a", len(body)) as opened:
        opened.seek(300_000)
        assert opened.read(500_000) == body[300_000:800_000]
        opened.seek(-10, 2)
        assert opened.read() == body[-10:]
    counts = s3.counts()
    cpu_seconds = counts.pop("server_cpu_seconds")
    assert cpu_seconds >= 0
    assert counts == {"PutObject": 1, "GetObject": 2, "sent_bytes": 500_010, "in_flight_at_once": 1}
    assert set(s3.counts()) == {"server_cpu_seconds"}


def test_what_is_not_there_or_of_another_size_is_an_error(s3: LocalS3) -> None:
    s3.storage.put("t/a", b"12345")
    with pytest.raises(NotFoundError):
        s3.storage.get("t/b")
    for size_bytes in (4, 6, 600):
        with pytest.raises(CorruptDataError), s3.storage.open("t/a", size_bytes) as opened:
            opened.seek(size_bytes - 1)
            opened.read(1)


def test_objects_are_listed_in_order(s3: LocalS3) -> None:
    for key in ("u/1", "t/ü", "t/b/2", "t/b/1", "t/a&"):
        s3.storage.put(key, key.encode())
    assert [each.path for each in s3.storage.list("t/")] == ["t/a&", "t/b/1", "t/b/2", "t/ü"]


def test_deleted_objects_are_gone(s3: LocalS3) -> None:
    for key in ("v/a&", "v/b"):
        s3.storage.put(key, b"x")
    s3.storage.delete(["v/a&", "v/c"])
    assert [each.path for each in s3.storage.list("")] == ["v/b"]


def test_a_source_is_downloaded_unless_it_was_replaced(s3: LocalS3, tmp_path: Path) -> None:
    (s3.folder / SOURCES / "f.parquet").write_bytes(b"rows")
    (found,) = s3.sources.list("", since_ms=0)
    s3.sources.download(found, tmp_path / "local")
    assert (tmp_path / "local").read_bytes() == b"rows"
    replaced = Source(found.bucket, found.key, "another", found.size_bytes)
    with pytest.raises(RefusedSourceError):
        s3.sources.download(replaced, tmp_path / "local")


def upload(client: S3Client, key: str, sizes: list[int]) -> tuple[str, list[dict[str, object]]]:
    """Send parts of these sizes, the later ones first, and return the upload and its parts."""
    upload = client.create_multipart_upload(Bucket=DATA, Key=key)["UploadId"]
    parts: list[dict[str, object]] = []
    for number, size_bytes in reversed([*enumerate(sizes, start=1)]):
        body = bytes([number]) * size_bytes
        answer = client.upload_part(
            Bucket=DATA, Key=key, UploadId=upload, PartNumber=number, Body=body
        )
        parts.insert(0, {"PartNumber": number, "ETag": answer["ETag"]})
    return upload, parts


def complete(client: S3Client, key: str, upload: str, parts: list[dict[str, object]]) -> None:
    client.complete_multipart_upload(
        Bucket=DATA,
        Key=key,
        UploadId=upload,
        MultipartUpload={"Parts": parts},  # type: ignore[typeddict-item]
        IfNoneMatch="*",
    )


def test_parts_become_one_object_if_there_is_none_yet(s3: LocalS3) -> None:
    client = s3.client()
    began, parts = upload(client, "t/a", [PART_BYTES, PART_BYTES, 7])
    assert not [*s3.storage.list("")], "parts are no object"
    complete(client, "t/a", began, parts)
    whole = s3.storage.get("t/a")
    assert whole == b"\1" * PART_BYTES + b"\2" * PART_BYTES + b"\3" * 7
    another, parts = upload(client, "t/a", [3])
    with pytest.raises(ClientError) as refused:
        complete(client, "t/a", another, parts)
    assert code(refused) == "PreconditionFailed"
    assert s3.storage.get("t/a") == whole


def test_what_the_server_cannot_do_is_refused(s3: LocalS3) -> None:
    client = s3.client()
    for ask in (
        lambda: client.list_object_versions(Bucket=DATA),
        lambda: client.list_objects_v2(Bucket=DATA, Delimiter="/"),
        lambda: client.copy_object(Bucket=DATA, Key="t/b", CopySource=f"{DATA}/t/a"),
    ):
        with pytest.raises(ClientError) as refused:
            ask()
        assert code(refused) == "NotImplemented"


def test_each_answer_waits_and_bytes_pass_at_the_rate_of_their_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: LocalS3
) -> None:
    pauses: list[float] = []
    (tmp_path / DATA).mkdir()
    with Server(tmp_path, 30, 75, pauses.append) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.endpoint)
        started.storage.put("a", b"x" * 100_000)
        server.shutdown()
    alone, in_all, before_answer = pauses
    assert before_answer == 0.03
    assert alone == pytest.approx(100_000 / 80e6)
    assert in_all == pytest.approx(100_000 / 75e6)


def test_what_passes_a_link_waits_for_what_passes_it_before() -> None:
    pauses: list[float] = []
    link = Link(1, pauses.append)
    for _ in range(3):
        link.pass_on(10_000_000)
    assert [round(pause, -1) for pause in pauses] == [10, 20, 30]
    Link(0, pauses.append).pass_on(10**9)
    assert len(pauses) == 3, "without a limit nothing waits"


def test_the_most_requests_in_flight_at_once_are_counted(tmp_path: Path) -> None:
    with Server(tmp_path, 0, 0) as server:
        with server.one("GetObject"), server.one("GetObject"), server.one("GetObject"):
            pass
        with server.one("GetObject"):
            pass
        assert server.taken() == {"GetObject": 4, "in_flight_at_once": 3}
