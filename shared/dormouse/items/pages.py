"""The log pages of all tables, and their heads (`log.pages`).

Each method is one write, whose condition decides it. Items:

- head: ``<table>#H``, with the parts last, first, mark, revision, manifest; of a closed log with
  last, first, closed.
- page: ``<table>#0#<page // 64>`` and the page's number, with the mark and the ids, at most 48
  times 16 bytes. The zero is the log's epoch. 64 pages share an owner, so that heat moves on in
  DynamoDB as the log grows.

The manifest is MessagePack without names, with differences instead of versions. The head is written
once a page, and by maintenance. DynamoDB charges a write by the kilobyte, so that the head should
stay below one: packed, an entry takes 25 to 38 bytes, as a map of DynamoDB up to twice as many.

Beside them are the pins (`records`).
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import lru_cache

import msgspec

import dormouse.log.pages as log_pages  # the capacity is looked up at each use: tests change it
from dormouse.errors import CorruptDataError
from dormouse.items.records import ItemPins
from dormouse.items.store import (
    ABSENT,
    IDS,
    MARK,
    PRESENT,
    Body,
    If,
    Item,
    ItemStore,
    Key,
    Put,
    Set,
    has,
    ids_of,
)
from dormouse.log.pages import Head, Increment, IndexPlace, Manifest, Page, Segment, Snapshot
from dormouse.state.rules import REBUILD
from dormouse.stored.decoding import raise_corrupt

MANIFEST_FORMAT = 1
_PAGES_PER_OWNER = 64
_LAST, _FIRST, _REVISION, _MANIFEST, _CLOSED = "last", "first", "revision", "manifest", "closed"
_Run = tuple[bytes, int, int, int]
"""Id, version, time and bytes of a snapshot; or of an increment, which instead says how many
versions it has: it follows the newest snapshot, or the increment before it."""
_Segment = tuple[bytes, int, int, tuple[bytes, ...]]
"""Id, versions and bytes of a segment, which follows the one before it, and what it restores."""
_Place = tuple[int, int]
_Packed = tuple[
    tuple[_Run, ...], tuple[_Run, ...], int, tuple[_Segment, ...], _Place | None, _Place | None
]
"""Snapshots, increments, the version that the segments follow, segments; and where the index lies
of the newest snapshot, and of the newest increment."""


class ItemPages:
    """Heads and pages of many tables, each call atomic and strongly consistent; and their pins.

    Every call may raise UnavailableError: nothing was changed. Those that change something may
    raise OutcomeUnknownError instead: it may have been changed, or may be later. All can be
    repeated.
    """

    def __init__(self, items: ItemStore) -> None:
        self._items = items
        self.pins = ItemPins(items)

    def head(self, table_id: str) -> Head | None:
        """Return the head; None if the table has no log yet."""
        (item,) = self._items.get(head_key(table_id))
        return _head(item) if item else None

    def page(self, table_id: str, number: int) -> Page | None:
        """Return a page; None if it was not made yet, or was deleted."""
        (item,) = self._items.get(page_key(table_id, number))
        return _page(number, item) if item else None

    def append(self, table_id: str, number: int, delta_id: str) -> Page | None:
        """Append an id to a page with room that does not hold it; return the page as it then is.

        An id below the page's low-water mark is never appended. So the id has its place if the
        returned page holds it, whichever attempt put it there; if not, the page shows why. None if
        there is no such page.
        """
        key = page_key(table_id, number)
        item = self._items.append(key, bytes.fromhex(delta_id), room=log_pages.PAGE_CAPACITY)
        return _page(number, item) if item else None

    def begin(self, table_id: str, head: Head) -> bool:
        """Make a log with a head and its last page; False, and nothing done, if there was one."""
        mark = bytes.fromhex(head.low_water_mark)
        page = Put(page_key(table_id, head.last_page), {IDS: b"", MARK: mark}, ABSENT)
        return self._items.write(put_head(table_id, head), page)

    def open_page(self, table_id: str, number: int, low_water_mark: str) -> bool:
        """Make page `number` with the head's low-water mark, and the head with page 0.

        False, and nothing done, unless the log ends with the page before, is not closed, and has
        this mark. This fences a writer that slept: it cannot make a page twice, nor revive a
        destroyed log, nor lower the mark.
        """
        if number == 0:
            return self.begin(table_id, Head(0, Manifest(), low_water_mark))
        key, mark = head_key(table_id), bytes.fromhex(low_water_mark)
        before = has(key, **{_LAST: str(number - 1), MARK: mark, _CLOSED: None})
        page = Put(page_key(table_id, number), {IDS: b"", MARK: mark}, ABSENT)
        return self._items.write(Set(key, {_LAST: str(number)}, before), page)

    def set_manifest(self, table_id: str, manifest: Manifest) -> bool:
        """Change the manifest; False, and nothing done, unless its revision is the next one."""
        key = head_key(table_id)
        return self._items.write(Set(key, _parts(manifest), _is_before(key, manifest)))

    def raise_low_water_mark(self, table_id: str, head: Head) -> bool:
        """Change manifest, first page and the low-water mark, which the last page has too.

        False, and nothing done, unless the manifest's revision is the next one, and the last page
        is still the last.
        """
        key, mark = head_key(table_id), bytes.fromhex(head.low_water_mark)
        parts = {**_parts(head.manifest), MARK: mark, _FIRST: str(head.first_page)}
        before = _is_before(key, head.manifest, **{_LAST: str(head.last_page)})
        last_page = Set(page_key(table_id, head.last_page), {MARK: mark}, PRESENT)
        return self._items.write(Set(key, parts, before), last_page)

    def close(self, table_id: str) -> Head:
        """Close the log for good, whether or not there was one; return its head.

        An append asks for nothing but a page with room. So where a damaged head does not say which
        pages there are, they are looked for among all.
        """
        key = head_key(table_id)
        closed = Set(key, {_CLOSED: "1", _REVISION: None, _MANIFEST: None, MARK: None}, PRESENT)
        while not self._items.write(closed):
            if self._items.write(Put(key, _closed(0, -1), ABSENT)):
                return Head(-1, closed=True)
        (item,) = self._items.get(key)
        try:
            if item is not None:
                return _head(item)
        except CorruptDataError:
            pass  # its parts are made again below
        first, last = self._pages_there(table_id)
        self._items.write(Put(key, _closed(first, last)))
        return Head(last, first_page=first, closed=True)

    def delete_pages(self, table_id: str, first: int, end: int) -> None:
        """Delete the pages from `first` up to, but not with, `end`."""
        self._items.delete(page_key(table_id, number) for number in range(first, end))

    def _pages_there(self, table_id: str) -> tuple[int, int]:
        """Return the first and the last page of a table's log that there is."""
        items = self._items.scan("state", _pages_prefix(table_id))
        numbers = [int(item.key.name) for item in items]
        return min(numbers, default=0), max(numbers, default=-1)


def head_key(table_id: str) -> Key:
    """Return the key of the head of a table's log."""
    return Key("state", f"{table_id}#H")


def page_key(table_id: str, number: int) -> Key:
    """Return the key of a page of a table's log."""
    owner = f"{_pages_prefix(table_id)}{number // _PAGES_PER_OWNER}"
    return Key("state", owner, f"{number:012d}")


def put_head(table_id: str, head: Head) -> Put:
    """Return the change that puts the head of a log, if it has none."""
    parts: dict[str, Body] = {_LAST: str(head.last_page), _FIRST: str(head.first_page)}
    mark = bytes.fromhex(head.low_water_mark)
    return Put(head_key(table_id), {**parts, MARK: mark, **_parts(head.manifest)}, ABSENT)


def _pages_prefix(table_id: str) -> str:
    return f"{table_id}#0#"


def _parts(manifest: Manifest) -> dict[str, Body]:
    return {_REVISION: str(manifest.revision), _MANIFEST: packed_manifest(manifest)}


def _closed(first: int, last: int) -> dict[str, Body]:
    return {_LAST: str(last), _FIRST: str(first), _CLOSED: "1"}


def _is_before(key: Key, manifest: Manifest, **parts: Body | None) -> If:
    """Return the condition that a manifest is the next one of an open log."""
    return has(key, **{_REVISION: str(manifest.revision - 1), _CLOSED: None, **parts})


def _head(item: Item) -> Head:
    with _reading(item):
        last, first = (int(item.text(name)) for name in (_LAST, _FIRST))
        if _CLOSED in item.parts:
            item.read(_CLOSED)
            return Head(last, first_page=first, closed=True)
        manifest = unpacked_manifest(item.data(_MANIFEST), int(item.text(_REVISION)))
        return Head(last, manifest, item.data(MARK).hex(), first)


@lru_cache(maxsize=16)  # a commit looks at one page several times: its ids have a sum each
def _page(number: int, item: Item) -> Page:
    with _reading(item):
        ids = tuple(each.hex() for each in ids_of(item.data(IDS)))
        return Page(number, ids, item.data(MARK).hex())


def _reading(item: Item) -> AbstractContextManager[None]:
    where = f"{item.key.owner}, {item.key.name}"
    return raise_corrupt(f"the item {where} of a table's log is damaged", hint=REBUILD)


def packed_manifest(manifest: Manifest) -> bytes:
    """Return the packed form of all of a manifest but its revision."""
    packed: _Packed = (
        tuple((_id(s.id), s.version, s.time_ms, s.size_bytes) for s in manifest.snapshots),
        tuple(
            (_id(i.id), i.version - i.after, i.time_ms, i.size_bytes) for i in manifest.increments
        ),
        manifest.segments[0].after if manifest.segments else 0,
        tuple(
            (_id(s.id), s.version - s.after, s.size_bytes, tuple(map(_id, s.restores)))
            for s in manifest.segments
        ),
        _place(manifest.snapshots[-1:]),
        _place(manifest.increments[-1:]),
    )
    return bytes([MANIFEST_FORMAT]) + msgspec.msgpack.encode(packed)


def unpacked_manifest(body: bytes, revision: int) -> Manifest:
    """Return the manifest of a packed form.

    Raises:
        CorruptDataError: it is of a later version of Dormouse.
        ValueError, LookupError: it is not what `packed_manifest` makes.
    """
    if body[0] != MANIFEST_FORMAT:
        raise CorruptDataError(
            f"the manifest is of format {body[0]}; the one known here is {MANIFEST_FORMAT}",
            hint="it was written by a later version: upgrade this one",
        )
    snapshots, increments, after, segments, *places = msgspec.msgpack.decode(body[1:], type=_Packed)
    entries = [Snapshot(id_.hex(), *numbers) for id_, *numbers in snapshots]
    follows = entries[-1].version if entries else 0
    grown: list[Increment] = []
    for id_, versions, time_ms, size_bytes in increments:
        grown.append(Increment(id_.hex(), follows, follows + versions, time_ms, size_bytes))
        follows += versions
    cut: list[Segment] = []
    for id_, versions, size_bytes, restores in segments:
        end, names = after + versions, tuple(each.hex() for each in restores)
        cut.append(Segment(id_.hex(), after, end, size_bytes, names))
        after = end
    if places[0]:
        entries[-1] = replace(entries[-1], index=IndexPlace(*places[0]))
    if places[1]:
        grown[-1] = replace(grown[-1], index=IndexPlace(*places[1]))
    return Manifest(revision, tuple(entries), tuple(cut), tuple(grown))


def _place(newest: Sequence[Snapshot] | Sequence[Increment]) -> _Place | None:
    index = newest[0].index if newest else None
    return (index.size_bytes, index.bytes_after) if index else None


def _id(text: str) -> bytes:
    return bytes.fromhex(text)
