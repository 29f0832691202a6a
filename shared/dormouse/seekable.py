"""Read-only files whose bytes come from elsewhere: an object, a part of a file, fetched spans."""

from __future__ import annotations

import io


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
