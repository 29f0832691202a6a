"""Download one version of an object to a local file: a large one in parts, several at once."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from dormouse.aws.base.clients import get_object
from dormouse.aws.base.failures import read_whole, reading
from dormouse.aws.s3.ranges import RangedObject
from dormouse.model.sources import Source
from dormouse.ports.downloads import Arrived
from dormouse.retry_policy import RetryPolicy

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectRequestTypeDef

PART_BYTES = 8 * 1024 * 1024
PARTS_AT_ONCE = 16
"""S3 sends one part at some 80 MB/s, whatever the bandwidth of the machine, and after a while."""
_COPY_BYTES = 1024 * 1024


def download(
    client: S3Client,
    source: Source,
    local: Path,
    retry_policy: RetryPolicy,
    arrived: Arrived | None = None,
) -> None:
    """Copy just the content that `source` names into a local file.

    `arrived` is called with the pieces of a large one. What is downloaded by one request can be
    used only as a whole: the SDK holds it against its checksum.

    Raises:
        NotFoundError: it is gone.
        UnavailableError: S3 does not answer, or refuses; the cause is what it answered.
    """
    if source.size_bytes <= PART_BYTES:
        with reading("S3"):
            read_whole(lambda: _copy(client, source, local))
    else:
        _copy_parts(client, source, local, retry_policy, arrived)


def _copy(client: S3Client, source: Source, local: Path) -> None:
    request: GetObjectRequestTypeDef = {
        "Bucket": source.bucket,
        "Key": source.key,
        "IfMatch": f'"{source.etag}"',
    }
    if source.version:
        request["VersionId"] = source.version
    body = get_object(client, **request)["Body"]
    with local.open("wb") as file:
        shutil.copyfileobj(body, file, _COPY_BYTES)


def _copy_parts(
    client: S3Client,
    source: Source,
    local: Path,
    retry_policy: RetryPolicy,
    arrived: Arrived | None,
) -> None:
    stored = RangedObject(
        client,
        source.bucket,
        source.key,
        source.size_bytes,
        source.version,
        etag=source.etag,
        retry_policy=retry_policy,
    )

    def copy(start: int) -> None:
        with local.open("r+b") as file:
            file.seek(start)
            for piece in stored.stream(start, min(start + PART_BYTES, source.size_bytes)):
                file.write(piece)
                if arrived is not None:
                    file.flush()
                    arrived(start, start + len(piece))
                start += len(piece)

    with local.open("wb") as file:
        file.truncate(source.size_bytes)
    starts = range(0, source.size_bytes, PART_BYTES)
    with ThreadPoolExecutor(PARTS_AT_ONCE) as threads:
        # the last two parts among the first: a Parquet file is read from its end
        parts = [threads.submit(copy, start) for start in (*starts[-2:], *starts[:-2])]
        try:
            for part in parts:
                part.result()
        finally:
            for part in parts:
                part.cancel()
