"""A cache of stored objects, bounded by bytes, which lives as long as its process.

Stored objects never change, so a cached one never becomes stale; it is only evicted. A process has
one cache, in its `ports.Services`. A warm function or a client that repeats a request reads less.
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
    """Values by path and type. The least recently used are evicted first. Thread-safe."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        """Cache values of up to `limit_bytes` in total; 0 caches nothing."""
        self._limit_bytes = limit_bytes
        self._entries: LRUCache[tuple[str, type], _Entry] = LRUCache(
            limit_bytes, getsizeof=lambda entry: entry.size_bytes
        )
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Cache], tuple[int]]:
        """Another process gets an empty cache with the same limit."""
        return Cache, (self._limit_bytes,)

    def get(self, path: str, kind: type[_T]) -> _T | None:
        """Return the cached value of an object; None if there is none."""
        with self._lock:
            entry = self._entries.get((path, kind))
        return entry.value if entry is not None and isinstance(entry.value, kind) else None

    def put(self, path: str, value: object, size_bytes: int) -> None:
        """Cache `value`, which takes about `size_bytes`, unless it alone exceeds the limit."""
        if size_bytes <= self._limit_bytes:
            with self._lock:
                self._entries[path, type(value)] = _Entry(value, size_bytes)
