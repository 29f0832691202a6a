"""Blobs of a state as objects below a prefix: one object each.

S3 serves so many requests a second below a prefix, and 32 writers ask for 10,000 deltas a second.
So deltas lie below sixteen prefixes, by the last digit of their ids, which is random.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from io import BytesIO

from dormouse.errors import (
    CorruptDataError,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from dormouse.ports.services import Storage
from dormouse.retry_policy import RetryPolicy
from dormouse.statestore.blobs import BlobRange, MissingBlobError
from dormouse.statestore.overlap import Fetch, fetched

PARQUET_SUFFIX = ".parquet"
_DELETES_AT_ONCE = 1000


class ObjectBlobs:
    """A `BlobStore` of objects; `kind` names them in errors."""

    def __init__(
        self,
        storage: Storage,
        prefix: str,
        kind: str,
        retry_policy: RetryPolicy,
        *,
        suffix: str = PARQUET_SUFFIX,
        is_spread: bool = False,
        fetch: Fetch = fetched,
    ) -> None:
        """Keep blobs under ``<prefix><id><suffix>``, or ``<prefix><digit>/<id><suffix>``."""
        self._storage, self._prefix, self._kind = storage, prefix, kind
        self._retry_policy, self._suffix = retry_policy, suffix
        self._is_spread, self._fetch = is_spread, fetch

    def put(self, blob_id: str, body: bytes) -> None:
        """Store a blob under a new id; retry what fails."""
        self._retry_policy.retry(lambda: self._put(self._path(blob_id), body))

    def get(self, blob_ids: Sequence[str]) -> list[bytes]:
        """Return the blobs of these ids. Raises MissingBlobError."""
        return list(fetched(self._get, blob_ids))

    def stream(self, blob_ids: Sequence[str]) -> Iterator[bytes]:
        """Yield the blobs of these ids as they come, in this order. Raises MissingBlobError."""
        return self._fetch(self._get, blob_ids)

    def get_ranges(self, wanted: Sequence[BlobRange]) -> list[bytes]:
        """Return parts of blobs, each by one request."""
        return list(fetched(self._get_range, wanted))

    def delete_stale(self, before: str, needed: Collection[str]) -> None:
        """Delete all blobs whose ids are below `before` and not `needed`."""
        kept = {f"{blob_id}{self._suffix}" for blob_id in needed}
        named = (
            (each.path, each.path.rpartition("/")[2]) for each in self._storage.list(self._prefix)
        )
        stale = [path for path, name in named if name < before and name not in kept]
        for start in range(0, len(stale), _DELETES_AT_ONCE):
            self._storage.delete(stale[start : start + _DELETES_AT_ONCE])

    def _path(self, blob_id: str) -> str:
        folder = f"{blob_id[-1:]}/" if self._is_spread else ""
        return f"{self._prefix}{folder}{blob_id}{self._suffix}"

    def _put(self, path: str, body: bytes) -> None:
        try:
            self._storage.put(path, body)
        except OutcomeUnknownError as error:  # repeatable, so the caller may simply retry
            raise UnavailableError(f"{path} could not be stored: {error}") from error

    def _get_range(self, wanted: BlobRange) -> bytes:
        path = self._path(wanted.blob_id)
        with suppress(NotFoundError):
            # A join would hold all pieces and the body at once: that of a large snapshot twice.
            read = BytesIO()
            read.writelines(self._storage.stream(path, wanted.size_bytes, wanted.start, wanted.end))
            body = read.getvalue()
            if len(body) != wanted.end - wanted.start:
                raise CorruptDataError(f"{self._kind} {wanted.blob_id} is shorter than it was")
            return body
        raise MissingBlobError(wanted.blob_id, f"{self._kind} {wanted.blob_id}")

    def _get(self, blob_id: str) -> bytes:
        with suppress(NotFoundError):
            return self._storage.get(self._path(blob_id))
        raise MissingBlobError(blob_id, f"{self._kind} {blob_id}")
