"""The inbox: files that are put there become rows of the table whose name their folder has.

It has two ends: files go in by `drop`, for the client, and by `find_new`, for people and other
programs; the stages read them by `ports.Sources`. What is known of a file is kept in SQLite, so
that its content is read for its ETag once. It is read again if its size, a time of it or its inode
differ: programs can set the time of the last change, but not that of the last change of the inode.
An ETag is the MD5 of the content, as that of S3 is, so a file is the same source in either place.

What is no file (`state.sources.is_file`) is not looked at, nor is a file that was changed within
the last two seconds, or that a program has open for writing: a part of it would become rows, and
then the whole of it. Where the system cannot say the latter (other systems than Linux, network file
systems), programs that pause should write under a name that is ignored, and rename the file.

Links are not followed: who may put files there must not have other files of this user ingested.
"""

import errno
import fcntl
import logging
import os
import signal
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from hashlib import md5
from itertools import islice
from pathlib import Path
from typing import BinaryIO, ClassVar

from dormouse.errors import InvalidRequestError, RefusedSourceError
from dormouse.folder.queues import insert_message
from dormouse.folder.sqlite import Database
from dormouse.messages.stages import FilesDropped, encode
from dormouse.ports import Arrived
from dormouse.state.sources import Source, is_file, is_file_below
from dormouse.storage import INCOMING, check_path, flush, writing_files
from dormouse.system import Clock, OwnFolder

# What is known of the files of the inbox: rows in SQLite, one for each file.
#
# A file is the one that is known as long as its size, its times and its inode are the same.
# Programs can set the time of the last change, but not that of the last change of the inode.

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
    def of(key: str, status: os.stat_result) -> "File":
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


def note(connection: sqlite3.Connection, file: File, etag: str, now_ms: int) -> Known:
    """Keep what is known of a file. Send its notification, unless this content was announced.

    A file whose content and time of change are those that are known was only moved, copied, or
    given other rights.
    """
    row = connection.execute(f"{_SELECT} WHERE key = ?", (file.key,)).fetchone()
    earlier = _known(row) if row else None
    if earlier is not None and earlier.file == file:
        return earlier
    facts = (etag, file.modified_ns)
    if earlier is not None and (earlier.etag, earlier.file.modified_ns) == facts:
        record = Known(file, etag, earlier.dropped_ms)
    else:
        record = Known(file, etag, now_ms, is_new=True)
        insert_message(connection, "files", encode(FilesDropped((record.source,))), now_ms)
    connection.execute(_INSERT, (*astuple(file), etag, record.dropped_ms))
    return record


def _known(row: tuple[str, int, int, int, int, str, int]) -> Known:
    key, size_bytes, modified_ns, changed_ns, inode, etag, dropped_ms = row
    return Known(File(key, size_bytes, modified_ns, changed_ns, inode), etag, dropped_ms)


logger = logging.getLogger("dormouse")

SETTLED_MS = 2000
NOTED_AT_ONCE, NOTED_BYTES = 100, 64 * 1024 * 1024
"""So many files are announced by one transaction, or fewer, once they have so many bytes."""
_CHUNK_BYTES = 1024 * 1024


class Inbox:
    """The inbox of an instance; safe for many threads and processes."""

    _said: ClassVar[set[tuple[Path, str]]] = set()  # a process has several of one folder

    def __init__(
        self,
        root: Path,
        database: Database,
        clock: Clock,
        sent: Callable[[], None] = lambda: None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Use the folder `root`, which is made with the first file.

        `sent` is called after a notification was sent; `check` while files are read, which takes
        long for large ones: it raises an error if the process has to leave.
        """
        self._root, self._database, self._clock, self._sent = root, database, clock, sent
        self._check = check

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
        with local.open("rb") as content, writing_files(self._root):
            incoming.mkdir(parents=True, exist_ok=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            with OwnFolder(dir=incoming) as folder:
                file, etag = _placed(content, Path(folder) / "file", target, key, once=once)
            flush(target.parent)
        return self._note([(file, etag)], self._clock.now_ms())[0].source

    def upload_url(self, key: str, seconds: int) -> str:
        """Return nothing: files are dropped by `drop`."""
        return ""

    def download(self, source: Source, local: Path, arrived: Arrived | None = None) -> None:
        """Copy the content that `source` names to a local file, which can be used as a whole.
        Raises RefusedSourceError: it is gone, there is another content under its key, or it is in
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
                etag = _copy(content, copy, self._check)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise RefusedSourceError(
                f"{source.key!r} was deleted before it was ingested",
                hint="put the file there again",
            ) from error
        except PermissionError as error:
            raise RefusedSourceError(
                f"{source.key!r} cannot be read by the user of this process",
                hint="give that user the right to read it, and then the file a new time of change "
                "(touch)",
            ) from error
        if etag != source.etag:
            local.unlink()
            raise RefusedSourceError(
                f"{source.key!r} was overwritten before it was ingested",
                hint="what is there now is ingested as a file of its own; to have the earlier "
                "content too, put it there again under another name",
            )

    def list(self, prefix: str, *, since_ms: int) -> Iterator[Source]:
        """Yield, in key order, the files below `prefix` that were found at `since_ms` or later.
        Raises InvalidRequestError: it is no path in the inbox.
        """
        if prefix:
            check_path(prefix.removesuffix("/"))
        records, files = self._all_known(), [*self._files(prefix)]
        others = {each.file for each in records.values()}.isdisjoint
        found = (file for file in files if others([file]))
        fresh = ((file, etag) for file in found if (etag := self._etag(file)) is not None)
        while some := _some(fresh):
            records |= {each.file.key: each for each in self._note(some, self._clock.now_ms())}
        for file in files:
            of_it = records.get(file.key)
            if of_it is not None and of_it.file == file and of_it.dropped_ms >= since_ms:
                yield of_it.source

    def remove(self, source: Source) -> None:
        """Delete a file, if it is there with the content that `source` names."""
        path = self._root / check_path(source.key)
        try:
            with path.open("rb") as content:
                is_same = _copy(content, None, self._check) == source.etag
            if is_same:
                path.unlink()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return

    def find_new(self) -> Iterator[Source]:
        """Yield the files that nobody has found before, each to one caller of all processes."""
        now_ms = self._clock.now_ms()
        records = self._all_known()
        fresh = self._fresh(records, now_ms)
        while some := _some(fresh):
            yield from (each.source for each in self._note(some, now_ms) if each.is_new)
        self._forget(records)
        gone = [about for about in [*self._said] if not os.path.lexists(about[0])]
        self._said.difference_update(gone)

    def _fresh(self, records: dict[str, Known], now_ms: int) -> Iterator[tuple[File, str]]:
        """Yield the files that are not known as they are, with ETags; take all from `records`."""
        for file in self._files(""):
            of_it = records.pop(file.key, None)
            if of_it is not None and of_it.file == file:
                continue
            if 0 <= now_ms - file.modified_ns // 1_000_000 < SETTLED_MS:
                continue  # it may still be written; the next look finds it
            if (etag := self._etag(file)) is not None:
                yield file, etag

    def _note(self, files: Sequence[tuple[File, str]], now_ms: int) -> Sequence[Known]:
        """Keep what is known of files, and send their notifications, unless another process did."""
        if self._database.is_read_only:
            return [Known(file, etag, now_ms) for file, etag in files]
        with self._database.writing() as connection:
            noted = [note(connection, file, etag, now_ms) for file, etag in files]
        if any(each.is_new for each in noted):
            self._sent()
        return noted

    def _all_known(self) -> dict[str, Known]:
        records = map(_known, self._database.select(_SELECT))
        return {record.file.key: record for record in records}

    def _forget(self, keys: Iterable[str]) -> None:
        """Forget files that are gone."""
        missing = [(key,) for key in keys if _is_gone(self._root / key)]
        if missing:
            with self._database.writing() as connection:
                connection.executemany("DELETE FROM inbox WHERE key = ?", missing)

    def _etag(self, file: File) -> str | None:
        """Return the ETag of a file; None if it cannot be read, or is being written."""
        path = self._root / file.key
        try:
            with path.open("rb") as content:
                etag = _copy(content, None, self._check)
                if _is_written(content):
                    return None
                is_same = File.of(file.key, os.fstat(content.fileno())) == file
            return etag if is_same else None
        except FileNotFoundError:
            return None
        except OSError as error:  # another look may find it readable; the others have their turn
            self._say(file.key, f"it cannot be read: {error.strerror}")
            return None

    def _files(self, prefix: str) -> Iterator[File]:
        """Yield the files below a prefix, by their keys."""
        root = self._root / prefix.rpartition("/")[0]
        keys: list[str] = []
        for folder, folders, names in os.walk(root, onerror=self._say_if_closed):
            folders[:] = filter(is_file, folders)
            links = [name for name in folders if (Path(folder) / name).is_symlink()]
            below = Path(folder).relative_to(self._root)
            keys += [(below / name).as_posix() for name in (*names, *links)]
        below_prefix = (key for key in keys if key.startswith(prefix))
        for key in sorted(key for key in below_prefix if is_file_below(prefix, key)):
            try:
                key.encode()
                status = (self._root / check_path(key)).lstat()
            except UnicodeEncodeError:
                self._say(key, "its name is not UTF-8: rename it")
            except InvalidRequestError:
                self._say(key, "its name has backslashes or control characters: rename it")
            except OSError:
                continue  # deleted meanwhile, or not for us to see
            else:
                if stat.S_ISREG(status.st_mode):
                    yield File.of(key, status)
                else:  # to open a pipe would wait for a writer
                    self._say(key, "it is a link, a pipe or a device: put a file there")

    def _say_if_closed(self, error: OSError) -> None:
        """Log that a folder cannot be read; one that is not there has no files."""
        if isinstance(error, PermissionError):
            self._say(
                os.path.relpath(error.filename, self._root), f"it is closed: {error.strerror}"
            )

    def _say(self, key: str, why: str) -> None:
        """Log, once, why something in the inbox is not ingested."""
        about = self._root / key, why
        if about not in self._said:
            self._said.add(about)
            logger.warning("%r in the inbox is not ingested: %s", key, why)


def _some(fresh: Iterator[tuple[File, str]]) -> list[tuple[File, str]]:
    """Return the next files to announce together."""
    some, left_bytes = [], NOTED_BYTES
    for file, etag in islice(fresh, NOTED_AT_ONCE):
        some.append((file, etag))
        left_bytes -= file.size_bytes
        if left_bytes <= 0:
            break
    return some


def _placed(
    content: BinaryIO, aside: Path, target: Path, key: str, *, once: bool
) -> tuple[File, str]:
    """Copy a file aside, then give it its name at once; return the file that has it, and its ETag.

    With `once`, a file that has the name already keeps it.
    """
    with aside.open("wb") as copy:
        etag = _copy(content, copy)
        copy.flush()
        os.fsync(copy.fileno())
        if not once:
            aside.replace(target)
        elif _link(aside, target):
            aside.unlink()
        else:
            with target.open("rb") as there:
                return File.of(key, os.fstat(there.fileno())), _copy(there, None)
        return File.of(key, os.fstat(copy.fileno())), etag  # another may have the name by now


def _is_gone(path: Path) -> bool:
    """Return whether there is no such file; one in a folder that is closed may be there."""
    try:
        return not path.is_file()
    except PermissionError:
        return False


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


def _copy(
    content: BinaryIO, copy: BinaryIO | None, check: Callable[[], None] = lambda: None
) -> str:
    """Copy a file, if there is somewhere to copy it to; return the ETag of its content."""
    digest = md5(usedforsecurity=False)
    while chunk := content.read(_CHUNK_BYTES):
        check()
        digest.update(chunk)
        if copy is not None:
            copy.write(chunk)
    return digest.hexdigest()
