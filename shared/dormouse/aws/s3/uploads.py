"""Store a local file as an object, once: in one request, or in parts while it is being written.

Order of requests in parts: CreateMultipartUpload, an UploadPart for each part, and
CompleteMultipartUpload with ``If-None-Match: *``, which alone creates the object. A crash before it
leaves an upload that is no object; a failure aborts it. What neither aborts, the audit of `sweep`
does, and a lifecycle rule of the bucket.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from dormouse.aws.base.failures import PRECONDITION_FAILED, code_of, read_pages, writing
from dormouse.aws.s3.multipart import MAX_PARTS, NO_SUCH_UPLOAD, MultipartUpload
from dormouse.errors import ContendedError, InvalidRequestError
from dormouse.ports.uploads import UnfinishedUpload

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

logger = logging.getLogger("dormouse")

MAX_PUT_BYTES = 5 * 1024**3
"""What S3 takes in one request."""
PART_BYTES = 32 * 1024 * 1024
"""A shard of 512 MiB costs 18 requests. A file that has not more than one part when it ends is put
in one.
"""
PARTS_AT_ONCE = 4
"""While a run writes shards, nine uploads exist at most (`shards.publishing`), so
``9 * PARTS_AT_ONCE * READ_BYTES`` of parts are in memory: 36 MiB. Parts that wait are in the local
file only.
"""
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
    """The upload of one local file, as `uploads.Upload`.

    `complete` also returns False if the SDK repeated a request that had landed. As always, False
    means that the object exists; the caller must know what content it can have.
    """

    def __init__(
        self, client: S3Client, bucket: str, path: str, local: Path, part_bytes: int = PART_BYTES
    ) -> None:
        """Upload `local` to `path`; this sends nothing."""
        self._client, self._bucket, self._path = client, bucket, path
        self._local, self._part_bytes = local, part_bytes
        self._parts: _Parts | None = None

    def advance(self, final_bytes: int) -> None:
        """Send the whole parts among the first `final_bytes`, once there is more than one part.

        Raises:
            UnavailableError, OutcomeUnknownError: a part could not be sent.
        """
        if self._parts is None and final_bytes > self._part_bytes:
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
        return _Parts(self._client, self._bucket, self._path, self._local, self._part_bytes)

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
        self._parts.complete(size_bytes)
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

    def complete(self, size_bytes: int) -> None:
        """Send the rest of the file, and make it an object if there is none at its path."""
        self.send(size_bytes)
        if rest_bytes := size_bytes - len(self._sent) * self._part_bytes:
            self._send_next(rest_bytes)
        parts = [part.result() for part in self._sent]
        self._begun.result().complete(parts, size_bytes, {"IfNoneMatch": "*"})
        self._threads.shutdown()

    def abort(self) -> None:
        """Let the parts in flight end, as they would outlive the upload, and delete all."""
        self._threads.shutdown(cancel_futures=True)
        if not self._begun.cancelled() and self._begun.exception() is None:
            self._begun.result().abort()

    def _send_next(self, size_bytes: int) -> None:
        number = len(self._sent) + 1
        if number > MAX_PARTS:
            raise InvalidRequestError(
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


def list_uploads(client: S3Client, bucket: str, prefix: str) -> Iterator[UnfinishedUpload]:
    """Yield the multipart uploads that were neither completed nor aborted."""
    listing = client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix)
    for page in read_pages("S3", listing):
        for found in page.get("Uploads", ()):
            started_ms = int(found["Initiated"].timestamp() * 1000)
            yield UnfinishedUpload(found["Key"], found["UploadId"], started_ms)


def abort_uploads(client: S3Client, bucket: str, uploads: Iterable[UnfinishedUpload]) -> None:
    """Delete the parts of uploads; one that is completed or aborted by now is left as it is."""
    for upload in uploads:
        with writing("S3"):
            MultipartUpload(client, bucket, upload.path, upload.id).abort()


def _repeat(
    store: Callable[[], object], uri: str, before: Callable[[], None] = lambda: None
) -> bool:
    """Create an object; return False if there is one already.

    After a conflict with another request, or if the upload is gone, call `before` and create it
    from the start: S3 takes no second completion of an upload that conflicted.

    Raises:
        ContendedError: every attempt conflicted.
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
    raise ContendedError(f"{uri} is being written by other processes all the time")
