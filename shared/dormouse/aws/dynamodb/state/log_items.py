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

from dormouse.aws.dynamodb.state.packed_manifest import packed_manifest, unpacked_manifest
from dormouse.aws.dynamodb.stored_items import digest_of
from dormouse.state_store import REBUILD
from dormouse.statestore.log.pages import Head, Increment, Manifest, Page, Segment, Snapshot
from dormouse.stored.decoding import raise_corrupt

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

    from dormouse.aws.dynamodb.stored_items import Item

_PAGES_PER_HASH_KEY = 64
_PACKED = "manifest"
_INCREMENTS = "increments"
FORMER = ("snapshots", "segments", "segments_after", _INCREMENTS)
"""Attributes that a head had before the manifest was packed."""
_CLOSED = "closed"


def head_key(table_id: str) -> Item:
    """Return the key of the head of a table's log."""
    return {"t": {"S": f"{table_id}#H"}, "g": {"S": "0"}}


def page_key(table_id: str, number: int) -> Item:
    """Return the key of a page of a table's log."""
    hash_key = f"{pages_prefix(table_id)}{number // _PAGES_PER_HASH_KEY}"
    return {"t": {"S": hash_key}, "g": {"S": f"{number:012d}"}}


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

    They are packed, so that the head stays below 1 KB.
    """
    held: dict[str, AttributeValueTypeDef] = {
        "revision": {"N": str(manifest.revision)},
        _PACKED: {"B": packed_manifest(manifest)},
    }
    return {**held, "manifest_sum": _sum(key, held)}


def head_item(table_id: str, head: Head) -> Item:
    """Return all of the item of a head of an open log."""
    key = head_key(table_id)
    return {
        **key,
        **part(key, "last_page", {"N": str(head.last_page)}),
        **part(key, "first_page", {"N": str(head.first_page)}),
        **part(key, "mark", binary(head.low_water_mark)),
        **manifest_part(key, head.manifest),
    }


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
        manifest = _manifest(item)
        _check(item, "mark_sum", "mark")
        return Head(
            last_page=_page_number(item, "last"),
            manifest=manifest,
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


def _manifest(item: Item) -> Manifest:
    if _PACKED in item:
        _check(item, "manifest_sum", "revision", _PACKED)
        body = item[_PACKED]["B"]
        return unpacked_manifest(bytes(body), int(item["revision"]["N"]))
    return _manifest_of_maps(item)


def _manifest_of_maps(item: Item) -> Manifest:
    """Return the manifest of a head that was last written before it was packed."""
    # Still earlier, there were no increments.
    names = ("revision", *(name for name in FORMER if name != _INCREMENTS or name in item))
    _check(item, "manifest_sum", *names)
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
        version, time_ms, size_bytes = (int(m[name]["N"]) for name in ("v", "t", "b"))
        increments.append(Increment(m["i"]["B"].hex(), after, version, time_ms, size_bytes))
        after = increments[-1].version
    return Manifest(int(item["revision"]["N"]), snapshots, tuple(segments), tuple(increments))
