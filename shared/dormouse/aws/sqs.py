"""The queues: `ports.Outbox`, and what the client and the glue want of them beside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from dormouse.aws import system
from dormouse.errors import InvalidRequestError, NotFoundError, UnavailableError
from dormouse.messages import Outgoing, encode
from dormouse.model.names import InstanceNames, dead_letters
from dormouse.ports import QueueCounts
from dormouse.statestore.patience import Patience

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import (
        BatchResultErrorEntryTypeDef,
        SendMessageBatchRequestEntryTypeDef,
    )

MAX_BATCH_ENTRIES = 10
MAX_BATCH_BYTES = 1024 * 1024
MAX_DELAY_SECONDS = 900
MAX_REASON_CHARACTERS = 1000


_Entry = TypeVar("_Entry", bound=Mapping[str, object])


class SqsQueues:
    """The URLs of an instance's queues, and how to insist on each entry of a batch."""

    def __init__(self, client: SQSClient, names: InstanceNames, patience: Patience) -> None:
        """Look queues up by their `names`; `patience` is for entries SQS could not take."""
        self._client, self._names, self._patience = client, names, patience
        self._urls: dict[str, str] = {}

    def url(self, queue: str) -> str:
        """Give the URL of a queue, or of its dead letters.

        Raises:
            NotFoundError: there is no such queue.
            UnavailableError: SQS does not answer.
        """
        if queue not in self._urls:
            name = self._names.queue(queue)
            try:
                self._urls[queue] = self._client.get_queue_url(QueueName=name)["QueueUrl"]
            except self._client.exceptions.QueueDoesNotExist as error:
                raise NotFoundError(
                    f"there is no queue {name!r}",
                    hint=f"deploy the instance {self._names.instance!r}, or name another one",
                ) from error
            except (BotoCoreError, ClientError) as error:
                raise unavailable(queue, error) from error
        return self._urls[queue]

    def insist(
        self,
        queue: str,
        entries: list[_Entry],
        request: Callable[[str, list[_Entry]], Sequence[BatchResultErrorEntryTypeDef]],
    ) -> tuple[list[_Entry], str]:
        """Make a request of a batch, again for the entries that failed; give those and why.

        Raises:
            NotFoundError: there is no such queue.
            UnavailableError: SQS does not answer; some entries may have been taken.
        """
        left, refusals = entries, ""
        for failures in range(1, self._patience.attempts + 1):
            try:
                failed = {f["Id"]: f for f in request(self.url(queue), left)}
            except (BotoCoreError, ClientError) as error:
                raise unavailable(queue, error) from error
            left = [entry for entry in left if entry["Id"] in failed]
            if not left:
                break
            refusals = ", ".join(
                sorted({f"{f['Code']} {f.get('Message', '')}".strip() for f in failed.values()})
            )
            if failures < self._patience.attempts:
                self._patience.pause(failures)
        return left, refusals


class SqsOutbox:
    """The queues of one instance; safe for many threads, as the client is."""

    def __init__(
        self, client: SQSClient, names: InstanceNames, patience: Patience | None = None
    ) -> None:
        """Use the queues that `names` gives; `patience` is for entries SQS could not take."""
        self._client, self._names = client, names
        self._queues = SqsQueues(client, names, patience or system.patience())

    def send(self, messages: Iterable[Outgoing]) -> None:
        """Send all messages, in as few requests as they fit in.

        Raises:
            UnavailableError: some are not sent, others may be; send all again.
            NotFoundError: there is no such queue.
            InvalidRequestError: a message is larger than what a queue takes.
        """
        by_queue: dict[str, list[Outgoing]] = {}
        for outgoing in messages:
            by_queue.setdefault(outgoing.queue, []).append(outgoing)
        for queue, found in by_queue.items():
            for batch in _batches(queue, found):
                self._send_batch(queue, batch)

    def depths(self, queues: Sequence[str]) -> dict[str, int]:
        """Give the messages of each queue that wait or are being worked on, not the delayed.

        SQS counts them now and then: the numbers are those of some seconds ago.
        """
        counts = self.counts(queues)
        return {queue: found.waiting + found.in_flight for queue, found in counts.items()}

    def counts(self, queues: Sequence[str]) -> dict[str, QueueCounts]:
        """Give the messages of each queue by what becomes of them, as of some seconds ago."""
        return {queue: self._counts(queue) for queue in queues}

    def send_to_dead_letters(self, queue: str, body: str, reason: str) -> None:
        """Put a message of `queue` that can never succeed among its dead letters.

        Raises:
            UnavailableError: it may not be there; send it again.
        """
        url = self._queues.url(dead_letters(queue))
        attribute = reason[:MAX_REASON_CHARACTERS] or "unknown"
        try:
            self._client.send_message(
                QueueUrl=url,
                MessageBody=body,
                MessageAttributes={"reason": {"DataType": "String", "StringValue": attribute}},
            )
        except (BotoCoreError, ClientError) as error:
            raise unavailable(dead_letters(queue), error) from error

    def return_in(self, queue: str, receipt_handle: str, seconds: int) -> None:
        """Let a message that is being worked on come again in `seconds`.

        Raises:
            UnavailableError: it comes again when its visibility timeout is over.
        """
        url = self._queues.url(queue)
        try:
            self._client.change_message_visibility(
                QueueUrl=url, ReceiptHandle=receipt_handle, VisibilityTimeout=seconds
            )
        except (BotoCoreError, ClientError) as error:
            raise unavailable(queue, error) from error

    def _send_batch(self, queue: str, batch: list[SendMessageBatchRequestEntryTypeDef]) -> None:
        def request(
            url: str, entries: list[SendMessageBatchRequestEntryTypeDef]
        ) -> Sequence[BatchResultErrorEntryTypeDef]:
            answer = self._client.send_message_batch(QueueUrl=url, Entries=entries)
            return answer.get("Failed", [])

        left, refusals = self._queues.insist(queue, batch, request)
        if left:
            raise UnavailableError(
                f"queue {self._names.queue(queue)!r} did not take {len(left)} messages: {refusals}"
            )

    def _counts(self, queue: str) -> QueueCounts:
        url = self._queues.url(queue)
        try:
            answer = self._client.get_queue_attributes(
                QueueUrl=url,
                AttributeNames=[
                    "ApproximateNumberOfMessages",
                    "ApproximateNumberOfMessagesNotVisible",
                    "ApproximateNumberOfMessagesDelayed",
                ],
            )
        except (BotoCoreError, ClientError) as error:
            raise unavailable(queue, error) from error
        found = {name: int(count) for name, count in answer["Attributes"].items()}
        return QueueCounts(
            waiting=found["ApproximateNumberOfMessages"],
            in_flight=found["ApproximateNumberOfMessagesNotVisible"],
            delayed=found["ApproximateNumberOfMessagesDelayed"],
        )


def _batches(
    queue: str, messages: Sequence[Outgoing]
) -> Iterator[list[SendMessageBatchRequestEntryTypeDef]]:
    """Give the messages of a queue as batches of a request each, in order."""
    batch: list[SendMessageBatchRequestEntryTypeDef] = []
    batch_bytes = 0
    for outgoing in messages:
        body = encode(outgoing.message)
        size_bytes = len(body.encode())
        if size_bytes > MAX_BATCH_BYTES:
            raise InvalidRequestError(
                f"a message of {size_bytes} bytes is too large for queue {queue!r}, "
                f"which takes {MAX_BATCH_BYTES}"
            )
        if len(batch) == MAX_BATCH_ENTRIES or batch_bytes + size_bytes > MAX_BATCH_BYTES:
            yield batch
            batch, batch_bytes = [], 0
        delay_seconds = min(outgoing.delay_seconds, MAX_DELAY_SECONDS)
        batch.append({"Id": str(len(batch)), "MessageBody": body, "DelaySeconds": delay_seconds})
        batch_bytes += size_bytes
    if batch:
        yield batch


def unavailable(queue: str, error: Exception) -> UnavailableError:
    """Say that a queue does not answer."""
    return UnavailableError(f"queue {queue!r} did not answer: {error}")
