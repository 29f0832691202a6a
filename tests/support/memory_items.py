"""Items in the memory of one process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dormouse.items.store import LAST, Change, Item, Key, Space, changed, with_id


@dataclass
class MemoryItems:
    """`ItemStore` as a dict; safe for many threads."""

    kept: dict[Key, Item] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __getstate__(self) -> dict[str, object]:
        """Return what another process needs to have these items too."""
        return {"kept": self.kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Have the items of another process."""
        MemoryItems.__init__(self, **state)

    def get(self, *keys: Key, never_change: bool = False) -> list[Item | None]:
        """Return the items of some keys, None where there is none."""
        with self._lock:  # what one write changes is seen together, as every real store has it
            return [self.kept.get(key) for key in keys]

    def query(self, space: Space, owner: str, *, least: str = "") -> Iterator[Item]:
        """Yield the items of an owner by name, from a name on."""
        with self._lock:
            found = sorted(key for key in self.kept if key[:2] == (space, owner))
            return iter([self.kept[key] for key in found if key.name >= least])

    def names(
        self, space: Space, owner: str, *, least: str = "", most: str = LAST
    ) -> Iterator[str]:
        """Yield the names of an owner's items, from a name up to another."""
        found = self.query(space, owner, least=least)
        return iter([item.key.name for item in found if item.key.name <= most])

    def scan(self, space: Space, *prefixes: str) -> Iterator[Item]:
        """Yield all items whose owner begins with one of these."""
        with self._lock:
            found = [key for key in self.kept if key.space == space]
            return iter([self.kept[key] for key in found if key.owner.startswith(prefixes)])

    def write(self, *changes: Change) -> bool:
        """Make all changes; False, and nothing done, if a condition does not hold."""
        with self._lock:
            if not all(change.when.holds(self.kept.get(change.key)) for change in changes):
                return False
            for change in changes:
                self._set(change.key, changed(change, self.kept.get(change.key)))
            return True

    def append(self, key: Key, new_id: bytes, *, room: int) -> Item | None:
        """Append an id to an item's ids; return the item as it then is."""
        with self._lock:
            item = self.kept.get(key)
            self._set(key, item and with_id(item, new_id, room))
            return self.kept.get(key)

    def delete(self, keys: Iterable[Key]) -> None:
        """Delete many items."""
        with self._lock:
            for key in keys:
                self.kept.pop(key, None)

    def _set(self, key: Key, item: Item | None) -> None:
        if item is None:
            self.kept.pop(key, None)
        else:
            self.kept[key] = item
