"""The pins of all tables: `statestore.log.pins.Pins`.

An owner has one item, ``<table>#P`` and the key of the owner, with the pin as JSON: so one query
finds the pins of a table.
"""

from __future__ import annotations

import msgspec

from dormouse.errors import CorruptDataError
from dormouse.items.store import (
    ABSENT,
    PRESENT,
    Delete,
    If,
    Item,
    ItemStore,
    Key,
    Put,
    has,
    put,
)
from dormouse.log.pages import damaged_pin
from dormouse.state.versions import Pin, PinOwner
from dormouse.stored.decoding import decode_json, raise_corrupt


class ItemPins:
    """`Pins` as items."""

    def __init__(self, items: ItemStore) -> None:
        """Keep them in `items`."""
        self._items = items

    def all(self, table_id: str) -> list[Pin]:
        """Return all pins of a table, by owner."""
        return [_pin(table_id, item) for item in self._items.query("state", _owner(table_id))]

    def put(self, table_id: str, pin: Pin) -> Pin:
        """Put a pin unless its owner has one; return the one that the owner then has."""
        while not self._items.write(_put(table_id, pin, ABSENT)):
            (item,) = self._items.get(_key(table_id, pin.owner))
            if item:  # else it was deleted just now
                return _pin(table_id, item)
        return pin

    def replace(self, table_id: str, old: Pin, new: Pin) -> bool:
        """Put a pin in the place of one of the same owner; False unless that is there unchanged."""
        return self._items.write(_put(table_id, new, _is(table_id, old)))

    def delete(self, table_id: str, owner: PinOwner, *, only: Pin | None = None) -> bool:
        """Delete the pin of an owner, or `only` this one; return whether there was one."""
        when = _is(table_id, only) if only else PRESENT
        return self._items.write(Delete(_key(table_id, owner), when))

    def clear(self, table_id: str) -> None:
        """Delete all pins of a table."""
        names = [*self._items.names("state", _owner(table_id))]
        self._items.delete(Key("state", _owner(table_id), name) for name in names)


def _owner(table_id: str) -> str:
    return f"{table_id}#P"


def _key(table_id: str, owner: PinOwner) -> Key:
    return Key("state", _owner(table_id), owner.key)


def _put(table_id: str, pin: Pin, when: If) -> Put:
    return put(_key(table_id, pin.owner), msgspec.json.encode(pin).decode(), when)


def _is(table_id: str, pin: Pin) -> If:
    change = _put(table_id, pin, ABSENT)
    return has(change.key, **change.parts)


def _pin(table_id: str, item: Item) -> Pin:
    try:
        with raise_corrupt("a pin is damaged"):
            return decode_json(item.text(), Pin)
    except CorruptDataError as error:
        raise damaged_pin(item.key.name, table_id) from error
