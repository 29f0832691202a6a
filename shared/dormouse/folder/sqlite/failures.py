"""Failures of SQLite and of the file system as our errors, in one place for all adapters."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dormouse.errors import (
    ContendedError,
    CorruptDataError,
    DiskFullError,
    DormouseError,
    InvalidRequestError,
    OutcomeUnknownError,
    UnavailableError,
)
from dormouse.storage import FREE_SPACE, FULL

_PRIMARY = 0xFF
"""The primary result code of an extended one."""
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_FAILED = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
_BESIDE_BYTES = 64 * 1024
READ_ONLY = "give yourself the right to write there, or copy the folder; queries work all the same"
NO_LOCKS = "keep the folder on a local disk; shared and network file systems often lack locks"


@contextmanager
def using(path: Path) -> Iterator[None]:
    """Raise failures of SQLite with the file `path` as errors that say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        ours = _ours(path, error)
        if ours is None:
            raise
        raise ours from error


@contextmanager
def committing(path: Path) -> Iterator[None]:
    """Do as `using` does, for a commit: after a failure of the disk its outcome is unknown."""
    try:
        with using(path):
            yield
    except UnavailableError as error:
        cause = error.__cause__
        if isinstance(cause, sqlite3.Error) and _code(cause) == sqlite3.SQLITE_IOERR:
            raise OutcomeUnknownError(f"{path} failed at a commit: {cause}") from cause
        raise


def full_disk(error: BaseException | None) -> DiskFullError | None:
    """Return the error of a full disk that is behind another error; None if there is none.

    One that is not ours is of the folder of temporary files, where rows are sorted.
    """
    while error is not None:
        if isinstance(error, DiskFullError):
            return error
        if isinstance(error, OSError) and error.errno in FULL:
            return DiskFullError("the disk of the temporary files is full", hint=FREE_SPACE)
        error = error.__cause__ or error.__context__
    return None


def read_only(path: Path) -> InvalidRequestError:
    """Return the error of a write to what can only be read."""
    return InvalidRequestError(f"{path} is read-only", hint=READ_ONLY)


def without_locks(path: Path, error: Exception) -> InvalidRequestError:
    """Return the error of a folder in which processes cannot exclude each other."""
    return InvalidRequestError(
        f"the file system of {path} has no locks, without which processes would overwrite each "
        f"other's work: {error}",
        hint=NO_LOCKS,
    )


def _ours(path: Path, error: sqlite3.Error) -> DormouseError | None:
    """Return our error for one of SQLite; None if it can only be a fault of the caller."""
    code = _code(error)
    if code in _BUSY:
        return ContendedError(f"other processes keep {path} locked; try again")
    if code == sqlite3.SQLITE_FULL or (code in _FAILED and _is_full(path)):
        return DiskFullError(f"the disk of {path} is full", hint=FREE_SPACE)
    if code == sqlite3.SQLITE_READONLY:
        return read_only(path)
    if code == sqlite3.SQLITE_PROTOCOL:
        return without_locks(path, error)
    if code in _DAMAGED:
        return CorruptDataError(
            f"{path} is damaged: {error}",
            hint="bring the folder back from a backup, or what SQLite can still read by `sqlite3 "
            f"{path.name} .recover`; `dormouse table unregistered` then lists what is left over",
        )
    if code in _FAILED:
        return UnavailableError(
            f"{path} cannot be read or written: {error}",
            hint="see whether the disk is mounted, and whether you may read and write there; after "
            "a process was killed, open the folder once where it can be written",
        )
    return None


def _is_full(path: Path) -> bool:
    """Return whether the disk has no room for what SQLite makes beside its file."""
    try:
        return shutil.disk_usage(path.parent).free < _BESIDE_BYTES
    except OSError:
        return False


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY
