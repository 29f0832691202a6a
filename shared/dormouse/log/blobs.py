"""Blobs: the immutable deltas, segments and snapshots of one table, by id.

This is one of the three ports of the engine; the other two, the log and its head, are in
`log.pages`. The adapters are `ObjectBlobs` and `items.blobs`.

An id is 32 hex digits that begin with the time of its making, so ids sort by age. It is made for
one blob: what is put again under it has the same bytes. A blob is garbage when its id is below the
low-water mark and neither a page of the log nor the manifest names it.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Protocol, TypeVar

from dormouse.errors import CorruptDataError, NotFoundError, OutcomeUnknownError, UnavailableError
from dormouse.ports import Storage
from dormouse.stored.paths import blob_prefix
from dormouse.system import RetryPolicy

ABOVE_ALL_IDS = "~"
"""Every id is below this."""


class MissingBlobError(NotFoundError):
    """A blob, or a part of it, does not exist; `blob_id` says which, the message names the part."""

    def __init__(self, blob_id: str, what: str) -> None:
        super().__init__(what)
        self.blob_id = blob_id


@dataclass(frozen=True, slots=True)
class BlobRange:
    """The bytes from `start` up to `end` of a blob that has `size_bytes`."""

    blob_id: str
    size_bytes: int
    start: int
    end: int


class BlobStore(Protocol):
    """The blobs of one kind of one table. Every call may raise UnavailableError.

    A `put` that raised may have stored the blob or a part of it. That does no harm: nothing names
    the blob yet, so it is garbage.
    """

    def put(self, blob_id: str, body: bytes) -> None:
        """Store a blob under a new id, however large it is; retry what fails.

        Repeatable: a blob that exists under this id has these bytes.
        """

    def get(self, blob_ids: Sequence[str]) -> list[bytes]:
        """Return the blobs of these ids, in this order, several fetched at once.

        Raises:
            MissingBlobError: one of them does not exist, or lacks a part.
            CorruptDataError: one of them is damaged; the message names it.
        """

    def stream(self, blob_ids: Sequence[str]) -> Iterator[bytes]:
        """Yield the blobs of these ids as they come, in this order, several fetched at once.

        Raises: as `get`, once it comes to that blob.
        """

    def get_ranges(self, ranges: Sequence[BlobRange]) -> list[bytes]:
        """Return parts of blobs, in this order, several fetched at once.

        Raises:
            MissingBlobError: a blob does not exist, or lacks what is wanted of it.
            CorruptDataError: one has another size, or its storage says that it is damaged.
        """

    def delete_stale(self, before: str, needed: Collection[str]) -> None:
        """Delete all blobs, and parts of blobs, whose ids are below `before` and not `needed`."""


# What is done at once: a commit stores its delta and reads those of others, many together; who
# reads a part of the state reads what is kept of it and what was committed since.

_Result = TypeVar("_Result")
_Wanted = TypeVar("_Wanted")

AT_ONCE = 32
"""So many requests are under way together."""


class Overlap(Protocol):
    """Does two things and waits for both."""

    def __call__(self, first: Callable[[], _Result], second: Callable[[], object], /) -> _Result:
        """Return the result of `first`. Raises what either raises; of two errors, that of `first`.

        Both have ended when it returns or raises.
        """


class Fetch(Protocol):
    """Requests several things at once."""

    def __call__(
        self, get: Callable[[_Wanted], _Result], requests: Sequence[_Wanted], /
    ) -> Iterator[_Result]:
        """Yield what `get` returns for each, in order, each as soon as those before it are there.

        Raises what `get` raises. `get` may be called twice for one, and only reads.
        """


def in_turn(first: Callable[[], _Result], second: Callable[[], object]) -> _Result:
    """Do one after the other: for tests, and where requests take no time."""
    result = first()
    second()
    return result


def side_by_side(first: Callable[[], _Result], second: Callable[[], object]) -> _Result:
    """Do `second` on a thread of its own meanwhile."""
    with ThreadPoolExecutor(1) as thread:
        beside = thread.submit(second)
        result = first()
    beside.result()
    return result


def fetched(
    get: Callable[[_Wanted], _Result], requests: Sequence[_Wanted], at_once: int = AT_ONCE
) -> Iterator[_Result]:
    """Request each once; a `Fetch`."""
    if len(requests) < 2:
        yield from map(get, requests)
        return
    with ThreadPoolExecutor(min(len(requests), at_once)) as pool:
        yield from pool.map(get, requests)


# Blobs of a state as objects below a prefix: one object each.
#
# S3 serves so many requests a second below a prefix, and 32 writers ask for 10,000 deltas a second.
# So deltas lie below sixteen prefixes, by the last digit of their ids, which is random.

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
