"""Opens the folder of an instance: services, queues, inbox and worker over it.

What opening leaves when it dies: an empty SQLite file, which the next one completes, or a file of a
process that is gone, which the next one removes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

from dormouse import __version__
from dormouse.errors import CorruptDataError, InvalidRequestError, NotFoundError
from dormouse.folder.inbox import Inbox
from dormouse.folder.layout import DATABASE, FolderLayout
from dormouse.folder.objects import FolderObjects
from dormouse.folder.processes import Leaving, LeavingStorage, Process, is_alive, locked
from dormouse.folder.publications import FolderPublications
from dormouse.folder.queues import SqliteDeadLetters, SqliteQueues
from dormouse.folder.spark import SparkRuns, SparkWorker, Submit
from dormouse.folder.sqlite import Database, SqliteItems
from dormouse.folder.worker import Background, Schedule, Worker
from dormouse.items.records import ItemTracker
from dormouse.items.tables import ItemTables
from dormouse.ports import Services, Sources, Storage
from dormouse.settings import DEFAULT_MEMORY_BYTES
from dormouse.state.store import StateStore
from dormouse.storage import INCOMING, FolderStorage, writing_files
from dormouse.system import SystemClock, TimeOrderedIds, retry_policy
from dormouse.tables.table import Table

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
    if not is_new and not _can_write(layout):
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
    """Return whether there is no instance yet where one can be made.

    Raises:
        InvalidRequestError: there is something else.
    """
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

    Raises:
        CorruptDataError: there is one, though maybe all that it had was small, and in SQLite.
    """
    if layout.tables.exists():
        raise CorruptDataError(
            f"{layout.database} is empty, but there is {layout.tables} of an instance",
            hint="bring the folder back from a backup",
        )


def _can_write(layout: FolderLayout) -> bool:
    return os.access(layout.root, os.W_OK) and os.access(layout.database, os.W_OK)


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
        tracker=ItemTracker(items),
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
    )
    data, exports = LeavingStorage(storage, leaving), LeavingStorage(results, leaving)
    found = Inbox(layout.inbox, database, clock, thread.wake, leaving.check)
    working = replace(
        services,
        storage=data,
        results=exports,
        sources=found,
        store=_store_factory(database, data),
    )
    spark = SparkWorker(runs, submit, leaving) if submit else None
    worker = Worker(working, queues, found, Schedule(database, leaving), leaving, spark)
    thread.worker = worker
    return OpenFolder(layout, services, queues, inbox, worker, thread, database, process)


def files_of(root: Path) -> tuple[Storage, Storage, Sources]:
    """Return data, exports and inbox of a folder, for a process that uses nothing else of it."""
    layout = FolderLayout(root)
    database, clock = Database(layout.database), SystemClock()
    storage = FolderObjects(layout.tables, database, clock)
    return storage, FolderStorage(layout.exports), Inbox(layout.inbox, database, clock)


def _store_factory(database: Database, storage: Storage) -> Callable[[Table], StateStore]:
    @lru_cache(STORES_KEPT)
    def open_store(state_id: str, name: str, keep_seconds: int) -> StateStore:
        from dormouse.folder.state_store import FolderStateStore
        from dormouse.items.pages import ItemPages
        from dormouse.log.engine import Options

        items, options = SqliteItems(database), Options(name, keep_seconds)
        return FolderStateStore(
            state_id,
            storage,
            items,
            ItemPages(items),
            SystemClock(),
            TimeOrderedIds(),
            retry_policy=retry_policy(),
            options=options,
            defer=items.defer,
        )

    def store(table: Table) -> StateStore:
        wanted = table.properties
        return open_store(table.state_id, table.name, wanted.gc_delay_seconds)

    return store
