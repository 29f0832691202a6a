"""What a table's state is kept in: deltas, segments and snapshots; pages, items, the registry."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any, cast

from hypothesis import strategies as st

from dormouse.aws.dynamodb.registry.table_items import (
    defaults_item,
    id_item,
    revision_of,
    settings_of,
    table_of,
)
from dormouse.aws.dynamodb.state.blobs import DynamoBlobs
from dormouse.aws.dynamodb.state.log_items import id_sum
from dormouse.aws.dynamodb.state.log_pages import DynamoPages
from dormouse.aws.dynamodb.stored_items import digest_of, sealed
from dormouse.errors import CorruptDataError
from dormouse.retry_policy import WITHOUT_PAUSES
from dormouse.statestore.delta import codec as codec_delta
from dormouse.statestore.delta import segments as codec_segment
from dormouse.statestore.delta.codec import decode_delta
from dormouse.statestore.delta.segments import decode_segment
from dormouse.statestore.snapshot import codec as codec_snapshot
from dormouse.statestore.snapshot import increments as codec_increment
from dormouse.statestore.snapshot.codec import decode_snapshot
from dormouse.statestore.snapshot.increments import decode_increment
from dormouse.stored import checksums
from dormouse.tables.table import Table
from tests.fuzz.mutations import mangled, odd_tree
from tests.fuzz.samples import COUNTS
from tests.fuzz.targets import Target, refusing
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
    """A DynamoDB of which each request gives one item, whatever it asks for.

    `reseal` gives it the checksum that one of that table should have.
    """

    def __init__(self, item: Any, reseal: Callable[[str, Any], Any] = lambda _, item: item) -> None:
        self._item, self._reseal = item, reseal

    def get_item(self, TableName: str, **_: object) -> dict[str, Any]:  # noqa: N803
        return {"Item": self._reseal(TableName, self._item)}

    def batch_get_item(self, RequestItems: Any) -> dict[str, Any]:  # noqa: N803
        ((table, asked),) = RequestItems.items()
        found = [self._reseal("delta", {**self._item, **key}) for key in asked["Keys"]]
        return {"Responses": {table: found}, "UnprocessedKeys": {}}


def _sealed(kind: str, item: Any) -> Any:
    with suppress(*_UNSTORABLE):
        return sealed(kind, item)
    return item


_UNSTORABLE = (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError)


def _sealed_parts(_: str, item: Any) -> Any:
    """Return a head or a page whose checksums fit what it holds, as far as it can be stored."""
    for name, names in _PARTS.items():
        with suppress(*_UNSTORABLE):
            if name in item:
                held = {n: item[n] for n in names}
                item = {**item, name: {"B": digest_of("log", (item["t"], item["g"], held))}}
    with suppress(*_UNSTORABLE):
        total = sum(id_sum(item, one["B"]) for one in item["ids"]["L"])
        item = {**item, "id_sum": {"N": str(total)}}
    return item


_PARTS = {
    "manifest_sum": ("revision", "snapshots", "segments", "segments_after"),
    "mark_sum": ("mark",),
    "last_sum": ("last_page",),
    "first_sum": ("first_page",),
}
_SUM = {"B": b""}


_ID = bytes(range(16))
_PAGE = {
    "t": {"S": "t#0#0"},
    "g": {"S": f"{0:012d}"},
    "ids": {"L": [{"B": _ID}]},
    "mark": {"B": _ID},
}
_PAGE |= {"mark_sum": _SUM, "id_sum": {"N": "0"}}
_NUMBERS = {"v": {"N": "9"}, "b": {"N": "1"}}
_HEAD = {
    "t": {"S": "t#H"},
    "g": {"S": "0"},
    "last_page": {"N": "3"},
    "first_page": {"N": "1"},
    "mark": {"B": _ID},
    "revision": {"N": "2"},
    "snapshots": {
        "L": [{"M": {"i": {"S": "x"}, "v": {"N": "9"}, "t": {"N": "1"}, "b": {"N": "1"}}}]
    },
    "segments": {"L": [{"M": {"i": {"B": _ID}, **_NUMBERS}}]},
    "segments_after": {"N": "0"},
    **dict.fromkeys(_PARTS, _SUM),
}
_KEYS = {"k": {"S": "t#delta#1"}, "i": {"S": "name#0000"}}
_ITEMS = [{"body": {"B": b"abc"}, "parts": {"N": str(parts)}} for parts in (1, 2)]
_TABLE = id_item(Table("t", "letters", COUNTS), 3)
_INSTANCE = defaults_item({"compaction_files": 3}, 1)


def _page(item: Any) -> None:
    for client in (_Client(item), _Client(item, _sealed_parts)):
        pages = DynamoPages(cast(Any, client), "state")
        for read in (partial(pages.page, "t", 0), partial(pages.head, "t")):
            with refusing(CorruptDataError):
                read()


def _item(item: Any) -> None:
    client = cast(Any, _Client(item, _sealed))
    with refusing(CorruptDataError):
        DynamoBlobs(client, "deltas", "t", "delta", WITHOUT_PAUSES).get(["name"])


def _registered(item: Any) -> None:
    for stored in (item, _sealed("registry", item)):
        for read in (partial(table_of, defaults={}), settings_of, revision_of):
            with refusing(CorruptDataError):
                read(stored)


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
    "pages": Target(_keyed([_PAGE, _HEAD], {}), _page, guided=True),
    "items": Target(_keyed(_ITEMS, _KEYS), _item, guided=True),
    "registry": Target(
        _keyed([_TABLE, _INSTANCE], {"pk": {"S": "id#t"}}), _registered, guided=True
    ),
}
