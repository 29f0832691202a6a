"""A data root in memory."""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from dormouse.errors import NotFoundError
from dormouse.ports import Storage, StoredObject, UnfinishedUpload, Upload
from dormouse.storage import check_path, check_prefix, read_pieces
from dormouse.system import Clock

PART_BYTES = 512
"""Small, so that the shards of tests have parts."""


class MemoryStorage(Storage):
    """A data root in memory, safe for many threads, which ends with the process.

    Without a clock, every object seems to have been put in 1970; pass one where ages matter.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        """Start empty; `clock` dates the objects."""
        self._clock = clock
        self._objects: dict[str, tuple[bytes, int]] = {}
        self._uploads: dict[str, UnfinishedUpload] = {}
        self._upload_ids = itertools.count()
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

    def start_upload(self, path: str, local: Path) -> Upload:
        """Start an upload whose parts are kept here, unfinished until it ends."""
        return _MemoryUpload(self, check_path(path), local)

    def list_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """Yield the uploads to paths that begin with `prefix` which are not finished."""
        with self._lock:
            found = [each for each in self._uploads.values() if each.path.startswith(prefix)]
        yield from found

    def abort_uploads(self, uploads: Iterable[UnfinishedUpload]) -> None:
        """Forget uploads."""
        for upload in uploads:
            with self._lock:
                self._uploads.pop(upload.id, None)

    def begin_upload(self, path: str) -> UnfinishedUpload:
        """Note that an upload was begun."""
        now_ms = self._clock.now_ms() if self._clock else 0
        with self._lock:
            upload = UnfinishedUpload(path, f"upload-{next(self._upload_ids)}", now_ms)
            self._uploads[upload.id] = upload
        return upload

    @property
    def is_remote(self) -> bool:
        """Return True, as S3 does."""
        return True

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

    def folders(self, below: str = "") -> Iterator[str]:
        """Yield the folders of a folder, in order."""
        with self._lock:
            rests = [p.removeprefix(below) for p in self._objects if p.startswith(below)]
        yield from sorted({rest.partition("/")[0] for rest in rests if "/" in rest})

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; missing ones are ignored."""
        with self._lock:
            for path in paths:
                self._objects.pop(check_path(path), None)


class _MemoryUpload:
    """An upload that begins with the first part, and checks that what it sent is in the file."""

    def __init__(self, storage: MemoryStorage, path: str, local: Path) -> None:
        self._storage, self._path, self._local = storage, path, local
        self._begun: list[UnfinishedUpload] = []
        self._sent = b""

    def advance(self, final_bytes: int) -> None:
        if final_bytes - len(self._sent) >= PART_BYTES:
            self._begun = self._begun or [self._storage.begin_upload(self._path)]
            with self._local.open("rb") as file:
                self._sent = file.read(final_bytes)
            assert len(self._sent) == final_bytes, "bytes that are not there were called final"

    def complete(self) -> bool:
        try:
            with self._local.open("rb") as file:
                assert file.read(len(self._sent)) == self._sent, "bytes changed that were final"
            return self._storage.upload(self._path, self._local)
        finally:
            self.abort()

    def abort(self) -> None:
        self._storage.abort_uploads(self._begun)
