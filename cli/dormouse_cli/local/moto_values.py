"""Keeps the contents of moto's S3 objects in files, not in memory; applied by `moto_server`.

moto holds up to 16 MB of each object in memory, and an open file for each larger one. Here the
contents of each object are a file of their own in one folder, which is opened only to be read.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from types import SimpleNamespace

from moto.s3 import models


class StoredValue:
    """The contents of one object, as the file-like object that moto reads and writes."""

    def __init__(self, folder: Path) -> None:
        """Begin empty; the file will be in this folder."""
        self._folder, self._at = folder, 0
        self._file: Path | None = None

    def seek(self, offset: int) -> None:
        """Read from this byte next."""
        self._at = offset

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size`."""
        if self._file is None:
            return b""
        with self._file.open("rb") as file:
            file.seek(self._at)
            content = file.read(size)
        self._at += len(content)
        return content

    def truncate(self) -> None:
        """Delete the contents."""
        file, self._file = self._file, None
        if file is not None:
            file.unlink(missing_ok=True)

    close = truncate

    def write(self, content: bytes) -> None:
        """Put contents where there are none."""
        if not content:
            return
        file = self._folder / uuid.uuid4().hex
        try:
            file.write_bytes(content)
        except OSError:  # no room: a part of it must not take what is left
            file.unlink(missing_ok=True)
            raise
        self._file = file


def apply(folder: Path) -> None:
    """Have moto put the contents of objects into a folder; call once, before the server starts."""
    folder.mkdir(parents=True, exist_ok=True)
    made = SimpleNamespace(SpooledTemporaryFile=lambda *_, **__: StoredValue(folder))
    models.tempfile = made  # type: ignore[assignment, attr-defined]
