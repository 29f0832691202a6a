"""The queues of others that results are sent to: `result_queues.ResultQueues` on SQS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from dormouse.aws.base.failures import code_of
from dormouse.aws.sqs.queues import unavailable
from dormouse.ports.result_queues import gone, not_listed

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_GONE = (
    "AWS.SimpleQueueService.NonExistentQueue",
    "QueueDoesNotExist",
    "AccessDenied",
    "KMS.AccessDeniedException",
)
"""What SQS answers for a queue that is not there, or that this function may not send to."""
_FIFO = ".fifo"


class SqsResultQueues:
    """Queues of the stack's account and region, by their names; thread-safe, like its client."""

    def __init__(self, client: SQSClient, names: Sequence[str]) -> None:
        """Send to the queues of these names alone."""
        self._client, self._names = client, tuple(names)
        self._urls: dict[str, str] = {}

    def check(self, queue: str) -> None:
        """Check that a queue is of the list and there.

        Raises:
            InvalidRequestError: it is not of the list.
            NotFoundError: it is gone.
            UnavailableError: SQS does not answer.
        """
        self._urls.pop(queue, None)
        self._url(queue)

    def send(self, queue: str, group: str, bodies: Sequence[str]) -> None:
        """Send texts, in order; raises as `check`."""
        url = self._url(queue)
        for number, body in enumerate(bodies):
            ordered = (
                {"MessageGroupId": group, "MessageDeduplicationId": f"{group}-{number}"}
                if queue.endswith(_FIFO)
                else {}
            )
            try:
                self._client.send_message(QueueUrl=url, MessageBody=body, **ordered)  # type: ignore[arg-type]  # texts
            except (BotoCoreError, ClientError) as error:
                self._urls.pop(queue, None)
                raise self._failure(queue, error) from error

    def _url(self, queue: str) -> str:
        if queue not in self._names:
            raise not_listed(queue, self._names)
        if queue not in self._urls:
            try:
                self._urls[queue] = self._client.get_queue_url(QueueName=queue)["QueueUrl"]
            except (BotoCoreError, ClientError) as error:
                raise self._failure(queue, error) from error
        return self._urls[queue]

    def _failure(self, queue: str, error: BotoCoreError | ClientError) -> Exception:
        if isinstance(error, ClientError) and code_of(error) in _GONE:
            return gone(queue)
        return unavailable(queue, error)
