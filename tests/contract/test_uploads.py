"""The upload of a file that is still being written, to whatever a data root is made of."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from hypothesis import given
from hypothesis import strategies as st

from dormouse.aws import uploads as s3_uploads
from dormouse.aws.storage import S3Storage
from dormouse.aws.uploads import FilePart
from dormouse.errors import (
    ContendedError,
    DormouseError,
    InvalidRequestError,
    InvariantError,
    OutcomeUnknownError,
    UnavailableError,
)
from dormouse.ports import Storage
from dormouse.shards.reading import audit_shard
from dormouse.storage import FolderStorage
from tests.contract.test_s3_storage import Wire
from tests.contract.test_shards_on_s3 import SCHEMA
from tests.support.memory_storage import PART_BYTES, MemoryStorage
from tests.support.small_blocks import write_small_blocks
from tests.support.tables import ShardTable

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

FILE = bytes(range(256)) * 11
"""Five and a half parts."""


@pytest.fixture(params=["folder", "memory", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "folder":
        return FolderStorage(tmp_path / "root")
    return MemoryStorage() if request.param == "memory" else request.getfixturevalue("on_s3")


@pytest.fixture(params=["memory", "s3"])
def distant(request: pytest.FixtureRequest) -> Storage:
    """A storage that gets parts of a file before the file is whole."""
    return MemoryStorage() if request.param == "memory" else request.getfixturevalue("on_s3")


@pytest.fixture
def local(tmp_path: Path) -> Path:
    return tmp_path / "local"


def on_its_way(storage: Storage, local: Path, path: str = "t/a") -> Any:
    """Return an upload of the first half of a file."""
    upload = storage.start_upload(path, local)
    with local.open("wb") as file:
        for start, end in ((0, 1), (1, 600), (600, 1500)):
            file.write(FILE[start:end])
            file.flush()
            upload.advance(end)
    return upload


def finish(local: Path) -> None:
    """Append the second half of the file."""
    with local.open("ab") as file:
        file.write(FILE[1500:])


def unfinished(storage: Storage, prefix: str = "") -> list[str]:
    return [upload.path for upload in storage.list_uploads(prefix)]


def test_an_object_is_there_whole_when_its_upload_is_complete_and_not_before(
    storage: Storage, local: Path
) -> None:
    upload = on_its_way(storage, local)
    assert list(storage.list("")) == []
    finish(local)
    assert upload.complete()
    assert storage.get("t/a") == FILE
    upload.abort()
    assert storage.get("t/a") == FILE
    assert unfinished(storage) == []


def test_an_upload_replaces_no_object_and_leaves_nothing(storage: Storage, local: Path) -> None:
    upload = on_its_way(storage, local)
    storage.put("t/a", b"of another")
    finish(local)
    assert not upload.complete()
    assert storage.get("t/a") == b"of another"
    assert unfinished(storage) == []


def test_an_aborted_upload_is_no_object_and_leaves_nothing(storage: Storage, local: Path) -> None:
    on_its_way(storage, local).abort()
    storage.start_upload("t/b", local).abort()
    assert list(storage.list("")) == unfinished(storage) == []


@pytest.mark.parametrize("path", ["", "../x", "t//a", "t\\a"])
def test_no_upload_is_started_to_an_ambiguous_path(
    storage: Storage, local: Path, path: str
) -> None:
    with pytest.raises(InvalidRequestError):
        storage.start_upload(path, local)


def test_what_a_crash_leaves_between_two_parts_is_listed_and_can_be_aborted(
    distant: Storage, local: Path
) -> None:
    for path in ("t/data/a", "u/data/a"):
        crashed = on_its_way(distant, local, path)
        if isinstance(crashed, s3_uploads.S3Upload) and crashed._parts is not None:
            crashed._parts._threads.shutdown()
    assert unfinished(distant, "t/data/") == ["t/data/a"]
    (left,) = distant.list_uploads("t/")
    distant.abort_uploads([left])
    distant.abort_uploads([left])
    assert unfinished(distant) == ["u/data/a"]
    assert list(distant.list("")) == []


def test_an_unfinished_upload_says_when_it_was_begun(
    client: S3Client, on_s3: S3Storage, local: Path
) -> None:
    client.put_object(Bucket="data", Key="clock", Body=b"")
    now_ms = next(on_s3.list("clock")).modified_ms
    on_its_way(on_s3, local)._parts._threads.shutdown()
    (left,) = on_s3.list_uploads("t/")
    assert now_ms - 1000 <= left.started_ms <= now_ms + 600_000


# ---- what only S3 can do wrong ----


@dataclass
class Requests:
    """The requests that went out, with their parameters."""

    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def see(self, params: dict[str, Any], model: Any, **_: object) -> None:
        self.sent.append((model.name, params))

    def of(self, operation: str) -> list[dict[str, Any]]:
        return [params for name, params in self.sent if name == operation]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.sent]


@pytest.fixture
def requests(client: S3Client) -> Requests:
    requests = Requests()
    client.meta.events.register("provide-client-params.s3", requests.see)
    return requests


def answering(client: S3Client, operation: str, *answers: tuple[int, str]) -> None:
    """Answer the next requests of an operation with these, instead of S3."""
    wire = Wire(answers=[*answers])

    def before_send(request: AWSPreparedRequest, **_: object) -> AWSResponse | None:
        return wire.before_send(request) if wire.answers else None

    events: Any = client.meta.events
    events.register_first(f"before-send.s3.{operation}", before_send)


def test_parts_are_sent_while_the_file_grows_and_a_part_is_no_more_than_was_final(
    on_s3: S3Storage, requests: Requests, local: Path
) -> None:
    upload = on_its_way(on_s3, local)
    upload._parts._threads.shutdown()
    assert requests.names == ["CreateMultipartUpload", "UploadPart", "UploadPart"]
    assert sorted(part["PartNumber"] for part in requests.of("UploadPart")) == [1, 2]
    assert [part.exception() for part in upload._parts._sent] == [None, None]


def test_a_shard_that_came_in_parts_is_the_shard_that_was_written(
    on_s3: S3Storage, requests: Requests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_small_blocks(monkeypatch, 64)
    table = ShardTable(on_s3, SCHEMA, tmp_path)
    table.add([{"k": k, "v": f"v{k}"} for k in range(1000)])
    assert len(requests.of("UploadPart")) > 5
    assert [row["k"] for row in table.rows()] == list(range(1000))
    (stored,) = on_s3.list("")
    audit_shard(on_s3, stored.path, stored.size_bytes)


def test_a_file_of_one_part_is_put_in_one_request(
    on_s3: S3Storage, requests: Requests, local: Path
) -> None:
    local.write_bytes(FILE[: PART_BYTES + 100])
    upload = on_s3.start_upload("t/a", local)
    upload.advance(PART_BYTES)
    assert upload.complete()
    assert requests.names == ["PutObject"]
    assert requests.of("PutObject")[0]["IfNoneMatch"] == "*"


def test_s3_gets_the_crc_of_each_part_the_size_of_all_and_the_condition(
    on_s3: S3Storage, requests: Requests, local: Path
) -> None:
    upload = on_its_way(on_s3, local)
    finish(local)
    assert upload.complete()
    (begun,) = requests.of("CreateMultipartUpload")
    assert begun["ChecksumAlgorithm"] == "CRC32"
    (done,) = requests.of("CompleteMultipartUpload")
    assert done["IfNoneMatch"] == "*"
    assert done["MpuObjectSize"] == len(FILE)
    bodies = [FILE[start : start + PART_BYTES] for start in range(0, len(FILE), PART_BYTES)]
    named = [(p["PartNumber"], p["ChecksumCRC32"]) for p in done["MultipartUpload"]["Parts"]]
    assert named == [(n, in_base64(body)) for n, body in enumerate(bodies, start=1)]
    sent = sorted((p["PartNumber"], p["ChecksumCRC32"]) for p in requests.of("UploadPart"))
    assert sent == named


def in_base64(body: bytes) -> str:
    return b64encode(crc32(body).to_bytes(4, "big")).decode()


@pytest.mark.parametrize("answer", [(409, "ConditionalRequestConflict"), (404, "NoSuchUpload")])
def test_an_upload_that_conflicts_or_is_gone_begins_again_from_the_start_of_the_file(
    client: S3Client, on_s3: S3Storage, local: Path, answer: tuple[int, str]
) -> None:
    upload = on_its_way(on_s3, local)
    answering(client, "CompleteMultipartUpload", answer)
    finish(local)
    assert upload.complete()
    assert on_s3.get("t/a") == FILE
    assert unfinished(on_s3) == []


def test_an_upload_that_always_conflicts_with_others_raises_and_leaves_nothing(
    client: S3Client, on_s3: S3Storage, local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_uploads, "MAX_PUT_BYTES", 0)
    answering(client, "CompleteMultipartUpload", *[(409, "ConditionalRequestConflict")] * 100)
    local.write_bytes(FILE)
    with pytest.raises(ContendedError):
        on_s3.upload("t/a", local)
    assert list(on_s3.list("")) == unfinished(on_s3) == []


@pytest.mark.parametrize("operation", ["CreateMultipartUpload", "UploadPart"])
def test_a_part_that_cannot_be_sent_ends_the_upload_and_leaves_nothing(
    client: S3Client, on_s3: S3Storage, local: Path, operation: str
) -> None:
    answering(client, operation, *[(403, "AccessDenied")] * 9)
    local.write_bytes(FILE)
    upload = on_s3.start_upload("t/a", local)
    with pytest.raises(UnavailableError, match="AccessDenied"):
        try:
            upload.advance(len(FILE))
            upload.complete()
        finally:
            upload.abort()
    assert list(on_s3.list("")) == unfinished(on_s3) == []


def test_an_error_of_a_part_ends_the_writing_before_the_file_is_whole(
    client: S3Client, on_s3: S3Storage, local: Path
) -> None:
    answering(client, "UploadPart", (403, "AccessDenied"))
    local.write_bytes(FILE)
    upload = on_s3.start_upload("t/a", local)
    with pytest.raises(DormouseError):
        upload.advance(2 * PART_BYTES)
        [part.exception() for part in upload._parts._sent]  # type: ignore[attr-defined]
        upload.advance(2 * PART_BYTES)
    upload.abort()


def test_a_completion_without_an_answer_may_have_landed_and_its_parts_are_deleted_if_not(
    client: S3Client, on_s3: S3Storage, local: Path
) -> None:
    upload = on_its_way(on_s3, local)
    answering(client, "CompleteMultipartUpload", *[(500, "InternalError")] * 9)
    finish(local)
    with pytest.raises(OutcomeUnknownError, match="InternalError"):
        upload.complete()
    assert list(on_s3.list("")) == unfinished(on_s3) == []


def test_an_upload_that_cannot_be_aborted_is_left_to_the_audit_and_hides_no_other_error(
    client: S3Client, on_s3: S3Storage, local: Path, caplog: pytest.LogCaptureFixture
) -> None:
    upload = on_its_way(on_s3, local)
    answering(client, "CompleteMultipartUpload", (403, "NotCompleted"))
    answering(client, "AbortMultipartUpload", (403, "NotAborted"))
    finish(local)
    with pytest.raises(UnavailableError, match="NotCompleted"):
        upload.complete()
    assert "NotAborted" in caplog.text
    assert unfinished(on_s3) == ["t/a"]


def test_a_part_that_is_not_in_the_file_is_not_sent(
    on_s3: S3Storage, requests: Requests, local: Path
) -> None:
    upload = on_its_way(on_s3, local)
    with pytest.raises(InvariantError, match="ends before"):
        try:
            upload.advance(len(FILE))
            upload.complete()
        finally:
            upload.abort()
    assert len(requests.of("UploadPart")) == 2
    assert list(on_s3.list("")) == unfinished(on_s3) == []


def test_a_whole_file_larger_than_one_request_takes_goes_in_parts(
    on_s3: S3Storage, requests: Requests, local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_uploads, "MAX_PUT_BYTES", len(FILE) - 1)
    local.write_bytes(FILE)
    assert on_s3.upload("t/a", local)
    assert on_s3.get("t/a") == FILE
    assert len(requests.of("UploadPart")) == 6


def test_a_file_of_more_parts_than_s3_takes_is_refused_and_leaves_nothing(
    on_s3: S3Storage, local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_uploads, "MAX_PARTS", 2)
    monkeypatch.setattr(s3_uploads, "MAX_PUT_BYTES", 0)
    local.write_bytes(FILE)
    with pytest.raises(InvalidRequestError, match="2 parts"):
        on_s3.upload("t/a", local)
    assert list(on_s3.list("")) == unfinished(on_s3) == []


def test_no_part_is_in_memory_as_a_whole(on_s3: S3Storage, requests: Requests, local: Path) -> None:
    upload = on_its_way(on_s3, local)
    finish(local)
    upload.complete()
    assert {type(part["Body"]) for part in requests.of("UploadPart")} == {FilePart}


@given(
    st.binary(max_size=40),
    st.integers(0, 40),
    st.integers(0, 40),
    st.lists(
        st.tuples(st.sampled_from([0, 1, 2]), st.integers(-5, 45), st.integers(-1, 20)), max_size=5
    ),
)
def test_a_part_of_a_file_reads_as_a_file_of_its_own(
    tmp_path_factory: pytest.TempPathFactory,
    content: bytes,
    start: int,
    size_bytes: int,
    steps: list[tuple[int, int, int]],
) -> None:
    local = tmp_path_factory.mktemp("part") / "local"
    local.write_bytes(content)
    wanted = content[start : start + size_bytes]
    with FilePart(local, start, len(wanted)) as part:
        assert part.read() == wanted
        for whence, offset, size in steps:
            base = {0: 0, 1: part.tell(), 2: len(wanted)}[whence]
            at = base + offset
            if at < 0:
                with pytest.raises(ValueError, match="cannot seek"):
                    part.seek(offset, whence)
                continue
            assert part.seek(offset, whence) == at == part.tell()
            end = None if size < 0 else at + size
            assert part.read(size) == wanted[at:end]
