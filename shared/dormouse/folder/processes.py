"""Which processes use a folder now: a file for each, locked as long as its process lives.

The kernel releases the lock of a process however it ends, so nobody has to wait, or to guess, to
know that one has died. A forked process closes its copy of the lock, which would outlive its
parent. The file holds the release of its process: two releases do not work in one folder at once.

`joined` is called under the lock of the folder (`locked`), so no two processes join at once.
"""

import concurrent.futures.thread  # noqa: F401  # its end at exit is registered before ours
import fcntl
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from dormouse.errors import DormouseError, InvalidRequestError
from dormouse.folder.sqlite import without_locks
from dormouse.ports import Storage, Upload, WholeUpload
from dormouse.storage import WrappedFile, writing_files

DATABASE = "dormouse.sqlite"
"""The file by which a folder is known to be an instance."""


@dataclass(frozen=True, slots=True)
class FolderLayout:
    """The files and folders of an instance below its `root`."""

    root: Path

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.root / DATABASE

    @property
    def tables(self) -> Path:
        """The data root: a folder for each table id."""
        return self.root / "tables"

    @property
    def inbox(self) -> Path:
        """Where files to ingest are put, in a folder named after their table."""
        return self.root / "inbox"

    @property
    def exports(self) -> Path:
        """Where exported rows are written."""
        return self.root / "exports"

    @property
    def logs(self) -> Path:
        """What runs of Spark printed that failed."""
        return self.root / "logs"

    @property
    def scratch(self) -> Path:
        """Temporary files: on the disk of the shards, so that a file becomes one without a copy."""
        return self.root / ".scratch"

    @property
    def processes(self) -> Path:
        """A locked file for each process that uses the folder."""
        return self.root / ".processes"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Run the block, alone of all processes, for a folder. Raises InvalidRequestError: no locks."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor, fcntl.LOCK_EX, folder)
        yield
    finally:
        os.close(descriptor)


class Process:
    """This process, or one handle of it, among those that use a folder."""

    def __init__(self, folder: Path, name: str, descriptor: int, *, is_alone: bool) -> None:
        """Use `joined` to make one. `is_alone` says whether there were no others when it joined."""
        self.name, self._folder, self.is_alone = name, folder, is_alone
        self._descriptor: int | None = descriptor
        _JOINED.add(self)

    @staticmethod
    def joined(folder: Path, name: str, release: str) -> "Process":
        """Join the processes whose files lie in `folder`; clean up after those that died.

        Raises:
            InvalidRequestError: a process of another release uses the folder.
            UnavailableError: the disk is full; nothing is left of this attempt.
        """
        with writing_files(folder.parent):
            folder.mkdir(exist_ok=True)
        for file in folder.iterdir():
            if not is_alive(folder, file.name):
                file.unlink(missing_ok=True)
            elif (other := file.read_text()) != release:
                raise InvalidRequestError(
                    f"a process with release {other} of Dormouse uses {folder.parent}; this is "
                    f"release {release}",
                    hint="end it, or use that release; two at once could not read each other's "
                    "messages",
                )
        others = any(folder.iterdir())
        with writing_files(folder.parent):
            descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o666)
            process = Process(folder, name, descriptor, is_alone=not others)
            try:
                _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, folder)
                os.write(descriptor, release.encode())
            except BaseException:
                process.leave()
                raise
        return process

    def leave(self) -> None:
        """Be no more among them. What was left undone is then for others to do. Idempotent."""
        if self._descriptor is not None:
            with suppress(FileNotFoundError):  # the folder was moved, or deleted
                (self._folder / self.name).unlink()
            self.close()

    def close(self) -> None:
        """Close this copy of the lock; a forked process leaves the other to its parent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_alive(folder: Path, name: str) -> bool:
    """Return whether the process of this name still uses the folder."""
    return is_locked(folder / name)


def is_locked(path: Path) -> bool:
    """Return whether a living process has locked a file; the kernel ends the lock with it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _lock(descriptor: int, how: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, how)
    except OSError as error:
        raise without_locks(path, error) from error


def _after_fork() -> None:
    for process in _JOINED:
        process.close()


_JOINED: weakref.WeakSet[Process] = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)


# How work in the background ends when its process does: at its next access to the data.
#
# A thread cannot be stopped from outside. So what the worker reads and writes goes through
# `LeavingStorage`, which raises `LeavingError` as soon as the process is about to end. To a stage
# that is one of the failures that it is written for: it records the end of its attempt, and its
# message is handed back for another process, or for the next run of this one.


class LeavingError(DormouseError):
    """The process ends; what it worked on is done by another."""


class Leaving:
    """Whether the process is about to end: because it was said so, or its main thread has ended."""

    def __init__(self) -> None:
        self._said = threading.Event()
        _ALL.add(self)

    def leave(self) -> None:
        """Let the worker end soon."""
        self._said.set()

    def __bool__(self) -> bool:
        return self._said.is_set() or not threading.main_thread().is_alive()

    def check(self) -> None:
        """Raise LeavingError if the worker has to end."""
        if self:
            raise LeavingError("the process ended; the work is done by another, or when it is back")


_ALL: weakref.WeakSet[Leaving] = weakref.WeakSet()


def _leave_all() -> None:
    for leaving in list(_ALL):
        leaving.leave()


# Threads of pools are refused from here on. Python 3.12 ends the main thread only after that.
threading._register_atexit(_leave_all)  # type: ignore[attr-defined]


class LeavingStorage:
    """A `Storage` whose every call first checks whether to leave."""

    def __init__(self, storage: Storage, leaving: Leaving) -> None:
        self._storage, self._leaving = storage, leaving

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._storage, name)
        if not callable(attribute):
            return attribute

        def checked(*args: Any, **options: Any) -> Any:
            self._leaving.check()
            return attribute(*args, **options)

        return checked

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        """Open an object whose every read checks, too."""
        self._leaving.check()
        return cast(BinaryIO, _LeavingFile(self._storage.open(path, size_bytes), self._leaving))

    def stream(self, path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes of an object from `start` up to `end`, and check with each piece."""
        for piece in self._storage.stream(path, size_bytes, start, end):
            self._leaving.check()
            yield piece

    def with_commits(self) -> "LeavingStorage":
        """Return it for objects of new names, which are there with the next commit."""
        return LeavingStorage(self._storage.with_commits(), self._leaving)

    def start_upload(self, path: str, local: Path) -> Upload:
        """Start an upload whose completion first checks whether to leave."""
        self._leaving.check()
        return WholeUpload(cast(Storage, self), path, local)


class _LeavingFile(WrappedFile):
    """A file whose every read first checks whether to leave."""

    def __init__(self, file: BinaryIO, leaving: Leaving) -> None:
        super().__init__(file)
        self._leaving = leaving

    def read(self, size: int = -1) -> bytes:
        self._leaving.check()
        return self._file.read(size)
