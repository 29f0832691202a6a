"""How work in the background ends when its process does: at its next access to the data.

A thread cannot be stopped from outside. So what the worker reads and writes goes through
`LeavingStorage`, which raises `LeavingError` as soon as the process is about to end. To a stage
that is one of the failures that it is written for: it records the end of its attempt, and its
message is handed back for another process, or for the next run of this one.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  # its end at exit is registered before ours
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from dormouse.errors import DormouseError
from dormouse.ports.services import NoncurrentObject, Storage, StoredObject
from dormouse.ports.uploads import UnfinishedUpload, Upload, WholeUpload
from dormouse.seekable import WrappedFile


class LeavingError(DormouseError):
    """The process ends; what it worked on is done by another."""


class Leaving:
    """Whether the process is about to end: because it was said so, or its main thread has ended."""

    def __init__(self) -> None:
        """Begin with staying."""
        self._said = threading.Event()
        _ALL.add(self)

    def leave(self) -> None:
        """Let the worker end soon."""
        self._said.set()

    def __bool__(self) -> bool:
        """Return whether the worker has to end."""
        return self._said.is_set() or not threading.main_thread().is_alive()

    def check(self) -> None:
        """Raise LeavingError if the worker has to end."""
        if self:
            raise LeavingError("the process ended; the work is done by another, or when it is back")


_ALL: weakref.WeakSet[Leaving] = weakref.WeakSet()


def _leave_all() -> None:
    for leaving in list(_ALL):
        leaving.leave()


# Threads of pools are refused from here on. Python 3.12 ends the main thread only after that.
threading._register_atexit(_leave_all)  # type: ignore[attr-defined]


class LeavingStorage:
    """A storage whose every call first checks whether to leave."""

    def __init__(self, storage: Storage, leaving: Leaving) -> None:
        """Use `storage` until it is time to leave."""
        self._storage, self._leaving = storage, leaving

    @property
    def uri(self) -> str:
        """Where the data root is, for people."""
        return self._storage.uri

    @property
    def is_remote(self) -> bool:
        """Whether a read waits for a network."""
        return self._storage.is_remote

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        """Open an object to seek and read."""
        self._leaving.check()
        return cast(BinaryIO, _LeavingFile(self._storage.open(path, size_bytes), self._leaving))

    def stream(self, path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes of an object from `start` up to `end`."""
        for piece in self._storage.stream(path, size_bytes, start, end):
            self._leaving.check()
            yield piece

    def link(self, path: str, local: Path) -> bool:
        """Make `local` a second name of an object's file, if that can be."""
        self._leaving.check()
        return self._storage.link(path, local)

    def get(self, path: str) -> bytes:
        """Return a whole object."""
        self._leaving.check()
        return self._storage.get(path)

    def put(self, path: str, body: bytes) -> bool:
        """Store an object if there is none at that path."""
        self._leaving.check()
        return self._storage.put(path, body)

    def upload(self, path: str, local: Path) -> bool:
        """Store a local file's content as `put` does."""
        self._leaving.check()
        return self._storage.upload(path, local)

    def start_upload(self, path: str, local: Path) -> Upload:
        """Start an upload whose completion first checks whether to leave."""
        self._leaving.check()
        return WholeUpload(self, path, local)

    def list_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """Yield the uploads that are not finished."""
        self._leaving.check()
        return self._storage.list_uploads(prefix)

    def abort_uploads(self, uploads: Iterable[UnfinishedUpload]) -> None:
        """Delete what was sent of uploads."""
        self._leaving.check()
        self._storage.abort_uploads(uploads)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose path begins with `prefix`, in path order."""
        self._leaving.check()
        return self._storage.list(prefix)

    def list_noncurrent(self, prefix: str) -> Iterator[NoncurrentObject]:
        """Yield what is kept of deleted objects."""
        self._leaving.check()
        return self._storage.list_noncurrent(prefix)

    def folders(self) -> Iterator[str]:
        """Yield the first part of every path that has several parts."""
        self._leaving.check()
        return self._storage.folders()

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; missing ones are ignored."""
        self._leaving.check()
        self._storage.delete(paths)


class _LeavingFile(WrappedFile):
    """A file whose every read first checks whether to leave."""

    def __init__(self, file: BinaryIO, leaving: Leaving) -> None:
        super().__init__(file)
        self._leaving = leaving

    def read(self, size: int = -1) -> bytes:
        self._leaving.check()
        return self._file.read(size)
