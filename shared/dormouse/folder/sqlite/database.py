"""The SQLite file of an instance: connections, transactions, the format.

The file is in WAL mode: readers do not wait for the writer, and a writer waits for the one before.
With ``synchronous=FULL`` each commit is flushed to the disk before it is answered. So neither
``kill -9`` nor a power failure loses an answered commit, as long as the disk keeps what it says it
has flushed; what was not answered happened as a whole or not at all.

A connection is used by one thread at a time and then kept for the next. If the folder was moved or
deleted meanwhile, nothing is read or committed: the files beside the database would be elsewhere.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dormouse.errors import CorruptDataError, InvalidRequestError, UnavailableError
from dormouse.folder.sqlite.connections import Connection, check_not_forked, connect, file_at
from dormouse.folder.sqlite.failures import committing, read_only, using, without_locks

APPLICATION_ID = 0x444F524D
"""``DORM``: says in the head of the file whose it is."""
FORMAT = 1
"""The form of the tables of SQL and of what is in them. A release refuses a file of a later one."""
WAL_BYTES = 16 * 1024 * 1024
"""What is kept of the WAL once its content is in the file."""
LEAST_FREE_PAGES, SHRUNK_PAGES, SHRINKS_AT_ONCE = 1024, 1024, 64
"""A file is made smaller if it has so many free pages of 4 KiB; by so many in a transaction."""
BUSY_SECONDS = 60.0
"""How long a transaction waits for those of others, each of which takes milliseconds."""

_TABLES = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE items (
    space TEXT NOT NULL,
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    part TEXT NOT NULL,
    body NOT NULL,
    sum NOT NULL,
    expires_s INTEGER,
    PRIMARY KEY (space, owner, name, part)
) WITHOUT ROWID;
CREATE INDEX items_by_expiry ON items (expires_s) WHERE expires_s IS NOT NULL;
CREATE TABLE messages (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    body TEXT NOT NULL,
    reason TEXT NOT NULL,
    sent_ms INTEGER NOT NULL,
    since_ms INTEGER NOT NULL,
    visible_ms INTEGER NOT NULL,
    receives INTEGER NOT NULL DEFAULT 0,
    receipt TEXT NOT NULL DEFAULT '',
    process TEXT NOT NULL DEFAULT ''
);
CREATE INDEX messages_by_queue ON messages (queue, visible_ms);
CREATE INDEX messages_by_time ON messages (since_ms);
CREATE INDEX messages_by_process ON messages (process) WHERE process != '';
CREATE TABLE inbox (
    key TEXT PRIMARY KEY,
    size_bytes INTEGER NOT NULL,
    modified_ns INTEGER NOT NULL,
    changed_ns INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    etag TEXT NOT NULL,
    dropped_ms INTEGER NOT NULL
);
"""


class Database:
    """The SQLite file of one instance; safe for many threads and processes."""

    def __init__(
        self, path: Path, *, is_read_only: bool = False, busy_seconds: float = BUSY_SECONDS
    ) -> None:
        """Use the file at `path`, which `create` made; nothing is opened yet."""
        self.path, self.is_read_only = path, is_read_only
        self._busy_seconds = busy_seconds
        self._free: list[Connection] = []
        self._lock = threading.Lock()

    def create(self) -> None:
        """Make the file, or complete one whose maker died.

        Call it while no other process can do the same.
        """
        with using(self.path), self._opened("rwc") as connection:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before anything is in it
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise without_locks(self.path, sqlite3.OperationalError(f"its mode is {mode}"))
            connection.executescript(
                f"BEGIN IMMEDIATE; {_TABLES} PRAGMA application_id = {APPLICATION_ID};"
                f"PRAGMA user_version = {FORMAT}; COMMIT;"
            )

    def is_empty(self) -> bool:
        """Return whether the file is missing or holds nothing, as that of a maker who died."""
        if not self.path.exists():
            return True
        with using(self.path), self._opened() as connection:
            return not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()

    def check_format(self) -> None:
        """Refuse a file of another program, or of another format.

        Raises:
            InvalidRequestError, CorruptDataError: it is one.
        """
        self._give_back(self._taken())

    def select(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Return the rows of one statement, which sees one moment."""
        connection = self._taken()
        try:
            self._check_place(connection)
            return connection.execute(statement, values).fetchall()
        except sqlite3.Error:
            with using(self.path):
                raise
        finally:
            self._give_back(connection)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Run the block with a connection whose queries all see the same moment."""
        connection = self._taken()
        try:
            connection.execute("BEGIN")
            try:
                self._check_place(connection)
                yield connection
            finally:
                connection.execute("COMMIT")
        except sqlite3.Error:
            with using(self.path):
                raise
        finally:
            self._give_back(connection)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Run the block as one transaction, before or after those of others; undo it if it raises.

        Keep it short, and do nothing else in it: all writers wait for it.

        Raises:
            InvalidRequestError: the folder can only be read.
            UnavailableError: nothing was changed; the hint says what to do, as when the folder was
                moved meanwhile.
            OutcomeUnknownError: the disk failed while it was flushed.
        """
        self.check_writable()
        connection = self._taken()
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                self._check_place(connection)
                self._commit(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except sqlite3.Error:
            with using(self.path):
                raise
        finally:
            self._give_back(connection)

    def _commit(self, connection: Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error:
            with committing(self.path):
                raise

    def shrink(self) -> int:
        """Return pages to the disk if most of the file is free; return how many.

        It takes short transactions, and ends after some of them: others wait for each, and what
        is free is used before the file grows.
        """
        before = self._free_pages()
        for _ in range(SHRINKS_AT_ONCE):
            if self._free_pages() <= LEAST_FREE_PAGES:
                break
            with self.writing() as connection:
                for _ in range(SHRUNK_PAGES):  # one statement returns one page, whatever it says
                    connection.execute("PRAGMA incremental_vacuum(1)")
        return before - self._free_pages()

    def _free_pages(self) -> int:
        """Return how many pages are free, 0 if most are in use."""
        with self.reading() as connection:
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
        return int(free) if 2 * free > pages else 0

    def check_writable(self) -> None:
        """Raise InvalidRequestError if the folder can only be read."""
        if self.is_read_only:
            raise read_only(self.path.parent)

    def close(self) -> None:
        """Close what is open; SQLite folds the WAL into the file with the last connection."""
        with self._lock:
            connections, self._free = self._free, []
        for connection in connections:
            connection.close()

    def _taken(self) -> Connection:
        check_not_forked(self.path)
        while True:
            with self._lock:
                connection = self._free.pop() if self._free else None
            if connection is None:
                break
            if connection.looks is None or self._looks() in (connection.looks, None):
                return connection
            connection.close()  # what it believed never to change has changed
        with using(self.path):
            connection = self._connect()
            try:
                self._check(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    def _give_back(self, connection: Connection) -> None:
        if connection.in_transaction:  # it cannot be used again
            connection.close()
            return
        with self._lock:
            self._free.append(connection)

    @contextmanager
    def _opened(self, mode: str = "rw") -> Iterator[Connection]:
        connection = self._connect(mode)
        try:
            yield connection
        finally:
            connection.close()

    def _connect(self, mode: str = "rw") -> Connection:
        looks = None
        if self.is_read_only:
            looks = self._looks() if self._is_at_rest() else None
            mode = "ro&immutable=1" if looks else "ro"
        connection = connect(self.path, mode, self._busy_seconds)
        connection.looks = looks
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
        return connection

    def _is_at_rest(self) -> bool:
        """Return whether no process has the file open, so that all that counts is in it.

        SQLite needs its shared memory to read a WAL, and makes it, where it may write.

        Raises:
            UnavailableError: there is a WAL, and no shared memory.
        """
        try:
            wal_bytes = self._wal.stat().st_size
        except FileNotFoundError:
            return True
        if self.path.with_name(f"{self.path.name}-shm").exists():
            return False
        if wal_bytes:
            raise UnavailableError(
                f"{self._wal} holds commits of a process that was killed; they can only be read "
                "where one may write",
                hint="copy the folder to where you may write, and open the copy; or open this one "
                "once with the right to write",
            )
        return True

    def _looks(self) -> tuple[int, int, bool] | None:
        """Return what differs once another process has changed the file, or is about to; None if
        it is gone.
        """
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_size, self._wal.exists()

    def _check_place(self, connection: Connection) -> None:
        """Raise UnavailableError unless the file that is open is the one at this path."""
        if connection.file != file_at(self.path):
            raise UnavailableError(
                f"{self.path.parent} was moved, replaced or deleted while this process used it",
                hint="open the instance again, where it is now",
            )

    @property
    def _wal(self) -> Path:
        return self.path.with_name(f"{self.path.name}-wal")

    def _check(self, connection: sqlite3.Connection) -> None:
        """Refuse a file that is not ours, or of another format.

        Raises:
            InvalidRequestError: it is a file of another program.
            CorruptDataError: another release of Dormouse wrote it.
        """
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if application_id != APPLICATION_ID:
            raise InvalidRequestError(
                f"{self.path} is not a file of Dormouse", hint="name another folder"
            )
        if found != FORMAT:
            newer = found > FORMAT
            raise CorruptDataError(
                f"{self.path} has format {found}; the one known here is {FORMAT}",
                hint="a later release of Dormouse wrote it: upgrade this one"
                if newer
                else "an earlier release of Dormouse wrote it: use that one to copy the tables",
            )
