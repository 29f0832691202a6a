"""What a process keeps of stored objects between requests, bounded by bytes.

Stored objects never change, so what was read of one stays true; it only has to make room. A
process has one cache, in its `ports.Services`: a warm function or a client that asks again for
what it asked for before reads less.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TypeVar

from cachetools import LRUCache

CACHE_BYTES = 64 * 1024 * 1024

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Entry:
    value: object
    size_bytes: int


class Cache:
    """Values by path and type; those used longest ago go first. Safe for many threads."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        """Keep values of up to `limit_bytes` in all; 0 keeps none."""
        self._limit_bytes = limit_bytes
        self._entries: LRUCache[tuple[str, type], _Entry] = LRUCache(
            limit_bytes, getsizeof=lambda entry: entry.size_bytes
        )
        self._lock = threading.Lock()

    def get(self, path: str, kind: type[_T]) -> _T | None:
        """Return what was kept of an object; None if nothing is (any more)."""
        with self._lock:
            entry = self._entries.get((path, kind))
        return entry.value if entry is not None and isinstance(entry.value, kind) else None

    def put(self, path: str, value: object, size_bytes: int) -> None:
        """Keep `value`, which takes about `size_bytes`, unless it alone is over the limit."""
        if size_bytes <= self._limit_bytes:
            with self._lock:
                self._entries[path, type(value)] = _Entry(value, size_bytes)
