"""Tombstones of tables; used by `tables`, the registry.

They lie beside the logs, where closed logs lie for ever too, because the registry itself is listed
each minute and must not grow with every table that ever was. Two items, put at once:

- ``<table>#T``: the tombstone, found by the id alone;
- ``(tombstones)``, ``<deleted_ms>#<id>``: the same once more, in the order of time. A look at the
  newest costs as much as there are, and what is older rests without a cost.
"""

from __future__ import annotations

import msgspec

from dormouse.errors import CorruptDataError
from dormouse.items.store import ABSENT, Check, Item, ItemStore, Key, Put, put, unchanged
from dormouse.stored.decoding import decode_json, raise_corrupt
from dormouse.tables.table import Tombstone

IN_ORDER = "(tombstones)"


class ItemTombstones:
    """The tombstones of an instance."""

    def __init__(self, items: ItemStore) -> None:
        """Keep them in `items`."""
        self._items = items

    def get(self, table_id: str) -> Tombstone | None:
        """Return the tombstone of an id; None if it has none."""
        (item,) = self._items.get(_key(table_id))
        return _tombstone(item) if item else None

    def since(self, time_ms: int) -> tuple[list[Tombstone], list[CorruptDataError]]:
        """Return the tombstones from a time on, the oldest first, and what is wrong with others."""
        found, damaged = [], []
        for item in self._items.query("state", IN_ORDER, least=_time(time_ms)):
            try:
                found.append(_tombstone(item))
            except CorruptDataError as error:
                damaged.append(error)
        return found, damaged

    def repair(self) -> tuple[list[str], list[str]]:
        """Restore damaged items from their copies; return those restored, and those not."""
        repaired, unrepaired = [], []
        for item in self._items.query("state", IN_ORDER):
            table_id = item.key.name.partition("#")[2]
            (other,) = self._items.get(_key(table_id))
            tombstone, copy = _whole(item), _whole(other)
            if tombstone is not None and copy is not None:
                continue
            name = f"the tombstone of table {table_id!r}"
            if tombstone is not None:
                self._items.write(_put(_key(table_id), tombstone, other))
            elif copy is not None and _place(copy) == item.key:
                self._items.write(_put(item.key, copy, item))
            else:
                unrepaired.append(name)
                continue
            repaired.append(name)  # or another process did just now
        return repaired, unrepaired

    def puts(self, tombstone: Tombstone) -> list[Put]:
        """Return what puts a tombstone, if its id has none."""
        return [
            _put(_key(tombstone.table_id), tombstone, None),
            put(_place(tombstone), _body(tombstone)),
        ]

    def none_of(self, table_id: str) -> Check:
        """Return a check that an id has no tombstone."""
        return Check(_key(table_id), ABSENT)


def _key(table_id: str) -> Key:
    return Key("state", f"{table_id}#T")


def _place(tombstone: Tombstone) -> Key:
    return Key("state", IN_ORDER, f"{_time(tombstone.deleted_ms)}#{tombstone.table_id}")


def _time(time_ms: int) -> str:
    return f"{max(0, time_ms):015d}"


def _put(key: Key, tombstone: Tombstone, seen: Item | None) -> Put:
    return put(key, _body(tombstone), unchanged(seen))


def _body(tombstone: Tombstone) -> str:
    return msgspec.json.encode(tombstone).decode()


def _whole(item: Item | None) -> Tombstone | None:
    try:
        return _tombstone(item) if item else None
    except CorruptDataError:
        return None


def _tombstone(item: Item) -> Tombstone:
    problem = f"the tombstone {item.key.owner!r}, {item.key.name} cannot be read"
    with raise_corrupt(problem, hint="`dormouse rebuild` brings it back from its copy"):
        return decode_json(item.text(), Tombstone)
