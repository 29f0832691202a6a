"""An S3 object as a seekable file; every read is a ranged GET. Readers of shards use it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, TypedDict

from botocore.exceptions import ClientError

from dormouse.aws.base.clients import get_object
from dormouse.aws.base.failures import code_of, read_whole, reading
from dormouse.errors import CorruptDataError, NotFoundError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from mypy_boto3_s3 import S3Client


class _Version(TypedDict, total=False):
    VersionId: str


class RangedObject(io.RawIOBase):
    """A read-only, seekable view of an object whose size is known; every read is one ranged GET."""

    def __init__(
        self, client: S3Client, bucket: str, key: str, size_bytes: int, version: str = ""
    ) -> None:
        """Begin at the start, of the newest version if none is named; this sends no request."""
        self._client, self._bucket, self._key = client, bucket, key
        self._of_version: _Version = {"VersionId": version} if version else {}
        self._size_bytes = size_bytes
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read, and return it; this sends no request."""
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}
        position = starts[whence] + offset
        if position < 0:
            raise ValueError(f"cannot seek to {position}")
        self._position = position
        return position

    def readall(self) -> bytes:
        """Return the rest, in one request."""
        return self.read(self._left()) or b""

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill `buffer` as far as there are bytes, and return their number.

        Raises:
            NotFoundError: the object does not exist.
            CorruptDataError: the object has another size than it was opened with.
        """
        view = memoryview(buffer).cast("B")
        length = min(len(view), self._left())
        if length == 0:
            return 0
        view[:length] = self._fetch(self._position, length)
        self._position += length
        return length

    def _left(self) -> int:
        return max(0, self._size_bytes - self._position)

    def _fetch(self, start: int, length: int) -> bytes:
        with reading("S3"):
            return read_whole(lambda: self._get(start, length))

    def _get(self, start: int, length: int) -> bytes:
        try:
            answer = get_object(
                self._client,
                Bucket=self._bucket,
                Key=self._key,
                Range=f"bytes={start}-{start + length - 1}",
                **self._of_version,
            )
        except ClientError as error:
            if code_of(error) in ("NoSuchKey", "NoSuchVersion"):
                raise NotFoundError(f"there is no object {self._uri}") from error
            if code_of(error) == "InvalidRange":
                raise self._wrong_size("less") from error
            raise
        body = answer["Body"].read()  # first: once the body is complete, so are the headers
        size_bytes = answer["ContentRange"].rpartition("/")[2]
        if size_bytes != str(self._size_bytes):
            raise self._wrong_size(f"{size_bytes} bytes")
        return body

    def _wrong_size(self, found: str) -> CorruptDataError:
        return CorruptDataError(
            f"{self._uri} should have {self._size_bytes} bytes but has {found}",
            hint="Dormouse never changes an object, so somebody replaced it by hand",
        )

    @property
    def _uri(self) -> str:
        return f"s3://{self._bucket}/{self._key}"
