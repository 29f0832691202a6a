"""Messages of one queue brought to its stage: what becomes of those that fail.

As in a function: what cannot be decoded is a dead letter at once, with the reason. What fails comes
again, soon at first. After the last attempt it is a dead letter with the reason, if no retry can
help; else with none. A full disk is no fault of a message: it comes again until there is room. When
the process leaves, its messages are handed back as if it had never had them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from dormouse.errors import (
    DiskFullError,
    DormouseError,
    InvalidRequestError,
    UnavailableError,
    is_panic,
)
from dormouse.folder.queues import Received, SqliteQueues
from dormouse.folder.sqlite.failures import full_disk
from dormouse.folder.work.leaving import Leaving
from dormouse.jobs.retry_policy import MAX_RECEIVES, permanent_failure
from dormouse.messages.stages import Message

logger = logging.getLogger("dormouse")

FIRST_RETRY_SECONDS, NEXT_RETRY_SECONDS = 1, 30
JUST_NOW_SECONDS = 5.0


@dataclass
class Deliveries:
    """The end of the queues at which messages are received; `seconds` is a steady clock."""

    queues: SqliteQueues
    leaving: Leaving
    seconds: Callable[[], float] = time.monotonic
    _full: tuple[float, DiskFullError] | None = field(default=None, init=False)

    def check_disk(self) -> None:
        """Raise DiskFullError, once, if it was met just now in any thread.

        The caller that waits for the work gets the error. Any process does the work once there is
        room.
        """
        full, self._full = self._full, None
        if full is not None and self.seconds() - full[0] < JUST_NOW_SECONDS:
            raise full[1]

    def decoded(
        self, received: Iterable[Received], decode: Callable[[str], Message]
    ) -> list[tuple[Received, Message]]:
        """Return the messages that can be decoded; the others are dead letters."""
        found = []
        for message in received:
            try:
                found.append((message, decode(message.body)))
            except InvalidRequestError as error:
                self.queues.bury(message, str(error))
                logger.error("dead letter in queue %s: it cannot be decoded", message.queue)
        return found

    def run(self, received: Sequence[Received], stage: Callable[[], object]) -> bool:
        """Run a stage for messages, and delete them; return whether it succeeded.

        If it fails, all of them come again: a stage may run twice. No error gets out, or one
        message would keep the others from being worked on; what is the matter with it is in the
        log, in the records of jobs, and in the dead letter.
        """
        try:
            self.leaving.check()
            stage()
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
        self.queues.delete(received)
        return True

    def _failed(self, message: Received, error: BaseException) -> None:
        reason, full = permanent_failure(error), full_disk(error)
        said = full or error
        # Another error than ours may quote rows.
        what = said.explanation if isinstance(said, DormouseError) else type(error).__name__
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
