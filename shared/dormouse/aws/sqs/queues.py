"""The queues on SQS: `ports.Outbox`, and what the client and the functions need of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from dormouse import system
from dormouse.aws.base.failures import Failure, kind_of_code
from dormouse.aws.base.failures import unavailable as unavailable_service
from dormouse.aws.sqs.batching import MAX_BATCH_BYTES, batched
from dormouse.errors import InvalidRequestError, NotFoundError, UnavailableError
from dormouse.messages.stages import OfTable, OutboundMessage, encode
from dormouse.ports.services import QueueCounts
from dormouse.retry_policy import RetryPolicy
from dormouse.stored.names import InstanceNames, dead_letter_queue

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import (
        BatchResultErrorEntryTypeDef,
        MessageAttributeValueTypeDef,
        SendMessageBatchRequestEntryTypeDef,
    )

MAX_DELAY_SECONDS = 900
SENDERS = 8
"""Concurrent requests of one call: 65,536 messages are 6,554 requests of some ten milliseconds."""
MAX_REASON_CHARACTERS = 1000
_NO_TEXT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_Entry = TypeVar("_Entry", bound=Mapping[str, object])
_Sent = tuple[OutboundMessage, str]
"""A message and its encoded body."""


class SqsQueues:
    """The URLs of an instance's queues, and how to retry entries of a batch."""

    def __init__(self, client: SQSClient, names: InstanceNames, retry_policy: RetryPolicy) -> None:
        """Look queues up by their `names`; `retry_policy` is for entries SQS could not take."""
        self._client, self._names, self._retry_policy = client, names, retry_policy
        self._urls: dict[str, str] = {}

    def url(self, queue: str) -> str:
        """Return the URL of a queue or a dead-letter queue.

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

    def retry_entries(
        self,
        queue: str,
        entries: list[_Entry],
        request: Callable[[str, list[_Entry]], Sequence[BatchResultErrorEntryTypeDef]],
    ) -> tuple[list[_Entry], str]:
        """Send a batch, retry the entries that failed; return those that still fail, and why.

        Raises:
            NotFoundError: there is no such queue.
            UnavailableError: SQS does not answer; some entries may have been accepted.
        """
        left, refusals = entries, ""
        for failures in range(1, self._retry_policy.attempts + 1):
            try:
                failed = {f["Id"]: f for f in request(self.url(queue), left)}
            except (BotoCoreError, ClientError) as error:
                raise unavailable(queue, error) from error
            left = [entry for entry in left if entry["Id"] in failed]
            refusals = ", ".join(
                sorted({f"{f['Code']} {f.get('Message', '')}".strip() for f in failed.values()})
            )
            if all(f["SenderFault"] and _is_for_good(f["Code"]) for f in failed.values()):
                break
            if failures < self._retry_policy.attempts:
                self._retry_policy.pause(failures)
        return left, refusals


class SqsOutbox:
    """The queues of one instance; thread-safe, like its client."""

    def __init__(
        self, client: SQSClient, names: InstanceNames, retry_policy: RetryPolicy | None = None
    ) -> None:
        """Use the queues that `names` gives; `retry_policy` is for entries SQS could not take."""
        self._client, self._names = client, names
        self._queues = SqsQueues(client, names, retry_policy or system.retry_policy())

    def send(self, messages: Iterable[OutboundMessage]) -> None:
        """Send all messages, in as few requests as possible, while the iterable is consumed.

        If the iterable raises, the messages before are sent all the same. A message about a table
        has the table's id as its message group: SQS then delivers groups fairly, so that a table's
        backlog does not delay other tables.

        Raises:
            UnavailableError: some messages are not sent, others may be; send all again.
            NotFoundError: there is no such queue.
            InvalidRequestError: a message is too large for a queue.
        """
        sending: set[Future[None]] = set()
        with ThreadPoolExecutor(SENDERS) as threads:
            for queue, batch in batched(_sized(messages)):
                if len(sending) == SENDERS:
                    done, sending = wait(sending, return_when=FIRST_COMPLETED)
                    _raise_first(done)
                sending.add(threads.submit(self._send_batch, queue, batch))
            _raise_first(sending)

    def depths(self, queues: Sequence[str]) -> dict[str, int]:
        """Return how many messages of each queue are waiting or in flight, without delayed ones.

        SQS counts approximately: the numbers are some seconds old.
        """
        counts = self.counts(queues)
        return {queue: found.waiting + found.in_flight for queue, found in counts.items()}

    def counts(self, queues: Sequence[str]) -> dict[str, QueueCounts]:
        """Return about how many messages of each queue are waiting, in flight and delayed."""
        return {queue: self._counts(queue) for queue in queues}

    def send_to_dead_letters(self, queue: str, body: str, reason: str) -> None:
        """Send a message of `queue` that can never succeed to its dead-letter queue.

        Raises:
            UnavailableError: it may not have been sent; send it again.
        """
        url = self._queues.url(dead_letter_queue(queue))
        try:
            self._client.send_message(
                QueueUrl=url,
                MessageBody=body,
                MessageAttributes=_reason(reason, body),
            )
        except (BotoCoreError, ClientError) as error:
            raise unavailable(dead_letter_queue(queue), error) from error

    def retry_in(self, queue: str, receipt_handle: str, seconds: int) -> None:
        """Make a message in flight visible again in `seconds`.

        Raises:
            UnavailableError: it is delivered again after its visibility timeout.
        """
        url = self._queues.url(queue)
        try:
            self._client.change_message_visibility(
                QueueUrl=url, ReceiptHandle=receipt_handle, VisibilityTimeout=seconds
            )
        except (BotoCoreError, ClientError) as error:
            raise unavailable(queue, error) from error

    def _send_batch(self, queue: str, batch: list[_Sent]) -> None:
        def request(
            url: str, entries: list[SendMessageBatchRequestEntryTypeDef]
        ) -> Sequence[BatchResultErrorEntryTypeDef]:
            answer = self._client.send_message_batch(QueueUrl=url, Entries=entries)
            return answer.get("Failed", [])

        sent = [_entry(number, each) for number, each in enumerate(batch)]
        left, refusals = self._queues.retry_entries(queue, sent, request)
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


def _is_for_good(code: str) -> bool:
    return kind_of_code(code, HTTPStatus.BAD_REQUEST) is Failure.PERMANENT


def _sized(messages: Iterable[OutboundMessage]) -> Iterator[tuple[str, _Sent, int]]:
    """Yield each message with its queue, its body and its most bytes."""
    for outgoing in messages:
        body = encode(outgoing.message)
        size_bytes = _checked_size(outgoing.queue, body) + _most_bytes(outgoing.reason)
        yield outgoing.queue, (outgoing, body), size_bytes


def _entry(number: int, sent: _Sent) -> SendMessageBatchRequestEntryTypeDef:
    """Return the entry of a message in a batch, which finds it by its number."""
    outgoing, body = sent
    entry: SendMessageBatchRequestEntryTypeDef = {
        "Id": str(number),
        "MessageBody": body,
        "DelaySeconds": min(outgoing.delay_seconds, MAX_DELAY_SECONDS),
    }
    if outgoing.reason:
        entry["MessageAttributes"] = _reason(outgoing.reason, body)
    if isinstance(outgoing.message, OfTable):
        entry["MessageGroupId"] = outgoing.message.table_id
    return entry


def _checked_size(queue: str, body: str) -> int:
    size_bytes = len(body.encode())
    if size_bytes > MAX_BATCH_BYTES:
        raise InvalidRequestError(
            f"a message of {size_bytes} bytes is too large for queue {queue!r}, "
            f"which takes {MAX_BATCH_BYTES}"
        )
    return size_bytes


def _raise_first(sent: Iterable[Future[None]]) -> None:
    for batch in sent:
        batch.result()


def _most_bytes(reason: str) -> int:
    return 4 * len(reason[:MAX_REASON_CHARACTERS])


def _reason(text: str, body: str) -> dict[str, MessageAttributeValueTypeDef]:
    """Return the attribute with the reason of a dead letter, cut to the bytes that are left.

    A reason can quote any text, and SQS refuses characters that XML does not allow.
    """
    room = MAX_BATCH_BYTES - len(body.encode()) - len("reason" + "String")
    value = _NO_TEXT.sub("\ufffd", text[:MAX_REASON_CHARACTERS] or "unknown")
    value = value.encode()[: max(0, room)].decode(errors="ignore")
    return {"reason": {"DataType": "String", "StringValue": value}} if value else {}


def unavailable(queue: str, error: BotoCoreError | ClientError) -> UnavailableError:
    """Return the error of a queue that does not answer, or refuses."""
    return unavailable_service(f"queue {queue!r} did not take the request", error)
