"""What a blob store promises, whatever it keeps blobs in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from botocore.exceptions import ReadTimeoutError

from dormouse.aws.items import attributes_of
from dormouse.errors import CorruptDataError, InvariantError, UnavailableError
from dormouse.items import blobs as item_blobs
from dormouse.items.blobs import BUCKETS, PART_BYTES, ItemBlobs, Kind, ObjectBlobs
from dormouse.items.store import Key, put
from dormouse.log.blobs import ABOVE_ALL_IDS, BlobRange, BlobStore, MissingBlobError
from dormouse.storage import FolderStorage
from dormouse.system import RetryPolicy
from tests.contract.state_items import dynamodb_tables
from tests.support.damaged_items import damages
from tests.support.memory_dynamodb import MemoryDynamoDB
from tests.support.memory_items import MemoryItems
from tests.support.memory_storage import MemoryStorage
from tests.support.retries import WITHOUT_PAUSES

HOMES = ("memory", "folder", "memory items", "fake items", "items")
IDS = [f"{number:032x}" for number in range(40)]
LARGE = bytes(range(256)) * 150  # three items

Open = Callable[[Kind], BlobStore]


@pytest.fixture(params=HOMES)
def opened(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Open]:
    """Open the blobs of a kind."""
    if request.param in ("memory", "folder"):
        storage = MemoryStorage() if request.param == "memory" else FolderStorage(tmp_path)
        yield lambda kind: ObjectBlobs(storage, "t", kind, WITHOUT_PAUSES)
    elif request.param == "items":
        with dynamodb_tables(monkeypatch) as (remote, _):
            yield lambda kind: ItemBlobs(remote, "t", kind, WITHOUT_PAUSES)
    else:
        items = MemoryItems() if request.param == "memory items" else MemoryDynamoDB().items()
        yield lambda kind: ItemBlobs(items, "t", kind, WITHOUT_PAUSES)


@pytest.fixture
def blobs(opened: Open) -> BlobStore:
    return opened("delta")


def there(blobs: BlobStore, ids: list[str]) -> list[str]:
    """Return which of these blobs exist."""

    def is_there(blob_id: str) -> bool:
        try:
            blobs.get([blob_id])
        except MissingBlobError:
            return False
        return True

    return [blob_id for blob_id in ids if is_there(blob_id)]


def test_blobs_of_any_size_come_back_in_the_order_requested(blobs: BlobStore) -> None:
    bodies = {IDS[2]: b"small", IDS[0]: LARGE, IDS[1]: b"", IDS[3]: LARGE[:PART_BYTES]}
    for blob_id, body in bodies.items():
        blobs.put(blob_id, body)
    assert blobs.get(list(bodies)) == list(bodies.values())
    assert blobs.get([]) == []


def test_more_than_a_hundred_blobs_come_back_at_once(blobs: BlobStore) -> None:
    ids = [f"{number:032x}" for number in range(230)]
    for blob_id in ids:
        blobs.put(blob_id, blob_id.encode())
    assert blobs.get(ids) == [blob_id.encode() for blob_id in ids]


def test_a_put_can_be_repeated(blobs: BlobStore) -> None:
    for body in (LARGE, LARGE):
        blobs.put(IDS[0], body)
    assert blobs.get([IDS[0]]) == [LARGE]


def test_a_blob_that_does_not_exist_is_named(blobs: BlobStore) -> None:
    blobs.put(IDS[0], b"there")
    with pytest.raises(MissingBlobError, match=f"delta {IDS[1]}") as missing:
        blobs.get([IDS[0], IDS[1]])
    assert missing.value.blob_id == IDS[1]


@pytest.mark.parametrize(
    "needed", [(), IDS[3:4], [IDS[0], IDS[5], IDS[6], IDS[30]], IDS[::2], IDS[1:20]]
)
def test_what_is_below_the_mark_and_not_needed_is_deleted_and_nothing_else(
    blobs: BlobStore, needed: list[str]
) -> None:
    for blob_id in IDS:
        blobs.put(blob_id, b"x")
    blobs.delete_stale(IDS[20], needed)
    assert there(blobs, IDS) == sorted({*IDS[20:], *needed})


def test_all_parts_of_a_large_blob_are_deleted_and_those_of_a_needed_one_stay(
    blobs: BlobStore,
) -> None:
    for blob_id in IDS[:3]:
        blobs.put(blob_id, LARGE)
    blobs.delete_stale(ABOVE_ALL_IDS, [IDS[1]])
    assert there(blobs, IDS[:3]) == [IDS[1]]
    assert blobs.get([IDS[1]]) == [LARGE]
    blobs.delete_stale(ABOVE_ALL_IDS, ())
    assert there(blobs, IDS[:3]) == []


def test_kinds_do_not_touch(opened: Open) -> None:
    kinds: list[Kind] = ["delta", "segment", "snapshot"]
    for kind in kinds:
        opened(kind).put(IDS[0], kind.encode())
    opened("segment").delete_stale(ABOVE_ALL_IDS, ())
    assert there(opened("segment"), IDS[:1]) == []
    for kind in ("delta", "snapshot"):
        assert opened(kind).get([IDS[0]]) == [kind.encode()]


# Items only


@pytest.fixture
def fake() -> MemoryDynamoDB:
    return MemoryDynamoDB()


def of(fake: MemoryDynamoDB, kind: Kind = "delta", **policy: Any) -> ItemBlobs:
    retries = RetryPolicy(lambda _: None, lambda: 0.0, **policy)
    return ItemBlobs(fake.items(retries), "t", kind, retries)


def test_a_large_snapshot_is_spread_over_all_hash_keys_each_with_the_tables_prefix(
    fake: MemoryDynamoDB,
) -> None:
    fake.per_batch = 100
    body = bytes(12 * 1024 * 1024)
    of(fake, "snapshot").put(IDS[0], body)
    hash_keys = {hash_key for _, hash_key, _ in fake.kept}
    assert len(hash_keys) == BUCKETS["snapshot"]
    assert all(hash_key.startswith("t#") for hash_key in hash_keys)
    assert all(len(item["body"]["B"]) <= PART_BYTES + 4 for item in fake.kept.values())
    assert of(fake, "snapshot").get([IDS[0]]) == [body]


def test_the_deltas_of_many_writers_go_to_many_hash_keys(fake: MemoryDynamoDB) -> None:
    for blob_id in IDS:
        of(fake).put(blob_id, b"x")
    assert len({hash_key for _, hash_key, _ in fake.kept}) == BUCKETS["delta"]


def test_a_hundred_deltas_are_one_request_but_what_a_replica_lacks(fake: MemoryDynamoDB) -> None:
    fake.per_batch = 100
    for blob_id in IDS:
        of(fake).put(blob_id, b"x")
    calls: list[str] = []
    fake.hook = calls.append
    of(fake).get(IDS)
    assert calls == ["before batch_get_item", "after batch_get_item"] * 2
    of(fake).put("later", b"x")
    calls.clear()
    of(fake).get(IDS)
    assert calls == ["before batch_get_item", "after batch_get_item"]


def test_a_collection_does_not_pass_over_the_parts_of_a_snapshot_that_is_kept(
    fake: MemoryDynamoDB,
) -> None:
    """A query costs what the items are big that it passes."""
    for blob_id in IDS[:3]:
        of(fake, "snapshot").put(blob_id, LARGE)
    passed: list[str] = []
    paginate = fake.paginate

    def watched(**query: Any) -> Iterator[dict[str, Any]]:
        for page in paginate(**query):
            passed.extend(item["i"]["S"].partition("#")[0] for item in page["Items"])
            yield page

    fake.paginate = watched  # type: ignore[method-assign]
    of(fake, "snapshot").delete_stale(IDS[9], [IDS[1]])
    assert set(passed) == {IDS[0], IDS[2]}


@pytest.mark.parametrize("opened", HOMES[2:], indirect=True)
def test_other_bytes_under_an_id_that_exists_are_refused(blobs: BlobStore) -> None:
    blobs.put(IDS[0], b"one")
    with pytest.raises(InvariantError, match=f"part 0 of delta {IDS[0]}") as refused:
        blobs.put(IDS[0], b"other")
    assert refused.value.hint
    assert blobs.get([IDS[0]]) == [b"one"]


def test_a_lost_part_is_named(fake: MemoryDynamoDB) -> None:
    of(fake, "snapshot").put(IDS[0], LARGE)
    lost = next(key for key in fake.kept if key[2].endswith("#0002"))
    del fake.kept[lost]
    with pytest.raises(MissingBlobError, match=f"part 2 of snapshot {IDS[0]}"):
        of(fake, "snapshot").get([IDS[0]])


def test_every_damage_to_an_item_is_noticed_and_named_with_what_mends_it(
    fake: MemoryDynamoDB,
) -> None:
    of(fake).put(IDS[0], b"delta")
    ((key, item),) = fake.kept.items()
    for what, damaged in damages(item, ("k", "i")):
        fake.kept[key] = damaged
        with pytest.raises(CorruptDataError, match=f"part 0 of delta {IDS[0]} of table t") as found:
            of(fake).get([IDS[0]])
        assert "dormouse rebuild" in found.value.hint or "format" in str(found.value), what


def test_an_item_of_one_blob_is_not_believed_under_the_key_of_another(fake: MemoryDynamoDB) -> None:
    for blob_id in IDS[:2]:
        of(fake).put(blob_id, blob_id.encode())
    one, other = sorted(fake.kept, key=lambda key: key[2])
    fake.kept[one] = {**fake.kept[other], "k": {"S": one[1]}, "i": {"S": one[2]}}
    with pytest.raises(CorruptDataError, match=IDS[0]):
        of(fake).get([IDS[0]])


@pytest.mark.parametrize("body", [b"", bytes(4), b"\xff" * 4, "text"])
def test_a_count_of_parts_that_nobody_writes_is_corrupt(
    fake: MemoryDynamoDB, body: bytes | str
) -> None:
    of(fake).put(IDS[0], b"delta")
    ((key, _),) = fake.kept.items()
    fake.kept[key] = attributes_of(put(Key("deltas", *key[1:]), body))
    with pytest.raises(CorruptDataError, match=IDS[0]):
        of(fake).get([IDS[0]])


@dataclass
class Busy:
    """Leaves the first so many requests wholly undone."""

    refusals: int
    calls: int = 0

    def __call__(self, fake: MemoryDynamoDB) -> Callable[[str], None]:
        def hook(call: str) -> None:
            if call.startswith("before batch"):
                self.calls += 1
                fake.per_batch = 0 if self.calls <= self.refusals else 5

        return hook


def test_parts_that_a_busy_table_left_undone_are_retried_a_bounded_number_of_times(
    fake: MemoryDynamoDB,
) -> None:
    for blob_id in IDS:
        of(fake).put(blob_id, b"x")
    fake.hook = Busy(refusals=3)(fake)
    assert of(fake, attempts=4).get(IDS) == [b"x"] * len(IDS)
    fake.hook = Busy(refusals=4)(fake)
    with pytest.raises(UnavailableError, match="4 times in a row"):
        of(fake, attempts=4).get(IDS)
    fake.hook = Busy(refusals=3)(fake)
    of(fake, attempts=4).delete_stale(ABOVE_ALL_IDS, ())
    assert fake.kept == {}


def test_a_put_that_is_not_answered_is_repeated_part_by_part(fake: MemoryDynamoDB) -> None:
    lock, unanswered, place = threading.Lock(), [3], "after"

    def hook(call: str) -> None:
        with lock:
            if call == f"{place} put_item" and unanswered[0]:
                unanswered[0] -= 1
                raise ReadTimeoutError(endpoint_url="dynamodb")

    fake.hook = hook
    of(fake).put(IDS[0], LARGE)
    assert of(fake).get([IDS[0]]) == [LARGE]
    unanswered[0], place = 100, "before"
    with pytest.raises(UnavailableError):
        of(fake, attempts=3).put(IDS[1], b"x")


def test_ranges_of_a_blob_that_was_cut_into_items_of_another_size_are_read(
    fake: MemoryDynamoDB,
) -> None:
    with patch.object(item_blobs, "PART_BYTES", 30_000):
        of(fake).put(IDS[0], LARGE)
    wanted = [BlobRange(IDS[0], len(LARGE), *ends) for ends in ((0, 10), (33_000, 38_000))]
    assert of(fake).get_ranges(wanted) == [LARGE[:10], LARGE[33_000:38_000]]
    fake.kept = {key: item for key, item in fake.kept.items() if not key[2].endswith("#0001")}
    with pytest.raises(MissingBlobError):
        of(fake).get_ranges(wanted)
