"""Blobs of a state as objects below a prefix: one object each.

S3 serves so many requests a second below a prefix, and 32 writers ask for 10,000 deltas a second.
So deltas lie below sixteen prefixes, by the last digit of their ids, which is random.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from io import BytesIO

from dormouse.errors import CorruptDataError, NotFoundError, OutcomeUnknownError, UnavailableError
from dormouse.log.blobs import BlobRange, Fetch, MissingBlobError, fetched
from dormouse.ports import Storage
from dormouse.stored.paths import blob_prefix
from dormouse.system import RetryPolicy

PARQUET_SUFFIX = ".parquet"
_DELETES_AT_ONCE = 1000


class ObjectBlobs:
    """A `BlobStore` of objects; `kind` names them in errors."""

    def __init__(
        self,
        storage: Storage,
        state_id: str,
        kind: str,
        retry_policy: RetryPolicy,
        *,
        suffix: str = PARQUET_SUFFIX,
        is_spread: bool = False,
        fetch: Fetch = fetched,
    ) -> None:
        """Keep blobs under ``<prefix><id><suffix>``, or ``<prefix><digit>/<id><suffix>``."""
        self._storage, self._prefix, self._kind = storage, blob_prefix(state_id, kind), kind
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

    def get_ranges(self, ranges: Sequence[BlobRange]) -> list[bytes]:
        """Return parts of blobs, each by one request."""
        return list(fetched(self._get_range, ranges))

    def delete_stale(self, before: str, needed: Collection[str]) -> None:
        """Delete all blobs whose ids are below `before` and not `needed`."""
        names = {f"{blob_id}{self._suffix}" for blob_id in needed}
        objects = (
            (each.path, each.path.rpartition("/")[2]) for each in self._storage.list(self._prefix)
        )
        stale = [path for path, name in objects if name < before and name not in names]
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

    def _get_range(self, span: BlobRange) -> bytes:
        path = self._path(span.blob_id)
        with suppress(NotFoundError):
            # A join would hold all pieces and the body at once: that of a large snapshot twice.
            buffer = BytesIO()
            buffer.writelines(self._storage.stream(path, span.size_bytes, span.start, span.end))
            body = buffer.getvalue()
            if len(body) != span.end - span.start:
                raise CorruptDataError(f"{self._kind} {span.blob_id} is shorter than it was")
            return body
        raise MissingBlobError(span.blob_id, f"{self._kind} {span.blob_id}")

    def _get(self, blob_id: str) -> bytes:
        with suppress(NotFoundError):
            return self._storage.get(self._path(blob_id))
        raise MissingBlobError(blob_id, f"{self._kind} {blob_id}")
