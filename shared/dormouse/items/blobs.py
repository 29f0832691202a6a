"""Blobs of a state as items that never change: a hundred small ones are read by one request.

A blob that is larger than an item may be is cut into parts::

    owner = <state id>#<kind>#<bucket>      bucket = (crc32 of the blob id + part) mod BUCKETS
    name  = <blob id>#<part>                part = 0000, 0001, ...
    body  = how many parts the blob has, in 4 bytes, and the bytes of this one

So deltas that many writers put at once go to several owners, each of which takes 1,000 write units
of DynamoDB a second, and a large snapshot (79 MB, 11,300 parts) is spread over all of them. The
owners are known without a look, so that everything can be found, and begin with the id of the
table, so that a policy can name them (docs/security.md).

Crashes leave parts that nothing names: garbage. No order of writes matters, for a blob is read only
after a page or the manifest names it, and that happens after the last part was stored.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from typing import Literal

from dormouse.errors import (
    CorruptDataError,
    InvariantError,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from dormouse.items.store import ABSENT, BODY, Item, ItemStore, Key, Put, Space, put
from dormouse.log.blobs import BlobRange, Fetch, MissingBlobError, fetched
from dormouse.log.log import Log, Reader
from dormouse.ports import Storage
from dormouse.state.rules import REBUILD
from dormouse.stored.checksums import crc32
from dormouse.stored.decoding import raise_corrupt
from dormouse.stored.paths import blob_prefix
from dormouse.system import RetryPolicy

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


Kind = Literal["delta", "segment", "snapshot"]
_Part = tuple[str, int]

SPACES: dict[Kind, Space] = {"delta": "deltas", "segment": "deltas", "snapshot": "snapshots"}
BUCKETS: dict[Kind, int] = {"delta": 8, "segment": 4, "snapshot": 16}
PART_BYTES = 7_000
"""With its other attributes an item takes 2 read units of DynamoDB. A whole snapshot costs by its
bytes, however it is cut; a reader of a few keys fetches a few blocks of 10 to 20 KB, and whole
items."""
MOST_PARTS = 1_000_000
_COUNT_BYTES = 4
_PUTS_AT_ONCE = 8
_FEW = 16
_FIRST = "!"
"""Below all names."""


class ItemBlobs:
    """A `BlobStore` of items; safe for many threads, as the items are."""

    def __init__(
        self,
        items: ItemStore,
        state_id: str,
        kind: Kind,
        retry_policy: RetryPolicy,
        *,
        part_bytes: int | None = None,
        defer: Callable[[Put], None] | None = None,
    ) -> None:
        """Keep blobs of one kind of the state `state_id`, in parts of `part_bytes`. With `defer`,
        they are put by that: with the id that the log gets of them, and nothing reads one before.
        """
        self._items, self._state_id, self._kind = items, state_id, kind
        self._retry_policy, self._defer = retry_policy, defer
        self._part_bytes = part_bytes or PART_BYTES

    def put(self, blob_id: str, body: bytes) -> None:
        """Store a blob under a new id, in as many parts as it needs; retry each part that fails."""
        view = memoryview(body)
        starts = range(0, max(1, len(body)), self._part_bytes)
        count = len(starts).to_bytes(_COUNT_BYTES)

        def put_part(part: int) -> None:
            piece = count + view[starts[part] : starts[part] + self._part_bytes]
            self._retry_policy.retry(lambda: self._put(blob_id, part, piece))

        list(fetched(put_part, range(len(starts)), _PUTS_AT_ONCE))

    def get(self, blob_ids: Sequence[str]) -> list[bytes]:
        """Return the blobs of these ids.

        Raises:
            MissingBlobError: one of them does not exist, or lacks a part.
            CorruptDataError: one of them is damaged.
        """
        pieces = self._pieces((blob_id, 0) for blob_id in blob_ids)
        counts = {blob_id: pieces[blob_id, 0][1] for blob_id in blob_ids}
        pieces |= self._pieces((each, part) for each, n in counts.items() for part in range(1, n))
        return [
            b"".join(pieces[blob_id, part][0] for part in range(counts[blob_id]))
            for blob_id in blob_ids
        ]

    def stream(self, blob_ids: Sequence[str]) -> Iterator[bytes]:
        """Yield the blobs of these ids, in this order; they come together. Raises: as `get`."""
        yield from self.get(blob_ids)

    def get_ranges(self, ranges: Sequence[BlobRange]) -> list[bytes]:
        """Return parts of blobs: all items that have some of them by one request, if they are few.
        Raises: as `get`.
        """
        part_bytes = self._part_bytes
        numbers = {
            each: range(each.start // part_bytes, -(-each.end // part_bytes)) for each in ranges
        }
        items = self._there((each.blob_id, part) for each in ranges for part in numbers[each])
        return [self._range(each, numbers[each], items) for each in ranges]

    def _range(
        self, span: BlobRange, numbers: Sequence[int], items: dict[_Part, Item | None]
    ) -> bytes:
        """Return a part of a blob, of which these items are there."""
        parts = [(span.blob_id, part) for part in numbers]
        pieces = [self._piece(part, items[part]) for part in parts if items[part]]
        count, start = -(-span.size_bytes // self._part_bytes), span.start
        if len(pieces) == len(parts) and all(parts_ == count for _, parts_ in pieces):
            body, start = b"".join(piece for piece, _ in pieces), start % self._part_bytes
        else:  # a part is lost: say which; or it was cut otherwise
            (body,) = self.get([span.blob_id])
        section = body[start : start + span.end - span.start]
        if len(section) < span.end - span.start:
            raise CorruptDataError(
                f"{self._kind} {span.blob_id} is smaller than the {span.size_bytes:,} bytes "
                "that it should have"
            )
        return section

    def delete_stale(self, before: str, needed: Collection[str]) -> None:
        """Delete all blobs, and parts of blobs, whose ids are below `before` and not `needed`."""
        for bucket in range(BUCKETS[self._kind]):
            place = SPACES[self._kind], self._owner(bucket)
            for least, most in _gaps(before, needed):
                names = self._items.names(*place, least=least, most=most)
                stale = [name for name in names if name.rpartition("#")[0] not in needed]
                self._items.delete(Key(*place, name) for name in stale)

    def _pieces(self, parts: Iterable[_Part]) -> dict[_Part, tuple[bytes, int]]:
        """Return the bytes of parts, and how many parts the blob of each has."""
        return {part: self._piece(part, item) for part, item in self._there(parts).items()}

    def _there(self, parts: Iterable[_Part]) -> dict[_Part, Item | None]:
        places = [*dict.fromkeys(parts)]
        keys = [self._key(*part) for part in places]
        return dict(zip(places, self._items.get(*keys, never_change=True), strict=True))

    def _piece(self, part: _Part, item: Item | None) -> tuple[bytes, int]:
        if item is None:
            name = self._name(*part) if part[1] else f"{self._kind} {part[0]}"
            raise MissingBlobError(part[0], name)
        problem = f"{self._name(*part)} of table {self._state_id} is damaged"
        with raise_corrupt(problem, hint=REBUILD):
            body = item.data(BODY)
            count = int.from_bytes(body[:_COUNT_BYTES])
            if not 0 < count <= MOST_PARTS:
                raise ValueError("its number of parts is not what this class writes")
            return body[_COUNT_BYTES:], count

    def _put(self, blob_id: str, part: int, piece: bytes) -> None:
        change = put(self._key(blob_id, part), piece, ABSENT)
        if self._defer is not None:
            self._defer(change)
            return
        try:
            if self._items.write(change):
                return
            (item,) = self._items.get(change.key, never_change=True)
        except OutcomeUnknownError as error:  # repeatable, so the caller may simply retry
            raise UnavailableError(str(error)) from error
        if item is not None and item.parts != change.item().parts:
            raise InvariantError(
                f"{self._name(blob_id, part)} of table {self._state_id} exists with other bytes; "
                "nothing was changed",
                hint="an id is made for one blob: look for two processes that make the same ids",
            )

    def _owner(self, bucket: int) -> str:
        return f"{self._state_id}#{self._kind}#{bucket}"

    def _key(self, blob_id: str, part: int) -> Key:
        owner = self._owner((crc32(blob_id.encode()) + part) % BUCKETS[self._kind])
        return Key(SPACES[self._kind], owner, f"{blob_id}#{part:04d}")

    def _name(self, blob_id: str, part: int) -> str:
        return f"part {part} of {self._kind} {blob_id}"


def _gaps(before: str, needed: Collection[str]) -> list[tuple[str, str]]:
    """Return the ranges of names below `before` that hold nothing needed.

    A query costs by the bytes of the items that it passes, so the parts of a kept snapshot,
    megabytes of them, are left out. With needed ids 3 and 5, and 7 as `before`, the ranges are
    those of the ids below 3, between 3 and 5, and between 5 and 7. Of many needed ids, which are
    those of small deltas, one range passes over all.
    """
    survivors = sorted(blob_id for blob_id in needed if blob_id < before)
    if len(survivors) > _FEW:
        return [(_FIRST, before)]
    # "$" follows "#" in order: "<id>$" is above all parts of an id and below all later ids.
    return list(
        zip([_FIRST, *(f"{each}$" for each in survivors)], [*survivors, before], strict=True)
    )


SNAPSHOT_SHARE = 5
FILES_PART_BYTES = 1024 * 1024
"""A larger delta in SQLite, of some thousand shards, takes several items."""


def items_reader(log: Log, items: ItemStore) -> Reader:
    """Return the reader of a state in items alone, for many processes that commit.

    A process that commits fetches what others committed meanwhile: a hundred deltas in one request
    to DynamoDB, where S3 needs a hundred. What this costs is written by the kilobyte, so deltas are
    packed into less than one, and snapshots are written more rarely.
    """
    place, tries = (items, log.table_id), log.retry_policy
    return Reader(
        log,
        ItemBlobs(*place, "delta", tries),
        ItemBlobs(*place, "segment", tries),
        ItemBlobs(*place, "snapshot", tries),
        snapshot_share=SNAPSHOT_SHARE,
    )


def files_reader(
    log: Log, storage: Storage, items: ItemStore, defer: Callable[[Put], None] | None = None
) -> Reader:
    """Return the reader of a state in a folder: deltas are items of its SQLite file, what is large
    is a file. A small delta is written in half the time that a file of its own takes, with its
    name; with `defer`, it is put by that: with the next change of the log.
    """
    place, tries = (storage, log.table_id), log.retry_policy
    part_bytes = FILES_PART_BYTES
    return Reader(
        log,
        ItemBlobs(items, log.table_id, "delta", tries, part_bytes=part_bytes, defer=defer),
        ObjectBlobs(*place, "segment", tries),
        ObjectBlobs(*place, "snapshot", tries),
    )
