"""Keeps the contents of moto's S3 objects in files, not in memory; applied by `moto_server`.

moto holds up to 16 MB of each object in memory, and an open file for each larger one. Here the
contents of each object are a file of their own in one folder, which is opened only to be read.
"""

import os
import threading
import uuid
from collections.abc import Set
from pathlib import Path
from types import SimpleNamespace

from moto.s3 import models


class ValueFolder:
    """The folder of these files. A file is written once, whole, under a name that is new."""

    def __init__(self, path: Path, *, keeps_removed: bool = False) -> None:
        """With `keeps_removed`, files stay until `unlink` says which may go."""
        self._path = path
        self._keeps_removed = keeps_removed
        self._lock = threading.Lock()
        self._removed: set[str] = set()
        self._unflushed: set[str] = set()
        path.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        """Return where a file lies."""
        return self._path / name

    def sizes(self) -> dict[str, int]:
        """Return the names of all files, and how many bytes each has."""
        return {entry.name: entry.stat().st_size for entry in os.scandir(self._path)}

    def put(self, content: bytes) -> str:
        """Write a file; return its name, which is empty for no content."""
        if not content:
            return ""
        name = uuid.uuid4().hex
        try:
            self.path(name).write_bytes(content)
        except OSError:  # no room: a part of it must not take what is left
            self.path(name).unlink(missing_ok=True)
            raise
        with self._lock:
            self._unflushed.add(name)
        return name

    def remove(self, name: str) -> None:
        """Delete a file that no object has any more, or note that it may be deleted."""
        with self._lock:
            if self._keeps_removed:  # and flushed, if the state that is being saved names it
                self._removed.add(name)
                return
            self._unflushed.discard(name)
        self.path(name).unlink(missing_ok=True)

    def removed(self) -> set[str]:
        """Return the names of those that have been removed, and kept."""
        with self._lock:
            return set(self._removed)

    def unlink(self, names: Set[str]) -> None:
        """Delete files for good."""
        for name in names:
            self.path(name).unlink(missing_ok=True)
        with self._lock:
            self._removed -= names
            self._unflushed -= names

    def flush(self) -> None:
        """Have everything that was written reach the disk."""
        with self._lock:
            names = set(self._unflushed)
        for name in names:
            try:
                descriptor = os.open(self.path(name), os.O_RDONLY)
            except FileNotFoundError:
                continue  # removed meanwhile
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        with self._lock:  # only now: if one of them failed, the next time is for all of them
            self._unflushed -= names


class StoredValue:
    """The contents of one object, as the file-like object that moto reads and writes."""

    def __init__(self, folder: ValueFolder, name: str = "") -> None:
        """Begin with a file of the folder, or empty."""
        self._folder, self.name, self._at = folder, name, 0

    def seek(self, offset: int) -> None:
        """Read from this byte next."""
        self._at = offset

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size`."""
        if not self.name:
            return b""
        with self._folder.path(self.name).open("rb") as file:
            file.seek(self._at)
            content = file.read(size)
        self._at += len(content)
        return content

    def truncate(self) -> None:
        """Forget the contents."""
        name, self.name = self.name, ""
        if name:
            self._folder.remove(name)

    close = truncate

    def write(self, content: bytes) -> None:
        """Put contents where there are none."""
        self.name = self._folder.put(content)


def apply(folder: ValueFolder) -> None:
    """Have moto put the contents of objects into a folder; call once, before the server starts."""
    made = SimpleNamespace(SpooledTemporaryFile=lambda *_, **__: StoredValue(folder))
    models.tempfile = made  # type: ignore[assignment, attr-defined]
