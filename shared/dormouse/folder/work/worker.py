"""The worker of a folder: runs messages of the queues through the stages, and the schedule.

Any number of workers, in threads and processes, work side by side: a message is hidden from the
others while one works on it. The stages are those of `messages.STAGES`, with the glue that each
kind of them needs: files are batched together, changes of a table are planned once, and replies to
requests are dropped, because in a folder who asks is answered by the call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from dormouse.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from dormouse.folder.inbox import Inbox
from dormouse.folder.queues import Received, SqliteQueues
from dormouse.folder.work.deliveries import Deliveries, logger
from dormouse.folder.work.leaving import Leaving
from dormouse.folder.work.schedule import Schedule
from dormouse.folder.work.spark_submit import SparkWorker
from dormouse.messages.replies import Reply
from dormouse.messages.requests import AdminRequest, decode_admin
from dormouse.messages.stages import (
    QUEUES,
    STAGE_OF,
    FilesDropped,
    FilesWaiting,
    Message,
    OutboundMessage,
    RequestStep,
    TableChanged,
)
from dormouse.ports.services import Services
from dormouse.stored.decoding import decode_json
from dormouse.stored.names import REPLIES

VISIBILITY_SECONDS = 60 * 60
"""How long a message is hidden where no process has a name; otherwise, while its worker lives."""
FILES_AT_ONCE, CHANGES_AT_ONCE = 1000, 100
_CHANGES = ("table-changes", "iceberg-changes")
"""The queues whose messages only say that a table has changed."""
LOOK_SECONDS = 1.0
"""How often the inbox is looked at, and dead processes are looked for."""
LOOKING_SHARE = 20
"""A look at a large inbox is followed by a pause so many times as long as it took."""
IDLE_SECONDS = 0.1
INGEST_QUEUE = "ingest-jobs"


class Reader(Protocol):
    """Runs ingest jobs elsewhere, because the files of others are read there."""

    def keep(self, is_needed: Callable[[], bool]) -> None:
        """Let it run if it `is_needed`."""

    def end(self) -> None:
        """End it."""


@dataclass
class Worker:
    """Works for one process, in as many of its threads as call it. With a `reader`, ingest jobs are
    left to that.
    """

    services: Services
    queues: SqliteQueues
    inbox: Inbox
    schedule: Schedule
    leaving: Leaving
    spark: SparkWorker | None = None
    reader: Reader | None = None
    next_look: float = 0.0
    _deliveries: Deliveries = field(init=False)

    def __post_init__(self) -> None:
        """Begin with a look around."""
        self._deliveries = Deliveries(self.queues, self.leaving)

    def work_for(self, seconds: float, queues: Sequence[str] = QUEUES) -> None:
        """Work on what is due in some queues, or wait for that, for so long at least.

        Raises:
            DiskFullError: it was, in any thread of this process; the work waits for room.
        """
        end = time.monotonic() + seconds
        while True:
            if not self.step(queues):
                time.sleep(max(0.0, min(IDLE_SECONDS, end - time.monotonic())))
            self._deliveries.check_disk()
            if self.leaving or time.monotonic() >= end:
                return

    def step(self, queues: Sequence[str] = QUEUES) -> bool:
        """Work on the first messages that are due, in the order of the flow; return whether there
        were any.
        """
        self._look()
        for queue in queues:
            if queue == INGEST_QUEUE and self.reader is not None:
                self.reader.keep(partial(self._waits, queue))
                continue
            most = (
                FILES_AT_ONCE if queue == "files" else CHANGES_AT_ONCE if queue in _CHANGES else 1
            )
            received = self.queues.receive(queue, most, VISIBILITY_SECONDS)
            if received:
                self._handle(queue, received)
                return True
        return queues == QUEUES and self.spark is not None and self.spark.step()

    def _waits(self, queue: str) -> bool:
        return bool(self.queues.depths((queue,))[queue])

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
        stage = STAGE_OF[queue]
        if queue == "files":
            found = self._deliveries.decoded(received, _decode_files)
            self._batch(found)
            return
        decode = decode_admin if queue == "admin" else stage.decode
        found = self._deliveries.decoded(received, decode)
        if queue in _CHANGES:
            self._plan(found, stage.load())
            return
        for message, content in found:
            if isinstance(content, RequestStep):
                run = partial(self._follow, stage.load(), content)
            elif isinstance(content, AdminRequest):
                run = partial(self._administer, content)
            else:
                run = partial(self._run, stage.load(), content)
            self._deliveries.run([message], run)

    def _run(self, stage: Callable[..., Iterable[OutboundMessage]], message: Message) -> None:
        self.queues.send(stage(self.services, message))

    def _administer(self, request: AdminRequest) -> None:
        """Carry out a request that a program sent; who sent it reads what became of it."""
        from dormouse.features.administration.administer import administer

        try:
            self._send_all_but_replies(administer(self.services, request))
        except (InvalidRequestError, AlreadyExistsError, NotFoundError) as error:
            logger.warning("request %s was refused: %s", request.request_id, type(error).__name__)

    def _send_all_but_replies(self, messages: Iterable[OutboundMessage]) -> None:
        self.queues.send(each for each in messages if each.queue != REPLIES)

    def _batch(self, found: Sequence[tuple[Received, Message]]) -> None:
        """Batch files together; if that fails, each half by itself: one table may be the reason."""
        if not found:
            return
        from dormouse.features.ingest.batch_files import batch_files

        dropped = [m for _, m in found if isinstance(m, FilesDropped)]
        sources = [source for message in dropped for source in message.sources]
        waiting = [m for _, m in found if isinstance(m, FilesWaiting)]
        received = [message for message, _ in found]

        def stage() -> None:
            self.queues.send(batch_files(self.services, sources, waiting))

        if len(found) == 1:
            self._deliveries.run(received, stage)
            return
        try:
            stage()
        except (UnavailableError, OutcomeUnknownError, OSError) as error:
            self._deliveries.run(received, partial(_raise, error))
        except Exception:  # any: each half meets it again, the last in `Deliveries.run`
            half = len(found) // 2
            self._batch(found[:half])
            self._batch(found[half:])
        else:
            self.queues.delete(received)

    def _plan(
        self,
        found: Sequence[tuple[Received, Message]],
        stage: Callable[..., Iterable[OutboundMessage]],
    ) -> None:
        """Plan each table once, however many messages name it; a swept one serves the others."""
        changes: dict[str, list[tuple[Received, TableChanged]]] = {}
        for message, content in found:
            if isinstance(content, TableChanged):
                changes.setdefault(content.table_id, []).append((message, content))
        for same in changes.values():
            change = next((c for _, c in same if c.swept), same[0][1])
            self._deliveries.run([m for m, _ in same], partial(self._run, stage, change))

    def _follow(self, stage: Callable[..., Iterable[OutboundMessage]], step: RequestStep) -> None:
        """Follow a request; once its last reply would be sent, forget it."""
        from dormouse.features.administration.stored_requests import delete_request

        messages = list(stage(self.services, step))
        self._send_all_but_replies(messages)
        replies = (each.message for each in messages if each.queue == REPLIES)
        if any(isinstance(each, Reply) and each.outcome != "accepted" for each in replies):
            delete_request(self.services, step)


def _decode_files(body: str) -> FilesDropped | FilesWaiting:
    try:
        files: FilesDropped | FilesWaiting = decode_json(body, FilesDropped | FilesWaiting)
    except ValueError as error:
        raise InvalidRequestError(f"not a valid message about files: {error}") from error
    return files


def _raise(error: Exception) -> None:
    raise error
