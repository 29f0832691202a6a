"""The SQLite file of an instance: connections, transactions, the format.

The file is in WAL mode: readers do not wait for the writer, and a writer waits for the one before.
With ``synchronous=FULL`` each commit is flushed to the disk before it is answered. So neither
``kill -9`` nor a power failure loses an answered commit, as long as the disk keeps what it says it
has flushed; what was not answered happened as a whole or not at all. Only what is `lazy` is flushed
with the next commit, or by the system: records of jobs, what becomes of messages that are worked
on, objects that no commit names yet. To lose it in a power failure is as a crash before it, which
every stage survives.

A connection is used by one thread at a time and then kept for the next. If the folder was moved or
deleted meanwhile, nothing is read or committed: the files beside the database would be elsewhere.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

from dormouse import errors
from dormouse.items import store
from dormouse.storage import FREE_SPACE, FULL

# Connections to SQLite files: none is used, or closed, by a process that was forked meanwhile.
#
# SQLite keeps, in the memory of a process, which locks it holds; the kernel gives none of them to a
# forked one. So a process that was forked while connections were open believes in locks that it
# does not have. Its parent would delete the WAL into which the child still writes, and commits
# would be lost. Engines have threads, which a forked process lacks, and would wait for them for
# ever.

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

    def select(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Return the rows of one statement."""
        return self.execute(statement, values).fetchall()

    def writing(self, *, lazy: bool = False) -> AbstractContextManager[Connection]:
        """Return itself: what is written is part of a transaction that has begun."""
        return nullcontext(self)


def connect(path: Path, mode: str) -> Connection:
    """Return a connection to the file `path`.

    Raises:
        InvalidRequestError: this process was forked while its parent had connections to it.
        sqlite3.Error: the file cannot be opened.
    """
    if _INHERITED:
        check_not_forked(path)
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        factory=Connection,
    )
    connection.file = file_at(path)
    _OPEN.add(connection)
    return connection


def check_not_forked(path: Path) -> None:
    """Raise InvalidRequestError if a parent process had connections to a file at the fork."""
    if file_at(path) in {connection.file for connection in _INHERITED}:
        raise errors.InvalidRequestError(
            f"{path.parent} cannot be used in this process: it was forked from one that had "
            "opened it",
            hint="start processes with multiprocessing.get_context('spawn'), or fork before an "
            "instance is opened; each process opens the folder itself",
        )


def file_at(path: Path) -> tuple[int, int] | None:
    """Return which file is at a path now; None if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116  # a quarter of the time of `Path.stat`
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def _after_fork() -> None:
    _INHERITED.extend(_OPEN)


os.register_at_fork(after_in_child=_after_fork)


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
    except errors.UnavailableError as error:
        cause = error.__cause__
        if isinstance(cause, sqlite3.Error) and _code(cause) == sqlite3.SQLITE_IOERR:
            raise errors.OutcomeUnknownError(f"{path} failed at a commit: {cause}") from cause
        raise


def full_disk(error: BaseException | None) -> errors.DiskFullError | None:
    """Return the error of a full disk that is behind another error; None if there is none.

    One that is not ours is of the folder of temporary files, where rows are sorted.
    """
    while error is not None:
        if isinstance(error, errors.DiskFullError):
            return error
        if isinstance(error, OSError) and error.errno in FULL:
            return errors.DiskFullError("the disk of the temporary files is full", hint=FREE_SPACE)
        error = error.__cause__ or error.__context__
    return None


def read_only(path: Path) -> errors.InvalidRequestError:
    """Return the error of a write to what can only be read."""
    return errors.InvalidRequestError(f"{path} is read-only", hint=READ_ONLY)


def without_locks(path: Path, error: Exception) -> errors.InvalidRequestError:
    """Return the error of a folder in which processes cannot exclude each other."""
    return errors.InvalidRequestError(
        f"the file system of {path} has no locks, without which processes would overwrite each "
        f"other's work: {error}",
        hint=NO_LOCKS,
    )


def _ours(path: Path, error: sqlite3.Error) -> errors.DormouseError | None:
    """Return our error for one of SQLite; None if it can only be a fault of the caller."""
    code = _code(error)
    if code in _BUSY:
        return errors.ContendedError(f"other processes keep {path} locked; try again")
    if code == sqlite3.SQLITE_FULL or (code in _FAILED and _is_full(path)):
        return errors.DiskFullError(f"the disk of {path} is full", hint=FREE_SPACE)
    if code == sqlite3.SQLITE_READONLY:
        return read_only(path)
    if code == sqlite3.SQLITE_PROTOCOL:
        return without_locks(path, error)
    if code in _DAMAGED:
        return errors.CorruptDataError(
            f"{path} is damaged: {error}",
            hint="bring the folder back from a backup, or what SQLite can still read by `sqlite3 "
            f"{path.name} .recover`; `dormouse table unregistered` then lists what is left over",
        )
    if code in _FAILED:
        return errors.UnavailableError(
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


APPLICATION_ID = 0x444F524D
"""``DORM``: says in the head of the file whose it is."""
FORMAT = 2
"""The form of the tables of SQL and of what is in them. A release refuses a file of a later one."""
WAL_BYTES = 16 * 1024 * 1024
"""What is kept of the WAL once its content is in the file."""
PAGE_BYTES = 1024
"""A transaction writes each page that it changes: with SQLite's 4,096 bytes twice to three times as
much, with 512 some keys take more than a page."""
LEAST_FREE_PAGES, SHRUNK_PAGES, SHRINKS_AT_ONCE = 1024, 1024, 64
"""A file is made smaller if it has so many free pages; by so many in a transaction."""
BUSY_SECONDS = 60.0
"""How long a transaction waits for those of others, each of which takes milliseconds."""

_TABLES = """
CREATE TABLE objects (path TEXT PRIMARY KEY, body BLOB NOT NULL, modified_ms INTEGER NOT NULL);
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
);
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

    synchronous = "FULL"
    """What a commit that is not lazy waits for; see SQLite's pragma."""

    def __init__(self, path: Path, *, is_read_only: bool = False) -> None:
        """Use the file at `path`, which `create` made; nothing is opened yet."""
        self.path, self.is_read_only = path, is_read_only
        self._free: list[Connection] = []
        self._deferred: dict[object, tuple[str, Sequence[object]]] = {}
        self._lock = threading.Lock()

    def create(self) -> None:
        """Make the file, or complete one whose maker died.

        Call it while no other process can do the same.
        """
        with using(self.path), self._opened("rwc") as connection:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # before anything is in it
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
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
        Raises InvalidRequestError, CorruptDataError: it is one.
        """
        self.select("SELECT 1")

    def select(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Return the rows of one statement, which sees one moment."""
        with self._lent() as connection:
            return connection.select(statement, values)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Run the block with a connection whose queries all see the same moment."""
        with self._lent() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("COMMIT")

    @contextmanager
    def writing(self, *, lazy: bool = False) -> Iterator[Connection]:
        """Run the block as one transaction, before or after those of others; undo it if it raises.

        Keep it short, and do nothing else in it: all writers wait for it. A `lazy` one is flushed
        no later than the next that is not.

        Raises:
            InvalidRequestError: the folder can only be read.
            UnavailableError: nothing was changed; the hint says what to do, as when the folder was
                moved meanwhile.
            OutcomeUnknownError: the disk failed while it was flushed.
        """
        if self.is_read_only:
            self.check_writable()
        with self._lent() as connection:
            connection.execute(f"PRAGMA synchronous = {'NORMAL' if lazy else self.synchronous}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                deferred = [*self._deferred.items()]
                for _, statement in deferred:
                    connection.execute(*statement)
                yield connection
                if connection.file != file_at(self.path):
                    raise self._moved()
                try:
                    connection.execute("COMMIT")
                except sqlite3.Error:
                    with committing(self.path):
                        raise
                for number, _ in deferred:
                    self._deferred.pop(number, None)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def defer(self, statement: str, values: Sequence[object]) -> None:
        """Write by a statement that can be repeated, at the beginning of the next transaction of
        this process: what that one writes is never there without it, and both are flushed once.
        """
        self._deferred[object()] = statement, values

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

    def forget(self) -> None:
        """Empty the WAL, which has the bytes of rows that were deleted, unless others use it now:
        then they write over it, or the last of them that closes.
        """
        with using(self.path), self._opened() as connection:
            connection.execute("PRAGMA busy_timeout = 0")
            connection.select("PRAGMA wal_checkpoint(TRUNCATE)")

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

    @contextmanager
    def _lent(self) -> Iterator[Connection]:
        """Run the block with a connection that nobody else uses; raise as `using`."""
        connection = self._taken()
        try:
            if connection.file != file_at(self.path):
                raise self._moved()
            yield connection
        except sqlite3.Error:
            with using(self.path):
                raise
        finally:
            if connection.in_transaction:  # it cannot be used again
                connection.close()
            else:
                with self._lock:
                    self._free.append(connection)

    def _taken(self) -> Connection:
        """Return a connection that nobody else uses."""
        if _INHERITED:
            check_not_forked(self.path)
        with self._lock:
            connection = self._free.pop() if self._free else None
        if connection and connection.looks and self._looks() not in (connection.looks, None):
            connection.close()  # what it believed never to change has changed
            connection = None
        if connection is None:
            with using(self.path):
                connection = self._connect()
                try:
                    self._check(connection)
                except BaseException:
                    connection.close()
                    raise
        return connection

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
        connection = connect(self.path, mode)
        connection.looks = looks
        connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        connection.execute("PRAGMA secure_delete = ON")  # deleted deltas name keys of rows
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
        return connection

    def _is_at_rest(self) -> bool:
        """Return whether no process has the file open, so that all that counts is in it.

        SQLite needs its shared memory to read a WAL, and makes it, where it may write.
        Raises UnavailableError: there is a WAL, and no shared memory.
        """
        try:
            wal_bytes = self._wal.stat().st_size
        except FileNotFoundError:
            return True
        if self.path.with_name(f"{self.path.name}-shm").exists():
            return False
        if wal_bytes:
            raise errors.UnavailableError(
                f"{self._wal} holds commits of a process that was killed; they can only be read "
                "where one may write",
                hint="copy the folder to where you may write, and open the copy; or open this one "
                "once with the right to write",
            )
        return True

    def _looks(self) -> tuple[int, int, bool] | None:
        """Return what differs once another process changes the file; None if it is gone."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_size, self._wal.exists()

    def _moved(self) -> errors.UnavailableError:
        """Return the error that the file which is open is not the one at this path."""
        return errors.UnavailableError(
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
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application_id != APPLICATION_ID:
            raise errors.InvalidRequestError(
                f"{self.path} is not a file of Dormouse", hint="name another folder"
            )
        if version != FORMAT:
            newer = version > FORMAT
            raise errors.CorruptDataError(
                f"{self.path} has format {version}; the one known here is {FORMAT}",
                hint="a later release of Dormouse wrote it: upgrade this one"
                if newer
                else "an earlier release of Dormouse wrote it: use that one to copy the tables",
            )


# The `ItemStore` of a folder: each part of an item is a row of the table `items`.
#
# A read is one statement, which sees one moment, but for that of very many keys; a write is one
# transaction.

MOST_KEYS = 10_000
"""The items that one statement reads: SQLite takes 32,766 values, of which each key has three."""
_SELECT = "SELECT space, owner, name, part, body, sum, expires_s FROM items WHERE"
_ORDER = "ORDER BY space, owner, name"
_IS_KEY = "(space, owner, name) = (column1, column2, column3)"
"""Of keys as values: an IN would look at all items there are, as the other order of both would."""
_PUT = """INSERT INTO items VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE
SET body = excluded.body, sum = excluded.sum, expires_s = excluded.expires_s"""
_DELETE = "DELETE FROM items WHERE space = ? AND owner = ? AND name = ?"


class SqliteItems:
    """`ItemStore` in the SQLite file; safe for many threads and processes.

    Over a connection whose transaction has begun, each call is a part of that. With `lazy`, writes
    are so (`Database.writing`).
    """

    def __init__(self, source: Database | Connection, *, lazy: bool = False) -> None:
        self._source, self._lazy = source, lazy

    def get(self, *keys: store.Key, never_change: bool = False) -> list[store.Item | None]:
        """Return the items of some keys, None where there is none."""
        items: dict[store.Key, store.Item] = {}
        for start in range(0, len(keys), MOST_KEYS):
            some = keys[start : start + MOST_KEYS]
            places = ", ".join(["(?, ?, ?)"] * len(some))
            select = f"SELECT items.* FROM (VALUES {places}) CROSS JOIN items ON {_IS_KEY}"
            items |= _items(self._source.select(select, [*chain.from_iterable(some)]))
        return [*map(items.get, keys)]

    def query(self, space: store.Space, owner: str, *, least: str = "") -> Iterator[store.Item]:
        """Yield the items of an owner by name, from a name on."""
        where = f"{_SELECT} space = ? AND owner = ? AND name >= ? {_ORDER}"
        return iter(_items(self._source.select(where, (space, owner, least))).values())

    def names(
        self, space: store.Space, owner: str, *, least: str = "", most: str = store.LAST
    ) -> Iterator[str]:
        """Yield the names of an owner's items, from a name up to another."""
        where = "FROM items WHERE space = ? AND owner = ? AND name BETWEEN ? AND ? ORDER BY name"
        rows = self._source.select(f"SELECT DISTINCT name {where}", (space, owner, least, most))
        return (name for (name,) in rows)

    def scan(self, space: store.Space, *prefixes: str) -> Iterator[store.Item]:
        """Yield all items whose owner begins with one of these."""
        where = " OR ".join(["space = ? AND owner BETWEEN ? AND ?"] * len(prefixes))
        values = [value for each in prefixes for value in (space, each, each + store.LAST)]
        return iter(_items(self._source.select(f"{_SELECT} {where} {_ORDER}", values)).values())

    def write(self, *changes: store.Change) -> bool:
        """Make all changes; False, and nothing done, if a condition does not hold."""
        with self._source.writing(lazy=self._lazy) as connection:
            keys = [change.key for change in changes]
            both = [*zip(changes, SqliteItems(connection).get(*keys), strict=True)]
            for change, item in both:
                if not change.when.holds(item):
                    return False
            for change, item in both:
                if not isinstance(change, store.Check):
                    _replace(connection, change.key, item, store.changed(change, item))
        return True

    def append(self, key: store.Key, new_id: bytes, *, room: int) -> store.Item | None:
        """Append an id to an item's ids; return the item as it then is."""
        with self._source.writing() as connection:
            (item,) = SqliteItems(connection).get(key)
            if item is None or (longer := store.with_id(item, new_id, room)) is item:
                return item
            _replace(connection, key, item, longer)
            return longer

    def defer(self, change: store.Put) -> None:
        """Put an item under a new key with the next transaction of this process (`Database.defer`).

        Until then it is not read.
        """
        assert isinstance(self._source, Database)
        item = change.item()
        for name, part in item.parts.items():
            self._source.defer(_PUT, (*change.key, name, *part, item.expires_s))

    def delete(self, keys: Iterable[store.Key]) -> None:
        """Delete many items."""
        with self._source.writing() as connection:
            connection.executemany(_DELETE, keys)

    @contextmanager
    def transaction(self) -> Iterator[SqliteItems]:
        """Return the store whose calls in the block are all done, or none if it raises."""
        with self._source.writing() as connection:
            yield SqliteItems(connection)


def _replace(
    connection: Connection, key: store.Key, old: store.Item | None, new: store.Item | None
) -> None:
    if old and not (new and old.parts.keys() <= new.parts.keys()):
        connection.execute(_DELETE, key)
        old = None
    for name, part in new.parts.items() if new else ():
        if new and not (old and old.parts.get(name) == part and old.expires_s == new.expires_s):
            connection.execute(_PUT, (*key, name, *part, new.expires_s))


def remove_expired(connection: sqlite3.Connection, now_ms: int) -> None:
    """Delete the items whose time is over. It looks at all records of jobs: nothing else expires,
    and with an index each record would write a page more.
    """
    expired = "DELETE FROM items WHERE space = 'jobs' AND expires_s <= ?"
    connection.execute(expired, (now_ms // 1000,))


def _items(rows: Iterable[Any]) -> dict[store.Key, store.Item]:
    items: dict[store.Key, store.Item] = {}
    parts: dict[store.Key, dict[str, store.Part]] = {}
    for space, owner, name, part, body, checksum, expires_s in rows:
        key = store.Key(space, owner, name)
        if key not in items:
            parts[key] = {}
            items[key] = store.Item(key, parts[key], expires_s)
        parts[key][part] = store.Part(body if isinstance(body, str | bytes) else None, checksum)
    return items
