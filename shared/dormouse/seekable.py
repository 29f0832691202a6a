"""Read-only files whose bytes come from elsewhere: an object, a part of a file, another file."""

from __future__ import annotations

import io
from abc import abstractmethod
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class SeekableFile(io.RawIOBase):
    """A file of a known size with a position, `_at`; a subclass reads from there, and moves it."""

    def __init__(self, size_bytes: int) -> None:
        """Begin at the start."""
        self._size_bytes, self._at = size_bytes, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read, and return it. Raises ValueError if it is negative."""
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}
        at = starts[whence] + offset
        if at < 0:
            raise ValueError(f"cannot seek to {at}")
        self._at = at
        return at


class WrappedFile(io.RawIOBase):
    """A file around another one; a subclass says what else a read does."""

    def __init__(self, file: BinaryIO) -> None:
        """Read `file`, and close it with this one."""
        self._file = file

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._file.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read, and return it."""
        return self._file.seek(offset, whence)

    @abstractmethod
    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size`."""

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read into a buffer; return how many bytes."""
        view = memoryview(buffer).cast("B")
        found = self.read(len(view))
        view[: len(found)] = found
        return len(found)

    def close(self) -> None:
        """Close both files."""
        self._file.close()
        super().close()
