"""Dropping files into the ingest bucket: the client's end of it.

Each upload that lands is a version of its own, and so a source of its own: a repeat after a lost
answer would ingest a file twice. So every upload says what it replaces, and bears a mark by which
it is found again when its repeat is told that somebody was faster. (S3 compares contents: a file
that replaces one of the same content is the exception.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypedDict

import boto3
from botocore.exceptions import ClientError

from dormouse.aws.failures import ConditionFailedError, code_of, reading, writing
from dormouse.errors import ContendedError, DormouseError
from dormouse.model.names import InstanceNames
from dormouse.model.sources import Source
from dormouse.ports import Ids

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef, HeadObjectOutputTypeDef

SINGLE_UPLOAD_BYTES = 512 * 1024 * 1024
PART_BYTES = 64 * 1024 * 1024
MAX_PARTS = 10_000
_MARK = "dormouse-drop"
_SERVICE = "the ingest bucket"


class _Condition(TypedDict, total=False):
    IfMatch: str
    IfNoneMatch: str


class S3IngestBucket:
    """The ingest bucket of an instance."""

    def __init__(
        self, client: S3Client, bucket: str, ids: Ids, *, single_bytes: int = SINGLE_UPLOAD_BYTES
    ) -> None:
        """Upload files of up to `single_bytes` in one request, larger ones in parts."""
        self._client = client
        self._bucket = bucket
        self._ids = ids
        self._single_bytes = single_bytes

    @staticmethod
    def of(names: InstanceNames, ids: Ids) -> S3IngestBucket:
        """Give the bucket of an instance."""
        return S3IngestBucket(boto3.client("s3"), names.ingest_bucket, ids)

    def drop(self, key: str, local: Path) -> Source:
        """Upload a local file as the newest version of `key`.

        Raises:
            ContendedError: somebody else dropped a file under the key meanwhile.
            UnavailableError: it was not uploaded.
            OutcomeUnknownError: it may have been uploaded.
        """
        current = self._head(key)
        condition: _Condition = {"IfMatch": current["ETag"]} if current else {"IfNoneMatch": "*"}
        mark, size_bytes = self._ids.new(), local.stat().st_size
        upload = self._put if size_bytes <= self._single_bytes else self._put_in_parts
        try:
            etag, version = upload(key, local, mark, condition)
        except ConditionFailedError as error:
            found = self._head(key)
            if found is None or found["Metadata"].get(_MARK) != mark:
                raise ContendedError(
                    f"somebody else dropped a file as {key!r} at the same time",
                    hint="drop it again, or under another name",
                ) from error
            etag, version = found["ETag"], found.get("VersionId", "")
        return Source(self._bucket, key, etag.strip('"'), size_bytes, version)

    def _head(self, key: str) -> HeadObjectOutputTypeDef | None:
        with reading(_SERVICE):
            try:
                return self._client.head_object(Bucket=self._bucket, Key=key)
            except ClientError as error:
                if code_of(error) in ("404", "NoSuchKey"):
                    return None
                raise

    def _put(self, key: str, local: Path, mark: str, condition: _Condition) -> tuple[str, str]:
        with local.open("rb") as body, _replacing():
            answer = self._client.put_object(
                Bucket=self._bucket, Key=key, Body=body, Metadata={_MARK: mark}, **condition
            )
        return answer["ETag"], answer.get("VersionId", "")

    def _put_in_parts(
        self, key: str, local: Path, mark: str, condition: _Condition
    ) -> tuple[str, str]:
        with writing(_SERVICE):
            upload_id = self._client.create_multipart_upload(
                Bucket=self._bucket, Key=key, Metadata={_MARK: mark}
            )["UploadId"]
        try:
            parts = self._upload_parts(key, local, upload_id)
            with _replacing():
                answer = self._client.complete_multipart_upload(
                    Bucket=self._bucket,
                    Key=key,
                    UploadId=upload_id,
                    MultipartUpload={"Parts": parts},
                    **condition,
                )
        except (ConditionFailedError, DormouseError, OSError) as error:
            self._abort(key, upload_id, error)
            raise
        return answer["ETag"], answer.get("VersionId", "")

    def _abort(self, key: str, upload_id: str, error: Exception) -> None:
        """Free the parts of a failed upload, which cost money till then."""
        try:
            with writing(_SERVICE):
                self._client.abort_multipart_upload(
                    Bucket=self._bucket, Key=key, UploadId=upload_id
                )
        except DormouseError as another:
            error.add_note(f"and the upload could not be aborted: {another}")

    def _upload_parts(self, key: str, local: Path, upload_id: str) -> list[CompletedPartTypeDef]:
        size_bytes = max(PART_BYTES, -(-local.stat().st_size // MAX_PARTS))
        parts: list[CompletedPartTypeDef] = []
        with local.open("rb") as file:
            for number, body in enumerate(_chunks(file, size_bytes), start=1):
                with writing(_SERVICE):
                    answer = self._client.upload_part(
                        Bucket=self._bucket,
                        Key=key,
                        UploadId=upload_id,
                        PartNumber=number,
                        Body=body,
                    )
                parts.append({"PartNumber": number, "ETag": answer["ETag"]})
        return parts


@contextmanager
def _replacing() -> Iterator[None]:
    """Tell failures of a conditional upload apart, as `writing` does."""
    with writing(_SERVICE):
        try:
            yield
        except ClientError as error:
            if code_of(error) in ("PreconditionFailed", "ConditionalRequestConflict"):
                raise ConditionFailedError from error
            raise


def _chunks(file: BinaryIO, size_bytes: int) -> Iterator[bytes]:
    return iter(partial(file.read, size_bytes), b"")
