"""What the stages ask of the world, as small protocols; `aws` has the real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from dormouse.cache import Cache
from dormouse.errors import CorruptDataError, DamagedEntryError
from dormouse.messages import OutboundMessage
from dormouse.model.job_records import DAMAGED as DAMAGED
from dormouse.model.job_records import JobRecord as JobRecord
from dormouse.model.metrics import Metric
from dormouse.model.sources import Source
from dormouse.model.spark_threshold import ClusterSize
from dormouse.state_store import StateStore
from dormouse.tables.table import Table
from dormouse.tables.tombstones import Tombstone


class Clock(Protocol):
    """Tells the time."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""


class Ids(Protocol):
    """Makes ids."""

    def new(self) -> str:
        """Return 32 hex digits never given before; the first 12 are the milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as a listing shows it."""

    path: str
    size_bytes: int
    modified_ms: int


class Objects(Protocol):
    """What is there to be read."""

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        """Open an object of known size to seek and read; each read fetches just its range.

        Raises NotFoundError, at the latest when it is read.
        """


class Storage(Objects, Protocol):
    """The data root: a bucket or a folder. Paths are relative, with ``/`` and without ``..``.

    Objects are immutable: they are put once, never changed, and deleted at the end.
    """

    @property
    def uri(self) -> str:
        """``s3://bucket``, or the folder's path: where it is, for people."""

    def get(self, path: str) -> bytes:
        """Return a whole object. Raises NotFoundError."""

    def put(self, path: str, body: bytes) -> bool:
        """Store an object if there is none of that path; False, and nothing done, if there is."""

    def upload(self, path: str, local: Path) -> bool:
        """Store a local file's content as `put` does, without holding it in memory."""

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Return the objects whose path begins with `prefix`, in path order."""

    def list_noncurrent(self, prefix: str) -> Iterator[NoncurrentObject]:
        """Return what is kept of objects below `prefix` that were deleted or replaced."""

    def folders(self) -> Iterator[str]:
        """Return the first part of all paths of several parts, in order, each once."""

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; one that is not there is no error."""


@dataclass(frozen=True, slots=True)
class NoncurrentObject:
    """An object that was deleted or replaced, and is kept until `until_ms`, None for good.

    In `storage` it is as it was.
    """

    stored: StoredObject
    storage: Storage
    until_ms: int | None


class Sources(Protocol):
    """The ingest bucket."""

    def download(self, source: Source, local: Path) -> None:
        """Copy this version of an object. Raises RefusedSourceError if it is gone or changed."""

    def list(self, prefix: str, *, since_ms: int) -> Iterator[Source]:
        """Yield, in key order, the objects whose key begins with `prefix` and that were dropped at
        `since_ms` or later; page by page, as they are asked for.
        """


class Tables(Protocol):
    """The registry of tables: unique names, immutable ids."""

    def get(self, table_id: str) -> Table | None:
        """Return a table by id; None if there is none (any more)."""

    def named(self, name: str) -> Table | None:
        """Return a table by name; None if there is none."""

    def all(self) -> list[Table]:
        """Return all tables by name. Raises CorruptDataError if anything is damaged."""

    def list_readable(self) -> tuple[list[Table], list[DamagedEntryError]]:
        """Return all tables that can be read, by name, and what is damaged besides."""

    def repair(self, which: str = "") -> list[str]:
        """Bring back what is damaged of a table, by name or id, or of all; return what was.

        Raises CorruptDataError if some cannot be brought back; all else was.
        """

    def create(self, table: Table) -> None:
        """Add a table.

        Raises:
            AlreadyExistsError: the name is taken by another id, or the id has a tombstone.
        """

    def change(
        self, table_id: str, change: Callable[[Table], Table], *, request_id: str = ""
    ) -> Table:
        """Replace what is kept of a table by what `change` makes of the newest; give that.

        `change` may be called several times. With a `request_id` it takes effect once, however
        often it is asked for. What else it raises is raised here.

        Raises:
            NotFoundError: there is no such table, or its deletion has begun, which nothing undoes.
            AlreadyExistsError: it is to have the name of another table.
            ContendedError: others kept changing the same table; nothing was changed.
        """

    def put_tombstone(self, tombstone: Tombstone) -> Tombstone | None:
        """Keep for ever that an id is no table's; return the tombstone it has, the first one put.

        Return None, with nothing done, if the id is registered and not in deletion.
        """

    def tombstone(self, table_id: str) -> Tombstone | None:
        """Return the tombstone of an id; None if it has none."""

    def tombstones(self, since_ms: int) -> tuple[list[Tombstone], list[CorruptDataError]]:
        """Return the tombstones of deletions since a time, in order, and what is damaged."""

    def delete(self, table: Table) -> None:
        """Remove a table; none of that id is no error."""

    def defaults(self) -> dict[str, int | str]:
        """Return the properties set for the instance: tables have them where they set none."""

    def change_defaults(
        self, change: Callable[[dict[str, int | str]], dict[str, int | str]]
    ) -> dict[str, int | str]:
        """Replace the instance's properties by what `change` makes of them; give that.

        Raises:
            ContendedError: others kept changing them; nothing was changed.
        """


class Tracker(Protocol):
    """The record of jobs, for people; records live for seven days, those of refused files for 35.
    No row depends on these.

    It also knows which table each request is about, for longer than a request can be redelivered.
    """

    def record(self, record: JobRecord) -> None:
        """Keep the newest record of a job; an older one than is kept changes nothing.

        Nor does one that is ``assigned`` where the job is ``finished``: who hands a job on tells of
        it afterwards, and the job may be done by then.

        What it leaves empty of subject, files and size stays as it was. One that is ``running`` is
        an attempt more, begun at its `updated_ms`; one that `is_finished` ends the attempt then.
        """

    def get(self, table_id: str, job_id: str) -> JobRecord | None:
        """Return the newest record of a job; None if there is none, or it is damaged."""

    def records(self, table_id: str) -> Iterator[JobRecord]:
        """Yield a table's records, in job id order; all pages of them, and the `DAMAGED`, too."""

    def bind(self, request: str, table_id: str, now_ms: int) -> str:
        """Return the table which a request is about: `table_id`, if no call gave another before.

        That is known for thirty days after the last call. Raises CorruptDataError.
        """


class Metrics(Protocol):
    """Where numbers about tables go, for people to watch. No row depends on them."""

    def emit(self, table_name: str, values: Mapping[Metric, float]) -> None:
        """Publish what was measured of a table, or counted, just now."""


class NoMetrics:
    """`Metrics` for a process whose numbers nobody watches, as the command line's."""

    def emit(self, table_name: str, values: Mapping[Metric, float]) -> None:
        """Drop the values."""


class Outbox(Protocol):
    """The way out to the queues."""

    def send(self, messages: Iterable[OutboundMessage]) -> None:
        """Send all messages, or raise UnavailableError: then some may have been sent."""


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """The messages of a queue, as SQS counted them some seconds ago."""

    waiting: int
    in_flight: int
    delayed: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was given up. `reason` says why, if it was said when that was done.

    `receives` counts how often it was handed out, to look at it included; `sent_ms` is when it was
    first sent. `receipt` is the handle on it of who took it.
    """

    id: str
    body: str
    reason: str = ""
    receives: int = 0
    sent_ms: int = 0
    receipt: str = ""


class DeadLetters(Protocol):
    """The dead letters of each queue, by the queue's own name.

    All raise UnavailableError if the queues do not answer, NotFoundError if there is no such queue.
    """

    def receive(self, queue: str, most: int) -> list[DeadLetter]:
        """Take letters, to be seen by nobody else for some minutes unless they are given back."""

    def release(self, queue: str, letters: Sequence[DeadLetter]) -> None:
        """Let others see letters again at once."""

    def redrive(self, queue: str, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Send what the letters say to their queue again, and give those for which that landed."""

    def delete(self, queue: str, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Delete letters that were taken, and give those which are there still."""


@dataclass(frozen=True, slots=True)
class SparkRun:
    """One attempt at a job, to be started: `token` is the same however often that is asked for.

    `package` is the version of the package, in the data bucket, that it runs by.
    """

    table_id: str
    job_id: str
    kind: str
    generation: int
    attempt: int
    token: str
    size: ClusterSize
    package: str


@dataclass(frozen=True, slots=True)
class SparkRunState:
    """How a run stands; `reason` is what Spark says of it, if anything.

    `outcome` is ``succeeded`` or ``failed``, and empty while it waits or runs.
    """

    table_id: str
    job_id: str
    attempt: int
    outcome: str
    reason: str = ""


class Spark(Protocol):
    """What runs Spark jobs."""

    @property
    def package(self) -> Path:
        """The folder of the package that was deployed for them, with this process."""

    def start(self, run: SparkRun) -> str:
        """Return the id of the run, started now or before.

        Raises:
            UnavailableError: it cannot be started for now.
            OutcomeUnknownError: it may be started; to ask again with the same token tells.
            InvalidRequestError: it can never be started as it is.
        """

    def describe(self, run_id: str) -> SparkRunState | None:
        """Return how a run stands; None if there is none, or it is not of such a job.

        Raises:
            UnavailableError: Spark does not answer.
        """


NO_TABLE = "-"
"""The table id under which the tracker keeps what belongs to no table."""


@dataclass(frozen=True, slots=True)
class Services:
    """All that a stage may ask of the world.

    `storage` is the data root, `results` where exported rows go.
    `scratch` is a local folder for files while a stage runs, `memory_bytes` what sorting and
    merging may use of memory before they spill to it. `cache` is what the process keeps of what it
    read. `spark` is None for a process that starts no Spark jobs, or an instance that has no Spark;
    `has_spark` says, where functions do jobs, whether the instance has it.
    """

    tables: Tables
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

    def table(self, table_id: str) -> Table | None:
        """Return a table that is there to be worked on: None if it is gone or being deleted."""
        found = self.tables.get(table_id)
        return None if found is None or found.deleting else found
