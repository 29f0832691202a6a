"""The interfaces of what stages need from the world, as small protocols; `aws` implements them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from dormouse.cache import Cache
from dormouse.model.jobs.job_events import JobEvent, Tracked
from dormouse.model.jobs.job_records import DAMAGED as DAMAGED
from dormouse.model.jobs.job_records import JobRecord as JobRecord
from dormouse.ports.connections import Connections, NoConnections
from dormouse.ports.downloads import Arrived
from dormouse.ports.publications import Mirror, Publications
from dormouse.ports.reader_access import ReaderAccess
from dormouse.ports.result_queues import NoResultQueues, ResultQueues
from dormouse.ports.spark_runs import Spark as Spark
from dormouse.ports.spark_runs import SparkRun as SparkRun
from dormouse.ports.spark_runs import SparkRunState as SparkRunState
from dormouse.ports.uploads import Uploads

if TYPE_CHECKING:
    from dormouse.access.rules import AccessRules
    from dormouse.errors import CorruptDataError, DamagedEntryError
    from dormouse.messages.stages import OutboundMessage
    from dormouse.model.jobs.metrics import Metric
    from dormouse.model.sources import Source
    from dormouse.state_store import StateStore
    from dormouse.tables.table import Table
    from dormouse.tables.tombstones import Tombstone


class Clock(Protocol):
    """The current time."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""


class Ids(Protocol):
    """A generator of unique ids."""

    def new(self) -> str:
        """Return 32 hex digits, unique; the first 12 are the milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as a listing shows it."""

    path: str
    size_bytes: int
    modified_ms: int


class Objects(Protocol):
    """Objects that can be read."""

    @property
    def is_remote(self) -> bool:
        """Whether a read waits for a network, so that many in flight take no longer than one."""

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        """Open an object of known size to seek and read; each read fetches only its range.

        Raises NotFoundError, at the latest by the first read.
        """


class StreamedObjects(Objects, Protocol):
    """Objects whose bytes can be used before all of them have arrived."""

    def stream(self, path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes of an object from `start` up to `end` as they arrive, by one request.

        Raises NotFoundError, at the latest by the first piece.
        """

    def link(self, path: str, local: Path) -> bool:
        """Make `local` a second name of the file that an object is; False if that cannot be.

        The file must not be changed, but can be read, also after the object was deleted. Raises
        NotFoundError, if it could be otherwise.
        """


class Storage(StreamedObjects, Uploads, Protocol):
    """The data root: a bucket or a folder. Paths are relative, with ``/`` and without ``..``.

    Objects are immutable: they are put once, never changed, and finally deleted.
    """

    @property
    def uri(self) -> str:
        """Where the data root is, for people: ``s3://bucket``, or the folder's path."""

    def get(self, path: str) -> bytes:
        """Return a whole object. Raises NotFoundError."""

    def put(self, path: str, body: bytes) -> bool:
        """Store an object if its path is free; otherwise return False and change nothing."""

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose path begins with `prefix`, in path order."""

    def list_noncurrent(self, prefix: str) -> Iterator[NoncurrentObject]:
        """Yield the versions of objects that were deleted or replaced and are still kept."""

    def folders(self) -> Iterator[str]:
        """Yield the first part of every path that has several parts, in order, each once."""

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; missing ones are ignored."""


@dataclass(frozen=True, slots=True)
class NoncurrentObject:
    """An object that was deleted or replaced, and is kept until `until_ms`; None is for ever.

    Its old content is read from `storage`, under the same path.
    """

    stored: StoredObject
    storage: Storage
    until_ms: int | None


FILE_SCHEME = "file://"


def root_uri(storage: Storage) -> str:
    """Return the URI of a data root as published metadata has it, without a slash at its end.

    A folder's has the scheme: of the readers of Iceberg some refuse a bare path, and all take the
    scheme. Nothing is escaped, since they escape nothing.
    """
    uri = storage.uri.rstrip("/")
    return uri if "://" in uri else f"{FILE_SCHEME}{uri}"


class Sources(Protocol):
    """The ingest bucket."""

    def download(self, source: Source, local: Path, arrived: Arrived | None = None) -> None:
        """Download this version of an object; parts that `arrived` names can be used at once.

        Raises RefusedSourceError if it is gone or has changed.
        """

    def list(self, prefix: str, *, since_ms: int) -> Iterator[Source]:
        """Yield, in key order, the files (`is_file_below`) whose key begins with `prefix` and which
        were dropped at `since_ms` or later. Pages are loaded as they are needed.
        """


class Tables(Protocol):
    """The registry of tables: unique names, immutable ids."""

    def get(self, table_id: str) -> Table | None:
        """Return a table by id; None if there is none."""

    def named(self, name: str) -> Table | None:
        """Return a table by name; None if there is none."""

    def all(self) -> list[Table]:
        """Return all tables by name. Raises CorruptDataError if anything is damaged."""

    def list_readable(self) -> tuple[list[Table], list[DamagedEntryError]]:
        """Return all tables that can be read, by name, and the damaged entries."""

    def repair(self, which: str = "") -> list[str]:
        """Repair the damaged entries of a table, by name or id, or of all tables; return what was
        repaired.

        Raises CorruptDataError if some cannot be repaired; all others were.
        """

    def create(self, table: Table) -> None:
        """Register a table.

        Raises:
            AlreadyExistsError: another table has the name, or the id has a tombstone.
        """

    def change(
        self, table_id: str, change: Callable[[Table], Table], *, request_id: str = ""
    ) -> Table:
        """Replace a table's entry by what `change` returns for the newest entry; return the result.

        `change` may be called several times. With a `request_id`, the change takes effect once,
        however often it is requested. Errors raised by `change` are passed on.

        Raises:
            NotFoundError: there is no such table, or it is being deleted, which cannot be undone.
            AlreadyExistsError: another table has the new name.
            ContendedError: concurrent changes won every attempt; nothing was changed.
        """

    def put_tombstone(self, tombstone: Tombstone) -> Tombstone | None:
        """Record for ever that an id belongs to no table; return the tombstone that was put first.

        Return None, and change nothing, if a table with this id is registered and not being
        deleted.
        """

    def tombstone(self, table_id: str) -> Tombstone | None:
        """Return the tombstone of an id; None if there is none."""

    def tombstones(self, since_ms: int) -> tuple[list[Tombstone], list[CorruptDataError]]:
        """Return the tombstones of deletions since a time, in order, and the damaged ones."""

    def delete(self, table: Table) -> None:
        """Remove a table; one that is not registered is ignored."""

    def defaults(self) -> dict[str, int | str]:
        """Return the properties of the instance, for tables that do not set their own."""

    def change_defaults(
        self, change: Callable[[dict[str, int | str]], dict[str, int | str]]
    ) -> dict[str, int | str]:
        """Replace the instance's properties by what `change` returns for them; return the result.

        Raises:
            ContendedError: concurrent changes won every attempt; nothing was changed.
        """

    def access_rules(self) -> AccessRules:
        """Return the access rules of the instance; None if access is by instance.

        Raises:
            CorruptDataError: they are damaged or lost, so nobody may be let in.
        """

    def change_access_rules(self, change: Callable[[AccessRules], AccessRules]) -> AccessRules:
        """Replace the access rules by what `change` returns for them; return the result.

        Raises:
            ContendedError: concurrent changes won every attempt; nothing was changed.
            CorruptDataError: they are damaged or lost; nothing was changed.
        """


class Tracker(Protocol):
    """The records of jobs, for people. They are kept for seven days, those of refused files for 35.
    No row depends on them.

    The tracker also knows which table each request is about, for longer than a request can be
    redelivered.
    """

    def record(self, job: Tracked, event: JobEvent, at_ms: int) -> None:
        """Record what happened to a job; `model.job_events.fold_event` makes the record of it."""

    def get(self, table_id: str, job_id: str) -> JobRecord | None:
        """Return the newest record of a job; None if there is none, or if it is damaged."""

    def records(self, table_id: str) -> Iterator[JobRecord]:
        """Yield all records of a table in job id order, including `DAMAGED` ones."""

    def bind(self, request: str, table_id: str, now_ms: int) -> str:
        """Return the table that a request is about: `table_id`, unless an earlier call named
        another.

        The answer is kept for thirty days after the last call. Raises CorruptDataError.
        """


class Metrics(Protocol):
    """Publishes the metrics of tables, for people. No row depends on them."""

    def emit(self, table_name: str, values: Mapping[Metric, float]) -> None:
        """Publish the current values of gauges and the newest counts of a table."""


class NoMetrics:
    """A `Metrics` that drops everything, for a process that publishes no metrics."""

    def emit(self, table_name: str, values: Mapping[Metric, float]) -> None:
        """Drop the values."""


class Outbox(Protocol):
    """Sends messages to queues."""

    def send(self, messages: Iterable[OutboundMessage]) -> None:
        """Send all messages. Raises UnavailableError if some may not have been sent."""


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """The numbers of messages in a queue, as SQS counted them some seconds ago."""

    waiting: int
    in_flight: int
    delayed: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message in a dead-letter queue. `reason` says why it failed, if that is known.

    `receives` counts how often it was received, including for display; `sent_ms` is when it was
    first sent. `receipt` is the handle of the process that received it.
    """

    id: str
    body: str
    reason: str = ""
    receives: int = 0
    sent_ms: int = 0
    receipt: str = ""


class DeadLetters(Protocol):
    """The dead letters of each queue, by the queue's own name.

    Every method raises UnavailableError, and NotFoundError if there is no such queue.
    """

    def receive(self, queue: str, most: int) -> list[DeadLetter]:
        """Receive dead letters; others do not see them for some minutes, unless they are
        released.
        """

    def release(self, queue: str, letters: Sequence[DeadLetter]) -> None:
        """Make received dead letters visible to others at once."""

    def redrive(self, queue: str, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Send the messages to their queue again; return the dead letters whose message was
        sent.
        """

    def delete(self, queue: str, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Delete received dead letters; return those that could not be deleted."""


NO_TABLE = "-"
"""The table id under which the tracker keeps records that belong to no table."""


def _hold() -> None:
    """Check nothing: the files of a folder and the services of AWS hold to conditions."""


@dataclass(frozen=True, slots=True)
class Services:
    """All that a stage may use of the world.

    `storage` is the data root; exported rows go to `results`. `scratch` is a local folder for
    temporary files; `memory_bytes` is what sorting and merging may use before they spill to it.
    `cache` holds objects that were read. `spark` is None for a process that starts no Spark jobs;
    `has_spark` says whether the instance has Spark. `owns_scratch` says whether nobody else fills
    the scratch folder, so that what does not fit there alone never will. `attempt_ms` is how long
    an attempt at a job may live without being heard of; 0 where its queue gives a job to nobody
    else while it lives. `reader_access` is None
    where readers of Iceberg need nothing to open objects, as in a folder; `mirror` without Glue.
    `check_conditions` raises ServiceRefusedError if a server that is not AWS's ignores conditions
    of writes. `compute` has another process answer a sub-query of a query, and save its end.
    """

    tables: Tables
    publications: Publications
    tracker: Tracker
    storage: Storage
    results: Storage
    sources: Sources
    dead_letters: DeadLetters
    store: Callable[[Table], StateStore]
    clock: Clock
    ids: Ids
    scratch: Path
    memory_bytes: int = 512 * 1024 * 1024
    cache: Cache = field(default_factory=Cache)
    metrics: Metrics = NoMetrics()
    spark: Spark | None = None
    has_spark: bool = False
    owns_scratch: bool = True
    attempt_ms: int = 0
    reader_access: ReaderAccess | None = None
    mirror: Mirror | None = None
    result_queues: ResultQueues = NoResultQueues()
    connections: Connections = NoConnections()
    check_conditions: Callable[[], None] = _hold
    compute: Callable[[str, int], None] | None = None

    def table(self, table_id: str) -> Table | None:
        """Return a table to work on; None if it is gone or is being deleted."""
        found = self.tables.get(table_id)
        return None if found is None or found.deleting else found

    def newest_version(self, table: Table) -> int | None:
        """Return the newest version of a table's state; None if the table is gone or has another
        state by now.
        """
        found = self.table(table.id)
        if found is None or found.state_id != table.state_id:
            return None
        return self.store(found).current().version
