"""The two buckets of an instance: the data root, and what the stages see of the ingest bucket."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypedDict, cast

from botocore.exceptions import ClientError

from dormouse import ports
from dormouse.aws.clients import (
    ARCHIVED,
    PRECONDITION_FAILED,
    Failure,
    code_of,
    get_object,
    kind_of_code,
    read_pages,
    read_whole,
    reading,
    writing,
)
from dormouse.aws.uploads import MultipartUpload, S3Upload, put_once
from dormouse.errors import (
    CorruptDataError,
    NotFoundError,
    RefusedSourceError,
    ServiceRefusedError,
    UnavailableError,
)
from dormouse.state.sources import Source, is_file_below
from dormouse.storage import PIECE_BYTES, SeekableFile, check_path, check_prefix
from dormouse.system import RETRIES, RetryPolicy

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import (
        DeleteMarkerEntryTypeDef,
        GetObjectRequestTypeDef,
        ListObjectsV2OutputTypeDef,
        ListObjectVersionsOutputTypeDef,
        ObjectTypeDef,
        ObjectVersionTypeDef,
        TagTypeDef,
    )


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
        retry_policy: RetryPolicy = RETRIES,
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
        """Return up to `size` bytes, or the rest, by one request. Raises as `stream`."""
        if self._at < 0:
            return self._fetch(self._at, 0)
        rest = max(0, self._size_bytes - self._at)
        end = self._at + (rest if size < 0 else min(size, rest))
        body = self._fetch(self._at, end) if end > self._at else b""
        self._at = end
        return body

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read; of an object of unknown size, from its end alone."""
        if self._size_bytes or whence != io.SEEK_END:
            return super().seek(offset, whence)
        self._at = offset
        return offset

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
        return self._retry_policy.retry(
            lambda: b"".join(read_pages("S3", self._pieces(start, end)))
        )

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
                Range=f"bytes={start}" if start < 0 else f"bytes={start}-{end - 1}",
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
        if start >= 0:
            # only now: the headers are known to be complete once the body is
            size_bytes = answer["ContentRange"].rpartition("/")[2]
            if size_bytes != str(self._size_bytes):
                raise self._wrong_size(f"{size_bytes} bytes")

    def _wrong_size(self, size: str) -> CorruptDataError:
        return CorruptDataError(
            f"{self._uri} should have {self._size_bytes} bytes but has {size}",
            hint="Dormouse never changes an object, so somebody replaced it by hand",
        )

    @property
    def _uri(self) -> str:
        return f"s3://{self._bucket}/{self._key}"


DOWNLOAD_PART_BYTES = 8 * 1024 * 1024
PARTS_AT_ONCE = 16
"""S3 sends one part at some 80 MB/s, whatever the bandwidth of the machine, and after a while."""
_COPY_BYTES = 1024 * 1024


def download(
    client: S3Client, source: Source, local: Path, arrived: ports.Arrived | None = None
) -> None:
    """Copy just the content that `source` names into a local file.

    `arrived` is called with the pieces of a large one. What is downloaded by one request can be
    used only as a whole: the SDK holds it against its checksum.

    Raises:
        NotFoundError: it is gone.
        UnavailableError: S3 does not answer, or refuses; the cause is what it answered.
    """
    if source.size_bytes <= DOWNLOAD_PART_BYTES:
        with reading("S3"):
            read_whole(lambda: _copy(client, source, local))
    else:
        _copy_parts(client, source, local, arrived)


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
    client: S3Client, source: Source, local: Path, arrived: ports.Arrived | None
) -> None:
    remote = RangedObject(
        client, source.bucket, source.key, source.size_bytes, source.version, etag=source.etag
    )

    def copy(start: int) -> None:
        with local.open("r+b") as file:
            file.seek(start)
            for piece in remote.stream(start, min(start + DOWNLOAD_PART_BYTES, source.size_bytes)):
                file.write(piece)
                if arrived is not None:
                    file.flush()
                    arrived(start, start + len(piece))
                start += len(piece)

    with local.open("wb") as file:
        file.truncate(source.size_bytes)
    starts = range(0, source.size_bytes, DOWNLOAD_PART_BYTES)
    with ThreadPoolExecutor(PARTS_AT_ONCE) as threads:
        # the last two parts among the first: a Parquet file is read from its end
        parts = [threads.submit(copy, start) for start in (*starts[-2:], *starts[:-2])]
        try:
            for part in parts:
                part.result()
        finally:
            for part in parts:
                part.cancel()


# The noncurrent versions that a versioned bucket keeps of deleted or replaced objects.

_DAY_MS = 24 * 60 * 60 * 1000
_NO_RULES = ("NoSuchLifecycleConfiguration", "NotImplemented", "501")
_NO_VERSIONS = ("NotImplemented", "501")
"""What servers answer that keep no versions, or have no rules: not all have these requests."""


def earlier_versions(
    client: S3Client, bucket: str, prefix: str
) -> Iterator[tuple[ports.StoredObject, str, int]]:
    """Yield the noncurrent versions of objects below a prefix, each with its version and when it
    was deleted or replaced; none if the server has no versions at all.
    """
    newer: _ListedVersion | None = None
    for page in _version_pages(client, bucket, prefix):
        for entry in _in_order(page):
            if entry.size_bytes is not None and not entry.is_latest and newer is not None:
                ended_ms = newer.modified_ms if newer.key == entry.key else entry.modified_ms
                stored = ports.StoredObject(entry.key, entry.size_bytes, entry.modified_ms)
                yield stored, entry.version, ended_ms
            newer = entry


def _version_pages(
    client: S3Client, bucket: str, prefix: str
) -> Iterator[ListObjectVersionsOutputTypeDef]:
    listing = client.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix)
    try:
        yield from read_pages("S3", listing)
    except ServiceRefusedError as error:
        if code_of(error.__cause__) not in _NO_VERSIONS:
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
class _ListedVersion:
    """An entry of a listing of versions; a delete marker has no size."""

    key: str
    version: str
    is_latest: bool
    modified_ms: int
    size_bytes: int | None


def _in_order(page: ListObjectVersionsOutputTypeDef) -> Iterable[_ListedVersion]:
    """Return the entries of a page by key, the newest version of each first."""
    versions = (_listed_version(each, each["Size"]) for each in page.get("Versions", ()))
    markers = (_listed_version(each, None) for each in page.get("DeleteMarkers", ()))
    return sorted(
        (*versions, *markers), key=lambda each: (each.key, not each.is_latest, -each.modified_ms)
    )


def _listed_version(
    entry: ObjectVersionTypeDef | DeleteMarkerEntryTypeDef, size_bytes: int | None
) -> _ListedVersion:
    modified_ms = int(entry["LastModified"].timestamp() * 1000)
    return _ListedVersion(
        entry["Key"], entry["VersionId"], entry["IsLatest"], modified_ms, size_bytes
    )


STANDARD = "STANDARD"
"""The storage class that objects are put in."""
CLASS_TAG = "storage-class"
"""The key of the tag that names the class which an object is to move to."""
_TAGGED_AT_ONCE = 16
_DELETES_PER_REQUEST = 1000
_BUSY = ("SlowDown", "InternalError", "ServiceUnavailable")
"""Error codes of S3 for an object whose deletion can be retried soon."""
_GONE = ("NoSuchKey", "NoSuchVersion", "MethodNotAllowed")
"""Error codes of S3 for a missing version; the last one is that of a delete marker."""


class S3Storage(ports.Storage):
    """A data root that is a bucket; safe for many threads, as the client is.

    `put` and uploads also return False if the SDK repeated a request of theirs that had landed. As
    always, False means that the object exists; the caller must know what content it can have.
    """

    def __init__(
        self,
        client: S3Client,
        bucket: str,
        *,
        retry_policy: RetryPolicy = RETRIES,
        version: str = "",
    ) -> None:
        """Use `bucket`; `retry_policy` is for reads that break off, and for objects of many that S3
        was too busy to delete.

        With a `version` the one object that has it is read as it was.
        """
        self._client, self._bucket, self._version = client, bucket, version
        self._retry_policy = retry_policy

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

    def start_upload(self, path: str, local: Path) -> ports.Upload:
        """Start to upload a local file that is still being written; this sends nothing."""
        return S3Upload(self._client, self._bucket, check_path(path), local)

    def list_uploads(self, prefix: str) -> Iterator[ports.UnfinishedUpload]:
        """Yield the multipart uploads to paths that begin with `prefix`."""
        listing = self._client.get_paginator("list_multipart_uploads").paginate(
            Bucket=self._bucket, Prefix=check_prefix(prefix)
        )
        for page in read_pages("S3", listing):
            for upload in page.get("Uploads", ()):
                started_ms = int(upload["Initiated"].timestamp() * 1000)
                yield ports.UnfinishedUpload(upload["Key"], upload["UploadId"], started_ms)

    def abort_uploads(self, uploads: Iterable[ports.UnfinishedUpload]) -> None:
        """Delete the parts of uploads; one that is completed or aborted by now is left as it is."""
        for upload in uploads:
            with writing("S3"):
                MultipartUpload(self._client, self._bucket, upload.path, upload.id).abort()

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

    def list(self, prefix: str) -> Iterator[ports.StoredObject]:
        """Return the objects whose path begins with `prefix`, in path order."""
        for item in _listed(self._client, self._bucket, check_prefix(prefix)):
            storage_class = item.get("StorageClass", STANDARD)
            yield ports.StoredObject(item["Key"], item["Size"], _modified_ms(item), storage_class)

    def list_noncurrent(self, prefix: str) -> Iterator[ports.NoncurrentObject]:
        """Return what a versioned bucket keeps of objects that were deleted or replaced."""
        lasting_ms: int | None = None
        earlier = earlier_versions(self._client, self._bucket, check_prefix(prefix))
        for number, (stored, version, ended_ms) in enumerate(earlier):
            if not number:
                lasting_ms = kept_ms(self._client, self._bucket)
            storage = S3Storage(
                self._client, self._bucket, retry_policy=self._retry_policy, version=version
            )
            until_ms = None if lasting_ms is None else ended_ms + lasting_ms
            yield ports.NoncurrentObject(stored, storage, until_ms)

    def folders(self, below: str = "") -> Iterator[str]:
        """Yield the folders of a folder, in order, by a list that does not look into them."""
        pages = _object_pages(self._client, self._bucket, check_prefix(below), delimiter="/")
        names = (each["Prefix"] for page in pages for each in page.get("CommonPrefixes", []))
        # S3 orders them with their slashes: data-2/ is before data/
        yield from sorted(name.removeprefix(below).removesuffix("/") for name in names)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, missing or not. Raises UnavailableError: some are left; repeat it."""
        keys = [check_path(path) for path in paths]
        for start in range(0, len(keys), _DELETES_PER_REQUEST):
            self._delete(keys[start : start + _DELETES_PER_REQUEST])

    def mark_for_class(self, paths: Sequence[str], storage_class: str) -> None:
        """Tag objects with a class, to which a rule of the bucket moves them (`template.yaml`).

        A tag changes neither an object nor its date, and cannot bring back one that was deleted.
        Raises UnavailableError: some are not tagged; call again with the same paths.
        """
        tags: list[TagTypeDef] = [{"Key": CLASS_TAG, "Value": storage_class}]

        def tag(path: str) -> None:
            with writing("S3"):
                try:
                    self._client.put_object_tagging(
                        Bucket=self._bucket, Key=check_path(path), Tagging={"TagSet": tags}
                    )
                except ClientError as error:
                    if code_of(error) not in _GONE:
                        raise

        with ThreadPoolExecutor(_TAGGED_AT_ONCE) as threads:
            for _ in threads.map(tag, paths):
                pass

    def _delete(self, keys: Sequence[str]) -> None:
        """Delete in one request; retry, with backoff, what S3 was too busy to delete."""
        rest = keys
        for failures in range(1, self._retry_policy.attempts + 1):
            with writing("S3"):
                answer = self._client.delete_objects(
                    Bucket=self._bucket,
                    Delete={"Objects": [{"Key": k} for k in rest], "Quiet": True},
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
            rest = [error["Key"] for error in errors if "Key" in error]
            self._retry_policy.pause(failures)


class S3Sources:
    """The ingest bucket, as `ports.Sources`; `ingest_bucket` is the end where files go in."""

    def __init__(self, client: S3Client, bucket: str) -> None:
        """Use `bucket`, versioned or not. Parts that break off are asked for again."""
        self._client, self._bucket = client, bucket

    def download(self, source: Source, local: Path, arrived: ports.Arrived | None = None) -> None:
        """Copy just the content that `source` names into a local file; `arrived` is called with the
        pieces of a large one.

        A versioned bucket has it even if the key was overwritten or deleted since.
        Raises RefusedSourceError: it is gone, there is another content under its key, or it lies
        elsewhere: a message must not make a function read other buckets for its author.
        """
        if source.bucket != self._bucket:
            raise RefusedSourceError(
                f"{source.key!r} lies in bucket {source.bucket!r}, not in the ingest bucket",
                hint="files of the ingest bucket are ingested, and no others",
            )
        try:
            download(self._client, source, local, arrived)
        except (NotFoundError, UnavailableError) as error:
            if refusal := _refusal(source, code_of(error.__cause__)):
                raise refusal from error
            raise

    def list(self, prefix: str, *, since_ms: int) -> Iterator[Source]:
        """Return the objects whose key begins with `prefix` dropped at `since_ms` or later.

        S3 dates objects by the second, so some from just before may be among them. Versions are
        left out: they are no part of what identifies a source. So is what is no file.
        """
        since_second_ms = since_ms - since_ms % 1000
        for item in _listed(self._client, self._bucket, prefix):
            if _modified_ms(item) >= since_second_ms and is_file_below(prefix, item["Key"]):
                etag = item["ETag"].strip('"')
                yield Source(self._bucket, item["Key"], etag, item["Size"])

    def remove(self, source: Source) -> None:
        """Delete all versions of an object with `source`'s content. Raises UnavailableError."""
        paginator = self._client.get_paginator("list_object_versions")
        pages = paginator.paginate(Bucket=self._bucket, Prefix=source.key)
        for page in read_pages("S3", pages):
            versions = page.get("Versions", [])
            for each in versions:
                if each["Key"] == source.key and each["ETag"].strip('"') == source.etag:
                    with reading("S3"):
                        self._client.delete_object(
                            Bucket=self._bucket, Key=source.key, VersionId=each["VersionId"]
                        )
            if any(each["Key"] != source.key for each in versions):
                return  # keys come in order, this one first


def _listed(client: S3Client, bucket: str, prefix: str) -> Iterator[ObjectTypeDef]:
    for page in _object_pages(client, bucket, prefix):
        yield from page.get("Contents", [])


def _object_pages(
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
    if code == ARCHIVED:
        return RefusedSourceError(
            f"{source.key!r} is archived, and S3 does not read it",
            hint="bring it back, and drop it again in STANDARD",
        )
    return None
