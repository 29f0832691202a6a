"""Blobs: the immutable deltas, segments and snapshots of one table, by id.

This is one of the three ports of the engine; the other two, the log and its head, are in
`log.pages`. The adapters are `log.objects` and `items.blobs`.

An id is 32 hex digits that begin with the time of its making, so ids sort by age. It is made for
one blob: what is put again under it has the same bytes. A blob is garbage when its id is below the
low-water mark and neither a page of the log nor the manifest names it.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

from dormouse.errors import NotFoundError

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
