"""An S3 object as a seekable file; every read is a ranged GET. Readers of shards use it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypedDict

from botocore.exceptions import ClientError

from dormouse.aws.base.clients import get_object
from dormouse.aws.base.failures import code_of, read_pages
from dormouse.errors import CorruptDataError, NotFoundError, ServiceRefusedError, UnavailableError
from dormouse.retry_policy import RetryPolicy
from dormouse.seekable import SeekableFile
from dormouse.storage import PIECE_BYTES

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from mypy_boto3_s3 import S3Client


class _Version(TypedDict, total=False):
    VersionId: str
    IfMatch: str


class RangedObject(SeekableFile):
    """A read-only, seekable view of an object whose size is known; every read is one ranged GET."""

    def __init__(
        self,
        client: S3Client,
        bucket: str,
        key: str,
        size_bytes: int,
        version: str = "",
        *,
        etag: str = "",
        retry_policy: RetryPolicy,
    ) -> None:
        """Begin at the start, of the newest version if none is named; this sends no request.

        With an `etag`, content that has another one is not read.
        """
        super().__init__(size_bytes)
        self._retry_policy = retry_policy
        self._client, self._bucket, self._key = client, bucket, key
        self._of_version: _Version = {"VersionId": version} if version else {}
        if etag:
            self._of_version["IfMatch"] = f'"{etag}"'

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes, or the rest, by one request.

        Raises:
            NotFoundError: the object does not exist.
            CorruptDataError: the object has another size than it was opened with.
        """
        left = max(0, self._size_bytes - self._at)
        end = self._at + (left if size < 0 else min(size, left))
        body = self._fetch(self._at, end) if end > self._at else b""
        self._at = end
        return body

    def readall(self) -> bytes:
        """Return the rest, by one request."""
        return self.read()

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill `buffer` as far as there are bytes, and return their number."""
        view = memoryview(buffer).cast("B")
        body = self.read(len(view))
        view[: len(body)] = body
        return len(body)

    def stream(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from `start` up to `end` as they arrive, by one request.

        If it breaks off, the rest is requested again, as often as the retry policy allows without
        progress in between.

        Raises:
            NotFoundError: the object does not exist.
            CorruptDataError: the object has another size than it was opened with.
            UnavailableError: S3 does not answer.
        """
        failures = 0
        while start < end:
            try:
                for piece in read_pages("S3", self._pieces(start, end)):
                    start, failures = start + len(piece), 0
                    yield piece
            except UnavailableError as error:
                failures += 1
                self._pause_or_raise(error, failures)
            else:
                if start < end:
                    raise self._wrong_size("less")

    def _fetch(self, start: int, end: int) -> bytes:
        failures = 0
        while True:
            try:
                return b"".join(read_pages("S3", self._pieces(start, end)))
            except UnavailableError as error:
                failures += 1
                self._pause_or_raise(error, failures)

    def _pause_or_raise(self, error: UnavailableError, failures: int) -> None:
        if failures == self._retry_policy.attempts or isinstance(error, ServiceRefusedError):
            raise error
        self._retry_policy.pause(failures)

    def _pieces(self, start: int, end: int) -> Iterator[bytes]:
        try:
            answer = get_object(
                self._client,
                Bucket=self._bucket,
                Key=self._key,
                Range=f"bytes={start}-{end - 1}",
                **self._of_version,
            )
        except ClientError as error:
            if code_of(error) in ("NoSuchKey", "NoSuchVersion"):
                raise NotFoundError(f"there is no object {self._uri}") from error
            if code_of(error) == "InvalidRange":
                raise self._wrong_size("less") from error
            raise
        while piece := answer["Body"].read(PIECE_BYTES):
            yield piece
        # only now: the headers are known to be complete once the body is
        size_bytes = answer["ContentRange"].rpartition("/")[2]
        if size_bytes != str(self._size_bytes):
            raise self._wrong_size(f"{size_bytes} bytes")

    def _wrong_size(self, found: str) -> CorruptDataError:
        return CorruptDataError(
            f"{self._uri} should have {self._size_bytes} bytes but has {found}",
            hint="Dormouse never changes an object, so somebody replaced it by hand",
        )

    @property
    def _uri(self) -> str:
        return f"s3://{self._bucket}/{self._key}"
