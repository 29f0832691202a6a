"""A data root in memory."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from dormouse.errors import NotFoundError
from dormouse.ports import Clock, NoncurrentObject, StoredObject
from dormouse.storage import check_path, check_prefix, read_pieces


class MemoryStorage:
    """A data root in memory, safe for many threads, which ends with the process.

    Without a clock, every object seems to have been put in 1970; pass one where ages matter.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        """Start empty; `clock` dates the objects."""
        self._clock = clock
        self._objects: dict[str, tuple[bytes, int]] = {}
        self._lock = threading.Lock()

    @property
    def uri(self) -> str:
        """A name for messages; no other process can read it."""
        return "memory:"

    def get(self, path: str) -> bytes:
        """Return a whole object. Raises NotFoundError."""
        with self._lock:
            found = self._objects.get(check_path(path))
        if found is None:
            raise NotFoundError(f"there is no object {path!r}")
        return found[0]

    def put(self, path: str, body: bytes) -> bool:
        """Store an object if there is none at that path; otherwise return False and change
        nothing.
        """
        check_path(path)
        now_ms = self._clock.now_ms() if self._clock else 0
        with self._lock:
            if path in self._objects:
                return False
            self._objects[path] = (bytes(body), now_ms)
            return True

    def upload(self, path: str, local: Path) -> bool:
        """Store a local file's content as `put` does."""
        return self.put(path, local.read_bytes())

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        """Open an object to seek and read. Raises NotFoundError."""
        return io.BytesIO(self.get(path))

    def stream(self, path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes of an object from `start` up to `end`. Raises NotFoundError."""
        yield from read_pieces(self.open(path, size_bytes), start, end)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose path begins with `prefix`, in path order."""
        check_prefix(prefix)
        with self._lock:
            found = [
                StoredObject(path, len(body), modified_ms)
                for path, (body, modified_ms) in self._objects.items()
                if path.startswith(prefix)
            ]
        yield from sorted(found, key=lambda item: item.path)

    def list_noncurrent(self, prefix: str) -> Iterator[NoncurrentObject]:
        """Yield nothing: deleted objects are not kept."""
        yield from ()

    def folders(self) -> Iterator[str]:
        """Yield the first part of every path that has several parts, in order, each once."""
        with self._lock:
            found = {path.partition("/")[0] for path in self._objects if "/" in path}
        yield from sorted(found)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; missing ones are ignored."""
        with self._lock:
            for path in paths:
                self._objects.pop(check_path(path), None)
