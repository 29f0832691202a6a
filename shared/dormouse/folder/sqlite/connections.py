"""Connections to SQLite files: none is used, or closed, by a process that was forked meanwhile.

SQLite keeps, in the memory of a process, which locks it holds; the kernel gives none of them to a
forked one. So a process that was forked while connections were open believes in locks that it does
not have. Its parent would delete the WAL into which the child still writes, and commits would be
lost. Engines have threads, which a forked process lacks, and would wait for them for ever.
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from pathlib import Path

from dormouse.errors import InvalidRequestError

_OPEN: weakref.WeakSet[Connection] = weakref.WeakSet()
_INHERITED: list[Connection] = []
"""Connections of a parent process, for it to close."""


class Connection(sqlite3.Connection):
    """A connection that is known while it is open.

    `file` says which file it has opened. If it believes that the file never changes, `looks` says
    what that looked like.
    """

    file: tuple[int, int] | None = None
    looks: tuple[int, int, bool] | None = None

    def close(self) -> None:
        """Close it, unless it is that of a parent process."""
        if self not in _INHERITED:
            _OPEN.discard(self)
            super().close()


def connect(path: Path, mode: str, busy_seconds: float) -> Connection:
    """Return a connection to the file `path`.

    Raises:
        InvalidRequestError: this process was forked while its parent had connections to it.
        sqlite3.Error: the file cannot be opened.
    """
    check_not_forked(path)
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=False,
        factory=Connection,
    )
    connection.file = file_at(path)
    _OPEN.add(connection)
    return connection


def check_not_forked(path: Path) -> None:
    """Raise InvalidRequestError if a parent process had connections to a file at the fork."""
    if _INHERITED and file_at(path) in {connection.file for connection in _INHERITED}:
        raise InvalidRequestError(
            f"{path.parent} cannot be used in this process: it was forked from one that had "
            "opened it",
            hint="start processes with multiprocessing.get_context('spawn'), or fork before an "
            "instance is opened; each process opens the folder itself",
        )


def file_at(path: Path) -> tuple[int, int] | None:
    """Return which file is at a path now; None if there is none."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def _after_fork() -> None:
    _INHERITED.extend(_OPEN)


os.register_at_fork(after_in_child=_after_fork)
