"""Messages of one queue brought to its stage: what becomes of those that fail.

As in a function: what cannot be decoded is a dead letter at once, with the reason. What fails comes
again, soon at first. After the last attempt it is a dead letter with the reason, if no retry can
help; else with none. When the process leaves, its messages are handed back as if it had never had
them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dormouse.errors import DormouseError, InvalidRequestError, UnavailableError
from dormouse.folder.leaving import Leaving
from dormouse.folder.queues import Received, SqliteQueues
from dormouse.jobs.retry_policy import MAX_RECEIVES, permanent_failure
from dormouse.messages import Message

logger = logging.getLogger("dormouse")

FIRST_RETRY_SECONDS, NEXT_RETRY_SECONDS = 1, 30


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The end of the queues at which messages are received."""

    queues: SqliteQueues
    leaving: Leaving

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
        except Exception as error:  # any: it is one message's, and is logged and counted below
            if self.leaving:
                self.queues.give_back(received)
                return False
            for message in received:
                self._failed(message, error)
            return False
        except BaseException:  # Ctrl-C, in the thread that waits for the work
            self.queues.give_back(received)
            raise
        self.queues.delete(received)
        return True

    def _failed(self, message: Received, error: Exception) -> None:
        # Another error than ours may quote rows.
        what = error.explanation if isinstance(error, DormouseError) else type(error).__name__
        logger.warning("a message of queue %s failed: %s", message.queue, what)
        logger.debug("it failed here", exc_info=error)
        reason = permanent_failure(error)
        try:
            if message.receives >= MAX_RECEIVES and reason:
                self.queues.bury(message, reason)
            else:
                first = message.receives == 1
                self.queues.retry_in(message, FIRST_RETRY_SECONDS if first else NEXT_RETRY_SECONDS)
        except UnavailableError as unsent:  # it comes again after its visibility timeout
            logger.warning("retry delayed: %s", unsent.explanation)
