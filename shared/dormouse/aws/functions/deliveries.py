"""Deliveries of the messages of a queue to its function, their retries and dead letters.

A message that cannot be decoded moves to the dead-letter queue at once, with the reason. A message
whose stage fails is delivered again; the other messages of the batch are not affected.

The first failure is mostly a lost race or throttling, so the second delivery comes soon. The next
one comes after the visibility timeout, so that a service that is down has time to recover. After
the last failure, if no retry can help, the function itself moves the message to the dead-letter
queue: SQS would move it without the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from dormouse.errors import DormouseError, InvalidRequestError, InvariantError, is_panic
from dormouse.jobs.retry_policy import MAX_RECEIVES, permanent_failure

SECONDS_AFTER_FIRST_FAILURE = 30
_Decoded = TypeVar("_Decoded")


class Deliveries:
    """The deliveries of one queue."""

    def __init__(self, outbox: SqsOutbox, queue: str) -> None:
        """Handle messages of `queue`; those that can never succeed go to its dead-letter queue."""
        self._outbox, self._queue = outbox, queue

    def each(
        self, event: dict[str, Any], context: LambdaContext, one: Callable[[SQSRecord], None]
    ) -> PartialItemFailureResponse:
        """Call `one` for each message of a batch; return the ids of those to be delivered again."""

        def handler(record: SQSRecord) -> None:  # Powertools looks for this parameter by its name
            try:
                with _panics_as_errors():
                    one(record)
            except Exception as error:
                logger.exception("failed", message_id=record.message_id)
                if self.moved_to_dead_letters(record, error):
                    return
                if _receives(record) == 1:
                    self._retry_soon(record)
                raise

        processor = BatchProcessor(EventType.SQS, raise_on_entire_batch_failure=False)
        return process_partial_response(
            event=event, record_handler=handler, processor=processor, context=context
        )

    def decoded(self, record: SQSRecord, decoder: Callable[[str], _Decoded]) -> _Decoded | None:
        """Return the decoded message, or None after moving one that is malformed.

        Raises:
            UnavailableError: it is malformed, and may not have been moved.
        """
        try:
            return decoder(record.body)
        except InvalidRequestError as error:
            self.move_to_dead_letters(record, str(error))
            return None

    def moved_to_dead_letters(self, record: SQSRecord, error: Exception) -> bool:
        """Return whether a failed message was moved; if not, it must be delivered again.

        It is moved after its last delivery if no retry can help. If that fails, SQS moves it.
        """
        reason = permanent_failure(error)
        if not reason or _receives(record) < MAX_RECEIVES:
            return False
        try:
            self.move_to_dead_letters(record, reason)
        except DormouseError as unsent:
            logger.warning(
                "dead letter without its reason",
                message_id=record.message_id,
                reason=unsent.explanation,
            )
            return False
        return True

    @staticmethod
    def is_last(record: SQSRecord) -> bool:
        """Return whether a message that fails now is not delivered again."""
        return _receives(record) >= MAX_RECEIVES

    def move_to_dead_letters(self, record: SQSRecord, reason: str) -> None:
        """Move a message to the dead-letter queue, with the reason."""
        self._outbox.send_to_dead_letters(self._queue, record.body, reason)
        # The reason is not logged: it may quote the message, which may name rows.
        logger.error("dead letter", queue=self._queue, message_id=record.message_id)

    def _retry_soon(self, record: SQSRecord) -> None:
        """Have a failed message delivered again soon; if that fails, it comes after the timeout."""
        try:
            self._outbox.retry_in(self._queue, record.receipt_handle, SECONDS_AFTER_FIRST_FAILURE)
        except DormouseError as error:
            logger.warning("retry delayed", message_id=record.message_id, reason=error.explanation)


@contextmanager
def _panics_as_errors() -> Iterator[None]:
    """Let a panic of a library be an error of this message alone: as it is raised, it would end the
    function, and all messages of the batch would come again.
    """
    try:
        yield
    except BaseException as error:
        if is_panic(error):
            raise InvariantError(f"a library broke off: {type(error).__name__}") from error
        raise


def _receives(record: SQSRecord) -> int:
    return int(record.attributes.approximate_receive_count)
