"""A dropped file on this machine, which can be read before all of it has arrived."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from dormouse.ports.downloads import Arrivals
from dormouse.seekable import SeekableFile

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BUFFER_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A local file of full size, of which bytes may be missing; `arrivals` is None if none are."""

    path: Path
    arrivals: Arrivals | None = None

    def open(self) -> BinaryIO:
        """Open it to seek and read; a read waits for its bytes, and raises what their download
        raised.
        """
        if self.arrivals is None:
            return self.path.open("rb")
        return cast(BinaryIO, io.BufferedReader(_Arriving(self.path, self.arrivals), BUFFER_BYTES))

    def wait(self) -> Path:
        """Return its path when all bytes are there. Raises what their download raised."""
        if self.arrivals is not None:
            self.arrivals.wait_for_all()
        return self.path


class _Arriving(SeekableFile):
    """A file whose reads wait for their bytes."""

    def __init__(self, path: Path, arrivals: Arrivals) -> None:
        self._file, self._arrivals = path.open("rb", buffering=0), arrivals
        super().__init__(path.stat().st_size)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        end = self._arrivals.wait(self._at, self._at + len(view))
        self._file.seek(self._at)
        count = self._file.readinto(view[: max(0, end - self._at)])
        self._at += count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
