"""What a table's state is kept in: deltas, segments and snapshots; pages, items, the registry."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any, cast

from hypothesis import strategies as st

from dormouse.aws.items import KEYS, DynamoItems, attributes_of, item_of
from dormouse.errors import CorruptDataError
from dormouse.items.blobs import ItemBlobs
from dormouse.items.pages import page_key, put_head
from dormouse.items.records import put_record, record_of
from dormouse.items.store import IDS, MARK, Key, Put, Space, put
from dormouse.items.tables import INSTANCE, id_key, settings_body, settings_of, table_body, table_of
from dormouse.log import blobs as codec_delta
from dormouse.log import increments as codec_increment
from dormouse.log import snapshot as codec_segment
from dormouse.log import snapshot as codec_snapshot
from dormouse.log.increments import decode_increment
from dormouse.log.pages import Head, Manifest, Snapshot
from dormouse.log.snapshot import decode_segment, decode_snapshot
from dormouse.state.jobs import JobRecord
from dormouse.stored import checksums
from dormouse.tables.table import Table
from tests.contract.state_pages import DynamoPages
from tests.fuzz.mutations import mangled, odd_tree
from tests.fuzz.samples import COUNTS
from tests.fuzz.targets import Target, refusing
from tests.support.deltas import decode_delta
from tests.support.retries import WITHOUT_PAUSES
from tests.unit.statestore.samples import DELTA, golden_files

_GOLDEN = golden_files()
_READERS: dict[str, Callable[[bytes], object]] = {
    f"all-{codec_delta.FORMAT}": lambda body: decode_delta(body, DELTA, "the/path"),
    f"segment-{codec_segment.FORMAT}": lambda body: decode_segment(body, "t", "the/path"),
    f"increment-{codec_increment.FORMAT}": lambda body: decode_increment("t", body, "the/path"),
    f"snapshot-{codec_snapshot.FORMAT}": lambda body: decode_snapshot("t", body, "the/path"),
}


@cache
def _read(name: str) -> object:
    return _READERS[name](_GOLDEN[name])


def _file(name: str, body: bytes) -> None:
    """A file that is not as it was written is refused by name, and never read as another state."""
    with refusing(CorruptDataError):
        try:
            assert _READERS[name](body) == _read(name)
        except CorruptDataError as error:
            assert "the/path" in str(error), error
            raise


def _resealed(name: str, body: bytes) -> None:
    """One whose checksum fits, as if something else had written it, ends no process."""
    try:
        start, digits = checksums.compute_checksum(_blank(body))
    except ValueError:
        return
    with refusing(CorruptDataError):
        found = _READERS[name](body[:start] + digits + body[start + len(digits) :])
        assert found is not None


def _blank(body: bytes) -> bytes:
    head, mark, tail = body.rpartition(b"blake2b:")
    return head + mark + b"0" * 32 + tail[32:]


class _Client:
    """A DynamoDB of which each request gives one item, whatever it asks for."""

    def __init__(self, item: Any) -> None:
        self._item = item

    def get_item(self, **_: object) -> dict[str, Any]:
        return {"Item": self._item}

    def batch_get_item(self, RequestItems: Any) -> dict[str, Any]:  # noqa: N803
        ((table, asked),) = RequestItems.items()
        found = [{**self._item, **key} for key in asked["Keys"]]
        return {"Responses": {table: found}, "UnprocessedKeys": {}}


_UNSTORABLE = (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError)


def _resealed_item(space: Space, item: Any) -> Any:
    """Return an item whose checksums fit what it holds, as far as it can be stored."""
    with suppress(*_UNSTORABLE):
        read = item_of(space, item)
        parts = {name: part.body for name, part in read.parts.items() if part.body is not None}
        return attributes_of(Put(read.key, parts, expires_s=read.expires_s))
    return item


_PAGE = attributes_of(Put(page_key("t", 0), {IDS: bytes(range(16)), MARK: bytes(range(16))}))
_HEAD = attributes_of(put_head("t", Head(3, Manifest(2, (Snapshot("ab" * 16, 9, 1, 1),)))))
_BLOB = Key("deltas", "t#delta#3", "name#0000")
_BLOBS = [attributes_of(put(_BLOB, parts.to_bytes(4) + b"abc")) for parts in (1, 2)]
_TABLE = attributes_of(put(id_key("t"), table_body(Table("t", "letters", COUNTS))))
_INSTANCE = attributes_of(put(INSTANCE, settings_body({"compaction_files": 3})))
_JOB = attributes_of(put_record(JobRecord("t", "j", "ingest", "finished", rows=3), None))


def _page(item: Any) -> None:
    for stored in (item, _resealed_item("state", item)):
        pages = DynamoPages(cast(Any, _Client(stored)), "state")
        for read in (partial(pages.page, "t", 0), partial(pages.head, "t")):
            with refusing(CorruptDataError):
                read()


def _item(item: Any) -> None:
    for stored in (item, _resealed_item("deltas", item)):
        items = DynamoItems(cast(Any, _Client(stored)), {"deltas": "deltas"}, WITHOUT_PAUSES)
        with refusing(CorruptDataError):
            ItemBlobs(items, "t", "delta", WITHOUT_PAUSES).get(["name"])


def _registered(item: Any) -> None:
    for stored in (item, _resealed_item("tables", item)):
        for read in (partial(table_of, defaults={}), settings_of):
            with refusing(CorruptDataError):
                read(item_of("tables", stored))


def _tracked(item: Any) -> None:
    for stored in (item, _resealed_item("jobs", item)):
        record_of(item_of("jobs", stored))


def _key_of(item: Any) -> dict[str, Any]:
    return {name: item[name] for names in KEYS.values() for name in names if name in item}


def _keyed(items: list[Any], keys: Any) -> st.SearchStrategy[Any]:
    """Return items with odd values; what a request was made by is as it was asked for."""
    return odd_tree(items).map(lambda item: ({**item} if isinstance(item, dict) else {}) | keys)


TARGETS: dict[str, Target] = {
    **{
        f"stored {name}": Target(mangled([_GOLDEN[name]]), partial(_file, name), quick=60)
        for name in _READERS
    },
    **{
        f"resealed {name}": Target(
            mangled([_GOLDEN[name]]), partial(_resealed, name), native=True, quick=100
        )
        for name in _READERS
    },
    "pages": Target(
        _keyed([_PAGE], _key_of(_PAGE)) | _keyed([_HEAD], _key_of(_HEAD)), _page, guided=True
    ),
    "jobs": Target(_keyed([_JOB], _key_of(_JOB)), _tracked, guided=True),
    "items": Target(_keyed(_BLOBS, _key_of(_BLOBS[0])), _item, guided=True),
    "registry": Target(
        _keyed([_TABLE, _INSTANCE], {"pk": {"S": "id#t"}}), _registered, guided=True
    ),
}
