"""The items of a table's log: its head and its pages, and the checksums they have.

Each write changes but a part of an item, without reading it. So an item has a checksum for each
part that is written by itself, of that part and the item's key:

- head: `last_sum` of last_page, `first_sum` of first_page, `mark_sum` of the low-water mark, and
  `manifest_sum` of all that the manifest is. The head of a closed log has neither of the last two.
- page: `mark_sum` of its mark, and `id_sum`, to which each append adds the checksum of its id: it
  detects lost, changed and foreign ids, but not a wrong order.

Used by `log_pages`, which makes the requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from dormouse.aws.dynamodb.stored_items import digest_of
from dormouse.state_store import REBUILD
from dormouse.statestore.log.pages import Head, Increment, Manifest, Page, Segment, Snapshot
from dormouse.stored.decoding import raise_corrupt

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

    from dormouse.aws.dynamodb.stored_items import Item

_PAGES_PER_HASH_KEY = 64
_MANIFEST = ("revision", "snapshots", "segments", "segments_after")
_INCREMENTS = "increments"
_CLOSED = "closed"


def head_key(table_id: str) -> Item:
    """Return the key of the head of a table's log."""
    return {"t": {"S": f"{table_id}#H"}, "g": {"N": "-1"}}


def page_key(table_id: str, number: int) -> Item:
    """Return the key of a page of a table's log."""
    hash_key = f"{pages_prefix(table_id)}{number // _PAGES_PER_HASH_KEY}"
    return {"t": {"S": hash_key}, "g": {"N": str(number)}}


def pages_prefix(table_id: str) -> str:
    """Return what the hash keys of all pages of a table's log begin with."""
    return f"{table_id}#0#"


def binary(delta_id: str) -> AttributeValueTypeDef:
    """Return an id as it is stored."""
    return {"B": bytes.fromhex(delta_id)}


def part(key: Item, name: str, value: AttributeValueTypeDef) -> Item:
    """Return one attribute of an item and, beside it, its checksum."""
    return {name: value, f"{name.removesuffix('_page')}_sum": _sum(key, {name: value})}


def id_sum(key: Item, delta_id: bytes) -> int:
    """Return what an id adds to the checksum of its page."""
    return int.from_bytes(digest_of("log", (key["t"], key["g"], delta_id))[:6], "big")


def manifest_part(key: Item, manifest: Manifest) -> Item:
    """Return the attributes of the manifest and, beside them, their checksum.

    The names in the maps are single letters, and a segment or increment begins where the one before
    ends, so that the head stays below 1 KB.
    """
    held: dict[str, AttributeValueTypeDef] = {
        "revision": {"N": str(manifest.revision)},
        "snapshots": {"L": [_snapshot(snapshot) for snapshot in manifest.snapshots]},
        "segments": {"L": [_segment(segment) for segment in manifest.segments]},
        "segments_after": {"N": str(manifest.segments[0].after if manifest.segments else 0)},
        _INCREMENTS: {"L": [_increment(increment) for increment in manifest.increments]},
    }
    return {**held, "manifest_sum": _sum(key, held)}


def head_of(item: Item) -> Head:
    """Return the head that an item holds. One of a closed log may not know its pages any more.

    Raises:
        CorruptDataError: it is damaged.
    """
    with _read(item):
        is_closed = _CLOSED in item
        if is_closed != ("manifest_sum" not in item):
            raise ValueError("it is neither that of an open log nor of a closed one")
        if is_closed:
            first, last = pages_named(item) or (0, -1)
            return Head(last, first_page=first, closed=True)
        # A head that was last written before there were increments does not have them.
        names = (*_MANIFEST, _INCREMENTS) if _INCREMENTS in item else _MANIFEST
        _check(item, "manifest_sum", *names)
        _check(item, "mark_sum", "mark")
        return Head(
            last_page=_page_number(item, "last"),
            manifest=_manifest(item),
            low_water_mark=item["mark"]["B"].hex(),
            first_page=_page_number(item, "first"),
        )


def pages_named(item: Item) -> tuple[int, int] | None:
    """Return the first and the last page of a log that was closed; None if the head is damaged."""
    try:
        first = _page_number(item, "first") if "first_page" in item else 0
        return first, _page_number(item, "last")
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def page_of(number: int, item: Item) -> Page:
    """Return the page that an item holds.

    Raises:
        CorruptDataError: it is damaged.
    """
    with _read(item):
        ids = [delta_id["B"] for delta_id in item["ids"]["L"]]
        if int(item["id_sum"]["N"]) != sum(id_sum(item, bytes(one)) for one in ids):
            raise ValueError("its checksum is not that of its ids")
        _check(item, "mark_sum", "mark")
        return Page(number, tuple(bytes(one).hex() for one in ids), item["mark"]["B"].hex())


def _page_number(item: Item, which: str) -> int:
    _check(item, f"{which}_sum", f"{which}_page")
    return int(item[f"{which}_page"]["N"])


def _sum(key: Item, held: Mapping[str, AttributeValueTypeDef]) -> AttributeValueTypeDef:
    return {"B": digest_of("log", (key["t"], key["g"], held))}


def _check(item: Item, checksum: str, *names: str) -> None:
    held = {name: item[name] for name in names}
    if item[checksum] != _sum(item, held):
        raise ValueError(f"its {checksum} is not that of its {names[0]}")


def _read(item: Item) -> AbstractContextManager[None]:
    where = f"{item.get('t')}, {item.get('g')}"
    return raise_corrupt(f"the item {where} of a table's log is damaged", hint=REBUILD)


def _snapshot(snapshot: Snapshot) -> AttributeValueTypeDef:
    return {
        "M": {
            "i": {"S": snapshot.id},
            "v": {"N": str(snapshot.version)},
            "t": {"N": str(snapshot.time_ms)},
            "b": {"N": str(snapshot.size_bytes)},
        }
    }


def _increment(increment: Increment) -> AttributeValueTypeDef:
    return {
        "M": {
            "i": binary(increment.id),
            "v": {"N": str(increment.version)},
            "t": {"N": str(increment.time_ms)},
            "b": {"N": str(increment.size_bytes)},
        }
    }


def _segment(segment: Segment) -> AttributeValueTypeDef:
    return {
        "M": {
            "i": binary(segment.id),
            "v": {"N": str(segment.version)},
            "b": {"N": str(segment.size_bytes)},
            **(
                {"r": {"L": [binary(each) for each in segment.restores]}}
                if segment.restores
                else {}
            ),
        }
    }


def _manifest(item: Item) -> Manifest:
    snapshots = tuple(
        Snapshot(m["i"]["S"], int(m["v"]["N"]), int(m["t"]["N"]), int(m["b"]["N"]))
        for m in (each["M"] for each in item["snapshots"]["L"])
    )
    segments: list[Segment] = []
    after = int(item["segments_after"]["N"])
    for m in (each["M"] for each in item["segments"]["L"]):
        version = int(m["v"]["N"])
        restores = tuple(each["B"].hex() for each in m["r"]["L"]) if "r" in m else ()
        segments.append(Segment(m["i"]["B"].hex(), after, version, int(m["b"]["N"]), restores))
        after = version
    increments: list[Increment] = []
    after = snapshots[-1].version if snapshots else 0
    for m in (each["M"] for each in item.get(_INCREMENTS, {"L": []})["L"]):
        numbers = (int(m[name]["N"]) for name in ("v", "t", "b"))
        increments.append(Increment(m["i"]["B"].hex(), after, *numbers))
        after = increments[-1].version
    return Manifest(int(item["revision"]["N"]), snapshots, tuple(segments), tuple(increments))
