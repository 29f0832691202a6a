"""Reading a file before there is a job for it: to infer its types, or to check it.

A file may end the process that reads it: out of memory, or by a fault of a library. The attempts at
a job are in its record; here is none yet, and perhaps no instance. So a marker among the temporary
files of this user has a byte for each attempt that did not end, and is locked while one runs.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa

from dormouse.errors import RefusedSourceError, is_panic

MOST_DEATHS = 2
END_BYTES = 64 * 1024
"""So much of both ends of a file, its size and the end of its name tell it from others."""


@contextmanager
def counted_reading(file: Path) -> Iterator[None]:
    """Run the block, which reads a file; refuse that once two processes died in such a block.

    What another process reads just now is not counted, and nothing is where no marker can be.

    Raises:
        RefusedSourceError: two processes died while they read it, or a library panicked.
    """
    with _marked(file):
        try:
            yield
        except BaseException as error:
            if not is_panic(error):
                raise
            raise RefusedSourceError(
                f"a library that reads {file.name!r} failed", hint="write it again"
            ) from error


@contextmanager
def _marked(file: Path) -> Iterator[None]:
    """Run the block while a marker says so; what ends it without its process removes that."""
    marker = None
    with suppress(OSError):  # no room, no right, or in use; or no file, of which the block tells
        marker = _locked_marker(file)
    if marker is None:
        yield
        return
    path, descriptor = marker
    try:
        deaths = os.fstat(descriptor).st_size
        if deaths >= MOST_DEATHS:
            raise RefusedSourceError(
                f"{deaths} processes ended while they read {file.name!r}: out of memory, or by a "
                "fault of a library that reads it",
                hint="write it again, smaller or in another format; to have it read again: "
                f"rm {path}",
            )
        with suppress(OSError):  # the disk is full
            os.write(descriptor, b".")
        try:
            yield
        except BaseException:
            os.ftruncate(descriptor, deaths)
            raise
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _locked_marker(file: Path) -> tuple[Path, int] | None:
    """Return the marker of a file, open and locked; None if others could have put it there.

    Raises:
        OSError: it cannot be made, or another process has it.
    """
    folder = Path(tempfile.gettempdir()) / f"dormouse-reading-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.getuid():
        return None
    path = folder / _name_of(file)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return path, descriptor


def _name_of(file: Path) -> str:
    with file.open("rb") as content:
        ends = content.read(END_BYTES)
        size = content.seek(0, os.SEEK_END)
        content.seek(max(0, size - END_BYTES))
        ends += content.read()
    # a later library may read what this one cannot
    which = f"{pa.__version__} {size} {file.suffix} ".encode() + ends
    return blake2b(which, digest_size=16).hexdigest()
