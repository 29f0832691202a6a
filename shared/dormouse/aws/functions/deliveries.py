"""The messages of a queue as they come to its function: what becomes of those that fail.

A message that says nothing goes to its dead-letter queue with the reason, at once. Whatever else
goes wrong with a message makes it come again; its neighbours in the batch are not harmed.

What fails once mostly lost a race or was throttled, so it comes again soon. What fails twice waits
for its visibility timeout: a service that is down gets the time to come back. What fails the last
time for a reason that no wait cures is put among the dead letters with it, for SQS moves without a
word what it gives up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.base.logs import logger
from dormouse.aws.sqs.queues import SqsOutbox
from dormouse.errors import DormouseError, InvalidRequestError
from dormouse.jobs.retrying import MAX_RECEIVES, permanent_failure

SECONDS_AFTER_FIRST_FAILURE = 30
_Decoded = TypeVar("_Decoded")


class Deliveries:
    """The messages of one queue, given to its function."""

    def __init__(self, outbox: SqsOutbox, queue: str) -> None:
        """Take messages of `queue`, and send those that are hopeless to its dead letters."""
        self._outbox, self._queue = outbox, queue

    def each(
        self, event: dict[str, Any], context: LambdaContext, one: Callable[[SQSRecord], None]
    ) -> PartialItemFailureResponse:
        """Call `one` for each message of a batch; give the ids of those that must come again."""

        def handler(record: SQSRecord) -> None:  # Powertools looks for this parameter by its name
            try:
                one(record)
            except Exception as error:
                logger.exception("failed", message_id=record.message_id)
                if self.gave_up(record, error):
                    return
                if _receives(record) == 1:
                    self._hurry(record)
                raise

        processor = BatchProcessor(EventType.SQS, raise_on_entire_batch_failure=False)
        return process_partial_response(
            event=event, record_handler=handler, processor=processor, context=context
        )

    def decoded(self, record: SQSRecord, decoder: Callable[[str], _Decoded]) -> _Decoded | None:
        """Return what a message says; None once it is among the dead letters, for it says nothing.

        Raises:
            UnavailableError: it says nothing, and may not be among the dead letters.
        """
        try:
            return decoder(record.body)
        except InvalidRequestError as error:
            self.move_to_dead_letters(record, str(error))
            return None

    def gave_up(self, record: SQSRecord, error: Exception) -> bool:
        """Return whether a message that failed is among the dead letters; else it must come again.

        It is if it came for the last time and failed for good. Where it cannot be put there, SQS
        moves it.
        """
        reason = permanent_failure(error)
        if not reason or _receives(record) < MAX_RECEIVES:
            return False
        try:
            self.move_to_dead_letters(record, reason)
        except DormouseError as unsent:
            logger.warning(
                "given up without its reason",
                message_id=record.message_id,
                reason=unsent.explanation,
            )
            return False
        return True

    @staticmethod
    def is_last(record: SQSRecord) -> bool:
        """Return whether a message that fails now does not come again."""
        return _receives(record) >= MAX_RECEIVES

    def move_to_dead_letters(self, record: SQSRecord, reason: str) -> None:
        """Put a message among the dead letters of its queue, with the reason."""
        self._outbox.send_to_dead_letters(self._queue, record.body, reason)
        # not the reason, which the letter has: it may quote the message, and that may name rows
        logger.error("dead letter", queue=self._queue, message_id=record.message_id)

    def _hurry(self, record: SQSRecord) -> None:
        """Let a failed message come again soon; where that fails too, it comes again late."""
        try:
            self._outbox.return_in(self._queue, record.receipt_handle, SECONDS_AFTER_FIRST_FAILURE)
        except DormouseError as error:
            logger.warning("comes late", message_id=record.message_id, reason=error.explanation)


def _receives(record: SQSRecord) -> int:
    return int(record.attributes.approximate_receive_count)
