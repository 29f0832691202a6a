"""A whole instance in memory, and processes of it that each have their own way to it.

What all share is the instance's: buckets, items, pages, registry, tracker, queues and runs of
Spark. A `Worker` is one process: the real handlers, stages and stores run in it, with its own cold
caches, scratch folder, clock and randomness, and every call it makes passes its gate. What belongs
to Lambda is done past the gate: messages are received and deleted, and a function's answer is read.

Use it within `Instance.running`, one worker at a time: a worker's threads are done at once.

    instance = Instance(folder)
    with instance.running():
        instance.ask(CreateTable("request", "letters", schema))
        delivery = instance.take("admin")
        instance.worker("first", gate).handle(delivery)

A worker that dies leaves its messages hidden until their visibility timeout is over.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, Literal, cast

from dormouse.aws.queues import SqsDeadLetters, SqsOutbox
from dormouse.aws.wiring import Wiring
from dormouse.folder.sqlite import SqliteItems
from dormouse.folder.wiring import FolderPublications
from dormouse.items.records import ItemPublications
from dormouse.log.engine import Options, StateStore
from dormouse.messages.requests import AdminRequest
from dormouse.messages.stages import encode
from dormouse.ports import Services
from dormouse.settings import Settings
from dormouse.state.sources import Source
from dormouse.system import Clock, RetryPolicy, TimeOrderedIds
from dormouse.tables.table import Table
from dormouse_spark.access import Access
from tests.simulation.folder import FolderDatabase, FolderTables, FolderTracker
from tests.simulation.local_spark import LocalContext
from tests.simulation.patches import deterministic
from tests.simulation.processes import (
    NATIVE,
    Call,
    Fate,
    Gate,
    Process,
    Spoil,
    guarded,
    guarded_items,
    unspoiled,
)
from tests.simulation.queues import NAMES, Queues, SqsClient, Waiting, feeds
from tests.simulation.watched import WatchedStorage, WatchedTables, WatchedTracker
from tests.support.adapters import FakeClock, MemoryMetrics, MemorySources, MemorySpark
from tests.support.hooked_pages import HookedPages
from tests.support.lambda_context import Context
from tests.support.memory_dynamodb import MemoryDynamoDB
from tests.support.memory_items import MemoryItems
from tests.support.memory_storage import MemoryStorage
from tests.support.result_queues import MemoryResultQueues
from tests.support.spark_package import package_in
from tests.support.stores import files_store, items_store, objects_store

MEMORY_BYTES = 64 * 1024 * 1024
SCARCE_BYTES = 4096
"""So little memory that what is sorted goes by way of scratch files."""
_current = threading.local()


def all_lands(call: Call) -> Fate:
    """Let every call land: the gate of a world in which nothing fails."""
    return Fate.LANDS


def _at_once(seconds: float) -> None:
    """Stand for a sleep."""


def _no_ages(*_: object) -> dict[str, float]:
    """Return what CloudWatch says where no message waits."""
    return {}


@dataclass(frozen=True, slots=True)
class Delivery:
    """Messages of one queue that were given out together, to one invocation."""

    queue: str
    messages: tuple[Waiting, ...]


@dataclass(frozen=True, slots=True)
class SkewedClock:
    """A process's clock, so far before or behind the instance's."""

    clock: Clock
    skew_ms: int = 0

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""
        return self.clock.now_ms() + self.skew_ms


@dataclass
class Instance:
    """What all processes share. `random` is for the ids that are made."""

    folder: Path
    random: Random = field(default_factory=lambda: Random(0))
    memory_bytes: int = MEMORY_BYTES
    has_spark: bool = True
    in_folder: bool = False
    """Whether the registry, the records of jobs and the log are in SQLite, as in a folder."""
    gates_pins: bool = False
    """Whether calls about pins can fail: in runs whose users tag versions."""
    jitter: Random | None = None
    """What waits between attempts are drawn by, if not by `random`."""

    def __post_init__(self) -> None:
        """Begin with no table."""
        self.clock = FakeClock()
        self.storage, self.results = WatchedStorage(self.clock), MemoryStorage(self.clock)
        self.sources = MemorySources(self.clock, NAMES.ingest_bucket)
        self.database = FolderDatabase(self.folder / "database") if self.in_folder else None
        self.items = MemoryItems() if self.database is None else SqliteItems(self.database)
        self.pages = HookedPages(items=self.items)
        self.tables: WatchedTables | FolderTables = WatchedTables()
        self.tracker: WatchedTracker | FolderTracker = WatchedTracker()
        self.publications = ItemPublications(self.items)
        if self.database is not None:
            self.tables, self.tracker = FolderTables(self.database), FolderTracker(self.database)
            self.publications = FolderPublications(self.items, self.folder / "tables")
        self.dynamodb = MemoryDynamoDB()
        self.metrics = MemoryMetrics()
        self.spark = MemorySpark(package_in(self.folder / "spark-package"))
        self.queues, self.answers = Queues(self.clock), MemoryResultQueues()
        self.failures: list[Exception] = []
        self.driven: set[str] = set()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let handlers find the worker they run in; what they log as failed is in `failures`."""
        with deterministic(lambda: cast(Worker, _current.worker).wiring, self._note, _native):
            yield

    def worker(
        self,
        name: str,
        gate: Gate = all_lands,
        *,
        skew_ms: int = 0,
        sleep: Callable[[float], None] = _at_once,
        spoil: Spoil = unspoiled,
    ) -> Worker:
        """Return a new process, which knows nothing yet."""
        process = Process(name, gate, spoil)
        process.gates_pins = self.gates_pins
        return Worker(self, process, SkewedClock(self.clock, skew_ms), sleep)

    def take(self, queue: str, most: int | None = None) -> Delivery | None:
        """Receive what one invocation of the queue's function is given; None if nothing is seen."""
        feed = feeds()[queue]
        batch = min(feed.batch, most or feed.batch)
        found = self.queues.receive(queue, batch, feed.visibility_seconds)
        return Delivery(queue, tuple(found)) if found else None

    def ask(self, request: AdminRequest) -> None:
        """Send an administrator's request."""
        self.queues.send("admin", encode(request))

    def drop(self, key: str, body: bytes, *, notify: bool = True) -> Source:
        """Put an object into the ingest bucket, as a user would; S3 may send a notification."""
        source = self.sources.drop(key, body)
        if notify:
            self.notify(source)
        return source

    def notify(self, source: Source) -> None:
        """Send the notification of an object, as S3 does."""
        found = {"key": source.key, "eTag": source.etag, "size": source.size_bytes}
        record = {
            "eventName": "ObjectCreated:Put",
            "s3": {"bucket": {"name": source.bucket}, "object": found},
        }
        self.queues.send("files", json.dumps({"Records": [record]}))

    def undriven(self) -> list[str]:
        """Return the runs of Spark that were started and that no driver has begun yet."""
        return [run_id for run_id in self.spark.runs if run_id not in self.driven]

    def end_run(self, run_id: str, outcome: Literal["succeeded", "failed"], *, tell: bool) -> None:
        """Let a run of Spark be over; EMR may send an event."""
        self.spark.ended[run_id] = (outcome, "" if outcome == "succeeded" else "the driver ended")
        if tell:
            self.queues.send("spark-runs", json.dumps({"detail": {"jobRunId": run_id}}))

    def _note(self) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, Exception):
            self.failures.append(error)


class Worker:
    """One process of an instance."""

    def __init__(
        self, instance: Instance, process: Process, clock: Clock, sleep: Callable[[float], None]
    ) -> None:
        """Wire the process: nothing is read yet."""
        self.instance, self.process = instance, process
        self.scratch = instance.folder / process.name
        self.scratch.mkdir(parents=True, exist_ok=True)
        self._spark_folder = instance.folder / f"{process.name}-spark"
        self._clock = clock
        self._ids = TimeOrderedIds(clock, instance.random.getrandbits)
        self._retry_policy = RetryPolicy(
            sleep=sleep, random=(instance.jitter or instance.random).random
        )
        self.wiring = self._wire()

    def handle(self, delivery: Delivery) -> list[str]:
        """Run the function of a queue on messages; delete those it dealt with, name the others.

        Raises:
            Died: the process is dead, and the messages are hidden.
        """
        feed = feeds()[delivery.queue]
        records = [_record(message) for message in delivery.messages]
        response = self._invoke(feed.function, {"Records": records})
        failed = [item["itemIdentifier"] for item in response["batchItemFailures"]]
        done = [m.receipt for m in delivery.messages if m.id not in failed]
        self.instance.queues.delete(delivery.queue, done)
        return failed

    def scheduled(self, function: Literal["sweep", "measure"], *, audit: bool = False) -> None:
        """Run a function as its schedule does.

        Raises:
            ExceptionGroup: it failed for some tables.
            Died: the process is dead.
        """
        self._invoke(function, {"audit": True} if audit else {})

    def drive(self, run_id: str, *, tell: bool = True) -> None:
        """Be the driver of a run of Spark, and all its executors.

        Raises:
            Died: the process is dead; EMR says that the run failed.
        """
        from dormouse_spark.entry import RUNS, JobIds  # PySpark takes long to import

        run = self.instance.spark.runs[run_id]
        self.instance.driven.add(run_id)
        ids = JobIds(run.table_id, run.job_id, run.generation)
        outcome: Literal["succeeded", "failed"] = "failed"
        try:
            with self._as_current():
                RUNS[run.kind](LocalContext(), self._access, self.wiring.services, ids)  # type: ignore[arg-type]
            outcome = "succeeded"
        except Exception as error:
            self.instance.failures.append(error)
        finally:
            self.instance.end_run(run_id, outcome, tell=tell)

    def close(self) -> None:
        """Clean up after a process that is no more."""
        shutil.rmtree(self.scratch)
        shutil.rmtree(self._spark_folder, ignore_errors=True)

    def _invoke(self, function: str, event: dict[str, Any]) -> dict[str, Any]:
        handler = import_module(f"functions.{function}.handler")
        with self._as_current():
            response: dict[str, Any] = handler.handle(event, Context())
        return response

    @contextmanager
    def _as_current(self) -> Iterator[None]:
        _current.worker = self
        try:
            yield
        finally:
            del _current.worker

    def _access(self) -> Access:
        services = self.wiring.services
        self._spark_folder.mkdir(exist_ok=True)
        return Access(
            services.storage,
            services.results,
            services.sources,
            self.scratch,
            services.memory_bytes,
            local_folders=(self._spark_folder,),
        )

    def _wire(self) -> Wiring:
        shared, process = self.instance, self.process
        sqs: Any = SqsClient(process, shared.queues)
        services = Services(
            tables=guarded(process, "tables", shared.tables),
            publications=guarded(process, "publications", shared.publications),
            tracker=guarded(process, "tracker", shared.tracker),
            storage=guarded(process, "s3", shared.storage),
            results=guarded(process, "results", shared.results),
            sources=guarded(process, "sources", shared.sources),
            dead_letters=SqsDeadLetters(sqs, NAMES, self._retry_policy),
            store=self._store_factory(),
            clock=self._clock,
            ids=self._ids,
            scratch=self.scratch,
            memory_bytes=shared.memory_bytes,
            metrics=shared.metrics,
            result_queues=guarded(process, "sqs", shared.answers),
            spark=guarded(process, "spark", shared.spark) if shared.has_spark else None,
            has_spark=shared.has_spark,
        )
        settings = Settings(NAMES.instance, NAMES.account, self.scratch, shared.memory_bytes)
        outbox = SqsOutbox(sqs, NAMES, self._retry_policy)
        return Wiring(settings, services, outbox, _no_ages)

    def _store_factory(self) -> Callable[[Table], StateStore]:
        """Return what opens stores, and keeps them as a process does."""
        pages = guarded(self.process, "pages", self.instance.pages)
        items = guarded_items(self.process, self.instance.dynamodb).items(self._retry_policy)
        storage = guarded(self.process, "s3", self.instance.storage)
        tools = {"clock": self._clock, "ids": self._ids, "retry_policy": self._retry_policy}

        @cache
        def open_store(state_id: str, kept_in: str, seconds: int) -> StateStore:
            options = Options(keep_seconds=seconds)
            if self.instance.in_folder:
                return files_store(state_id, storage, items, pages, **tools, options=options)
            if kept_in == "dynamodb":
                return items_store(state_id, items, pages, **tools, options=options)
            return objects_store(state_id, storage, pages, **tools, options=options)

        def store(table: Table) -> StateStore:
            wanted = table.properties
            return open_store(table.state_id, wanted.state_store, wanted.gc_delay_seconds)

        return store


def _native(what: str) -> None:
    """Pass the gate of the process that runs, if it has one."""
    worker: Worker | None = getattr(_current, "worker", None)
    if worker is not None:
        worker.process.call(NATIVE, what, "", lambda: None)


def _record(message: Waiting) -> dict[str, Any]:
    return {
        "messageId": message.id,
        "receiptHandle": message.receipt,
        "body": message.body,
        "attributes": {"ApproximateReceiveCount": str(message.receives)},
        "eventSource": "aws:sqs",
    }
