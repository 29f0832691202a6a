"""The inbox: files that are put there become rows of the table whose name their folder has.

It has two ends: files go in by `drop`, for the client, and by `find_new`, for people and other
programs; the stages read them by `ports.Sources`. What is known of a file, by its size and time of
change, is kept in SQLite, so that its content is read for its ETag once. An ETag is the MD5 of the
content, as that of S3 is, so a file is the same source in either place.

Names that begin with a dot or an underscore are not looked at, nor is a file that was changed
within the last two seconds, or that a program has open for writing: a part of it would become rows,
and then the whole of it. Where the system cannot say the latter (other systems than Linux, network
file systems), programs that pause should write under a hidden name, and rename the file.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path
from typing import BinaryIO

from dormouse.errors import RefusedSourceError
from dormouse.folder.database import Database
from dormouse.folder.queues import insert_message
from dormouse.messages import FilesDropped, encode
from dormouse.model.sources import Source
from dormouse.ports import Clock
from dormouse.storage import INCOMING, check_path, flush_folder, writing_files

logger = logging.getLogger("dormouse")

BUCKET = "inbox"
"""The name of the bucket in the identity of a source. It says nothing of where the folder is."""
SETTLED_MS = 2000
_CHUNK_BYTES = 1024 * 1024
_HIDDEN = (".", "_")


@dataclass(frozen=True, slots=True)
class _File:
    """A file as its folder shows it."""

    key: str
    size_bytes: int
    modified_ns: int


class Inbox:
    """The inbox of an instance; safe for many threads and processes."""

    def __init__(
        self, root: Path, database: Database, clock: Clock, sent: Callable[[], None] = lambda: None
    ) -> None:
        """Use the folder `root`, which is made with the first file.

        `sent` is called after a notification was sent.
        """
        self._root, self._database, self._clock, self._sent = root, database, clock, sent

    @property
    def name(self) -> str:
        """The name of the bucket in sources."""
        return BUCKET

    def drop(self, key: str, local: Path, *, once: bool = False) -> Source:
        """Copy a local file into the inbox, as the newest content under `key`.

        With `once`, a file that is there under `key` is not replaced; its source is returned.
        Readers see all of it or nothing. The process that finds it first sends its notification.
        """
        target = self._root / check_path(key)
        incoming = self._root / INCOMING
        with writing_files(self._root):
            incoming.mkdir(parents=True, exist_ok=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=incoming) as folder:
                aside = Path(folder) / "file"
                with local.open("rb") as content, aside.open("wb") as copy:
                    etag = _copy(content, copy)
                    copy.flush()
                    os.fsync(copy.fileno())
                found = _file(aside, key)
                if not once:
                    aside.replace(target)
                elif not _link(aside, target):
                    found = _file(target, key)
                    with target.open("rb") as content:
                        etag = _copy(content, None)
            flush_folder(target.parent)
        return self._note(found, etag, self._clock.now_ms())[0]

    def download(self, source: Source, local: Path) -> None:
        """Copy the content that `source` names to a local file.

        Raises:
            RefusedSourceError: it is gone, there is another content under its key, or it is in
                another bucket.
        """
        if source.bucket != BUCKET:
            raise RefusedSourceError(
                f"{source.key!r} is in bucket {source.bucket!r}, not in the ingest bucket",
                hint="files of the inbox are ingested, and no others",
            )
        path = self._root / check_path(source.key)
        try:
            with path.open("rb") as content, local.open("wb") as copy:
                etag = _copy(content, copy)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise RefusedSourceError(
                f"{source.key!r} was deleted before it was ingested",
                hint="put the file there again",
            ) from error
        if etag != source.etag:
            local.unlink()
            raise RefusedSourceError(
                f"{source.key!r} was overwritten before it was ingested",
                hint="what is there now is ingested as a file of its own; to have the earlier "
                "content too, put it there again under another name",
            )

    def list(self, prefix: str, *, since_ms: int) -> Iterator[Source]:
        """Yield, in key order, the files whose key begins with `prefix` and which were found at
        `since_ms` or later.
        """
        for found in self._files(prefix):
            source = self._known(found)
            if source is None and (etag := self._etag(found)) is not None:
                source = self._note(found, etag, self._clock.now_ms())[0]
            if source is not None and source.dropped_ms >= since_ms:
                yield source

    def find_new(self) -> Iterator[Source]:
        """Yield the files that nobody has found before, each to one caller of all processes."""
        now_ms = self._clock.now_ms()
        known = self._all_known()
        for found in self._files(""):
            if known.pop(found.key, None) == (found.size_bytes, found.modified_ns):
                continue
            if 0 <= now_ms - found.modified_ns // 1_000_000 < SETTLED_MS:
                continue  # it may still be written; the next look finds it
            if (etag := self._etag(found)) is not None:
                source, is_new = self._note(found, etag, now_ms)
                if is_new:
                    yield source
        self._forget(known)

    def _note(self, found: _File, etag: str, now_ms: int) -> tuple[Source, bool]:
        """Keep what is known of a file and send its notification, unless another process did.

        Return the source, and whether it was this call.
        """
        source = Source(BUCKET, found.key, etag, found.size_bytes, dropped_ms=now_ms)
        if self._database.is_read_only:
            return source, False
        with self._database.writing() as connection:
            known = self._known_in(connection, found)
            if known is not None:
                return known, False
            connection.execute(
                "INSERT OR REPLACE INTO inbox (key, size_bytes, modified_ns, etag, dropped_ms)"
                " VALUES (?, ?, ?, ?, ?)",
                (found.key, found.size_bytes, found.modified_ns, etag, now_ms),
            )
            insert_message(connection, "files", encode(FilesDropped((source,))), now_ms)
        self._sent()
        return source, True

    def _known(self, found: _File) -> Source | None:
        with self._database.reading() as connection:
            return self._known_in(connection, found)

    @staticmethod
    def _known_in(connection: sqlite3.Connection, found: _File) -> Source | None:
        row = connection.execute(
            "SELECT etag, dropped_ms FROM inbox"
            " WHERE key = ? AND size_bytes = ? AND modified_ns = ?",
            (found.key, found.size_bytes, found.modified_ns),
        ).fetchone()
        if row is None:
            return None
        etag, dropped_ms = row
        return Source(BUCKET, found.key, etag, found.size_bytes, dropped_ms=dropped_ms)

    def _all_known(self) -> dict[str, tuple[int, int]]:
        with self._database.reading() as connection:
            rows = connection.execute("SELECT key, size_bytes, modified_ns FROM inbox").fetchall()
        return {key: (size_bytes, modified_ns) for key, size_bytes, modified_ns in rows}

    def _forget(self, keys: Iterable[str]) -> None:
        """Forget files that are gone."""
        gone = [(key,) for key in keys if not (self._root / key).exists()]
        if gone:
            with self._database.writing() as connection:
                connection.executemany("DELETE FROM inbox WHERE key = ?", gone)

    def _etag(self, found: _File) -> str | None:
        """Return the ETag of a file; None if it cannot be read, or is being written."""
        path = self._root / found.key
        try:
            with path.open("rb") as content:
                etag = _copy(content, None)
                if _is_written(content):
                    return None
            return etag if _file(path, found.key) == found else None
        except FileNotFoundError:
            return None
        except OSError as error:  # another look may find it readable; the others have their turn
            logger.warning("%s cannot be read: %s", found.key, error.strerror)
            return None

    def _files(self, prefix: str) -> Iterator[_File]:
        """Yield the files below a prefix, by their keys."""
        root = self._root / prefix.rpartition("/")[0]
        keys: list[str] = []
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if not name.startswith(_HIDDEN)]
            below = Path(folder).relative_to(self._root).as_posix()
            if below != ".":  # a file beside the folders of tables is for none
                keys += [f"{below}/{name}" for name in names if not name.startswith(_HIDDEN)]
        for key in sorted(key for key in keys if key.startswith(prefix)):
            try:
                key.encode()
                if (self._root / key).is_file():  # to open a pipe would wait for a writer
                    yield _file(self._root / key, key)
            except (OSError, UnicodeEncodeError):
                continue  # deleted meanwhile, not for us to see, or of a name no key can have


def _file(path: Path, key: str) -> _File:
    status = path.stat()
    return _File(key, status.st_size, status.st_mtime_ns)


def _is_written(file: BinaryIO) -> bool:
    """Return whether a program has a file open for writing, as far as the system can say.

    The kernel gives no lease on such a file. While there is one, it announces a program that opens
    the file for writing by a signal: by one that is ignored unless it is handled.
    """
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    try:
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False


def _link(aside: Path, target: Path) -> bool:
    """Link a file to its name; return whether the name was free."""
    try:
        os.link(aside, target)
    except FileExistsError:
        return False
    return True


def _copy(content: BinaryIO, copy: BinaryIO | None) -> str:
    """Copy a file, if there is somewhere to copy it to; return the ETag of its content."""
    digest = md5(usedforsecurity=False)
    while chunk := content.read(_CHUNK_BYTES):
        digest.update(chunk)
        if copy is not None:
            copy.write(chunk)
    return digest.hexdigest()
