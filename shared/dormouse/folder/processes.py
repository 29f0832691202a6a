"""Which processes use a folder now: a file for each, locked as long as its process lives.

The kernel releases the lock of a process however it ends, so nobody has to wait, or to guess, to
know that one has died. A forked process closes its copy of the lock, which would outlive its
parent. The file holds the release of its process: two releases do not work in one folder at once.

`joined` is called under the lock of the folder (`locked`), so no two processes join at once.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dormouse.errors import InvalidRequestError
from dormouse.folder.sqlite.failures import without_locks
from dormouse.storage import writing_files


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Run the block while no other process is in such a block for this folder.

    Raises:
        InvalidRequestError: the file system has no locks.
    """
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
    def joined(folder: Path, name: str, release: str) -> Process:
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
    """Return whether a living process has locked a file; the kernel frees the lock of one that
    ends.
    """
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
