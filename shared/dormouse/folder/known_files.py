"""What is known of the files of the inbox: rows in SQLite, one for each file.

A file is the one that is known as long as its size, its times and its inode are the same. Programs
can set the time of the last change, but not that of the last change of the inode.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from dataclasses import astuple, dataclass

from dormouse.folder.queues import insert_message
from dormouse.messages.stages import FilesDropped, encode
from dormouse.model.sources import Source

BUCKET = "inbox"
"""The name of the bucket in the identity of a source. It says nothing of where the folder is."""
_MOST = 2**63 - 1
"""The largest integer of SQLite."""
_SELECT = "SELECT key, size_bytes, modified_ns, changed_ns, inode, etag, dropped_ms FROM inbox"
_INSERT = (
    "INSERT OR REPLACE INTO inbox"
    " (key, size_bytes, modified_ns, changed_ns, inode, etag, dropped_ms)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(frozen=True, slots=True)
class File:
    """A file as its folder shows it."""

    key: str
    size_bytes: int
    modified_ns: int
    changed_ns: int
    inode: int

    @staticmethod
    def of(key: str, status: os.stat_result) -> File:
        """Return what the system says of a file."""
        inode = status.st_ino & _MOST
        return File(key, status.st_size, status.st_mtime_ns, status.st_ctime_ns, inode)


@dataclass(frozen=True, slots=True)
class Known:
    """A file as it was found, and what was announced then; `is_new` if it was announced now."""

    file: File
    etag: str
    dropped_ms: int
    is_new: bool = False

    @property
    def source(self) -> Source:
        """The source that was announced."""
        size_bytes = self.file.size_bytes
        return Source(BUCKET, self.file.key, self.etag, size_bytes, dropped_ms=self.dropped_ms)


def all_known(connection: sqlite3.Connection) -> Iterator[Known]:
    """Yield what is known of all files."""
    yield from map(_known, connection.execute(_SELECT))


def note(connection: sqlite3.Connection, found: File, etag: str, now_ms: int) -> Known:
    """Keep what is known of a file. Send its notification, unless this content was announced.

    A file whose content and time of change are those that are known was only moved, copied, or
    given other rights.
    """
    row = connection.execute(f"{_SELECT} WHERE key = ?", (found.key,)).fetchone()
    earlier = _known(row) if row else None
    if earlier is not None and earlier.file == found:
        return earlier
    if earlier is not None and _is_same(earlier, found, etag):
        known = Known(found, etag, earlier.dropped_ms)
    else:
        known = Known(found, etag, now_ms, is_new=True)
        insert_message(connection, "files", encode(FilesDropped((known.source,))), now_ms)
    connection.execute(_INSERT, (*astuple(found), etag, known.dropped_ms))
    return known


def _is_same(earlier: Known, found: File, etag: str) -> bool:
    return earlier.etag == etag and earlier.file.modified_ns == found.modified_ns


def _known(row: tuple[str, int, int, int, int, str, int]) -> Known:
    key, size_bytes, modified_ns, changed_ns, inode, etag, dropped_ms = row
    return Known(File(key, size_bytes, modified_ns, changed_ns, inode), etag, dropped_ms)
