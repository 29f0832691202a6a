"""Store a local file as an object, once: in one request, or in parts while it is being written.

Order of requests in parts: CreateMultipartUpload, an UploadPart for each part, and
CompleteMultipartUpload with ``If-None-Match: *``, which alone creates the object. A crash before it
leaves an upload that is no object; a failure aborts it. What neither aborts, the audit of `sweep`
does, and a lifecycle rule of the bucket.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from botocore.exceptions import BotoCoreError, ClientError

from dormouse import errors
from dormouse.aws.clients import (
    PRECONDITION_FAILED,
    ConditionFailedError,
    client,
    code_of,
    presigning_client,
    reading,
    writing,
)
from dormouse.state.sources import Source
from dormouse.storage import SeekableFile
from dormouse.stored.checksums import crc32
from dormouse.stored.paths import InstanceNames

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef, CompleteMultipartUploadOutputTypeDef


# The requests of a multipart upload; each part is read from a local file, with its CRC-32.
#
# S3 refuses a part whose bytes differ from its CRC, and a completion that names other parts than it
# has. The object exists when the upload is completed, and not before.

MAX_PARTS = 10_000
NO_SUCH_UPLOAD = "NoSuchUpload"
"""The error code of S3 for an upload that was completed or aborted before."""
READ_BYTES = 1024 * 1024
"""How much of a part is in memory while its CRC is computed; sending it takes less."""


@dataclass(frozen=True, slots=True)
class MultipartUpload:
    """A multipart upload that was begun. Failures are raised as those of the SDK."""

    client: S3Client
    bucket: str
    key: str
    id: str

    @staticmethod
    def begin(client: S3Client, bucket: str, key: str) -> MultipartUpload:
        """Begin an upload whose parts have CRCs."""
        answer = client.create_multipart_upload(Bucket=bucket, Key=key, ChecksumAlgorithm="CRC32")
        return MultipartUpload(client, bucket, key, answer["UploadId"])

    def put_part(
        self, number: int, local: Path, start: int, size_bytes: int
    ) -> CompletedPartTypeDef:
        """Send some bytes of a local file as a part; return what the completion says of it."""
        with FilePart(local, start, size_bytes) as part:
            checksum = part.checksum()
            answer = self.client.upload_part(
                Bucket=self.bucket,
                Key=self.key,
                UploadId=self.id,
                PartNumber=number,
                Body=cast(BinaryIO, part),
                ChecksumCRC32=checksum,
            )
        return {"PartNumber": number, "ETag": whole_etag(answer), "ChecksumCRC32": checksum}

    def complete(
        self, parts: Sequence[CompletedPartTypeDef], size_bytes: int, condition: Mapping[str, Any]
    ) -> CompleteMultipartUploadOutputTypeDef:
        """Make an object of the parts, which have `size_bytes`, if the condition holds."""
        return self.client.complete_multipart_upload(
            Bucket=self.bucket,
            Key=self.key,
            UploadId=self.id,
            MultipartUpload={"Parts": parts},
            MpuObjectSize=size_bytes,
            **condition,
        )

    def abort(self) -> None:
        """Delete the parts, unless the upload was completed or aborted before.

        Requires: no part is being sent; S3 may keep a part that arrives later.
        """
        try:
            self.client.abort_multipart_upload(Bucket=self.bucket, Key=self.key, UploadId=self.id)
        except ClientError as error:
            if code_of(error) != NO_SUCH_UPLOAD:
                raise


class FilePart(SeekableFile):
    """Some bytes of a local file as a file of their own, so that a request need not hold them."""

    def __init__(self, local: Path, start: int, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self._file = local.open("rb")
        self._start = start

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read up to the end of the part."""
        view = memoryview(buffer).cast("B")
        self._file.seek(self._start + self._at)
        count = self._file.readinto(view[: max(0, self._size_bytes - self._at)])
        self._at += count
        return count

    def close(self) -> None:
        """Close the local file."""
        self._file.close()
        super().close()

    def checksum(self) -> str:
        """Return the part's CRC-32 as S3 has it, and go to its start. Raises InvariantError."""
        self.seek(0)
        crc = 0
        while chunk := self.read(READ_BYTES):
            crc = crc32(chunk, crc)
        if self._at != self._size_bytes:
            raise errors.InvariantError(
                f"{self._file.name} ends before byte {self._start + self._size_bytes}"
            )
        self.seek(0)
        return b64encode(crc.to_bytes(4, "big")).decode()


def whole_etag(answer: Mapping[str, Any]) -> str:
    """Return the ETag of an answer, in its quotes. Raises OutcomeUnknownError: it was cut off."""
    etag = str(answer.get("ETag", ""))
    if len(etag) < 2 or not etag.startswith('"') or not etag.endswith('"'):
        raise errors.OutcomeUnknownError("S3 did not say what was uploaded")
    return etag


logger = logging.getLogger("dormouse")

MAX_PUT_BYTES = 5 * 1024**3
"""What S3 takes in one request."""
PART_BYTES = 32 * 1024 * 1024
"""A shard of 512 MiB costs 18 requests. A file that ends with one part is put in one."""
PARTS_AT_ONCE = 4
"""While a run writes shards, nine uploads exist at most (`shards.publishing`), so
``9 * PARTS_AT_ONCE * READ_BYTES`` of parts are in memory: 36 MiB. Parts that wait are in the local
file only."""
_ATTEMPTS = 10
_CONFLICT = "ConditionalRequestConflict"
"""The error code of S3 while another request for the same path is in progress."""


def put_once(client: S3Client, bucket: str, path: str, body: bytes) -> bool:
    """Put an object unless one exists at that path; return whether it was put."""
    return _repeat(
        lambda: client.put_object(Bucket=bucket, Key=path, Body=body, IfNoneMatch="*"),
        f"s3://{bucket}/{path}",
    )


class S3Upload:
    """The upload of one local file, as `ports.Upload`: in parts while it is written, if it has more
    than `PART_BYTES`.

    `complete` also returns False if the SDK repeated a request that had landed. As always, False
    means that the object exists; the caller must know what content it can have.
    """

    def __init__(self, client: S3Client, bucket: str, path: str, local: Path) -> None:
        """Upload `local` to `path`; this sends nothing."""
        self._client, self._bucket, self._path, self._local = client, bucket, path, local
        self._parts: _Parts | None = None

    def advance(self, final_bytes: int) -> None:
        """Send the whole parts among the first `final_bytes`, once there is more than one part.
        Raises UnavailableError, OutcomeUnknownError: a part could not be sent.
        """
        if self._parts is None and final_bytes > PART_BYTES:
            self._parts = self._begin()
        if self._parts is not None:
            with writing("S3"):
                try:
                    self._parts.send(final_bytes)
                except ClientError as error:
                    if code_of(error) != NO_SUCH_UPLOAD:
                        raise
                    self.abort()  # an audit took it for one that a crash had left: begin another

    def complete(self) -> bool:
        """Store the file if there is no object at its path; return whether it was stored.

        Raises:
            InvalidRequestError: the file is larger than all parts that S3 takes.
            ContendedError: requests of others for the same path always came in between.
        """
        try:
            return _repeat(self._store, f"s3://{self._bucket}/{self._path}", before=self.abort)
        finally:
            self.abort()

    def abort(self) -> None:
        """Delete the parts that were sent, unless they are an object by now.

        What cannot be deleted at the moment is left to the audit.
        """
        parts, self._parts = self._parts, None
        if parts is not None:
            try:
                parts.abort()
            except (BotoCoreError, ClientError) as error:
                logger.warning(
                    "The upload of s3://%s/%s could not be aborted: %s. The daily audit aborts it.",
                    self._bucket,
                    self._path,
                    error,
                )

    def _begin(self) -> _Parts:
        return _Parts(self._client, self._bucket, self._path, self._local, PART_BYTES)

    def _store(self) -> None:
        size_bytes = self._local.stat().st_size
        if self._parts is None and size_bytes <= MAX_PUT_BYTES:
            with self._local.open("rb") as body:
                self._client.put_object(
                    Bucket=self._bucket, Key=self._path, Body=body, IfNoneMatch="*"
                )
            return
        if self._parts is None:
            self._parts = self._begin()
        self._parts.complete(size_bytes, {"IfNoneMatch": "*"})
        self._parts = None


class _Parts:
    """One multipart upload of a file; threads of its own begin it and send the parts."""

    def __init__(
        self, client: S3Client, bucket: str, path: str, local: Path, part_bytes: int
    ) -> None:
        self._local, self._part_bytes = local, part_bytes
        self._threads = ThreadPoolExecutor(PARTS_AT_ONCE)
        self._begun = self._threads.submit(MultipartUpload.begin, client, bucket, path)
        self._sent: list[Future[CompletedPartTypeDef]] = []

    def send(self, final_bytes: int) -> None:
        """Send all whole parts that were not sent yet; raise the error of an earlier one."""
        while (len(self._sent) + 1) * self._part_bytes <= final_bytes:
            self._send_next(self._part_bytes)
        for part in self._sent:
            if part.done():
                part.result()

    def complete(
        self, size_bytes: int, condition: Mapping[str, Any]
    ) -> CompleteMultipartUploadOutputTypeDef:
        """Send the rest of the file, and make it an object if the condition holds."""
        self.send(size_bytes)
        if rest_bytes := size_bytes - len(self._sent) * self._part_bytes:
            self._send_next(rest_bytes)
        parts = [part.result() for part in self._sent]
        answer = self._begun.result().complete(parts, size_bytes, condition)
        self._threads.shutdown()
        return answer

    def abort(self) -> None:
        """Let the parts in flight end, as they would outlive the upload, and delete all."""
        self._threads.shutdown(cancel_futures=True)
        if not self._begun.cancelled() and self._begun.exception() is None:
            self._begun.result().abort()

    def _send_next(self, size_bytes: int) -> None:
        number = len(self._sent) + 1
        if number > MAX_PARTS:
            raise errors.InvalidRequestError(
                f"{self._local} has more bytes than S3 takes: {MAX_PARTS} parts of "
                f"{self._part_bytes}",
                hint="let it hold fewer rows: lower the table's shard_target_bytes, or split keys "
                "that have very many rows",
            )
        start = (number - 1) * self._part_bytes
        self._sent.append(self._threads.submit(self._send_part, number, start, size_bytes))

    def _send_part(self, number: int, start: int, size_bytes: int) -> CompletedPartTypeDef:
        # The request that begins the upload was submitted first, so a thread is at it already.
        return self._begun.result().put_part(number, self._local, start, size_bytes)


def _repeat(
    store: Callable[[], object], uri: str, before: Callable[[], None] = lambda: None
) -> bool:
    """Create an object; return False if there is one already.

    After a conflict with another request, or if the upload is gone, call `before` and create it
    from the start: S3 takes no second completion of an upload that conflicted.
    Raises ContendedError: every attempt conflicted.
    """
    for _ in range(_ATTEMPTS):
        with writing("S3"):
            try:
                store()
                return True
            except ClientError as error:
                if code_of(error) == PRECONDITION_FAILED:
                    return False
                if code_of(error) not in (_CONFLICT, NO_SUCH_UPLOAD):
                    raise
        before()
    raise errors.ContendedError(f"{uri} is being written by other processes all the time")


# Drop files into the ingest bucket, for the client.
#
# An upload repeated after a lost response creates another version with the same content, which is
# the same source, so it is ingested once.

SINGLE_UPLOAD_BYTES = 512 * 1024 * 1024
UPLOAD_PART_BYTES = 64 * 1024 * 1024
_SERVICE = "the ingest bucket"
_CREATE_ATTEMPTS = 3
"""How often to try to create an object that others create and delete."""


class S3IngestBucket:
    """The ingest bucket of an instance."""

    def __init__(
        self,
        client: S3Client,
        bucket: str,
        *,
        presigning: S3Client | None = None,
        single_bytes: int = SINGLE_UPLOAD_BYTES,
    ) -> None:
        """Upload files of up to `single_bytes` in one request, larger ones in parts."""
        self._client = client
        self._presigning = presigning or client
        self._bucket = bucket
        self._single_bytes = single_bytes

    @staticmethod
    def of(names: InstanceNames) -> S3IngestBucket:
        """Return the bucket of an instance."""
        presigning = presigning_client(names.account)
        own = client("s3", bucket_owner=names.account)
        return S3IngestBucket(own, names.ingest_bucket, presigning=presigning)

    @property
    def name(self) -> str:
        """The name of the bucket."""
        return self._bucket

    def drop(self, key: str, local: Path, *, once: bool = False) -> Source:
        """Upload a local file as the newest version of `key`.

        With `once`, an object that is there under `key` is not replaced; its source is returned.

        Raises:
            UnavailableError: the file was not uploaded.
            OutcomeUnknownError: the file may have been uploaded; dropping it again does no harm.
        """
        size_bytes = local.stat().st_size
        upload = self._put if size_bytes <= self._single_bytes else self._put_in_parts
        condition: dict[str, Any] = {"IfNoneMatch": "*"} if once else {}
        for _ in range(_CREATE_ATTEMPTS):
            try:
                etag, version = upload(key, local, condition)
            except ConditionFailedError:
                if there := self._there(key):
                    return there
            else:
                return Source(self._bucket, key, etag.strip('"'), size_bytes, version)
        raise errors.ContendedError(
            f"{key} in {_SERVICE} is being put and deleted by others all the time"
        )

    def upload_url(self, key: str, seconds: int) -> str:
        """Return a URL that lets its holder PUT this one object, with the rights of this process.

        No request is sent for it.
        """
        parameters = {"Bucket": self._bucket, "Key": key}
        return self._presigning.generate_presigned_url("put_object", parameters, ExpiresIn=seconds)

    def _there(self, key: str) -> Source | None:
        """Return the source that an object under `key` is; None if there is none any more."""
        with reading(_SERVICE):
            try:
                answer = self._client.head_object(Bucket=self._bucket, Key=key)
            except ClientError as error:
                if code_of(error) != "404":
                    raise
                return None
        size_bytes, version = answer["ContentLength"], answer.get("VersionId", "")
        return Source(self._bucket, key, whole_etag(answer).strip('"'), size_bytes, version)

    def _put(self, key: str, local: Path, condition: dict[str, Any]) -> tuple[str, str]:
        with local.open("rb") as body, writing(_SERVICE):
            answer = self._client.put_object(Bucket=self._bucket, Key=key, Body=body, **condition)
        return whole_etag(answer), answer.get("VersionId", "")

    def _put_in_parts(self, key: str, local: Path, condition: dict[str, Any]) -> tuple[str, str]:
        size_bytes = local.stat().st_size
        part_bytes = max(UPLOAD_PART_BYTES, -(-size_bytes // MAX_PARTS))
        parts = _Parts(self._client, self._bucket, key, local, part_bytes)
        try:
            with writing(_SERVICE):
                answer = parts.complete(size_bytes, condition)
        except BaseException as error:  # Ctrl-C, too: parts that wait would still be sent
            _abort(parts, error)
            raise
        return whole_etag(answer), answer.get("VersionId", "")


def _abort(parts: _Parts, error: BaseException) -> None:
    """Delete the parts of a failed upload, which are billed until then."""
    try:
        with writing(_SERVICE):
            parts.abort()
    except errors.DormouseError as another:
        error.add_note(f"and the upload could not be aborted: {another}")


def result_url(presigning: S3Client, bucket: str, path: str, seconds: int) -> str:
    """Return a URL that lets its holder GET this one object, signed by a client of
    `presigning_client`. No request is sent for it.

    It ends with the credentials of this process, if these end before.
    """
    parameters = {"Bucket": bucket, "Key": path}
    return presigning.generate_presigned_url("get_object", parameters, ExpiresIn=seconds)
