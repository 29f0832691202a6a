"""Bodies of requests that are read as they arrive."""

from __future__ import annotations

from typing import Protocol


class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, at most `size` of them unless it is negative; none at the end."""


class BodyStream:
    """The body of a request: `left` bytes of a connection that are not read yet."""

    def __init__(self, connection: Readable, length: int) -> None:
        """Read up to `length` bytes of a connection."""
        self._connection, self.left = connection, length

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, as `Readable` does.

        Raises:
            ConnectionAbortedError: the other side broke off before the end.
        """
        wanted = self.left if size < 0 else min(size, self.left)
        found = self._connection.read(wanted) if wanted else b""
        self.left -= len(found)
        if len(found) < wanted:
            raise ConnectionAbortedError("a body broke off before its end")
        return found
