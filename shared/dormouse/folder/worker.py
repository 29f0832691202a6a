"""The worker of a folder: runs messages of the queues through the stages, and the schedule.

Any number of workers, in threads and processes, work side by side: a message is hidden from the
others while one works on it. The stages are those of `messages.STAGES`, with the glue that each
kind of them needs: files are batched together, changes of a table are planned once, and replies to
requests are dropped, because in a folder who asks is answered by the call.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Protocol

from dormouse.errors import (
    AlreadyExistsError,
    DiskFullError,
    DormouseError,
    InvalidRequestError,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
    is_panic,
)
from dormouse.folder.inbox import Inbox
from dormouse.folder.processes import Leaving, LeavingError
from dormouse.folder.queues import NEWS, SWEPT, Received, SqliteQueues, jobs_in_queues
from dormouse.folder.spark import SparkWorker
from dormouse.folder.sqlite import Database, full_disk, remove_expired
from dormouse.jobs import MAX_RECEIVES, SWEEP_SECONDS, permanent_failure
from dormouse.messages import stages
from dormouse.messages.requests import AdminRequest, Reply, decode_admin
from dormouse.ports import Services
from dormouse.stored.paths import REPLIES
from dormouse.tables.table import Table

# Messages of one queue brought to its stage: what becomes of those that fail.
#
# As in a function: what cannot be decoded is a dead letter at once, with the reason. What fails
# comes again, soon at first. After the last attempt it is a dead letter with the reason, if no
# retry can help; else with none. A full disk is no fault of a message: it comes again until there
# is room. When the process leaves, its messages are handed back as if it had never had them.

logger = logging.getLogger("dormouse")

FIRST_RETRY_SECONDS, NEXT_RETRY_SECONDS = 1, 30
JUST_NOW_SECONDS = 5.0


@dataclass
class QueueDeliveries:
    """The end of the queues at which messages are received; `seconds` is a steady clock."""

    queues: SqliteQueues
    leaving: Leaving
    seconds: Callable[[], float] = time.monotonic
    _full: tuple[float, DiskFullError] | None = field(default=None, init=False)

    def check_disk(self) -> None:
        """Raise DiskFullError, once, if it was met just now in any thread.

        The caller that waits for the work gets the error. Any process does it once there is room.
        """
        full, self._full = self._full, None
        if full is not None and self.seconds() - full[0] < JUST_NOW_SECONDS:
            raise full[1]

    def decoded(
        self, received: Iterable[Received], decode: Callable[[str], stages.Message]
    ) -> list[tuple[Received, stages.Message]]:
        """Return the messages that can be decoded; the others are dead letters."""
        messages = []
        for message in received:
            try:
                messages.append((message, decode(message.body)))
            except InvalidRequestError as error:
                self.queues.bury(message, str(error))
                logger.error("dead letter in queue %s: it cannot be decoded", message.queue)
        return messages

    def run(
        self, received: Sequence[Received], stage: Callable[[], Iterable[stages.OutboundMessage]]
    ) -> bool:
        """Run a stage for messages, send what it returns, and delete them; return whether it could.

        If it fails, all of them come again: a stage may run twice. No error gets out, or one
        message would keep the others from being worked on; what is the matter with it is in the
        log, in the records of jobs, and in the dead letter.
        """
        try:
            self.leaving.check()
            self.queues.send(stage(), done=received)
        except BaseException as error:
            is_its_own = isinstance(error, Exception) or is_panic(error)
            if self.leaving or not is_its_own:  # as by Ctrl-C, in the thread that waits for it
                self.queues.give_back(received)
                if not is_its_own:
                    raise
                return False
            for message in received:  # any error is one message's, and is logged and counted
                self._failed(message, error)
            return False
        return True

    def _failed(self, message: Received, error: BaseException) -> None:
        reason, full = permanent_failure(error), full_disk(error)
        cause = full or error
        # Another error than ours may quote rows.
        what = cause.explanation if isinstance(cause, DormouseError) else type(error).__name__
        logger.warning("a message of queue %s failed: %s", message.queue, what)
        logger.debug("it failed here", exc_info=error)
        if full is not None:
            self._full = self.seconds(), full
        try:
            if full is not None:
                self.queues.retry_in(message, NEXT_RETRY_SECONDS, is_counted=False)
            elif message.receives >= MAX_RECEIVES and reason:
                self.queues.bury(message, reason)
            else:
                first = message.receives == 1
                self.queues.retry_in(message, FIRST_RETRY_SECONDS if first else NEXT_RETRY_SECONDS)
        except UnavailableError as unsent:  # the next look finds that nobody holds it
            logger.warning("retry delayed: %s", unsent.explanation)


# What is done from time to time: the sweep, the audit, and the removal of what has expired.
#
# The times of the last runs are in the SQLite file, so that of all processes one does it, whichever
# comes first when it is due. A run that dies is made up for by the next one.

AUDIT_SECONDS = 24 * 60 * 60


@dataclass(frozen=True, slots=True)
class Schedule:
    """The schedule of an instance."""

    database: Database
    leaving: Leaving = field(default_factory=Leaving)

    def run_due(self, services: Services, queues: SqliteQueues) -> None:
        """Do what is due. If the process leaves meanwhile, it is due for the next one."""
        now_ms = services.clock.now_ms()
        audit = self._claim("audited_ms", now_ms, AUDIT_SECONDS)
        if not self._claim(SWEPT, now_ms, SWEEP_SECONDS) and not audit:
            return
        is_idle = not any(queues.depths(stages.QUEUES).values())  # else what is free is used soon
        if audit:
            with self.database.writing() as connection:
                remove_expired(connection, now_ms)
        try:
            _each_table(services, queues, self.database, audit=audit)
        except Exception:
            if self.leaving:
                self._put_off(SWEPT, *(["audited_ms"] if audit else []))
            raise
        if is_idle:
            self.database.shrink()

    def _put_off(self, *names: str) -> None:
        with self.database.writing() as connection:
            connection.executemany(
                "UPDATE settings SET value = '0' WHERE name = ?", [(name,) for name in names]
            )

    def _claim(self, name: str, now_ms: int, seconds: int) -> bool:
        """Return whether something is due, and this is the process to do it.

        A folder begins with everything done: there is nothing yet to repair. What was done in the
        future, before the clock was set back, is due.
        """
        select = "SELECT CAST(value AS INTEGER) FROM settings WHERE name = ?"
        with self.database.reading() as connection:
            row = connection.execute(select, (name,)).fetchone()
        if row is not None and _is_recent(row[0], now_ms, seconds):
            return False
        with self.database.writing() as connection:
            row = connection.execute(select, (name,)).fetchone()
            if row is not None and _is_recent(row[0], now_ms, seconds):
                return False
            connection.execute(
                "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)", (name, str(now_ms))
            )
        return row is not None


def _is_recent(done_ms: int, now_ms: int, seconds: int) -> bool:
    return 0 <= now_ms - done_ms < seconds * 1000


def _each_table(
    services: Services, queues: SqliteQueues, database: Database, *, audit: bool
) -> None:
    from dormouse.features.deletion import collect_leftovers
    from dormouse.features.sweep import sweep

    if audit:
        _logged("an audit of leftovers", lambda: collect_leftovers(services))
    tables, damaged = services.tables.list_readable()
    for error in damaged:
        logger.error("damaged: %s", error.explanation)

    def sweep_one(table: Table) -> None:
        queues.send(sweep(services, table, audit=audit, is_lost=_lost_jobs(database)))

    for table in tables:
        _logged(f"the sweep of table {table.name}", partial(sweep_one, table))


def _lost_jobs(database: Database) -> Callable[[str], bool]:
    """Return a test of whether no queue has a message of a job.

    The queues are looked into once, with the first job: after the state was read that has it.
    """
    queued = cache(partial(jobs_in_queues, database))
    return lambda job_id: job_id not in queued()


def _logged(what: str, run: Callable[[], object]) -> None:
    """Run one part; if it fails, the others have their turn all the same."""
    try:
        run()
    except LeavingError:
        raise
    except DormouseError as error:
        logger.warning("%s failed: %s", what, error.explanation)


FILES_AT_ONCE, CHANGES_AT_ONCE = 1000, 100
LOOK_SECONDS = 1.0
"""How often the inbox is looked at, and dead processes are looked for."""
LOOKING_SHARE = 20
"""A look at a large inbox is followed by a pause so many times as long as it took."""
PLANNING_SHARE = 4
"""For so many times as long as planning took, other work comes first: of many shards, a plan for
each job that is done would take longer than the jobs."""
IDLE_SECONDS = 0.1
INGEST_QUEUE = "ingest-jobs"


class FileReader(Protocol):
    """Runs ingest jobs elsewhere, because the files of others are read there."""

    def keep(self, is_needed: Callable[[], bool]) -> None:
        """Let it run if it `is_needed`."""

    def end(self) -> None:
        """End it."""


@dataclass
class Worker:
    """Works in as many threads of a process as call it. With a `reader`, that runs ingest jobs."""

    services: Services
    queues: SqliteQueues
    inbox: Inbox
    schedule: Schedule
    leaving: Leaving
    spark: SparkWorker | None = None
    reader: FileReader | None = None
    next_look: float = 0.0
    next_plan: float = 0.0
    _deliveries: QueueDeliveries = field(init=False)

    def __post_init__(self) -> None:
        """Begin with a look around."""
        self._deliveries = QueueDeliveries(self.queues, self.leaving)

    def work_for(self, seconds: float, queues: Sequence[str] = stages.QUEUES) -> None:
        """Work on what is due in some queues, or wait for that, for so long at least.
        Raises DiskFullError: it was, in any thread of this process; the work waits for room.
        """
        end = time.monotonic() + seconds
        while True:
            if not self.step(queues):
                time.sleep(max(0.0, min(IDLE_SECONDS, end - time.monotonic())))
            self._deliveries.check_disk()
            if self.leaving or time.monotonic() >= end:
                return

    def step(self, queues: Sequence[str] = stages.QUEUES) -> bool:
        """Work on the first messages that are due, by queue; return whether there were any."""
        self._look()
        rests = time.monotonic() < self.next_plan
        for queue in sorted(queues, key=lambda queue: rests and queue in NEWS):
            if queue == INGEST_QUEUE and self.reader is not None:
                self.reader.keep(lambda: bool(self.queues.depths((INGEST_QUEUE,))[INGEST_QUEUE]))
                continue
            most = FILES_AT_ONCE if queue == "files" else CHANGES_AT_ONCE if queue in NEWS else 1
            received = self.queues.receive(queue, most)
            if received:
                self._handle(queue, received)
                return True
        return queues == stages.QUEUES and self.spark is not None and self.spark.step()

    def _look(self) -> None:
        """Look from time to time for files, work of dead processes, and what the schedule says."""
        now = time.monotonic()
        if now < self.next_look:
            return
        self.next_look = now + LOOK_SECONDS
        self.queues.release_unheld()
        for source in self.inbox.find_new():
            logger.info("found %s", source.key)
        took = time.monotonic() - now
        self.next_look = now + max(LOOK_SECONDS, LOOKING_SHARE * took)
        self.schedule.run_due(self.services, self.queues)

    def _handle(self, queue: str, received: list[Received]) -> None:
        stage = stages.STAGE_OF[queue]
        if queue == "files":
            dropped_too = replace(stage, takes=stages.FilesWaiting | stages.FilesDropped)
            self._batch(self._deliveries.decoded(received, dropped_too.decode))
            return
        decode = decode_admin if queue == "admin" else stage.decode
        messages = self._deliveries.decoded(received, decode)
        if queue in NEWS:
            self._plan(messages, stage.load())
            return
        for message, content in messages:
            if isinstance(content, stages.RequestStep):
                run = partial(self._follow, stage.load(), content)
            elif isinstance(content, AdminRequest):
                run = partial(self._administer, content)
            else:
                run = partial(stage.load(), self.services, content)
            self._deliveries.run([message], run)

    def _administer(self, request: AdminRequest) -> Iterable[stages.OutboundMessage]:
        """Carry out a request that a program sent; who sent it reads what became of it."""
        from dormouse.features.administration import administer

        try:
            messages = administer(self.services, request)
        except (InvalidRequestError, AlreadyExistsError, NotFoundError) as error:
            logger.warning("request %s was refused: %s", request.request_id, type(error).__name__)
            return []
        return [each for each in messages if each.queue != REPLIES]

    def _batch(self, messages: Sequence[tuple[Received, stages.Message]]) -> None:
        """Batch files together; if that fails, each half by itself: one table may be the reason."""
        if not messages:
            return
        from dormouse.features.batch_files import batch_files

        drops = [m for _, m in messages if isinstance(m, stages.FilesDropped)]
        sources = [source for message in drops for source in message.sources]
        waiting = [m for _, m in messages if isinstance(m, stages.FilesWaiting)]
        received = [message for message, _ in messages]

        stage = partial(batch_files, self.services, sources, waiting)
        if len(messages) == 1:
            self._deliveries.run(received, stage)
            return
        try:
            self.queues.send(stage(), done=received)
        except (UnavailableError, OutcomeUnknownError, OSError) as error:
            self._deliveries.run(received, partial(_raise, error))
        except Exception:  # any: each half meets it again, the last in `Deliveries.run`
            half = len(messages) // 2
            self._batch(messages[:half])
            self._batch(messages[half:])

    def _plan(
        self,
        messages: Sequence[tuple[Received, stages.Message]],
        stage: Callable[..., Iterable[stages.OutboundMessage]],
    ) -> None:
        """Plan each table once, however many messages name it; a swept one serves the others."""
        changes: dict[str, list[tuple[Received, stages.TableChanged]]] = {}
        for message, content in messages:
            if isinstance(content, stages.TableChanged):
                changes.setdefault(content.table_id, []).append((message, content))
        for same in changes.values():
            change = next((c for _, c in same if c.swept), same[0][1])
            begun = time.monotonic()
            self._deliveries.run([m for m, _ in same], partial(stage, self.services, change))
            ended = time.monotonic()
            self.next_plan = ended + PLANNING_SHARE * (ended - begun)

    def _follow(
        self, stage: Callable[..., Iterable[stages.OutboundMessage]], step: stages.RequestStep
    ) -> Iterable[stages.OutboundMessage]:
        """Follow a request; once its last reply would be sent, forget it."""
        from dormouse.features.administration import delete_request

        messages = list(stage(self.services, step))
        replies = (each.message for each in messages if each.queue == REPLIES)
        if any(isinstance(each, Reply) and each.outcome != "accepted" for each in replies):
            delete_request(self.services, step)
        return [each for each in messages if each.queue != REPLIES]


def _raise(error: Exception) -> Iterable[stages.OutboundMessage]:
    raise error


# The thread that works in the background while its process lives.
#
# It ends with the process: it looks whether the main thread has ended, and leaves the stage it is
# in (`leaving`). It is no daemon: the interpreter waits for it, so no native code is torn down
# under it.

POLL_SECONDS = 0.5
"""How long an idle worker waits before it asks SQLite for messages of other processes."""
GATHER_SECONDS = 0.5
"""How long a worker rests after its work: of many small commits meanwhile, their table is planned
once, and their shards are merged together."""
END_POLL_SECONDS = 0.05
FAILED_SECONDS = 5.0


class Background:
    """The background thread of one handle of an instance. It begins when it is first needed.

    Without `enabled` there never is one: the process works while it waits, and before it ends.
    `was_woken` says whether this process sent any work.
    """

    def __init__(self, leaving: Leaving, *, enabled: bool) -> None:
        self._leaving, self.enabled = leaving, enabled
        self.was_woken = False
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process = 0
        self.worker: Worker | None = None

    @property
    def runs(self) -> bool:
        """Whether the thread runs, in this process."""
        thread = self._thread
        return thread is not None and thread.is_alive() and self._process == os.getpid()

    def wake(self) -> None:
        """Let the thread look for messages now; start it if it does not run."""
        self._wake.set()
        self.was_woken = True
        if self.enabled and not self.runs:
            self._start()

    def stop(self) -> None:
        """End the thread, and wait until it has left what it does."""
        self._leaving.leave()
        self._wake.set()
        thread = self._thread
        if thread is not None and self._process == os.getpid():
            thread.join()

    def _start(self) -> None:
        with self._lock:
            if self.runs or self.worker is None or self._leaving:
                return
            self._process = os.getpid()
            self._thread = threading.Thread(target=self._work, name="dormouse", daemon=False)
            self._thread.start()

    def _work(self) -> None:
        assert self.worker is not None
        is_busy = False
        while not self._leaving:
            was_busy = is_busy
            try:
                is_busy = self.worker.step()
            except LeavingError:
                return
            except BaseException as error:
                if not (isinstance(error, Exception) or is_panic(error)):
                    raise
                # While the interpreter ends, no thread can be started, and it may end just now.
                self._pause(FAILED_SECONDS)
                if not self._leaving:
                    words = error.explanation if isinstance(error, DormouseError) else type(error)
                    logger.warning("the worker could not look for work: %s", words)
                    logger.debug("it failed here", exc_info=error)
                continue
            if was_busy and not is_busy:
                self._rest(GATHER_SECONDS)
            elif not is_busy:
                self._pause(POLL_SECONDS)

    def _rest(self, seconds: float) -> None:
        """Wait; the end of the main thread wakes nobody, so look for it often."""
        for _ in range(round(seconds / END_POLL_SECONDS)):
            if not self._leaving:
                time.sleep(END_POLL_SECONDS)

    def _pause(self, seconds: float) -> None:
        """Wait as `_rest`, but end when woken."""
        for _ in range(max(1, round(seconds / END_POLL_SECONDS))):
            if self._leaving or self._wake.wait(END_POLL_SECONDS):
                break
        self._wake.clear()
