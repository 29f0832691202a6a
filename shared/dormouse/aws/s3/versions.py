"""The noncurrent versions that a versioned bucket keeps of deleted or replaced objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from dormouse.aws.base.failures import code_of, read_pages, reading
from dormouse.errors import ServiceRefusedError
from dormouse.ports.services import StoredObject

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import (
        DeleteMarkerEntryTypeDef,
        ListObjectVersionsOutputTypeDef,
        ObjectVersionTypeDef,
    )

_DAY_MS = 24 * 60 * 60 * 1000
_NO_RULES = ("NoSuchLifecycleConfiguration", "NotImplemented", "501")
_NO_VERSIONS = ("NotImplemented", "501")
"""What servers answer that keep no versions, or have no rules: not all have these requests."""


@dataclass(frozen=True, slots=True)
class EarlierVersion:
    """A noncurrent version of an object; `ended_ms` is when it was deleted or replaced."""

    stored: StoredObject
    version: str
    ended_ms: int


def earlier_versions(client: S3Client, bucket: str, prefix: str) -> Iterator[EarlierVersion]:
    """Yield the noncurrent versions below a prefix; none if the server has no versions at all."""
    newer: _Found | None = None
    for page in _pages(client, bucket, prefix):
        for found in _in_order(page):
            if found.size_bytes is not None and not found.is_latest and newer is not None:
                stored = StoredObject(found.key, found.size_bytes, found.modified_ms)
                ended_ms = newer.modified_ms if newer.key == found.key else found.modified_ms
                yield EarlierVersion(stored, found.version, ended_ms)
            newer = found


def _pages(client: S3Client, bucket: str, prefix: str) -> Iterator[ListObjectVersionsOutputTypeDef]:
    listing = client.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix)
    try:
        yield from read_pages("S3", listing)
    except ServiceRefusedError as error:
        if not isinstance(error.__cause__, ClientError) or (
            code_of(error.__cause__) not in _NO_VERSIONS
        ):
            raise


def kept_ms(client: S3Client, bucket: str) -> int | None:
    """Return how long the bucket keeps noncurrent versions; None if it has no limit."""
    with reading("S3"):
        try:
            rules = client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
        except ClientError as error:
            if code_of(error) not in _NO_RULES:
                raise
            return None
    days = [
        rule["NoncurrentVersionExpiration"]["NoncurrentDays"]
        for rule in rules
        if rule["Status"] == "Enabled" and "NoncurrentVersionExpiration" in rule
    ]
    return (min(days) + 1) * _DAY_MS if days else None  # S3 counts from the next midnight


@dataclass(frozen=True, slots=True)
class _Found:
    """An entry of a listing of versions; a delete marker has no size."""

    key: str
    version: str
    is_latest: bool
    modified_ms: int
    size_bytes: int | None


def _in_order(page: ListObjectVersionsOutputTypeDef) -> Iterable[_Found]:
    """Return the entries of a page by key, the newest version of each first."""
    versions = (_found(each, each["Size"]) for each in page.get("Versions", ()))
    markers = (_found(each, None) for each in page.get("DeleteMarkers", ()))
    return sorted(
        (*versions, *markers), key=lambda each: (each.key, not each.is_latest, -each.modified_ms)
    )


def _found(
    entry: ObjectVersionTypeDef | DeleteMarkerEntryTypeDef, size_bytes: int | None
) -> _Found:
    modified_ms = int(entry["LastModified"].timestamp() * 1000)
    return _Found(entry["Key"], entry["VersionId"], entry["IsLatest"], modified_ms, size_bytes)
