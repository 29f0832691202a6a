"""Links to files of results: who has one reads that object, with the rights of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dormouse.aws.base.clients import presigning_client
from dormouse.stored.names import InstanceNames

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class S3ResultLinks:
    """Links to objects of the results bucket."""

    def __init__(self, presigning: S3Client, bucket: str) -> None:
        """Sign links by a client of `presigning_client`."""
        self._presigning, self._bucket = presigning, bucket

    @staticmethod
    def of(names: InstanceNames) -> S3ResultLinks:
        """Return the links of an instance."""
        return S3ResultLinks(presigning_client(names.account), names.results_bucket)

    def download_url(self, path: str, seconds: int) -> str:
        """Return a URL that lets its holder GET this one object. No request is sent for it.

        It ends with the credentials of this process, if these end before.
        """
        given = {"Bucket": self._bucket, "Key": path}
        return self._presigning.generate_presigned_url("get_object", given, ExpiresIn=seconds)
