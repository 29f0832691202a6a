"""The requests of a multipart upload; each part is read from a local file, with its CRC-32.

S3 refuses a part whose bytes differ from its CRC, and a completion that names other parts than it
has. The object exists when the upload is completed, and not before.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from botocore.exceptions import ClientError

from dormouse.aws.base.failures import code_of
from dormouse.errors import InvariantError, OutcomeUnknownError
from dormouse.seekable import SeekableFile
from dormouse.stored.crc32 import crc32

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef, CompleteMultipartUploadOutputTypeDef

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
        """Open the `size_bytes` of `local` from `start` on."""
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
        """Return the CRC-32 of the part in the form of S3, and go to its start.

        Raises:
            InvariantError: the local file ends before the part does.
        """
        self.seek(0)
        crc = 0
        while chunk := self.read(READ_BYTES):
            crc = crc32(chunk, crc)
        if self._at != self._size_bytes:
            raise InvariantError(
                f"{self._file.name} ends before byte {self._start + self._size_bytes}"
            )
        self.seek(0)
        return b64encode(crc.to_bytes(4, "big")).decode()


def whole_etag(answer: Mapping[str, Any]) -> str:
    """Return the ETag of an answer, in its quotes; a truncated one may lack it.

    Raises:
        OutcomeUnknownError: the answer has no complete ETag.
    """
    etag = str(answer.get("ETag", ""))
    if len(etag) < 2 or not etag.startswith('"') or not etag.endswith('"'):
        raise OutcomeUnknownError("S3 did not say what was uploaded")
    return etag
