"""The two buckets of an instance: the data root, and what the stages see of the ingest bucket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from botocore.exceptions import ClientError

from dormouse import system
from dormouse.aws.base.clients import get_object
from dormouse.aws.base.failures import (
    PRECONDITION_FAILED,
    Failure,
    code_of,
    kind_of_code,
    read_pages,
    read_whole,
    reading,
    writing,
)
from dormouse.aws.s3.downloads import download
from dormouse.aws.s3.ranges import RangedObject
from dormouse.aws.s3.uploads import PART_BYTES, S3Upload, abort_uploads, list_uploads, put_once
from dormouse.aws.s3.versions import earlier_versions, kept_ms
from dormouse.errors import (
    NotFoundError,
    RefusedSourceError,
    ServiceRefusedError,
    UnavailableError,
)
from dormouse.model.sources import Source, is_file_below
from dormouse.ports.downloads import Arrived
from dormouse.ports.services import NoncurrentObject, StoredObject
from dormouse.ports.uploads import UnfinishedUpload, Upload
from dormouse.retry_policy import RetryPolicy
from dormouse.storage import check_path, check_prefix

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import (
        ListObjectsV2OutputTypeDef,
        ObjectTypeDef,
    )

_DELETES_PER_REQUEST = 1000
_BUSY = ("SlowDown", "InternalError", "ServiceUnavailable")
"""Error codes of S3 for an object whose deletion can be retried soon."""
_GONE = ("NoSuchKey", "NoSuchVersion", "MethodNotAllowed")
"""Error codes of S3 for a missing version; the last one is that of a delete marker."""


class S3Storage:
    """A data root that is a bucket; safe for many threads, as the client is.

    `put` and uploads also return False if the SDK repeated a request of theirs that had landed. As
    always, False means that the object exists; the caller must know what content it can have.
    """

    def __init__(
        self,
        client: S3Client,
        bucket: str,
        *,
        retry_policy: RetryPolicy | None = None,
        version: str = "",
        part_bytes: int = PART_BYTES,
    ) -> None:
        """Use `bucket`; `retry_policy` is for reads that break off, and for objects of many that S3
        was too busy to delete.

        With a `version` the one object that has it is read as it was. Files of more than
        `part_bytes` are uploaded in parts while they are written.
        """
        self._client, self._bucket, self._version = client, bucket, version
        self._retry_policy = retry_policy or system.retry_policy()
        self._part_bytes = part_bytes

    @property
    def uri(self) -> str:
        """``s3://bucket``."""
        return f"s3://{self._bucket}"

    def get(self, path: str) -> bytes:
        """Return a whole object. Raises NotFoundError."""
        check_path(path)
        with reading("S3"):
            try:
                return read_whole(
                    lambda: get_object(self._client, Bucket=self._bucket, Key=path)["Body"].read()
                )
            except self._client.exceptions.NoSuchKey as error:
                raise NotFoundError(f"there is no object {self.uri}/{path}") from error

    def put(self, path: str, body: bytes) -> bool:
        """Store an object unless one exists at that path; return whether it was stored."""
        return put_once(self._client, self._bucket, check_path(path), body)

    def upload(self, path: str, local: Path) -> bool:
        """Store a local file's content as `put` does, without holding it in memory."""
        return self.start_upload(path, local).complete()

    def start_upload(self, path: str, local: Path) -> Upload:
        """Start to upload a local file that is still being written; this sends nothing."""
        return S3Upload(self._client, self._bucket, check_path(path), local, self._part_bytes)

    def list_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """Yield the multipart uploads to paths that begin with `prefix`."""
        return list_uploads(self._client, self._bucket, check_prefix(prefix))

    def abort_uploads(self, uploads: Iterable[UnfinishedUpload]) -> None:
        """Delete the parts of uploads; one that is completed or aborted by now is left as it is."""
        abort_uploads(self._client, self._bucket, uploads)

    @property
    def is_remote(self) -> bool:
        """Return True: each read is a request."""
        return True

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        """Open an object of known size without a request; each read fetches just its range.

        The first read raises NotFoundError if there is no such object, and CorruptDataError if its
        size is another.
        """
        return cast(BinaryIO, self._ranged(path, size_bytes))

    def link(self, path: str, local: Path) -> bool:
        """Return False: an object is no file of this machine."""
        return False

    def stream(self, path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes of an object from `start` up to `end`, by one request unless it breaks.

        The first piece raises NotFoundError if there is no such object, and the last one
        CorruptDataError if its size is another.
        """
        return self._ranged(path, size_bytes).stream(start, end)

    def _ranged(self, path: str, size_bytes: int) -> RangedObject:
        return RangedObject(
            self._client,
            self._bucket,
            check_path(path),
            size_bytes,
            self._version,
            retry_policy=self._retry_policy,
        )

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Return the objects whose path begins with `prefix`, in path order."""
        for item in _listed(self._client, self._bucket, check_prefix(prefix)):
            yield StoredObject(item["Key"], item["Size"], _modified_ms(item))

    def list_noncurrent(self, prefix: str) -> Iterator[NoncurrentObject]:
        """Return what a versioned bucket keeps of objects that were deleted or replaced."""
        lasting_ms: int | None = None
        for number, found in enumerate(
            earlier_versions(self._client, self._bucket, check_prefix(prefix))
        ):
            if not number:
                lasting_ms = kept_ms(self._client, self._bucket)
            storage = S3Storage(
                self._client, self._bucket, retry_policy=self._retry_policy, version=found.version
            )
            until_ms = None if lasting_ms is None else found.ended_ms + lasting_ms
            yield NoncurrentObject(found.stored, storage, until_ms)

    def folders(self) -> Iterator[str]:
        """Return the first part of all paths of several parts, in order, each once."""
        for page in _pages(self._client, self._bucket, "", delimiter="/"):
            yield from (each["Prefix"].removesuffix("/") for each in page.get("CommonPrefixes", []))

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; one that is not there is no error.

        Raises:
            UnavailableError: some are not deleted; call again with the same paths.
        """
        keys = [check_path(path) for path in paths]
        for start in range(0, len(keys), _DELETES_PER_REQUEST):
            self._delete(keys[start : start + _DELETES_PER_REQUEST])

    def _delete(self, keys: Sequence[str]) -> None:
        """Delete in one request; retry, with backoff, what S3 was too busy to delete."""
        left = keys
        for failures in range(1, self._retry_policy.attempts + 1):
            with writing("S3"):
                answer = self._client.delete_objects(
                    Bucket=self._bucket,
                    Delete={"Objects": [{"Key": k} for k in left], "Quiet": True},
                )
            errors = answer.get("Errors", [])
            if not errors:
                return
            others = [error for error in errors if error.get("Code") not in _BUSY]
            if others or failures == self._retry_policy.attempts:
                first = (others or errors)[0]
                kind = kind_of_code(first.get("Code", ""), HTTPStatus.FORBIDDEN)
                is_refused = bool(others) and kind is Failure.PERMANENT
                raise (ServiceRefusedError if is_refused else UnavailableError)(
                    f"{len(errors)} of {len(keys)} objects in {self.uri} were not deleted; one, "
                    f"{first.get('Key')!r}: {first.get('Code')} {first.get('Message')}"
                )
            left = [error["Key"] for error in errors if "Key" in error]
            self._retry_policy.pause(failures)


class S3Sources:
    """The ingest bucket, as `ports.Sources`; `ingest_bucket` is the end where files go in."""

    def __init__(
        self, client: S3Client, bucket: str, *, retry_policy: RetryPolicy | None = None
    ) -> None:
        """Use `bucket`, versioned or not; `retry_policy` is for parts that break off."""
        self._client, self._bucket = client, bucket
        self._retry_policy = retry_policy or system.retry_policy()

    def download(self, source: Source, local: Path, arrived: Arrived | None = None) -> None:
        """Copy just the content that `source` names into a local file; `arrived` is called with the
        pieces of a large one.

        A versioned bucket has it even if the key was overwritten or deleted since.

        Raises:
            RefusedSourceError: it is gone, there is another content under its key, or it lies
                elsewhere: a message must not make a function read other buckets for its author.
        """
        if source.bucket != self._bucket:
            raise RefusedSourceError(
                f"{source.key!r} lies in bucket {source.bucket!r}, not in the ingest bucket",
                hint="files of the ingest bucket are ingested, and no others",
            )
        try:
            download(self._client, source, local, self._retry_policy, arrived)
        except (NotFoundError, UnavailableError) as error:
            cause = error.__cause__
            if isinstance(cause, ClientError) and (refusal := _refusal(source, code_of(cause))):
                raise refusal from error
            raise

    def list(self, prefix: str, *, since_ms: int) -> Iterator[Source]:
        """Return the objects whose key begins with `prefix` that were dropped at `since_ms` or
        later.

        S3 dates objects by the second, so some from just before may be among them. Versions are
        left out: they are no part of what identifies a source. So is what is no file.
        """
        since_second_ms = since_ms - since_ms % 1000
        for item in _listed(self._client, self._bucket, prefix):
            if _modified_ms(item) >= since_second_ms and is_file_below(prefix, item["Key"]):
                etag = item["ETag"].strip('"')
                yield Source(self._bucket, item["Key"], etag, item["Size"])


def _listed(client: S3Client, bucket: str, prefix: str) -> Iterator[ObjectTypeDef]:
    for page in _pages(client, bucket, prefix):
        yield from page.get("Contents", [])


def _pages(
    client: S3Client, bucket: str, prefix: str, delimiter: str = ""
) -> Iterator[ListObjectsV2OutputTypeDef]:
    paginator = client.get_paginator("list_objects_v2")
    return read_pages("S3", paginator.paginate(Bucket=bucket, Prefix=prefix, Delimiter=delimiter))


def _modified_ms(item: ObjectTypeDef) -> int:
    return int(item["LastModified"].timestamp() * 1000)


def _refusal(source: Source, code: str) -> RefusedSourceError | None:
    if code in _GONE:
        return RefusedSourceError(
            f"{source.key!r} was deleted before it was ingested", hint="drop the file again"
        )
    if code == PRECONDITION_FAILED:
        return RefusedSourceError(
            f"{source.key!r} was overwritten before it was ingested",
            hint="what is there now is ingested as a file of its own; to have the earlier content "
            "too, drop it again under another name",
        )
    return None
