"""Drop files into the ingest bucket, for the client.

An upload repeated after a lost response creates another version with the same content, which is the
same source, so it is ingested once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from dormouse.aws.base.clients import client, presigning_client
from dormouse.aws.base.failures import ConditionFailedError, code_of, reading, writing
from dormouse.aws.s3.multipart import MAX_PARTS, MultipartUpload, whole_etag
from dormouse.errors import ContendedError, DormouseError, UnavailableError
from dormouse.model.sources import Source
from dormouse.stored.names import InstanceNames

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

SINGLE_UPLOAD_BYTES = 512 * 1024 * 1024
PART_BYTES = 64 * 1024 * 1024
_SERVICE = "the ingest bucket"
_ATTEMPTS = 3
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
        made = client("s3", bucket_owner=names.account)
        return S3IngestBucket(made, names.ingest_bucket, presigning=presigning)

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
        for _ in range(_ATTEMPTS):
            try:
                etag, version = upload(key, local, condition)
            except ConditionFailedError:
                if there := self._there(key):
                    return there
            else:
                return Source(self._bucket, key, etag.strip('"'), size_bytes, version)
        raise ContendedError(f"{key} in {_SERVICE} is being put and deleted by others all the time")

    def upload_url(self, key: str, seconds: int) -> str:
        """Return a URL that lets its holder PUT this one object, with the rights of this process.

        No request is sent for it.
        """
        given = {"Bucket": self._bucket, "Key": key}
        return self._presigning.generate_presigned_url("put_object", given, ExpiresIn=seconds)

    def _there(self, key: str) -> Source | None:
        """Return the source that an object under `key` is; None if there is none any more."""
        try:
            with reading(_SERVICE):
                found = self._client.head_object(Bucket=self._bucket, Key=key)
        except UnavailableError as error:
            if isinstance(error.__cause__, ClientError) and code_of(error.__cause__) == "404":
                return None
            raise
        size_bytes, version = found["ContentLength"], found.get("VersionId", "")
        return Source(self._bucket, key, whole_etag(found).strip('"'), size_bytes, version)

    def _put(self, key: str, local: Path, condition: dict[str, Any]) -> tuple[str, str]:
        with local.open("rb") as body, writing(_SERVICE):
            answer = self._client.put_object(Bucket=self._bucket, Key=key, Body=body, **condition)
        return whole_etag(answer), answer.get("VersionId", "")

    def _put_in_parts(self, key: str, local: Path, condition: dict[str, Any]) -> tuple[str, str]:
        with writing(_SERVICE):
            upload = MultipartUpload.begin(self._client, self._bucket, key)
        try:
            size_bytes = local.stat().st_size
            with writing(_SERVICE):
                parts = _upload_parts(upload, local, size_bytes)
                answer = upload.complete(parts, size_bytes, condition)
        except (DormouseError, ConditionFailedError, OSError) as error:
            _abort(upload, error)
            raise
        return whole_etag(answer), answer.get("VersionId", "")


def _upload_parts(
    upload: MultipartUpload, local: Path, size_bytes: int
) -> list[CompletedPartTypeDef]:
    part_bytes = max(PART_BYTES, -(-size_bytes // MAX_PARTS))
    starts = range(0, max(size_bytes, 1), part_bytes)
    return [
        upload.put_part(number, local, start, min(part_bytes, size_bytes - start))
        for number, start in enumerate(starts, start=1)
    ]


def _abort(upload: MultipartUpload, error: Exception) -> None:
    """Delete the parts of a failed upload, which are billed until then."""
    try:
        with writing(_SERVICE):
            upload.abort()
    except DormouseError as another:
        error.add_note(f"and the upload could not be aborted: {another}")
