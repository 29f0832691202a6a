"""The interfaces of what stages need from the world, as small protocols; `aws` implements them."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Lock
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeAlias, TypeVar

from dormouse.encryption import KeyService, NoKeys
from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.quiet import QuietTables
from dormouse.system import Clock, Ids

if TYPE_CHECKING:
    from dormouse.items.records import ItemPublications, ItemTracker
    from dormouse.items.tables import ItemTables
    from dormouse.log.engine import StateStore
    from dormouse.state.jobs import ClusterSize, Metric
    from dormouse.state.sources import Source
    from dormouse.tables.table import Table
Arrived: TypeAlias = Callable[[int, int], object]
"""Is called with the start and the end of bytes that are in the local file from now on. Before the
first call the file has its full size. An error of it ends the download."""


class StoppedError(Exception):
    """Nobody needs the file any more, so its download ends."""


class Arrivals:
    """Which bytes of a local file have arrived; safe for many threads.

    Those that download call `add`, which is an `Arrived`; those that read call `wait`.
    """

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._spans: list[tuple[int, int]] = []
        self._is_stopped, self._is_done = False, False
        self._error: BaseException | None = None
        self._changed = Condition()

    def add(self, start: int, end: int) -> None:
        """Note that bytes have arrived. Raises StoppedError: nobody needs the file any more."""
        with self._changed:
            if self._is_stopped:
                raise StoppedError
            self._spans = _with_span(self._spans, start, end)
            self._changed.notify_all()

    def end(self, download: Future[None]) -> None:
        """Note that the download is done: all bytes have arrived, or no more will."""
        with self._changed:
            self._error = StoppedError() if download.cancelled() else download.exception()
            self._is_done = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Let the download end with its next bytes."""
        with self._changed:
            self._is_stopped = True

    def is_incomplete(self) -> bool:
        """Return whether bytes are missing, as soon as the file is there with its full size.
        Raises Exception: what the download raised.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._spans or self._is_done)
            self._raise_error()
            return not self._is_done

    def wait(self, start: int, end: int) -> int:
        """Return up to where all bytes from `start` on are there, `end` at most, as soon as the
        first of them is there.
        Raises Exception: what the download raised.
        """
        end = min(end, self._size_bytes)
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_done or start >= end or self._until(start) > start
            )
            self._raise_error()
            return end if self._is_done else min(end, self._until(start))

    def wait_for_all(self) -> None:
        """Return when the download is done. Raises what it raised."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_done)
            self._raise_error()

    def _until(self, start: int) -> int:
        """Return up to where all bytes from `start` on have arrived."""
        return max([start, *(high for low, high in self._spans if low <= start)])

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error


def _with_span(spans: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """Return spans, none of which touches another, with one more span of bytes among them."""
    apart = [(low, high) for low, high in spans if high < start or end < low]
    touching = [(low, high) for low, high in spans if not (high < start or end < low)]
    low = min([start, *(low for low, _ in touching)])
    high = max([end, *(high for _, high in touching)])
    return [*apart, (low, high)]


class Upload(Protocol):
    """The upload of a local file to a path; the object exists once `complete` has stored it.

    A crash before that leaves at most an `UnfinishedUpload`, which is no object and is aborted
    later. End each upload with `complete` or `abort`.
    """

    def advance(self, final_bytes: int) -> None:
        """Note that the first `final_bytes` of the file exist and will not change.

        They may be sent in the background; an error of that is raised here or by `complete`.
        """

    def complete(self) -> bool:
        """Store the file, which is now whole, as an object if there is none at its path.

        Return whether it was stored; if not, nothing is changed. What was sent is deleted unless
        it was stored.
        """

    def abort(self) -> None:
        """Delete what was sent; the object will not exist. Does nothing after `complete`."""


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """An upload that was begun and neither completed nor aborted; `id` is the storage's own."""

    path: str
    id: str
    started_ms: int


class WholeUpload:
    """An upload that sends nothing before the file is whole: to a disk or memory of this machine.

    So it leaves nothing unfinished but what `upload` of its storage itself leaves.
    """

    def __init__(self, storage: Storage, path: str, local: Path) -> None:
        self._storage, self._path, self._local = storage, path, local

    def advance(self, final_bytes: int) -> None:
        """Do nothing."""

    def complete(self) -> bool:
        """Store the file if there is no object at its path; return whether it was stored."""
        return self._storage.upload(self._path, self._local)

    def abort(self) -> None:
        """Do nothing: nothing was sent."""


class ReaderAccess(Protocol):
    """What readers need, as properties that Iceberg's clients of storage know."""

    def settings(self) -> Mapping[str, str]:
        """Return what is the same for all tables, and no secret."""

    def credentials(self, table_id: str) -> Mapping[str, str]:
        """Return credentials, for a while, to read the objects of one table that readers open;
        nothing if this instance lends none.
        Raises UnavailableError: there are none now.
        """


class ResultQueues(Protocol):
    """Sends texts to queues that the instance was deployed with; a message names one of them."""

    def check(self, queue: str) -> None:
        """Check that results can be sent to a queue.

        Raises:
            InvalidRequestError: the queue is not of the list.
            NotFoundError: it is gone.
            UnavailableError: the service does not answer.
        """

    def send(self, queue: str, group: str, bodies: Sequence[str]) -> None:
        """Send texts, in order; those of a `group` stay in order where a queue keeps any.

        Raises:
            InvalidRequestError, NotFoundError: as `check`; nothing more is sent.
            UnavailableError: some may not have been sent; send all again.
        """


class NoResultQueues:
    """`ResultQueues` of an instance that has none."""

    def check(self, queue: str) -> None:
        """Refuse any queue."""
        raise not_listed(queue, ())

    def send(self, queue: str, group: str, bodies: Sequence[str]) -> None:
        """Refuse any queue."""
        self.check(queue)


def not_listed(queue: str, listed: Sequence[str]) -> InvalidRequestError:
    """Return the error for a queue that results are not sent to."""
    return InvalidRequestError(
        f"results are not sent to a queue {queue!r}",
        hint=f"name one of {', '.join(listed)}" if listed else "this instance has no ResultQueues",
    )


def gone(queue: str) -> NotFoundError:
    """Return the error for a queue of the list that is not there, or cannot be sent to."""
    return NotFoundError(
        f"the queue {queue!r} of ResultQueues is gone, or takes nothing from this instance",
        hint="create it, let its policy and key allow answer_query, or send results elsewhere",
    )


@dataclass(frozen=True, slots=True)
class MirroredTable:
    """A table as Glue has it: the URIs of its metadata and of all that is published of it, and its
    columns as pairs of a name and a type of Hive. `table_id` says whose entry it is.
    """

    table_id: str
    metadata: str
    location: str
    columns: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class MirrorEntry:
    """What of an entry of Glue decides how it is replaced. `table_id` is empty if it is not ours;
    `version` changes with each change.
    """

    table_id: str
    metadata: str
    version: str


class Mirror(Protocol):
    """A database of Glue, in which AWS's engines find tables, by names in lower case.

    Every call may raise UnavailableError: nothing was changed. Those that change something may
    raise OutcomeUnknownError instead. All can be repeated.
    """

    @property
    def database(self) -> str:
        """The name of the database; empty if the instance has none."""

    def get(self, name: str) -> MirrorEntry | None:
        """Return an entry; None if there is none."""

    def put(self, name: str, table: MirroredTable, old: MirrorEntry | None) -> bool:
        """Put an entry in the place of another, or of none; return False if that is not there."""

    def delete(self, name: str) -> None:
        """Delete an entry; none is no error."""


@dataclass(frozen=True, slots=True)
class SparkRun:
    """One attempt at a job, to be started. `token` makes starting it idempotent.

    `package` is the version of the Spark package, in the data bucket, to run with.
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
    """The state of a run; `reason` is what Spark says about it, if anything.

    `outcome` is ``succeeded`` or ``failed``, and empty while the run waits or runs.
    """

    table_id: str
    job_id: str
    attempt: int
    outcome: str
    reason: str = ""


class Spark(Protocol):
    """Runs Spark jobs."""

    @property
    def package(self) -> Path | None:
        """The folder of the Spark package that was deployed with this process; None if runs use
        the library of this process.
        """

    def start(self, run: SparkRun) -> str:
        """Start a run, unless it was started before; return its id.

        Raises:
            UnavailableError: it cannot be started now.
            OutcomeUnknownError: it may have been started; starting it again with the same token
                shows which.
            InvalidRequestError: it can never be started as it is.
        """

    def describe(self, run_id: str) -> SparkRunState | None:
        """Return the state of a run; None if there is none, or if it is not a run of such a job.
        Raises UnavailableError: Spark does not answer.
        """


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as a listing shows it; `storage_class` is empty where there are no classes."""

    path: str
    size_bytes: int
    modified_ms: int
    storage_class: str = ""


class Objects(Protocol):
    """Objects that can be read."""

    @property
    def is_remote(self) -> bool:
        """Whether a read waits for a network, so that many in flight take no longer than one."""

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        """Open an object of known size to seek and read; each read fetches only its range.

        Of an object whose size is not known, named as 0, only the end is read: from a place that is
        found by seeking from its end.
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
        return False


class Storage(StreamedObjects, Protocol):
    """The data root: a bucket or a folder. Paths are relative, with ``/`` and without ``..``.

    Objects are immutable: they are put once, never changed, and finally deleted. What has a body
    here is what a subclass does that has none of its own.
    """

    @property
    def uri(self) -> str:
        """Where the data root is, for people: ``s3://bucket``, or the folder's path."""

    def get(self, path: str) -> bytes:
        """Return a whole object. Raises NotFoundError."""

    def put(self, path: str, body: bytes) -> bool:
        """Store an object if its path is free; otherwise return False and change nothing."""

    def upload(self, path: str, local: Path) -> bool:
        """Store a local file as `put` does, without loading it into memory.

        The file must not be changed any more: it may be another name of the object from now on.
        """

    def start_upload(self, path: str, local: Path) -> Upload:
        """Start to upload a local file that is still being written."""

    def list_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """Yield the uploads to paths that begin with `prefix` which are not finished: none where
        nothing is sent before a file is whole.
        """
        return iter(())

    def abort_uploads(self, uploads: Iterable[UnfinishedUpload]) -> None:
        """Delete what was sent of uploads; those that were finished meanwhile are left alone."""
        return

    def with_commits(self) -> Storage:
        """Return it for objects of new names, to which nobody else writes: each is there no later
        than what this process commits next, and maybe not before.
        """
        return self

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose path begins with `prefix`, in path order."""

    def expose(self, prefix: str) -> None:
        """Let each object whose path begins with `prefix` be where other programs find it: at its
        path below `uri`. Small ones may be kept elsewhere before.
        """
        return

    def list_noncurrent(self, prefix: str) -> Iterator[NoncurrentObject]:
        """Yield the versions of objects that were deleted or replaced and are still kept."""
        return iter(())

    def folders(self, below: str = "") -> Iterator[str]:
        """Yield the folders in a folder that hold anything, in order; `below` is "" or "…/"."""

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

    def remove(self, source: Source) -> None:
        """Delete this version of an object for good, if it is there."""


class Metrics(Protocol):
    """Publishes the metrics of tables, for people. No row depends on them."""

    def emit(self, table_name: str, values: Mapping[Metric, float]) -> None:
        """Publish the current values of gauges and the newest counts of a table."""


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """The numbers of messages in a queue, as SQS counted them some seconds ago."""

    waiting: int
    in_flight: int
    delayed: int


MAX_REASON_CHARACTERS = 1000
_NO_TEXT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def cut_reason(reason: str) -> str:
    """Return as much of a dead letter's reason as is kept: it can quote any text, and SQS refuses
    characters that XML does not allow.
    """
    return _NO_TEXT.sub("\ufffd", reason[:MAX_REASON_CHARACTERS])


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
        """Receive dead letters; others do not see them for some minutes, unless released."""

    def release(self, queue: str, letters: Sequence[DeadLetter]) -> None:
        """Make received dead letters visible to others at once."""

    def redrive(self, queue: str, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Send the messages to their queue again; return the dead letters that were sent."""

    def delete(self, queue: str, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Delete received dead letters; return those that could not be deleted."""


# A cache of stored objects, bounded by bytes, which lives as long as its process.
#
# Stored objects never change, so a cached one never becomes stale; it is only evicted. A process
# has one cache, in its `Services`. A warm function or a client that repeats a request reads less.


CACHE_BYTES = 64 * 1024 * 1024

_T = TypeVar("_T")


class Cache:
    """Values by path and type. The least recently used are evicted first. Thread-safe."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        """Cache values of up to `limit_bytes` in total; 0 caches nothing."""
        self._limit_bytes, self._size_bytes = limit_bytes, 0
        self._entries: OrderedDict[tuple[str, type], tuple[object, int]] = OrderedDict()
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[Cache], tuple[int]]:
        """Another process gets an empty cache with the same limit."""
        return Cache, (self._limit_bytes,)

    def get(self, path: str, kind: type[_T]) -> _T | None:
        """Return the cached value of an object; None if there is none."""
        with self._lock:
            value, _ = self._entries.get((path, kind), (None, 0))
            if value is not None:
                self._entries.move_to_end((path, kind))
        return value if isinstance(value, kind) else None

    def put(self, path: str, value: object, size_bytes: int) -> None:
        """Cache `value`, which takes about `size_bytes`, unless it alone exceeds the limit."""
        if size_bytes <= self._limit_bytes:
            with self._lock:
                _, before = self._entries.pop((path, type(value)), (None, 0))
                self._entries[path, type(value)] = value, size_bytes
                self._size_bytes += size_bytes - before
                while self._size_bytes > self._limit_bytes:
                    self._size_bytes -= self._entries.popitem(last=False)[1][1]


NO_TABLE = "-"
"""The table id under which the tracker keeps records that belong to no table."""


def _hold() -> None:
    """Check nothing: the files of a folder and the services of AWS hold to conditions."""


@dataclass(frozen=True, slots=True)
class Services:
    """All that a stage may use of the world.

    `storage` is the data root; exported rows go to `results`. `scratch` is a local folder for
    temporary files; `memory_bytes` is what sorting and merging may use before they spill to it.
    `cache` holds objects that were read, `quiet` the tables that nobody changes. `spark` is None
    for a process that starts no Spark jobs; `has_spark` says whether the instance has Spark.
    `owns_scratch`: nobody else fills the scratch folder, so what does not fit there alone never
    will. `attempt_ms` is how long an attempt at a job may live without being heard of; 0 where its
    queue gives a job to nobody else while it lives. `reader_access` is None where readers of
    Iceberg need nothing to open objects, as in a folder; `mirror` without Glue. `mark_for_class`
    marks objects by their paths for a storage class, to which they move within two days; None where
    there are no classes. `check_conditions` raises ServiceRefusedError if a server that is not
    AWS's ignores conditions of writes. `compute` has another process answer a sub-query, and save
    its end. `keys` are those of encrypted columns.
    """

    tables: ItemTables
    publications: ItemPublications
    tracker: ItemTracker
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
    quiet: QuietTables = field(default_factory=QuietTables)
    metrics: Metrics | None = None
    spark: Spark | None = None
    has_spark: bool = False
    owns_scratch: bool = True
    attempt_ms: int = 0
    reader_access: ReaderAccess | None = None
    mirror: Mirror | None = None
    mark_for_class: Callable[[Sequence[str], str], None] | None = None
    result_queues: ResultQueues = NoResultQueues()
    check_conditions: Callable[[], None] = _hold
    compute: Callable[[str, int, float], None] | None = None
    keys: KeyService = NoKeys()

    def table(self, table_id: str) -> Table | None:
        """Return a table to work on; None if it is gone or is being deleted."""
        table = self.tables.get(table_id)
        return None if table is None or table.deleting else table

    def newest_version(self, table: Table) -> int | None:
        """Return the newest version of a table's state; None if it is gone or has another state."""
        newest = self.table(table.id)
        if newest is None or newest.state_id != table.state_id:
            return None
        return self.store(newest).current().version
