"""Blobs of a state as items of DynamoDB: a hundred small ones are read by one request.

An item has a hash key `k`, a range key `i`, the bytes of one part as `body`, and how many `parts`
the blob has; beside them a format number and a checksum (`stored_items`). A blob that is larger
than an item may be is cut into parts:

    k = <state id>#<kind>#<bucket>      bucket = (crc32 of the blob id + part) mod HASH_BUCKETS
    i = <blob id>#<part>                part = 0000, 0001, ...

So deltas that many writers put at once go to several hash keys, each of which takes 1,000 write
units a second, and a large snapshot (79 MB, 11,300 parts) is spread over all of them. The hash keys
are known without a look, so that everything can be found, and begin with the id of the table, so
that a policy can name them (docs/security.md).

Crashes leave parts that nothing names: garbage. No order of writes matters, for a blob is read only
after a page or the manifest names it, and that happens after the last part was stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from dormouse.aws.batch_deletes import delete_items
from dormouse.aws.clients import ConditionFailedError, read_pages, reading, writing
from dormouse.aws.dynamodb import CHECKSUM, opened, sealed
from dormouse.errors import CorruptDataError, InvariantError, OutcomeUnknownError, UnavailableError
from dormouse.log.blobs import BlobRange, MissingBlobError
from dormouse.log.compaction import CompactionPolicy
from dormouse.log.engine import DEFAULTS, LogStateStore, Options
from dormouse.log.log import Log, Reader
from dormouse.log.pages import Pages
from dormouse.ports import Clock, Ids
from dormouse.retry_policy import WITHOUT_PAUSES, RetryPolicy
from dormouse.state.store import REBUILD
from dormouse.stored.checksums import crc32

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

    from dormouse.aws.dynamodb import Item


if TYPE_CHECKING:
    _Attributes = dict[str, AttributeValueTypeDef]

Kind = Literal["delta", "segment", "snapshot"]
_Part = tuple[str, int]
_Given = TypeVar("_Given")
_Made = TypeVar("_Made")

PART_BYTES = 7_000
"""With its other attributes an item takes 2 read units. A whole
snapshot costs by its bytes, however it is cut; a reader of a few keys fetches a few blocks of 10 to
20 KB, and whole items."""
HASH_BUCKETS: dict[Kind, int] = {"delta": 8, "segment": 4, "snapshot": 16}
_GETS_PER_REQUEST = 100
"""What DynamoDB takes. An answer has 16 MB at most; the rest of a larger one is requested again."""
_REQUESTS_AT_ONCE = 8
MOST_PARTS = 1_000_000
_FEW = 16
_FIRST_KEY = "!"
"""Below all range keys."""


class DynamoBlobs:
    """A `BlobStore` of items; safe for many threads, as the client is."""

    def __init__(
        self,
        client: DynamoDBClient,
        table_name: str,
        state_id: str,
        kind: Kind,
        retry_policy: RetryPolicy,
    ) -> None:
        """Keep blobs of one kind of the state `state_id` in a DynamoDB table, which must exist."""
        self._client, self._table_name = client, table_name
        self._state_id, self._kind = state_id, kind
        self._retry_policy = retry_policy

    def put(self, blob_id: str, body: bytes) -> None:
        """Store a blob under a new id, in as many parts as it needs; retry each part that fails."""
        view = memoryview(body)
        starts = range(0, max(1, len(body)), PART_BYTES)

        def put_part(part: int) -> None:
            piece = bytes(view[starts[part] : starts[part] + PART_BYTES])
            stored = sealed(
                self._kind,
                {
                    **self._key(blob_id, part),
                    "body": {"B": piece},
                    "parts": {"N": str(len(starts))},
                },
            )
            self._retry_policy.retry(lambda: self._put_item(stored, self._name(blob_id, part)))

        _side_by_side(put_part, range(len(starts)))

    def get(self, blob_ids: Sequence[str]) -> list[bytes]:
        """Return the blobs of these ids: one request for a hundred that are small.

        Raises:
            MissingBlobError: one of them does not exist, or lacks a part.
            CorruptDataError: one of them is damaged.
        """
        found = self._parts([(blob_id, 0) for blob_id in blob_ids])
        counts = {blob_id: found[blob_id, 0][1] for blob_id in blob_ids}
        rest = [(blob_id, part) for blob_id, n in counts.items() for part in range(1, n)]
        found |= self._parts(rest)
        return [
            b"".join(found[blob_id, part][0] for part in range(counts[blob_id]))
            for blob_id in blob_ids
        ]

    def stream(self, blob_ids: Sequence[str]) -> Iterator[bytes]:
        """Yield the blobs of these ids, in this order; they come together. Raises: as `get`."""
        yield from self.get(blob_ids)

    def get_ranges(self, wanted: Sequence[BlobRange]) -> list[bytes]:
        """Return parts of blobs: all items that have some of them by one request, if they are few.

        Raises: as `get`.
        """
        found = self._ranges(wanted)
        for each in wanted:
            if each not in found:  # a part is lost: say which
                found[each] = self._of_range(each, self.get([each.blob_id])[0][each.start :])
        return [found[each] for each in wanted]

    def _ranges(self, wanted: Sequence[BlobRange]) -> dict[BlobRange, bytes]:
        """Return parts of blobs, as far as all their items are there."""
        items = {
            each: range(each.start // PART_BYTES, -(-each.end // PART_BYTES)) for each in wanted
        }
        parts = {(each.blob_id, part): None for each, numbers in items.items() for part in numbers}
        found, ranges = self._there([*parts]), {}
        for each, numbers in items.items():
            there = [part for part in numbers if _range_key(each.blob_id, part) in found]
            pieces = [self._opened(each.blob_id, part, found) for part in there]
            count = -(-each.size_bytes // PART_BYTES)
            if len(there) == len(numbers) and all(parts == count for _, parts in pieces):
                body = b"".join(piece for piece, _ in pieces)
                ranges[each] = self._of_range(each, body[each.start - numbers.start * PART_BYTES :])
        return ranges

    def _of_range(self, wanted: BlobRange, body: bytes) -> bytes:
        """Return what is wanted of a body that begins with it."""
        size_bytes = wanted.end - wanted.start
        if len(body) < size_bytes:
            raise CorruptDataError(
                f"{self._kind} {wanted.blob_id} is smaller than the {wanted.size_bytes:,} bytes "
                "that it should have"
            )
        return body[:size_bytes]

    def delete_stale(self, before: str, needed: Collection[str]) -> None:
        """Delete all blobs, and parts of blobs, whose ids are below `before` and not `needed`."""
        ranges = _gaps(before, needed)
        for hash_key in self._hash_keys():
            for low, high in ranges:
                keys = [
                    key
                    for key in self._keys(hash_key, low, high)
                    if key["i"]["S"].rpartition("#")[0] not in needed
                ]
                delete_items(self._client, self._table_name, keys, self._retry_policy)

    def _parts(self, wanted: Sequence[_Part]) -> dict[_Part, tuple[bytes, int]]:
        """Return the bytes of parts, and how many parts the blob of each has."""
        found = self._there(wanted)
        return {(blob_id, part): self._opened(blob_id, part, found) for blob_id, part in wanted}

    def _there(self, wanted: Sequence[_Part]) -> dict[str, _Attributes]:
        """Return the items of parts, as far as they exist, by range key."""
        starts = range(0, len(wanted), _GETS_PER_REQUEST)
        chunks = [wanted[at : at + _GETS_PER_REQUEST] for at in starts]
        found: dict[str, _Attributes] = {}
        for items in _side_by_side(self._fetch, chunks):
            found |= items
        return found

    def _fetch(self, wanted: Sequence[_Part]) -> dict[str, _Attributes]:
        """Return the items of parts, as far as they exist, by range key.

        An item never changes, so what any replica has of it is right, for half the read units of a
        consistent read. Only that one proves that an item does not exist.
        """
        keys = {_range_key(*part): self._key(*part) for part in wanted}
        found = self._items([*keys.values()], is_consistent=False)
        missing = [key for name, key in keys.items() if name not in found]
        return found | self._items(missing, is_consistent=True)

    def _items(
        self, wanted: Sequence[_Attributes], *, is_consistent: bool
    ) -> dict[str, _Attributes]:
        found: dict[str, _Attributes] = {}

        def request(keys: Sequence[_Attributes]) -> list[_Attributes]:
            with reading("DynamoDB"):
                answer = self._client.batch_get_item(
                    RequestItems={self._table_name: {"Keys": keys, "ConsistentRead": is_consistent}}
                )
            for item in answer["Responses"].get(self._table_name, []):
                found[item["i"]["S"]] = item
            left = answer["UnprocessedKeys"].get(self._table_name)
            return [dict(key) for key in left["Keys"]] if left else []

        self._retry_policy.finish(wanted, request)
        return found

    def _opened(self, blob_id: str, part: int, found: dict[str, _Attributes]) -> tuple[bytes, int]:
        item = found.get(_range_key(blob_id, part))
        if item is None:
            what = self._name(blob_id, part) if part else f"{self._kind} {blob_id}"
            raise MissingBlobError(blob_id, what)
        problem = f"{self._name(blob_id, part)} of table {self._state_id} is damaged"
        with opened(self._kind, item, problem, hint=REBUILD):
            body, parts = item["body"]["B"], int(item["parts"]["N"])
            if not isinstance(body, bytes) or not 0 < parts <= MOST_PARTS:
                raise ValueError("its body or its number of parts is not what this class writes")
            return body, parts

    def _put_item(self, item: Item, name: str) -> None:
        try:
            with writing("DynamoDB"):
                self._client.put_item(
                    TableName=self._table_name,
                    Item=item,
                    ConditionExpression="attribute_not_exists(k) OR #sum = :sum",
                    ExpressionAttributeNames={"#sum": CHECKSUM},
                    ExpressionAttributeValues={":sum": item[CHECKSUM]},
                )
        except OutcomeUnknownError as error:  # repeatable, so the caller may simply retry
            raise UnavailableError(str(error)) from error
        except ConditionFailedError as error:
            raise InvariantError(
                f"{name} of table {self._state_id} exists with other bytes; nothing was changed",
                hint="an id is made for one blob: look for two processes that make the same ids",
            ) from error

    def _keys(self, hash_key: str, low: str, high: str) -> Iterator[_Attributes]:
        """Yield the keys of the items of a hash key between two range keys, damaged or not."""
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table_name,
            ConsistentRead=True,
            KeyConditionExpression="k = :k AND i BETWEEN :low AND :high",
            ExpressionAttributeValues={
                ":k": {"S": hash_key},
                ":low": {"S": low},
                ":high": {"S": high},
            },
            ProjectionExpression="k, i",
        )
        for page in read_pages("DynamoDB", pages):
            yield from ({"k": item["k"], "i": item["i"]} for item in page["Items"])

    def _hash_keys(self) -> list[str]:
        return [self._hash_key(bucket) for bucket in range(HASH_BUCKETS[self._kind])]

    def _hash_key(self, bucket: int) -> str:
        return f"{self._state_id}#{self._kind}#{bucket}"

    def _key(self, blob_id: str, part: int) -> _Attributes:
        bucket = (crc32(blob_id.encode()) + part) % HASH_BUCKETS[self._kind]
        return {"k": {"S": self._hash_key(bucket)}, "i": {"S": _range_key(blob_id, part)}}

    def _name(self, blob_id: str, part: int) -> str:
        return f"part {part} of {self._kind} {blob_id}"


def _range_key(blob_id: str, part: int) -> str:
    return f"{blob_id}#{part:04d}"


def _gaps(before: str, needed: Collection[str]) -> list[tuple[str, str]]:
    """Return the ranges of range keys below `before` that hold nothing needed.

    A query costs by the bytes of the items that it passes, so the parts of a kept snapshot,
    megabytes of them, are left out. With needed ids 3 and 5, and 7 as `before`, the ranges are
    those of the ids below 3, between 3 and 5, and between 5 and 7. Of many needed ids, which are
    those of small deltas, one range passes over all.
    """
    kept = sorted(blob_id for blob_id in needed if blob_id < before)
    if len(kept) > _FEW:
        return [(_FIRST_KEY, before)]
    # "$" follows "#" in order: "<id>$" is above all parts of an id and below all later ids.
    return list(zip([_FIRST_KEY, *(f"{each}$" for each in kept)], [*kept, before], strict=True))


def _side_by_side(work: Callable[[_Given], _Made], parts: Sequence[_Given]) -> list[_Made]:
    """Return `work` of each part, in order, several at once."""
    if len(parts) < 2:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(min(len(parts), _REQUESTS_AT_ONCE)) as pool:
        return list(pool.map(work, parts))


# The state store that keeps everything as items of DynamoDB, for many processes that commit.
#
# It is the engine of the S3 store over three tables of DynamoDB: the log, the deltas (with the
# segments), the snapshots. A process that commits fetches what others committed meanwhile: a
# hundred deltas in one request, where S3 needs a hundred. What this costs is written by the
# kilobyte, so deltas are packed into less than one, and snapshots are written more rarely.

COMPACTION = CompactionPolicy(snapshot_share=5)


@dataclass(frozen=True, slots=True)
class BlobTables:
    """The DynamoDB tables that hold the blobs of all tables of an instance, and their client."""

    client: DynamoDBClient
    deltas: str
    snapshots: str


class DynamoDBStateStore(LogStateStore):
    """The engine over items of DynamoDB."""

    def __init__(
        self,
        table_id: str,
        tables: BlobTables,
        pages: Pages,
        clock: Clock,
        ids: Ids,
        *,
        retry_policy: RetryPolicy = WITHOUT_PAUSES,
        options: Options = DEFAULTS,
    ) -> None:
        """Use the state of `table_id`; nothing is read yet."""

        def blobs(table_name: str, kind: Kind) -> DynamoBlobs:
            return DynamoBlobs(tables.client, table_name, table_id, kind, retry_policy)

        reader = Reader(
            Log(table_id, pages, retry_policy, options.name),
            deltas=blobs(tables.deltas, "delta"),
            segments=blobs(tables.deltas, "segment"),
            snapshots=blobs(tables.snapshots, "snapshot"),
        )
        super().__init__(reader, clock, ids, options, COMPACTION)
