"""Pins in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from dormouse.state.versions import Pin, PinOwner


@dataclass
class MemoryPins:
    """Pins in memory; safe for many threads. The hooks are those of `MemoryPages`."""

    before: Callable[[str], None]
    after: Callable[[str], None]
    _pins: dict[str, dict[str, Pin]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __deepcopy__(self, memo: dict[int, Any]) -> MemoryPins:
        """Return pins of their own; a lock cannot be copied."""
        return MemoryPins(self.before, self.after, deepcopy(self._pins, memo))

    def all(self, table_id: str) -> list[Pin]:
        """Return all pins of a table, by owner."""
        with self._call("pins", table_id) as pins:
            return [pins[key] for key in sorted(pins)]

    def put(self, table_id: str, pin: Pin) -> Pin:
        """Put a pin unless its owner has one; return the one that the owner then has."""
        with self._call("put_pin", table_id) as pins:
            return pins.setdefault(pin.owner.key, pin)

    def replace(self, table_id: str, old: Pin, new: Pin) -> bool:
        """Put a pin in the place of one of the same owner; False unless that is there unchanged."""
        with self._call("replace_pin", table_id) as pins:
            if pins.get(old.owner.key) != old:
                return False
            pins[old.owner.key] = new
            return True

    def delete(self, table_id: str, owner: PinOwner, *, only: Pin | None = None) -> bool:
        """Delete the pin of an owner, or `only` this one; return whether there was one."""
        with self._call("delete_pin", table_id) as pins:
            found = pins.get(owner.key)
            if found is None or only not in (None, found):
                return False
            del pins[owner.key]
            return True

    def clear(self, table_id: str) -> None:
        """Delete all pins of a table."""
        with self._call("clear_pins", table_id) as pins:
            pins.clear()

    @contextmanager
    def _call(self, operation: str, table_id: str) -> Iterator[dict[str, Pin]]:
        self.before(operation)
        with self._lock:
            yield self._pins.setdefault(table_id, {})
        self.after(operation)
