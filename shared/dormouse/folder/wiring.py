"""Opens the folder of an instance: services, queues, inbox and worker over it.

What opening leaves when it dies: an empty SQLite file, which the next one completes, or a file of a
process that is gone, which the next one removes.
"""

import io
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, cast

import msgspec

from dormouse import __version__
from dormouse.encryption import SubjectKeys, decrypted_once, encrypted_once, new_key
from dormouse.errors import CorruptDataError, ForbiddenError, InvalidRequestError, NotFoundError
from dormouse.folder.inbox import Inbox
from dormouse.folder.processes import (
    DATABASE,
    FolderLayout,
    Leaving,
    LeavingStorage,
    Process,
    is_alive,
    locked,
)
from dormouse.folder.queues import SqliteDeadLetters, SqliteQueues
from dormouse.folder.spark import SparkRuns, SparkWorker, Submit
from dormouse.folder.sqlite import Database, SqliteItems
from dormouse.folder.worker import Background, Schedule, Worker
from dormouse.items.records import ItemPublications, ItemSubjects, ItemTracker
from dormouse.items.store import LAST
from dormouse.items.tables import ItemTables
from dormouse.ports import Services, Sources, Storage, StoredObject
from dormouse.settings import DEFAULT_MEMORY_BYTES, key_file
from dormouse.state.versions import PublicationRecord
from dormouse.storage import INCOMING, FolderStorage, check_path, check_prefix, writing_files
from dormouse.stored.decoding import decode_json, raise_corrupt
from dormouse.stored.paths import (
    METADATA_SUFFIX,
    VERSION_HINT,
    iceberg_metadata_path,
    is_plain,
    shard_id_of,
)
from dormouse.system import RETRIES, Clock, SystemClock, TimeOrderedIds
from dormouse.tables.table import Table

if TYPE_CHECKING:
    from dormouse.log.engine import StateStore


# The keys of an instance in a folder: in a file beside the folder, or where the settings say.
#
# It is not in the folder, so that nobody who has a copy of that has the keys. Who makes a table
# with a key of a new name makes that key, and the file. A name has one key or several: data keys
# are encrypted by the last one, and decrypted by any of them.


_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_Digits = Annotated[str, msgspec.Meta(pattern=r"\A[0-9A-Fa-f]{64}\Z")]


class _KeyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: dict[str, list[_Digits]]


@dataclass(frozen=True, slots=True)
class FileKeys:
    """An `encryption.KeyService` of the keys in the file at `path`, which this user alone may
    read; who adds one locks the folder `root`.
    """

    path: Path
    root: Path
    subjects: SubjectKeys

    def wrap(self, name: str, key: bytes, table_id: str, *, is_new: bool = True) -> bytes:
        """Return a data key encrypted by the last key of a name, which is made if there is none and
        it `is_new`: else it is in another file.

        Raises:
            ForbiddenError: there is none; or the file cannot be read, or others can read it.
            CorruptDataError: it is no file of keys.
        """
        with locked(self.root):
            keys = self._keys()
            if name not in keys and not is_new:
                raise self._missing(name)
            if name not in keys:
                keys = {**keys, name: [new_key()]}
                self._write(keys)
        return encrypted_once(keys[name][-1], key, table_id.encode())

    def unwrap(self, name: str, wrapped: bytes, table_id: str) -> bytes:
        """Return what `wrap` encrypted. Raises as that."""
        keys = self._keys().get(name)
        if keys is None:
            raise self._missing(name)
        for key in keys[:0:-1]:
            try:
                return decrypted_once(key, wrapped, table_id.encode())
            except ForbiddenError:
                continue
        return decrypted_once(keys[0], wrapped, table_id.encode())

    def _missing(self, name: str) -> ForbiddenError:
        return ForbiddenError(
            f"{self.path} has no key {name!r}",
            hint="name the file that has it in DORMOUSE_KEY_FILE, or ask for other columns",
        )

    def _keys(self) -> dict[str, list[bytes]]:
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_mode & _OTHERS:
                    raise ForbiddenError(
                        f"others may read the keys in {self.path}",
                        hint=f"chmod 600 {self.path}; and if others had access, change the keys",
                    )
                body = file.read()
        except FileNotFoundError:
            return {}
        except PermissionError as error:
            raise ForbiddenError(f"the keys in {self.path} cannot be read") from error
        with raise_corrupt(f"{self.path} is no file of keys of 64 hexadecimal digits"):
            stored = decode_json(body, _KeyFile).keys
        return {name: [*map(bytes.fromhex, keys)] for name, keys in stored.items() if keys}

    def _write(self, keys: Mapping[str, list[bytes]]) -> None:
        body = msgspec.json.encode(_KeyFile({n: [k.hex() for k in of] for n, of in keys.items()}))
        descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=f"{self.path.name}-")
        try:
            with os.fdopen(descriptor, "wb") as file:  # for this user alone, as mkstemp makes it
                file.write(msgspec.json.format(body))
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


STORES_KEPT = 32
"""How many tables' states a process caches."""


@dataclass(frozen=True, slots=True)
class OpenFolder:
    """An open folder. `was_made` says whether opening made it."""

    layout: FolderLayout
    services: Services
    queues: SqliteQueues
    inbox: Inbox
    worker: Worker
    background: Background
    database: Database
    process: Process | None
    was_made: bool = False

    def finish(self, most_seconds: float) -> None:
        """Work until nothing is due; begin nothing new after so many seconds."""
        end = time.monotonic() + most_seconds
        while time.monotonic() < end and self.worker.step():
            pass

    def close(self) -> None:
        """End the work in the background, and leave the folder to others."""
        self.worker.leaving.leave()
        if self.worker.reader is not None:  # at once: who kills this process later kills it, too
            self.worker.reader.end()
        self.background.stop()
        try:
            self.queues.leave()
        finally:
            self.database.close()
        if self.process is not None:
            self.process.leave()


def open_folder(
    root: Path,
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    scratch: Path | None = None,
    background: bool = True,
    create: bool = True,
    release: str = __version__,
    submit: Submit | None = None,
) -> OpenFolder:
    """Open the instance in a folder; `create` one in a folder that is empty or not there.

    With `background`, a thread works as soon as there is something to do. `submit` runs Spark jobs,
    if this machine can.

    Raises:
        InvalidRequestError: it is a file, or a folder of something else; or another release uses
            it; or processes could not exclude each other there.
        NotFoundError: there is no instance, and none is to be created.
        CorruptDataError: the SQLite file is damaged, or of another format.
    """
    layout = FolderLayout(root.expanduser().absolute())
    is_new = _is_new(layout)
    if is_new and not create:
        raise NotFoundError(
            f"there is no instance in {layout.root}",
            hint="check the name; `dormouse table add` and `dormouse ingest --create` make a new "
            "instance in a folder that is empty or not there",
        )
    if not is_new and not all(os.access(path, os.W_OK) for path in (layout.root, layout.database)):
        database = Database(layout.database, is_read_only=True)
        scratch = scratch or Path(tempfile.gettempdir())
        return _wired(layout, database, None, scratch, memory_bytes, background=False)
    with writing_files(layout.root):
        try:
            layout.root.mkdir(parents=True, exist_ok=True)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise InvalidRequestError(
                f"the folder {layout.root} cannot be made: {error.strerror}",
                hint="name one below a folder that you may write to",
            ) from error
    database = Database(layout.database)
    with locked(layout.root):
        was_made = database.is_empty()
        if was_made:
            _check_nothing_is_lost(layout)
            database.create()
        database.check_format()
        layout.tables.mkdir(exist_ok=True)
        process = Process.joined(layout.processes, TimeOrderedIds().new(), release)
        if process.is_alone:  # so what is unfinished is of writers that died
            incoming = (layout.tables, layout.exports, layout.inbox)
            for folder in (*(root / INCOMING for root in incoming), layout.scratch):
                shutil.rmtree(folder, ignore_errors=True)
        layout.scratch.mkdir(exist_ok=True)
    scratch = scratch or layout.scratch
    opened = _wired(layout, database, process, scratch, memory_bytes, background, submit)
    return replace(opened, was_made=was_made)


def _is_new(layout: FolderLayout) -> bool:
    """Return whether an instance can be made. Raises InvalidRequestError: something is there."""
    root = layout.root
    if root.exists() and not root.is_dir():
        raise InvalidRequestError(
            f"{root} is a file, not the folder of an instance", hint="name a folder"
        )
    if layout.database.exists():
        return False
    if root.exists() and any(root.iterdir()) and not layout.database.exists():
        raise InvalidRequestError(
            f"{root} is not the folder of an instance: it has no {DATABASE}, and is not empty",
            hint="name an empty folder, or one that is not there yet, to make an instance in it; "
            f"if this was one, bring its {DATABASE} back from a backup",
        )
    return True


def _check_nothing_is_lost(layout: FolderLayout) -> None:
    """Refuse an empty SQLite file beside the folder of tables: a maker who died had none yet.
    Raises CorruptDataError: there is one, though maybe all that it had was small, and in SQLite.
    """
    if layout.tables.exists():
        raise CorruptDataError(
            f"{layout.database} is empty, but there is {layout.tables} of an instance",
            hint="bring the folder back from a backup",
        )


def _wired(
    layout: FolderLayout,
    database: Database,
    process: Process | None,
    scratch: Path,
    memory_bytes: int,
    background: bool,
    submit: Submit | None = None,
) -> OpenFolder:
    clock, leaving = SystemClock(), Leaving()
    thread = Background(leaving, enabled=background)
    name = process.name if process else ""
    alive = partial(is_alive, layout.processes)
    queues = SqliteQueues(database, clock, name, alive, thread.wake)
    inbox = Inbox(layout.inbox, database, clock, thread.wake)
    runs = SparkRuns(database, clock, name, alive, thread.wake)
    storage = FolderObjects(layout.tables, database, clock)
    results = FolderStorage(layout.exports)
    items = SqliteItems(database)
    services = Services(
        tables=ItemTables(items),
        publications=FolderPublications(items, layout.tables),
        tracker=ItemTracker(SqliteItems(database, lazy=True)),
        storage=storage,
        results=results,
        sources=inbox,
        dead_letters=SqliteDeadLetters(database, clock, thread.wake),
        store=_store_factory(database, storage),
        clock=clock,
        ids=TimeOrderedIds(),
        scratch=scratch,
        memory_bytes=memory_bytes,
        spark=runs if submit else None,
        has_spark=submit is not None,
        owns_scratch=False,
        keys=keys_of(layout.root, database),
    )
    data, exports = (cast(Storage, LeavingStorage(each, leaving)) for each in (storage, results))
    watching = Inbox(layout.inbox, database, clock, thread.wake, leaving.check)
    working = replace(services, storage=data, results=exports, sources=watching)
    spark = SparkWorker(runs, submit, leaving) if submit else None
    worker = Worker(working, queues, watching, Schedule(database, leaving), leaving, spark)
    thread.worker = worker
    return OpenFolder(layout, services, queues, inbox, worker, thread, database, process)


def files_of(root: Path) -> tuple[Storage, Storage, Sources]:
    """Return data, exports and inbox of a folder, for a process that uses nothing else of it."""
    layout = FolderLayout(root)
    database, clock = Database(layout.database), SystemClock()
    storage = FolderObjects(layout.tables, database, clock)
    return storage, FolderStorage(layout.exports), Inbox(layout.inbox, database, clock)


def keys_of(root: Path, database: Database | None = None) -> FileKeys:
    """Return the keys of the instance in a folder, for a process that has opened its `database`, or
    has not.
    """
    database = database or Database(FolderLayout(root).database)
    subjects = ItemSubjects(SqliteItems(database), database.forget)
    return FileKeys(key_file(root), root, subjects)


def _store_factory(database: Database, storage: Storage) -> "Callable[[Table], StateStore]":
    @lru_cache(STORES_KEPT)
    def open_store(state_id: str, name: str, keep_seconds: int) -> "StateStore":
        from dormouse.items.blobs import files_reader
        from dormouse.items.pages import ItemPages
        from dormouse.log.engine import Options, StateStore
        from dormouse.log.log import Log

        items = SqliteItems(database)
        log = Log(state_id, ItemPages(items), RETRIES, name)
        reader = files_reader(log, storage, items, items.defer)
        return StateStore(reader, SystemClock(), TimeOrderedIds(), Options(keep_seconds))

    def store(table: Table) -> "StateStore":
        properties = table.properties
        return open_store(table.state_id, table.name, properties.gc_delay_seconds)

    return store


# Publications: beside a table's metadata lies the file `version-hint.text`, by which engines that
# read files without a catalog find the newest. It is written in the transaction that replaces the
# record, before it ends, so that the file follows the order of the records. A crash in between
# leaves it one publication ahead, of which all files are there; the next run makes the same one, or
# a newer.


class FolderPublications(ItemPublications):
    """The records of publications in the SQLite file; safe for many threads and processes."""

    def __init__(self, items: SqliteItems, root: Path) -> None:
        """Keep them in `items`, and write hints below the data root."""
        super().__init__(items)
        self._file, self._root = items, root

    def replace(self, table_id: str, old: PublicationRecord | None, new: PublicationRecord) -> bool:
        """Put a record in the place of another, or of none; False if that is not there."""
        with self._file.transaction() as items:
            is_replaced = ItemPublications(items).replace(table_id, old, new)
            if is_replaced:
                self._hint(table_id, new)
            return is_replaced

    def _hint(self, table_id: str, record: PublicationRecord) -> None:
        """Write the name of the newest metadata beside it, at once and whole."""
        hint = self._root / iceberg_metadata_path(table_id, VERSION_HINT)
        if not record.metadata:
            hint.unlink(missing_ok=True)
            return
        hint.parent.mkdir(parents=True, exist_ok=True)
        draft = hint.with_suffix(".new")
        draft.write_text(Path(record.metadata).name.removesuffix(METADATA_SUFFIX))
        draft.replace(hint)


# The data root of a folder: small objects are rows of its SQLite file, all others files.
#
# A shard of ten rows has some kilobytes. As a file it takes two flushes and a place in a folder, as
# a row nothing but some pages of the transaction that commits it (`with_commits`). Readers see no
# difference, but for programs that open files themselves: `expose` makes files of the objects that
# these read.
#
# A path has one object. A small one is put in a transaction that finds no file; a larger one gets
# its name, and then gives it up again if there is a small one, in a transaction of its own. So of
# two writers one wins. After a crash in between, or in `expose`, there may be both: the row counts.


MOST_ROW_BYTES = 16 * 1024
"""The size of the largest object that is a row: SQLite takes less time for it than a file."""
EXPOSED_AT_ONCE = 32
_ROW_KINDS = ("data", "state")


def may_be_row(path: str) -> bool:
    """Return whether an object is a row if it is small: what other programs read never is."""
    _, _, below = path.partition("/")
    return below.partition("/")[0] in _ROW_KINDS and not is_plain(shard_id_of(path) or "")


class FolderObjects(FolderStorage):
    """`ports.Storage` in a folder and its SQLite file; safe for many threads and processes."""

    def __init__(self, root: Path, database: Database, clock: Clock) -> None:
        super().__init__(root)
        self._database, self._clock = database, clock
        self._defers = False

    def with_commits(self) -> "FolderObjects":
        """Return it for objects of new names: small ones are put with the next transaction."""
        deferring = copy(self)
        deferring._defers = True
        return deferring

    def get(self, path: str) -> bytes:
        """Return a whole object. Raises NotFoundError."""
        body = self._row(path)
        return super().get(path) if body is None else body

    def put(self, path: str, body: bytes) -> bool:
        """Store an object if there is none at that path; return whether it was stored."""
        if not may_be_row(path):
            return super().put(path, body)
        if len(body) > MOST_ROW_BYTES:
            return super().put(path, body) and self._keeps_name(path)
        file, values = self._file(path), (path, body, self._clock.now_ms())
        insert = "INSERT OR IGNORE INTO objects VALUES (?, ?, ?)"
        if self._defers:
            self._database.defer(insert, values)
            return True
        with self._database.writing(lazy=True) as connection:  # nothing counts but by a commit
            if file.exists():
                return False
            return connection.execute(insert, values).rowcount > 0

    def upload(self, path: str, local: Path) -> bool:
        """Store a local file as `put` does."""
        if not may_be_row(path):
            return super().upload(path, local)
        if local.stat().st_size > MOST_ROW_BYTES:
            return super().upload(path, local) and self._keeps_name(path)
        return self.put(path, local.read_bytes())

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        """Open an object to seek and read. Raises NotFoundError."""
        body = self._row(path) if size_bytes <= MOST_ROW_BYTES else None
        return super().open(path, size_bytes) if body is None else io.BytesIO(body)

    def link(self, path: str, local: Path) -> bool:
        """Make `local` a second name of an object's file, or a file with the bytes of a row: whole,
        as other engines want it.
        """
        body = self._row(path)
        if body is None:
            return super().link(path, local)
        with writing_files(local.parent):
            local.write_bytes(body)
        return True

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose path begins with `prefix`, in path order."""
        check_prefix(prefix)
        # First the rows: what is made a file meanwhile is in both, and not in neither.
        select = "SELECT path, length(body), modified_ms FROM objects WHERE path BETWEEN ? AND ?"
        rows = self._database.select(select, (prefix, prefix + LAST))
        objects = {path: StoredObject(path, *facts) for path, *facts in rows}
        objects = {each.path: each for each in super().list(prefix)} | objects
        yield from sorted(objects.values(), key=lambda each: each.path)

    def folders(self, below: str = "") -> Iterator[str]:
        """Yield the folders of a folder that hold anything, in order."""
        rest = f"substr(path, {len(below) + 1})"
        select = f"SELECT DISTINCT substr({rest}, 1, instr({rest}, '/') - 1) FROM objects"
        rows = self._database.select(f"{select} WHERE path BETWEEN ? AND ?", (below, below + LAST))
        yield from sorted({*super().folders(below), *(name for (name,) in rows if name)})

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; missing ones are ignored."""
        values = [(check_path(path),) for path in paths if may_be_row(path)]
        if values:
            with self._database.writing() as connection:
                delete = "DELETE FROM objects WHERE path = ?"
                is_any = connection.executemany(delete, values).rowcount > 0
            if is_any:
                self._database.forget()
        super().delete(paths)

    def expose(self, prefix: str) -> None:
        """Let each object whose path begins with `prefix` be a file."""
        check_prefix(prefix)
        some = f"SELECT path, body FROM objects WHERE path BETWEEN ? AND ? LIMIT {EXPOSED_AT_ONCE}"
        span, put = (prefix, prefix + LAST), super().put
        while self._database.select(some, span):
            with (
                self._database.writing() as connection,
                ThreadPoolExecutor(EXPOSED_AT_ONCE) as threads,
            ):
                rows = connection.select(some, span)
                list(threads.map(lambda row: put(*row), rows))  # their flushes become one
                connection.executemany("DELETE FROM objects WHERE path = ?", [r[:1] for r in rows])

    def _row(self, path: str) -> bytes | None:
        if not may_be_row(check_path(path)):
            return None
        rows = self._database.select("SELECT body FROM objects WHERE path = ?", (path,))
        return rows[0][0] if rows else None

    def _keeps_name(self, path: str) -> bool:
        """Return whether a file that was put has its path alone; else it is none any more."""
        with self._database.writing():  # after any writer of a row that saw no file
            is_alone = self._row(path) is None
            if not is_alone:
                super().delete([path])
        return is_alone
