"""An immutable map in two layers: a base, and the changes made since over it.

The base can be anything that looks entries up, such as columns that create a Python object only for
the entry asked for (`statestore.snapshot.maps`). The changes are exactly what a store has to write
to bring the base up to date; a deleted key of the base is a tombstone there. The maps of
`state.TableState` are overlay maps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, Generic, Literal, Protocol, TypeVar, cast, overload

from rpds import HashTrieMap

K = TypeVar("K")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
W = TypeVar("W")


class _Tombstone(Enum):
    """The type of `TOMBSTONE`, the change that deletes a key of the base."""

    TOMBSTONE = "gone"


TOMBSTONE: Final = _Tombstone.TOMBSTONE


class Base(Protocol[K, V_co]):
    """The lower layer. It never changes, and none of its values is None."""

    def __len__(self) -> int:
        """Count the entries."""

    def __contains__(self, key: object) -> bool:
        """Return whether there is an entry with that key."""

    def __iter__(self) -> Iterator[K]:
        """Yield the keys, each once."""

    def get(self, key: K, /) -> V_co | None:
        """Return the value of a key; None if there is none."""

    def items(self) -> Iterable[tuple[K, V_co]]:
        """Return pairs of key and value, each key once."""


class OverlayMap(Generic[K, V]):
    """A map whose changes return new maps, which share the base and all other changes.

    A change costs one look-up of its key in the base. Two maps are equal if they hold the same
    entries, whatever their layers.

    Example: over a base {a: 1, b: 2}, `insert("a", 7)`, `discard("b")`, `insert("c", 3)` and
    `discard("c")` leave the changes {a: 7, b: TOMBSTONE}; c needs no tombstone, since the base
    never had it.
    """

    __slots__ = ("_size", "base", "changes")
    __hash__ = None  # type: ignore[assignment]  # equal maps may have different layers, so no hash is defined

    base: Base[K, V]
    changes: HashTrieMap[K, V | Literal[_Tombstone.TOMBSTONE]]

    def __init__(
        self,
        base: Base[K, V] | None = None,
        changes: HashTrieMap[K, V | Literal[_Tombstone.TOMBSTONE]] | None = None,
        size: int | None = None,
    ) -> None:
        """Put `changes` over `base`. `size` is the number of entries, required if there are
        changes.

        A key has a TOMBSTONE in the changes only if the base has the key.
        """
        self.base = HashTrieMap() if base is None else base
        self.changes = HashTrieMap() if changes is None else changes
        self._size = len(self.base) if size is None else size

    @staticmethod
    def of(entries: Mapping[K, V]) -> OverlayMap[K, V]:
        """Return a map without a base, whose entries are all changes."""
        return OverlayMap(None, HashTrieMap(entries), len(entries))

    def __len__(self) -> int:
        """Count the entries."""
        return self._size

    def __contains__(self, key: object) -> bool:
        """Return whether there is an entry with that key."""
        change = self.changes.get(cast(K, key))
        return key in self.base if change is None else change is not TOMBSTONE

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, default: W, /) -> V | W: ...
    def get(self, key: K, default: W | None = None, /) -> V | W | None:
        """Return the value of a key, or `default` if there is none."""
        value = self.changes.get(key)
        if value is None:
            value = self.base.get(key)
            return default if value is None else value
        return default if value is TOMBSTONE else value

    def __getitem__(self, key: K) -> V:
        """Return the value of a key.

        Raises:
            KeyError: there is none.
        """
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def insert(self, key: K, value: V) -> OverlayMap[K, V]:
        """Return the map in which `key` has `value`, whether or not it had a value before."""
        size = self._size + (key not in self)
        return OverlayMap(self.base, self.changes.insert(key, value), size)

    def discard(self, *keys: K) -> OverlayMap[K, V]:
        """Return the map without `keys`; this map if it has none of them."""
        changes, size = self.changes, self._size
        for key in keys:
            change = changes.get(key)
            if change is TOMBSTONE:
                continue
            if self.base.get(key) is not None:
                changes, size = changes.insert(key, TOMBSTONE), size - 1
            elif change is not None:
                changes, size = changes.remove(key), size - 1
        return self if changes is self.changes else OverlayMap(self.base, changes, size)

    def remove(self, key: K) -> OverlayMap[K, V]:
        """Return the map without `key`.

        Raises:
            KeyError: there is no such key.
        """
        smaller = self.discard(key)
        if smaller is self:
            raise KeyError(key)
        return smaller

    def update(self, entries: Mapping[K, V]) -> OverlayMap[K, V]:
        """Return the map with these entries added; they replace its own."""
        return self.put(entries, new=sum(self.get(key) is None for key in entries))

    def put(self, entries: Mapping[K, V], *, new: int) -> OverlayMap[K, V]:
        """Return the map with these entries added, as `update`, but without looking for their keys.

        Requires: the map lacks just `new` of the keys, as the caller knows.
        """
        if not entries:
            return self
        return OverlayMap(self.base, self.changes.update(entries), self._size + new)

    def retain(self, keep: Callable[[V], bool]) -> OverlayMap[K, V]:
        """Return the map of those entries whose value `keep` accepts."""
        return self.discard(*(key for key, value in self.items() if not keep(value)))

    def __iter__(self) -> Iterator[K]:
        """Yield the keys, in no particular order."""
        for key in self.base:
            if key not in self.changes:
                yield key
        for key, change in self.changes.items():
            if change is not TOMBSTONE:
                yield key

    def keys(self) -> Iterator[K]:
        """Return the keys, in no particular order."""
        return iter(self)

    def values(self) -> Iterator[V]:
        """Return the values, in no particular order."""
        return (value for _, value in self.items())

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield pairs of key and value, in no particular order."""
        for key, value in self.base.items():
            if key not in self.changes:
                yield key, value
        for key, change in self.changes.items():
            if change is not TOMBSTONE:
                yield key, change

    def __eq__(self, other: object) -> bool:
        """Return whether both hold the same entries."""
        if not isinstance(other, OverlayMap):
            return NotImplemented
        return len(self) == len(other) and all(other.get(k) == v for k, v in self.items())

    def __repr__(self) -> str:
        """Show the entries."""
        return f"OverlayMap({dict(self.items())!r})"
